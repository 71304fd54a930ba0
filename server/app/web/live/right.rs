//! How long an operator may watch: until they sign out, or until what let them in counts no more.
//!
//! May not live here: who is let in at first (`access`, `identity`).

use std::time::Duration;

use axum::http::{HeaderMap, Uri};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::web::desk::Desk;
use crate::web::identity::still_operates;

/// How often it is looked without any news: cookies and tokens also end by themselves.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// What somebody who watches was let in with.
pub(super) struct Right {
    desk: Desk,
    uri: Uri,
    headers: HeaderMap,
    news: watch::Receiver<()>,
}

impl Right {
    /// Of a request that was let in just now.
    pub(super) fn of(desk: &Desk, uri: Uri, headers: HeaderMap) -> Self {
        Self {
            desk: desk.clone(),
            uri,
            headers,
            news: desk.feed().rights.subscribe(),
        }
    }

    /// Resolves when it is over, or cannot be looked up any more.
    pub(super) async fn ends(mut self) {
        loop {
            if matches!(timeout(LOOK_EVERY, self.news.changed()).await, Ok(Err(_))) {
                return;
            }
            if !matches!(
                still_operates(&self.desk, &self.uri, &self.headers).await,
                Ok(true)
            ) {
                return;
            }
        }
    }
}
