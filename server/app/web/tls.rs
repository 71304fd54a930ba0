//! TLS: which certificate is shown, and keeping it fresh while the server runs.
//!
//! Lives here: [`Certificates`], what it is made from, when it is read again.
//! May not live here: connections (`connections`), reading of certificates (`tls/pem.rs`), making them (`tls/own.rs`).
//!
//! There is no `Strict-Transport-Security`: it would hold for every port of the host's name, and this server is rarely the
//! only one there.

mod own;
mod pem;
mod plain;

pub(super) use plain::router as plain_router;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use tokio_rustls::rustls::sign::CertifiedKey;
use wire::api::system;

use self::own::OwnError;
use self::pem::{Pair, PemError};

pub use self::own::{names_of_this_machine, own_address};

/// How often the files are looked at. They are small, so they are read, not asked for their times.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Where the certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Made by the server itself and kept in `folder`, for `names` (host names and addresses).
    SelfSigned {
        /// Is made when it is not there.
        folder: PathBuf,
        /// What browsers may call this server.
        names: Vec<String>,
    },
    /// Somebody else renews these files.
    Files {
        /// The certificate, followed by those between it and its root; PEM.
        certificate: PathBuf,
        /// Its private key; PEM.
        key: PathBuf,
    },
}

/// Why there is no certificate to show.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("{file}: {source}")]
    Io {
        /// Its path.
        file: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// What a file holds is of no use.
    #[error("{file}: {source}")]
    Pem {
        /// Its path.
        file: String,
        /// What is wrong.
        source: PemError,
    },
    /// No certificate could be made.
    #[error(transparent)]
    Own(#[from] OwnError),
    /// The library refuses its own settings.
    #[error("TLS cannot be set up: {0}")]
    Library(tokio_rustls::rustls::Error),
}

/// The certificate that is shown now. Shared by the port, the task that keeps it fresh, and the System page.
#[derive(Debug)]
pub struct Certificates {
    origin: Origin,
    // Locked by handshakes for one clone, and by whoever looks at the files while they are compared.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    shown: Pair,
    /// SHA-256 of what the files held when they could last be read: it is judged once.
    seen: [u8; 32],
    /// What is wrong with that.
    judgement: Option<String>,
    /// What is wrong now.
    problem: Option<String>,
}

impl Certificates {
    /// Reads the files, or makes what is missing of the server's own; blocks for some milliseconds.
    ///
    /// # Errors
    /// [`TlsError`] names the file and what is wrong with it.
    pub fn open(origin: Origin) -> Result<Arc<Self>, TlsError> {
        let (seen, shown) = read(&origin)?;
        Ok(Arc::new(Self {
            origin,
            state: Mutex::new(State {
                shown: shown?,
                seen,
                judgement: None,
                problem: None,
            }),
        }))
    }

    /// Looks at the files again. A new certificate is shown from the next handshake on; where it is of no use, the one
    /// before stays and [`Certificates::state`] says why.
    pub fn look_again(&self) {
        let found = read(&self.origin);
        let mut state = self.lock();
        let problem = match found {
            Ok((seen, _)) if seen == state.seen => state.judgement.clone(),
            Ok((seen, judged)) => {
                state.seen = seen;
                state.judgement = match judged {
                    Ok(pair) => {
                        tracing::info!(fingerprint = %pair.fingerprint, "a new certificate is shown from now on");
                        state.shown = pair;
                        None
                    }
                    Err(error) => Some(error.to_string()),
                };
                state.judgement.clone()
            }
            Err(error) => Some(error.to_string()),
        };
        if problem != state.problem {
            if let Some(problem) = &problem {
                tracing::warn!(%problem, "the new certificate cannot be used; the one before stays");
            }
            state.problem = problem;
        }
    }

    /// Looks again every few seconds, until nobody else holds it.
    pub fn keep_fresh(self: &Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        let certificates = Arc::downgrade(self);
        async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let Some(certificates) = Weak::upgrade(&certificates) else {
                    return;
                };
                // A disk may take its time.
                let _ = tokio::task::spawn_blocking(move || certificates.look_again()).await;
            }
        }
    }

    /// What the System page shows.
    pub fn state(&self) -> system::Tls {
        let state = self.lock();
        let fingerprint = state.shown.fingerprint.clone();
        let expires_at_ms = state.shown.expires_at_ms;
        match self.origin {
            Origin::SelfSigned { .. } => system::Tls::SelfSigned {
                fingerprint,
                expires_at_ms,
            },
            Origin::Files { .. } => system::Tls::Files {
                fingerprint,
                expires_at_ms,
                problem: state.problem.clone().or_else(|| state.shown.ended()),
            },
        }
    }

    /// For the port: TLS 1.2 and 1.3, HTTP/1.1.
    ///
    /// # Errors
    /// [`TlsError::Library`]; none in practice.
    pub fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, TlsError> {
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Library)?
            .with_no_client_auth();
        let mut config = config.with_cert_resolver(Arc::new(Shown(Arc::clone(self))));
        // Over HTTP/2 there would be no WebSockets.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is whole before the lock goes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands the present certificate to every handshake.
#[derive(Debug)]
struct Shown(Arc<Certificates>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.lock().shown.key))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What the files hold, as a digest, and what it is good for.
fn read(origin: &Origin) -> Result<([u8; 32], Result<Pair, TlsError>), TlsError> {
    let (certificate, key) = match origin {
        Origin::SelfSigned { folder, names } => {
            let file = own::file(folder, names)?;
            (file.clone(), file)
        }
        Origin::Files { certificate, key } => (certificate.clone(), key.clone()),
    };
    let bytes = |file: &PathBuf| {
        std::fs::read(file).map_err(|source| TlsError::Io {
            file: file.display().to_string(),
            source,
        })
    };
    let (certificates, secret) = (bytes(&certificate)?, bytes(&key)?);
    let pair = Pair::read(&certificates, &secret, &provider()).map_err(|source| TlsError::Pem {
        file: match source.is_about_the_key() {
            true => key.display().to_string(),
            false => certificate.display().to_string(),
        },
        source,
    });
    let seen = Sha256::digest([certificates, secret].concat());
    Ok((seen.into(), pair))
}

#[cfg(test)]
mod tests;
