//! What is older than the policy allows is deleted: at the start, and every hour.

use std::path::Path;
use std::sync::Weak;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::{Journal, recording};
use crate::store::{DAY_MS, Store, StoreError, now_ms};

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// Looks for as long as there is a journal.
pub(super) async fn keep_sweeping(journal: Weak<Journal>) {
    let mut hours = interval(EVERY);
    hours.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        hours.tick().await;
        let Some(journal) = journal.upgrade() else {
            return;
        };
        match sweep(&journal.store, journal.recordings(), now_ms()).await {
            Ok(Swept {
                recordings: 0,
                sessions: 0,
            }) => {}
            Ok(Swept {
                recordings,
                sessions,
            }) => {
                tracing::info!(
                    recordings,
                    sessions,
                    "deleted for their age, as the policy says"
                );
                journal.changed();
            }
            Err(error) => {
                tracing::warn!(%error, "what is too old could not be deleted; tried again in an hour")
            }
        }
    }
}

/// What a sweep deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Swept {
    recordings: usize,
    sessions: usize,
}

/// Deletes what is too old at `at_ms`. A session that runs is never too old.
///
/// # Errors
/// The first thing that could not be deleted; what is left is tried the next time.
async fn sweep(store: &Store, folder: Option<&Path>, at_ms: i64) -> Result<Swept, StoreError> {
    let policy = store.policy().await?.draft;
    let before_ms = |days: u32| at_ms - i64::from(days) * DAY_MS;
    let mut swept = Swept::default();
    if let Some(folder) = folder {
        // In pages, each gone before the next is asked for.
        loop {
            let rows = store
                .recordings_before(before_ms(policy.recording_days))
                .await?;
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                recording::delete(store, folder, row).await?;
            }
            swept.recordings += rows.len();
        }
    }
    loop {
        let sessions = store
            .sessions_ended_before(before_ms(policy.session_days))
            .await?;
        if sessions.is_empty() {
            return Ok(swept);
        }
        for &session in &sessions {
            if let Some(row) = store.recording(session).await? {
                let Some(folder) = folder else {
                    // Its file lies where this process does not look.
                    continue;
                };
                recording::delete(store, folder, &row).await?;
                swept.recordings += 1;
            }
            store.delete_session(session).await?;
            swept.sessions += 1;
        }
        if folder.is_none() {
            return Ok(swept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{SessionEnd, SessionRow};

    /// A session of day `day`, with a recording.
    async fn session(store: &Store, folder: &Path, id: i64, day: i64, over: bool) -> String {
        let mut commit = store.log_commit().await.unwrap();
        let row = SessionRow {
            id,
            caller: "local".to_owned(),
            persona_id: None,
            persona: "own text".to_owned(),
            role_text: String::new(),
            voice: "NATF0".to_owned(),
            seed: 1,
            began_at_ms: day * DAY_MS,
        };
        commit.began(&row).await.unwrap();
        if over {
            let end = SessionEnd {
                session: id,
                at_ms: day * DAY_MS + 1,
                reason: "hung_up",
            };
            commit.ended(&end).await.unwrap();
        }
        commit.done().await.unwrap();
        let key = format!("{id:032}");
        store
            .insert_recording(id, &key, day * DAY_MS)
            .await
            .unwrap();
        std::fs::write(recording::path(folder, id, &key), b"RIFF").unwrap();
        key
    }

    #[tokio::test]
    async fn recordings_and_then_sessions_go_when_their_days_are_over() {
        let store = Store::in_memory().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut policy = store.policy().await.unwrap();
        (policy.draft.recording_days, policy.draft.session_days) = (10, 20);
        store.set_policy(&policy.draft, 1).await.unwrap();
        // Number 3 still runs.
        for (id, over) in [(1, true), (2, true), (3, false)] {
            session(&store, folder.path(), id, id * 100, over).await;
        }
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        let swept = |recordings, sessions| Swept {
            recordings,
            sessions,
        };
        let cases = [
            (105, swept(0, 0), 3),
            (111, swept(1, 0), 2),
            (125, swept(0, 1), 2),
            // Both days of number 2 are over at once.
            (250, swept(1, 1), 1),
            (9_000, swept(0, 0), 1),
        ];
        for (day, expected, left) in cases {
            let found = sweep(&store, Some(folder.path()), day * DAY_MS).await;
            assert_eq!(found.unwrap(), expected, "day {day}");
            assert_eq!(files(), left, "day {day}");
        }
        assert!(store.session(2).await.is_err());
        assert!(store.session(3).await.is_ok(), "it runs");
    }

    #[tokio::test]
    async fn a_file_that_was_deleted_by_hand_holds_nothing_up() {
        let store = Store::in_memory().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let key = session(&store, folder.path(), 1, 100, true).await;
        std::fs::remove_file(recording::path(folder.path(), 1, &key)).unwrap();
        let swept = sweep(&store, Some(folder.path()), 200 * DAY_MS).await;
        assert_eq!(swept.unwrap().recordings, 1);
        assert_eq!(store.recording(1).await.unwrap(), None);
    }
}
