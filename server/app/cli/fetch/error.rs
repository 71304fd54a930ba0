//! What can go wrong on the way from the hub, and the one line for each.

use std::path::PathBuf;

use super::super::disk::bytes_text;
use super::super::model_files::Problem;

/// Why a model was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The licence has not been accepted, or nobody said who is asking.
    #[error(
        "{name} is gated and no token was given: accept its licence at {page}, make a token at {endpoint}/settings/tokens, \
         and pass it as HF_TOKEN or in a file named by HF_TOKEN_PATH"
    )]
    GatedNoToken {
        /// The model.
        name: String,
        /// Where its licence is.
        page: String,
        /// The hub.
        endpoint: String,
    },
    /// The token is good, its owner has not accepted the licence (or was not let in yet).
    #[error(
        "{name} is gated and the owner of the token from {token_source} is not let in: accept its licence at {page} with \
         that account (and let the token read gated models), then try again"
    )]
    GatedNotAccepted {
        /// The model.
        name: String,
        /// Where its licence is.
        page: String,
        /// Where the token was found.
        token_source: String,
    },
    /// The hub does not know the token.
    #[error(
        "the hub does not take the token from {token_source}: make a new one at {endpoint}/settings/tokens and pass it as \
         HF_TOKEN or in a file named by HF_TOKEN_PATH; the licence of {name} is at {page}"
    )]
    WrongToken {
        /// The model.
        name: String,
        /// Where its licence is.
        page: String,
        /// Where the token was found.
        token_source: String,
        /// The hub.
        endpoint: String,
    },
    /// There is no such model, or it is private.
    #[error(
        "the hub knows no {what} ({endpoint}); a private one needs a token with access, as HF_TOKEN"
    )]
    NotFound {
        /// Model, revision or file.
        what: String,
        /// The hub.
        endpoint: String,
    },
    /// Any other answer that is not what was asked for.
    #[error("{url}: the hub answered {status}{message}")]
    Status {
        /// What was asked.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The hub's own words, after a colon; may be empty.
        message: String,
    },
    /// No connection, or one that broke too often.
    #[error("{url}: {what}; {}", what_now(*kept_bytes))]
    Connection {
        /// What was asked.
        url: String,
        /// One line.
        what: String,
        /// What is here already.
        kept_bytes: u64,
    },
    /// An answer that cannot be understood.
    #[error("{url}: the hub's answer cannot be read: {what}")]
    Answer {
        /// What was asked.
        url: String,
        /// One line.
        what: String,
    },
    /// The hub's folder is not a model of this kind.
    #[error("{name} on the hub has no {what}: it is not a model of this kind")]
    NotAModel {
        /// The model.
        name: String,
        /// What is missing.
        what: &'static str,
    },
    /// What arrived is not what the hub says it sent.
    #[error(
        "checksum mismatch: {file} has sha256 {found}, the hub says {expected}; the file was discarded, try again"
    )]
    Checksum {
        /// The file.
        file: String,
        /// Of what is here.
        found: String,
        /// Of what should be.
        expected: String,
    },
    /// Not enough space, found before the start or on the way.
    #[error(
        "the disk of {} is full: {} more are needed, {} are free; make room, the same command then goes on from \
         where it stopped", dir.display(), bytes_text(*needed_bytes), bytes_text(*free_bytes)
    )]
    DiskFull {
        /// Where.
        dir: PathBuf,
        /// Bytes still to write.
        needed_bytes: u64,
        /// Bytes free now.
        free_bytes: u64,
    },
    /// A file of ours cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Another process fetches the same model.
    #[error("another vivavoce is fetching into {}; wait for it, or end it", dir.display())]
    Busy {
        /// Where.
        dir: PathBuf,
    },
    /// Nothing may be downloaded, and what is here is not enough.
    #[error(
        "offline (HF_HUB_OFFLINE, VIVAVOCE_OFFLINE or --offline): {problem}, and the hub's cache has not all of {name}; \
         copy the folder there, or fetch once with a network"
    )]
    Offline {
        /// The model.
        name: String,
        /// The first thing that is missing.
        problem: String,
    },
    /// Everything was fetched, and it still cannot be served from.
    #[error("{0}")]
    Incomplete(Problem),
    /// Ctrl-C.
    #[error("stopped; what has arrived is kept, the same command goes on from there")]
    Interrupted,
}

impl FetchError {
    /// The same, with the number of bytes that are here already where that helps.
    pub fn keeping(self, kept_bytes: u64) -> Self {
        match self {
            Self::Connection { url, what, .. } => Self::Connection {
                url,
                what,
                kept_bytes,
            },
            other => other,
        }
    }
}

fn what_now(kept_bytes: u64) -> String {
    match kept_bytes {
        0 => "is there a network? HF_ENDPOINT names a mirror".to_owned(),
        kept => format!(
            "{} are kept, the same command goes on from there",
            bytes_text(kept)
        ),
    }
}
