//! What `serve` needs before anybody may come in: the certificate, and the operator's first password.
//!
//! May not live here: who is let in (`web/access.rs`).

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use wire::api::system::Tls;

use super::doctor::safety::certificate_origin;
use super::note;
use crate::config::Config;
use crate::store::Store;
use crate::web;
use crate::web::tls::Certificates;

/// The certificate to show, if the port shall be encrypted.
pub(super) async fn certificates(
    config: &Arc<Config>,
) -> anyhow::Result<Option<Arc<Certificates>>> {
    let Some(origin) = certificate_origin(config) else {
        return Ok(None);
    };
    let opened = tokio::task::spawn_blocking(move || Certificates::open(origin)).await?;
    Ok(Some(
        opened.with_context(|| format!("--tls {}", config.tls))?,
    ))
}

/// What browsers and people need to know of the certificate.
pub(super) fn say_certificate(tls: &Tls) {
    match tls {
        Tls::SelfSigned { fingerprint, .. } => tracing::info!(
            fingerprint,
            "the certificate is self-signed: browsers warn once; compare its SHA-256 fingerprint there"
        ),
        Tls::Files { fingerprint, .. } => {
            tracing::info!(fingerprint, "the certificate is from files")
        }
        Tls::Off => {}
    }
}

/// Where a person opens the pages of a server that listens at `address`.
fn page_url(scheme: &str, address: SocketAddr) -> String {
    let port = address.port();
    match address.ip().is_unspecified() {
        // Any address of this machine; the one by which others most likely reach it.
        true => match web::tls::own_address() {
            Some(own) => format!("{scheme}://{}", SocketAddr::new(own, port)),
            None => format!("{scheme}://localhost:{port}"),
        },
        false => format!("{scheme}://{address}"),
    }
}

/// Prints a password that was made; not in the log, which pages show and collectors keep.
pub(super) fn say_password(password: &str, scheme: &str, address: SocketAddr) {
    let url = page_url(scheme, address);
    note(format_args!(
        "the operator's password is {password} (made now, shown this once): sign in at {url} and change it on the System \
         page"
    ));
}

/// Takes the password out of the environment or its file; makes one where other machines can come and none is set.
pub(super) async fn first_password(
    config: &Config,
    store: &Store,
) -> anyhow::Result<Option<String>> {
    if let Some(password) = &config.password {
        web::password_shall_be(store, password.expose().to_owned())
            .await
            .context("VIVAVOCE_PASSWORD")?;
        return Ok(None);
    }
    if let Some(file) = &config.password_file.0 {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let password = text.lines().next().unwrap_or_default().to_owned();
        web::password_shall_be(store, password)
            .await
            .with_context(|| format!("--password-file {}", file.display()))?;
        return Ok(None);
    }
    if config.is_local() || store.password_hash().await?.is_some() {
        return Ok(None);
    }
    let mut bytes = [0; 10];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("no randomness: {error}"))?;
    let password: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    web::set_password(store, password.clone()).await?;
    Ok(Some(password))
}
