//! The server's own certificate: made once, kept in the data folder, made anew before it ends or when the machine gets
//! another name.

use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use jiff::ToSpan;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

use super::TlsError;

/// Both halves are in it; only its owner may read it.
const FILE: &str = "self-signed.pem";
/// How long one lasts. Browsers of one vendor refuse those of more than 825 days, and those of public authorities may
/// last 398.
const DAYS: i32 = 397;
/// It is made anew when less is left.
const DAYS_LEFT_MIN: i32 = 30;
/// The first line of the file: what it is for, and until when. Readers of PEM skip it.
const HEAD: &str = "vivavoce, made by itself";

/// Why no certificate could be made.
#[derive(Debug, thiserror::Error)]
#[error("no certificate can be made for {names}: {source}")]
pub struct OwnError {
    names: String,
    source: rcgen::Error,
}

/// The file with a certificate for `names`; made when it is not there, ends soon, or lacks a name.
pub(super) fn file(folder: &Path, names: &[String]) -> Result<PathBuf, TlsError> {
    let file = folder.join(FILE);
    let today = jiff::Timestamp::now().to_zoned(TimeZone::UTC).date();
    let is_good = match fs::read_to_string(&file) {
        Ok(text) => text
            .lines()
            .next()
            .is_some_and(|head| is_good(head, names, today)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(source) => return Err(at(&file, source)),
    };
    if !is_good {
        let text = make(names, today)?;
        keep(folder, &file, &text).map_err(|source| at(&file, source))?;
    }
    Ok(file)
}

fn at(file: &Path, source: io::Error) -> TlsError {
    TlsError::Io {
        file: file.display().to_string(),
        source,
    }
}

fn head(names: &[String], end: Date) -> String {
    format!("{HEAD} until {end} for {}", names.join(" "))
}

fn is_good(line: &str, names: &[String], today: Date) -> bool {
    let parts = line
        .strip_prefix(HEAD)
        .and_then(|rest| rest.strip_prefix(" until ")?.split_once(" for "));
    let Some((end, held)) = parts else {
        return false;
    };
    let lasts = end
        .parse::<Date>()
        .is_ok_and(|end| end >= today.saturating_add(DAYS_LEFT_MIN.days()));
    lasts
        && names
            .iter()
            .all(|name| held.split(' ').any(|one| one == name))
}

fn make(names: &[String], today: Date) -> Result<String, OwnError> {
    let end = today.saturating_add(DAYS.days());
    let day = |date: Date| {
        date_time_ymd(
            date.year().into(),
            date.month().unsigned_abs(),
            date.day().unsigned_abs(),
        )
    };
    let made = || -> Result<String, rcgen::Error> {
        let mut wish = CertificateParams::new(names.to_vec())?;
        // Clocks may differ by a day.
        wish.not_before = day(today.saturating_sub(1.day()));
        wish.not_after = day(end);
        wish.distinguished_name = rcgen::DistinguishedName::new();
        wish.distinguished_name
            .push(DnType::CommonName, "vivavoce, self-signed");
        // It can vouch for nothing but itself, also where a person chooses to trust it.
        wish.is_ca = IsCa::ExplicitNoCa;
        wish.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        wish.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = wish.self_signed(&key)?;
        Ok(format!(
            "{}\n{}{}",
            head(names, end),
            certificate.pem(),
            key.serialize_pem()
        ))
    };
    made().map_err(|source| OwnError {
        names: names.join(", "),
        source,
    })
}

/// Writes the file whole or not at all, readable for its owner only.
fn keep(folder: &Path, file: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let fresh = file.with_extension("new");
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut writing = options.open(&fresh)?;
    writing.write_all(text.as_bytes())?;
    writing.sync_all()?;
    fs::rename(&fresh, file)
}

/// What browsers may call a server that listens at `listen`: this machine's names, its host name, its address.
pub fn names_of_this_machine(listen: IpAddr) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    let mut add = |name: String| {
        if !names.contains(&name) {
            names.push(name);
        }
    };
    if let Ok(name) = fs::read_to_string("/proc/sys/kernel/hostname") {
        let name = name.trim().to_ascii_lowercase();
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
        };
        if is_name(&name) {
            if !name.contains('.') {
                // What the machine is called by its neighbours without a name server.
                add(format!("{name}.local"));
            }
            add(name);
        }
    }
    match listen.is_unspecified() {
        true => own_address()
            .into_iter()
            .for_each(|own| add(own.to_string())),
        false => add(listen.to_canonical().to_string()),
    }
    names
}

/// The address by which this machine reaches others. A UDP socket that is connected sends nothing.
pub fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // An address for documentation: it belongs to nobody, and leads where most others do. Source: RFC 5737.
    socket
        .connect(SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9)))
        .ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_unspecified()).then_some(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_good_while_it_lasts_and_has_all_names() {
        let today = jiff::civil::date(2030, 1, 1);
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let both = names(&["localhost", "box"]);
        let line = |days: i32| head(&both, today.saturating_add(days.days()));
        let cases = [
            (line(DAYS), names(&["box"]), true),
            (line(DAYS_LEFT_MIN), both.clone(), true),
            (line(DAYS_LEFT_MIN - 1), both.clone(), false),
            (line(DAYS), names(&["box", "other"]), false),
            (line(DAYS), names(&["bo"]), false),
            (
                "-----BEGIN CERTIFICATE-----".to_owned(),
                both.clone(),
                false,
            ),
            (String::new(), both, false),
        ];
        for (line, names, expected) in cases {
            assert_eq!(is_good(&line, &names, today), expected, "{line} {names:?}");
        }
    }
}
