//! Certificates that come, change, break, and come back.

use std::path::Path;

use wire::api::system::Tls;

use super::*;

fn own(folder: &Path, names: &[&str]) -> Origin {
    Origin::SelfSigned {
        folder: folder.to_owned(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn fingerprint(certificates: &Certificates) -> String {
    match certificates.state() {
        Tls::SelfSigned { fingerprint, .. } | Tls::Files { fingerprint, .. } => fingerprint,
        Tls::Off => panic!("it is on"),
    }
}

/// A certificate in a folder of its own, as text that holds both halves.
fn made() -> String {
    let folder = tempfile::tempdir().unwrap();
    Certificates::open(own(folder.path(), &["localhost"])).unwrap();
    std::fs::read_to_string(folder.path().join("self-signed.pem")).unwrap()
}

#[test]
fn a_certificate_of_its_own_is_made_once_and_anew_for_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("tls");
    let first = Certificates::open(own(&folder, &["localhost"])).unwrap();
    let again = Certificates::open(own(&folder, &["localhost"])).unwrap();
    assert_eq!(fingerprint(&first), fingerprint(&again));
    let renamed = Certificates::open(own(&folder, &["localhost", "box.example"])).unwrap();
    assert_ne!(fingerprint(&first), fingerprint(&renamed));
    // Who asks for less keeps what is there, with all its names.
    first.look_again();
    assert_eq!(fingerprint(&first), fingerprint(&renamed));
    let shown = fingerprint(&renamed);
    assert_eq!(shown.len(), 32 * 3 - 1, "{shown}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let file = std::fs::metadata(folder.join("self-signed.pem")).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }
    let Tls::SelfSigned { expires_at_ms, .. } = renamed.state() else {
        panic!("{:?}", renamed.state());
    };
    let days = (expires_at_ms - jiff::Timestamp::now().as_millisecond()) / 86_400_000;
    assert!((395..=397).contains(&days), "{days}");
}

#[test]
fn a_name_that_is_none_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let error = Certificates::open(own(folder.path(), &["évil"])).unwrap_err();
    assert!(error.to_string().contains("évil"), "{error}");
}

#[test]
fn new_files_are_taken_up_and_broken_ones_leave_the_old_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    let write = |certificate_text: &str, key_text: &str| {
        std::fs::write(&certificate, certificate_text).unwrap();
        std::fs::write(&key, key_text).unwrap();
    };
    let (first, second) = (made(), made());
    write(&first, &first);
    let certificates = Certificates::open(Origin::Files {
        certificate: certificate.clone(),
        key: key.clone(),
    })
    .unwrap();
    let shown = fingerprint(&certificates);
    let problem = || match certificates.state() {
        Tls::Files { problem, .. } => problem,
        other => panic!("{other:?}"),
    };
    let broken = [
        ("not PEM", first.as_str(), "it holds no certificate"),
        (first.as_str(), "not PEM", "no private key"),
        (
            second.as_str(),
            first.as_str(),
            "cannot be used with the certificate",
        ),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            first.as_str(),
            "cannot be read",
        ),
    ];
    for (certificate_text, key_text, words) in broken {
        write(certificate_text, key_text);
        certificates.look_again();
        assert_eq!(fingerprint(&certificates), shown);
        let problem = problem().unwrap();
        assert!(problem.contains(words), "{problem}");
    }
    std::fs::remove_file(&key).unwrap();
    certificates.look_again();
    assert!(problem().unwrap().contains("key.pem"));
    write(&second, &second);
    certificates.look_again();
    assert_eq!(problem(), None);
    assert_ne!(fingerprint(&certificates), shown);
    // A certificate that comes back as it was is no problem either.
    std::fs::remove_file(&key).unwrap();
    certificates.look_again();
    write(&second, &second);
    certificates.look_again();
    assert_eq!(problem(), None);
}
