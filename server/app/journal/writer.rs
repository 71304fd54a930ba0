//! The one writer of the log: takes what sessions tell, commits it together, at least once a second while there is
//! something.
//!
//! When the database fails, calls go on: what could not be written waits here, up to a bound, and is tried again every
//! second. A row that the database will never take is left out, so that it does not hold up all others.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

use super::Entry;
use crate::store::{Store, StoreError};

/// The longest that something waits for company before it is committed.
const COMMIT_WITHIN: Duration = Duration::from_secs(1);
/// Entries of one commit.
const TOGETHER_MAX: usize = 1_024;
/// Entries that wait while the database fails.
const WAITING_MAX: usize = 4_096;

pub(super) struct Writer {
    store: Store,
    rx: mpsc::Receiver<Entry>,
    changes: watch::Sender<u64>,
    waiting: VecDeque<Entry>,
    /// The database failed, which was said.
    failing: bool,
    /// Entries given up since then.
    lost: usize,
}

impl Writer {
    pub(super) fn new(
        store: Store,
        rx: mpsc::Receiver<Entry>,
        changes: watch::Sender<u64>,
    ) -> Self {
        Self {
            store,
            rx,
            changes,
            waiting: VecDeque::new(),
            failing: false,
            lost: 0,
        }
    }

    /// Runs until the last pen is gone.
    pub(super) async fn run(mut self) {
        loop {
            let open = self.gather().await;
            self.write().await;
            if !open {
                return;
            }
        }
    }

    /// Waits for something, then for company. False when nothing will come any more.
    async fn gather(&mut self) -> bool {
        if self.waiting.is_empty() {
            match self.rx.recv().await {
                Some(entry) => self.waiting.push_back(entry),
                None => return false,
            }
        }
        let until = Instant::now() + COMMIT_WITHIN;
        while self.failing || self.waiting.len() < TOGETHER_MAX {
            if matches!(self.waiting.back(), Some(Entry::Flush(_))) {
                return true;
            }
            match timeout_at(until, self.rx.recv()).await {
                Ok(Some(entry)) => self.waiting.push_back(entry),
                Ok(None) => return false,
                Err(_) => return true,
            }
            self.make_room();
        }
        true
    }

    /// Drops progress, oldest first; what began and ended is kept longest.
    fn make_room(&mut self) {
        if self.waiting.len() <= WAITING_MAX {
            return;
        }
        let oldest = self
            .waiting
            .iter()
            .position(|entry| matches!(entry, Entry::Progress(_)));
        self.waiting.remove(oldest.unwrap_or(0));
        self.lost += 1;
    }

    async fn write(&mut self) {
        match self.commit().await {
            Ok(()) => {
                if std::mem::take(&mut self.failing) {
                    let lost = std::mem::take(&mut self.lost);
                    tracing::info!(lost, "the log of sessions is written again");
                }
                let moves = |entry: &Entry| matches!(entry, Entry::Began(_) | Entry::Ended(_));
                if self.waiting.iter().any(moves) {
                    self.changes.send_modify(|changes| *changes += 1);
                }
                self.waiting.clear_and_answer();
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::error!(%error, "the log of sessions cannot be written; calls go on, it is tried again every second");
                }
                // Whoever waits for a flush is not kept waiting for a disk.
                self.waiting.answer_flushes();
            }
        }
    }

    async fn commit(&mut self) -> Result<(), StoreError> {
        let mut commit = self.store.log_commit().await?;
        for entry in &self.waiting {
            let written = match entry {
                Entry::Began(row) => commit.began(row).await,
                Entry::Event(row) => commit.event(row).await,
                Entry::Progress(row) => commit.progress(row).await,
                Entry::Ended(row) => commit.ended(row).await,
                Entry::Flush(_) => Ok(()),
            };
            match written {
                Err(error) if error.is_about_one_row() => {
                    tracing::warn!(%error, "something of a session is not in the log");
                }
                written => written?,
            }
        }
        commit.done().await
    }
}

/// Answering those who wait for a flush.
trait Answer {
    fn answer_flushes(&mut self);
    fn clear_and_answer(&mut self);
}

impl Answer for VecDeque<Entry> {
    fn answer_flushes(&mut self) {
        let all = std::mem::take(self);
        for entry in all {
            match entry {
                Entry::Flush(done) => drop(done.send(())),
                entry => self.push_back(entry),
            }
        }
    }

    fn clear_and_answer(&mut self) {
        self.answer_flushes();
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use wire::notice::EndReason;

    use crate::journal::{CallFacts, Journal};
    use crate::store::Store;

    fn facts(persona: &str) -> CallFacts {
        CallFacts {
            persona: persona.to_owned(),
            // Fits into no space that is left over.
            role_text: "word ".repeat(3_000),
            ..CallFacts::default()
        }
    }

    #[tokio::test]
    async fn on_a_full_disk_calls_go_on_and_the_log_catches_up() {
        let store = Store::in_memory().await.unwrap();
        let journal = Journal::start(store.clone(), None).await.unwrap();
        store.set_full(true).await;
        let notes = journal.begin(facts("Ada"));
        let session = notes.session();
        // Nobody waits for the disk.
        journal.flush().await;
        assert!(store.session(session).await.is_err());
        notes.ended(EndReason::HungUp, None, "");
        journal.flush().await;
        assert!(
            journal.live().all().is_empty(),
            "the call is over all the same"
        );
        assert!(store.session(session).await.is_err());

        let mut changes = journal.changes();
        changes.mark_unchanged();
        store.set_full(false).await;
        changes.changed().await.unwrap();
        let kept = store.session(session).await.unwrap();
        assert_eq!(kept.end_reason.as_deref(), Some("hung_up"));
        let timeline = store.session_events(session).await.unwrap();
        let what: Vec<_> = timeline.iter().map(|event| event.what.as_str()).collect();
        assert_eq!(what, ["began", "ended"]);
    }

    #[tokio::test]
    async fn a_row_that_the_database_never_takes_holds_up_no_other() {
        let store = Store::in_memory().await.unwrap();
        let journal = Journal::start(store.clone(), None).await.unwrap();
        let nobody = CallFacts {
            persona_id: Some((99, 1)),
            ..facts("gone")
        };
        let (odd, good) = (journal.begin(nobody), journal.begin(facts("Ada")));
        let numbers = (odd.session(), good.session());
        drop((odd, good));
        journal.flush().await;
        assert!(store.session(numbers.0).await.is_err());
        let kept = store.session(numbers.1).await.unwrap();
        assert_eq!(kept.end_reason.as_deref(), Some("hung_up"));
    }
}
