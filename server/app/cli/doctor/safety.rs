//! Who is let in, and over what: password, certificate, microphone.
//!
//! Lives here: one function per check. May not live here: printing, the rules themselves (`web`).

use wire::api::system::Tls;

use super::checks::Check;
use crate::config::Config;
use crate::config::values::TlsChoice;
use crate::web;
use crate::web::tls::{Certificates, Origin, names_of_this_machine};

/// A certificate that ends sooner is worth a note; those that are renewed by programs are renewed before.
const DAYS_LEFT_MIN: i64 = 14;
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Every check of this kind.
pub fn all(config: &Config) -> Vec<Check> {
    vec![password(config), tls(config), microphone(config)]
}

/// Where the certificate for `--tls` comes from; `None` when it is off.
pub fn certificate_origin(config: &Config) -> Option<Origin> {
    match &config.tls {
        TlsChoice::Off => None,
        TlsChoice::SelfSigned => Some(Origin::SelfSigned {
            folder: config.data_dir.join("tls"),
            names: names_of_this_machine(config.listen.ip()),
        }),
        TlsChoice::Files(certificate, key) => Some(Origin::Files {
            certificate: certificate.clone(),
            key: key.clone(),
        }),
    }
}

fn password(config: &Config) -> Check {
    const NAME: &str = "password";
    if let Some(password) = &config.password {
        return given(NAME, "VIVAVOCE_PASSWORD", password.expose());
    }
    if let Some(file) = &config.password_file.0 {
        let place = format!("--password-file {}", file.display());
        return match std::fs::read_to_string(file) {
            Ok(text) => given(NAME, &place, text.lines().next().unwrap_or_default()),
            Err(error) => Check::fail(
                NAME,
                format!("{place}: {error}"),
                "give a file whose first line is the password, or set it with `vivavoce password`",
            ),
        };
    }
    match config.is_local() {
        true => Check::ok(
            NAME,
            "none is needed for this machine; once one is set, it counts here too",
        ),
        false => Check::note(
            NAME,
            "other machines can come: operators sign in",
            "with the one that was set before, or with one that the first start makes and prints",
        ),
    }
}

fn given(name: &'static str, place: &str, password: &str) -> Check {
    match web::check_password(password) {
        Ok(()) => Check::ok(name, format!("from {place}")),
        Err(error) => Check::fail(name, format!("{place}: {error}"), "choose another one"),
    }
}

fn tls(config: &Config) -> Check {
    const NAME: &str = "tls";
    let origin = match (certificate_origin(config), &config.tls) {
        (None, _) if config.is_local() => {
            return Check::ok(NAME, "off; this machine needs none to reach itself");
        }
        (None, _) => {
            return Check::note(
                NAME,
                "off: what callers say and the password cross the network unencrypted",
                "--tls self-signed, --tls CERT.pem,KEY.pem, or a proxy with https in front",
            );
        }
        (Some(Origin::SelfSigned { names, .. }), _) => {
            let names = names.join(", ");
            return Check::ok(
                NAME,
                format!("self-signed, for {names}; browsers warn once"),
            );
        }
        (Some(origin), _) => origin,
    };
    match Certificates::open(origin).map(|certificates| certificates.state()) {
        Ok(Tls::Files { expires_at_ms, .. }) => {
            let now = jiff::Timestamp::now().as_millisecond();
            let days = (expires_at_ms - now) / DAY_MS;
            let finding = match expires_at_ms < now {
                true => format!("{}: it has ended, and browsers refuse it", config.tls),
                false => format!("{}: good for {days} more days", config.tls),
            };
            match days < DAYS_LEFT_MIN {
                true => Check::note(
                    NAME,
                    finding,
                    "put a newer one in its place; the server takes it up by itself",
                ),
                false => Check::ok(NAME, finding),
            }
        }
        Ok(_) => Check::ok(NAME, config.tls.to_string()),
        Err(error) => Check::fail(
            NAME,
            error.to_string(),
            "give PEM files of a certificate with its chain and of its key, or --tls self-signed",
        ),
    }
}

/// Browsers give a microphone only to pages from https or from the machine itself.
fn microphone(config: &Config) -> Check {
    const NAME: &str = "microphone";
    let port = config.listen.port();
    let scheme = match config.tls {
        TlsChoice::Off => "http",
        TlsChoice::SelfSigned | TlsChoice::Files(..) => "https",
    };
    match (config.is_local(), &config.tls) {
        (false, TlsChoice::Off) => Check::note(
            NAME,
            "browsers on other machines refuse it to plain http, whatever the address",
            "--tls self-signed, --tls CERT.pem,KEY.pem, or a proxy with https (Caddy, nginx, Traefik) in front",
        ),
        (false, _) => Check::ok(NAME, "browsers give it to pages from https"),
        (true, _) if port == 0 => Check::ok(
            NAME,
            format!(
                "browsers on this machine give it to {scheme}://localhost, at the port that `serve` names"
            ),
        ),
        (true, _) => Check::note(
            NAME,
            format!("browsers on this machine give it to {scheme}://localhost:{port}"),
            format!(
                "from another machine, forward the port (ssh -L {port}:127.0.0.1:{port} THIS_HOST) and open \
                 {scheme}://localhost:{port} there, or set --listen and --tls"
            ),
        ),
    }
}
