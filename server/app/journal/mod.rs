//! The journal: what sessions tell about themselves while they run, on its way to the store and to open pages.
//!
//! Lives here: [`Journal`], [`Notes`] (one session's pen), [`LiveCalls`] (who talks now), the writer, recordings.
//! May not live here: SQL (`store`), sockets (`sessions`), HTTP. The tick knows nothing of it.
//!
//! | queue | bound | when it is full |
//! |---|---|---|
//! | entries on their way to the writer | 4,096 | progress stays with its session and is told later; the rest waits in a task |
//! | entries the writer could not commit | 4,096 | progress is dropped, oldest first, and said once |
//! | frames on their way to a recording | 125 (10 s) | the recording ends with a note; the call goes on |
//! | frames for somebody who listens in | 25 (2 s) | the oldest are skipped |

pub mod live;
mod notes;
pub mod recording;
mod retention;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

pub use live::{LiveCall, LiveCalls};
pub use notes::Notes;

use crate::store::{EventRow, ProgressRow, SessionEnd, SessionRow, Store, StoreError};
use writer::Writer;

/// Entries on their way to the writer: about 5 s of 64 sessions.
const ENTRIES_MAX: usize = 4_096;
/// How long files may take to close when the process ends.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Who calls, and whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallFacts {
    /// `operator`, `link LABEL`, `token NAME`, `local`.
    pub caller: String,
    /// Number and version of the persona; `None` for a caller's own text.
    pub persona_id: Option<(i64, i64)>,
    /// Its name.
    pub persona: String,
    /// As the model reads it.
    pub role_text: String,
    /// Name of the voice.
    pub voice: String,
    /// Of the call.
    pub seed: u64,
    /// Whether to record the audio.
    pub record: bool,
    /// Whether to keep what the agent says.
    pub keep_transcript: bool,
}

/// What goes to the writer.
#[derive(Debug)]
enum Entry {
    Began(SessionRow),
    Event(EventRow),
    Progress(ProgressRow),
    Ended(SessionEnd),
    /// Everything before this is committed, or was given up.
    Flush(oneshot::Sender<()>),
}

/// All sessions' pens, and who talks now.
pub struct Journal {
    tx: mpsc::Sender<Entry>,
    last_id: AtomicI64,
    live: LiveCalls,
    store: Store,
    recordings: Option<PathBuf>,
    /// Grows when a list of sessions is not as it was.
    changes: watch::Sender<u64>,
    /// Recordings whose files are not closed.
    open_recordings: watch::Sender<usize>,
}

/// Counts one open recording for as long as it lives.
struct OpenRecording(watch::Sender<usize>);

impl Drop for OpenRecording {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl Journal {
    /// Starts the writer. Sessions of an earlier process that were never closed are marked as cut off, and their
    /// recordings are closed. `recordings` is the folder for audio; without one nothing is recorded.
    ///
    /// # Errors
    /// [`StoreError`]: the log cannot be read.
    pub async fn start(store: Store, recordings: Option<PathBuf>) -> Result<Arc<Self>, StoreError> {
        let last_id = store.last_session().await?;
        let lost = store.close_lost_sessions().await?;
        if !lost.is_empty() {
            tracing::info!(
                sessions = lost.len(),
                "calls that the last run left open are marked as cut off"
            );
        }
        if let Some(folder) = &recordings {
            recording::close_lost(&store, folder).await?;
        }
        let (tx, rx) = mpsc::channel(ENTRIES_MAX);
        let changes = watch::Sender::new(0);
        tokio::spawn(Writer::new(store.clone(), rx, changes.clone()).run());
        let journal = Arc::new(Self {
            tx,
            last_id: AtomicI64::new(last_id),
            live: LiveCalls::default(),
            store,
            recordings,
            changes,
            open_recordings: watch::Sender::new(0),
        });
        tokio::spawn(retention::keep_sweeping(Arc::downgrade(&journal)));
        Ok(journal)
    }

    /// Who talks now.
    pub fn live(&self) -> &LiveCalls {
        &self.live
    }

    /// Grows when the log can be read with a session more, or one that is over or has lost something. Running ones that
    /// only go on change nothing.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Something in the log is not as it was.
    fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn opens_recording(&self) -> OpenRecording {
        self.open_recordings.send_modify(|open| *open += 1);
        OpenRecording(self.open_recordings.clone())
    }

    /// Where recordings lie.
    pub fn recordings(&self) -> Option<&Path> {
        self.recordings.as_deref()
    }

    /// A session begins.
    pub fn begin(self: &Arc<Self>, facts: CallFacts) -> Notes {
        let id = self.last_id.fetch_add(1, SeqCst) + 1;
        Notes::begin(self.clone(), id, facts)
    }

    /// The end of the process: returns when the recordings of calls that are over are closed, within a limit, and
    /// everything told before is committed, or was given up.
    pub async fn finish(&self) {
        let mut open = self.open_recordings.subscribe();
        if timeout(CLOSE_WITHIN, open.wait_for(|&open| open == 0))
            .await
            .is_err()
        {
            tracing::warn!("a recording is not closed; the next start will do it");
        }
        self.flush().await;
    }

    /// Returns when everything told before is committed, or was given up.
    pub async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        if self.tx.send(Entry::Flush(done)).await.is_ok() {
            let _ = is_done.await;
        }
    }

    /// Tells the writer what must not be lost. Never waits: when the queue is full, a task does.
    fn tell(&self, entry: Entry) {
        if let Err(mpsc::error::TrySendError::Full(entry)) = self.tx.try_send(entry) {
            let tx = self.tx.clone();
            tokio::spawn(async move {
                let _ = tx.send(entry).await;
            });
        }
    }

    /// Tells the writer what can be told later as well. It comes back when the queue is full.
    fn try_tell(&self, row: ProgressRow) -> Option<ProgressRow> {
        match self.tx.try_send(Entry::Progress(row)) {
            Err(mpsc::error::TrySendError::Full(Entry::Progress(row))) => Some(row),
            _ => None,
        }
    }
}
