//! Who may go on with which call: resume tokens and the sessions behind them.
//!
//! Lives here: [`Registry`], [`Ticket`]. A token works once; each connection of a call gets a new one, so that an older
//! connection can never displace a newer one.
//! May not live here: for how long a seat is kept (`session`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::ws::WebSocket;
use tokio::sync::mpsc;

/// All tokens that work now.
#[derive(Clone, Debug, Default)]
pub(super) struct Registry {
    // Locked by session tasks and upgrade tasks for one look-up, never across an await.
    sessions: Arc<Mutex<HashMap<String, mpsc::Sender<WebSocket>>>>,
}

/// The present token of one session. Dropping it makes the token unknown.
#[derive(Debug)]
pub(super) struct Ticket {
    registry: Registry,
    token: String,
}

impl Registry {
    /// A new token for the session that listens at the other end of `door`.
    ///
    /// # Errors
    /// The system's source of randomness failed.
    pub(super) fn issue(&self, door: mpsc::Sender<WebSocket>) -> Result<Ticket, getrandom::Error> {
        let token = format!("{:032x}", random_u128()?);
        self.locked().insert(token.clone(), door);
        Ok(Ticket {
            registry: self.clone(),
            token,
        })
    }

    /// Uses `token` up: the way into its session, or `None` if it is unknown.
    pub(super) fn claim(&self, token: &str) -> Option<mpsc::Sender<WebSocket>> {
        self.locked().remove(token)
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<String, mpsc::Sender<WebSocket>>> {
        // No code between lock and unlock can panic half-way through a change.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    pub(super) fn token(&self) -> &str {
        &self.token
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.registry.locked().remove(&self.token);
    }
}

/// 128 bits nobody can guess.
///
/// # Errors
/// The system's source of randomness failed.
pub(crate) fn random_u128() -> Result<u128, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_works_once_and_not_after_its_session() {
        let registry = Registry::default();
        let (door, _inside) = mpsc::channel(1);
        let first = registry.issue(door.clone()).unwrap();
        let token = first.token().to_owned();
        assert_eq!(token.len(), 32);
        assert!(registry.claim(&token).is_some());
        assert!(registry.claim(&token).is_none());
        let second = registry.issue(door).unwrap();
        let token = second.token().to_owned();
        drop(second);
        assert!(registry.claim(&token).is_none());
        assert!(registry.locked().is_empty());
    }
}
