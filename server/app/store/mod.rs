//! What outlives the process: personas, voices, accounts and the log of sessions, in one SQLite file.
//!
//! Lives here: [`Store`], [`StoreError`], and in one file for each resource all of its SQL.
//! May not live here: HTTP, sessions, the tick. Nothing here is ever called from the stepping thread.
//!
//! Writers wait for each other inside SQLite, up to 5 s. The file belongs to one process at a time: `vivavoce.lock`
//! beside it is held for as long as the store is open.

mod accounts;
mod error;
mod open;
mod personas;
mod policy;
mod sessions;
mod shares;
mod voices;

pub use accounts::{KnownToken, TokenWish};
pub use error::StoreError;
pub use open::Store;
pub use personas::{PersonaQuestion, PersonaToCall, Preset};
pub use sessions::{
    EventRow, LostSession, ProgressRow, RecordingRow, SessionEnd, SessionQuestion, SessionRow,
};
pub use shares::KnownShare;
pub use voices::StoredVoice;

use sha2::{Digest, Sha256};

/// Unix milliseconds now.
pub fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Milliseconds of a day.
pub const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// What is kept of a secret that was handed out: nobody can get in with a copy of the file. A plain hash is enough,
/// since the secrets are 256 random bits and no words of people.
pub fn hash_of(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// One page of a list: at most `limit` items, and where the next page begins.
pub(crate) fn paged<T>(
    mut rows: Vec<T>,
    limit: u32,
    id: impl Fn(&T) -> i64,
) -> (Vec<T>, Option<String>) {
    // One more than wanted was asked for, to know whether there is more.
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next = rows
        .last()
        .filter(|_| more)
        .map(|last| id(last).to_string());
    (rows, next)
}

/// `text` as a part of a LIKE pattern with `\` as its escape.
pub(crate) fn contains_pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 2);
    pattern.push('%');
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

#[cfg(test)]
mod schema_tests;
