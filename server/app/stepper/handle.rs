//! What the rest of the process holds of the stepping thread: asking for a seat, reading the board, draining.
//!
//! Lives here: [`StepperHandle`], [`JoinRequest`], [`Seat`], [`JoinError`], and the command queue's writing end.
//! May not live here: what the thread does with a request (`thread`), who gets a row (`slots::table`).

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;

use slots::units::SessionKey;

pub use super::board::Board;
pub use super::queues::{Mic, SeatCounters, SeatEvent, Speaker, SpeakerFrame};

use super::board::Phase;
use super::party::Party;
use super::queues::seat_pair;

/// Requests that may wait for the tick. Full: the tick has not looked for a while, and the caller is refused as busy.
pub const REQUESTS_MAX: usize = 256;

/// Who wants a row, and for what.
#[derive(Clone, Debug)]
pub struct JoinRequest<C> {
    /// The engine's call.
    pub call: C,
    /// The session; at most one connection of it holds a row or a waiting place.
    pub session: SessionKey,
    /// Grows with each reconnect of that session. A newer one takes over the row of an older one, never the reverse.
    pub generation: u32,
    /// Whether to wait when all rows are taken.
    pub may_wait: bool,
}

/// A row, or a place in the queue for one. Dropping both ends hangs up; the row is free within 2 ticks.
#[derive(Debug)]
pub struct Seat {
    /// From the caller.
    pub mic: Mic,
    /// To the caller, with all that happens to the seat.
    pub speaker: Speaker,
}

/// Why nobody was seated. Each is an ordinary answer for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// Every row is taken, and the caller does not wait or there is no waiting place left.
    #[error("all {slots} slots are taken and {waiting} callers are waiting")]
    Full {
        /// Number of rows.
        slots: usize,
        /// Callers who wait.
        waiting: usize,
    },
    /// The server is stopping and takes no new callers.
    #[error("the server is stopping and takes no new callers")]
    Draining,
    /// The measured tick is too slow to take one more caller.
    #[error(
        "the server is at its limit: p99 tick {p99_us} us, new callers are taken below 72000 us"
    )]
    AdmissionStopped {
        /// 99th percentile of the ticks of the last 60 s, in microseconds.
        p99_us: u64,
    },
    /// The engine is still being loaded.
    #[error("the model is still being loaded")]
    Loading,
    /// The engine failed or was stopped.
    #[error("the engine has stopped")]
    EngineStopped,
    /// A connection of the same session that is as new or newer holds a seat.
    #[error("this session has a newer connection (generation {newest}, this is {generation})")]
    Stale {
        /// Of this request.
        generation: u32,
        /// Of the one that holds the seat.
        newest: u32,
    },
    /// More requests at once than the tick takes up.
    #[error("too many callers ask at the same moment, try again")]
    Busy,
}

/// Asks the stepping thread for seats. Dropping the last clone stops the thread; running calls end as stopped.
pub struct StepperHandle<C> {
    door: Arc<Door<C>>,
}

impl<C> Clone for StepperHandle<C> {
    fn clone(&self) -> Self {
        Self {
            door: self.door.clone(),
        }
    }
}

impl<C> fmt::Debug for StepperHandle<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepperHandle")
            .field("phase", &self.door.board.phase())
            .finish_non_exhaustive()
    }
}

/// Flags that handles set and the tick reads.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    /// No new callers; running calls finish up to a limit.
    pub(super) drain: AtomicBool,
    /// End everything now.
    pub(super) stop: AtomicBool,
    /// Set by the thread at its end, before it looks at the requests for the last time.
    pub(super) closed: AtomicBool,
    /// The stepping thread, to be unparked. Empty where tests step by hand.
    pub(super) thread: OnceLock<Thread>,
}

impl Wishes {
    fn rouse(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

struct Door<C> {
    // Locked by session tasks for one push; the tick reads the other end of the queue and never takes this lock.
    requests: Mutex<rtrb::Producer<Box<Party<C>>>>,
    board: Arc<Board>,
    wishes: Arc<Wishes>,
}

impl<C> Drop for Door<C> {
    fn drop(&mut self) {
        self.wishes.stop.store(true, SeqCst);
        self.wishes.rouse();
    }
}

impl<C: Send + 'static> StepperHandle<C> {
    /// A handle and the reading end of its requests.
    pub(super) fn new(
        board: Arc<Board>,
        wishes: Arc<Wishes>,
    ) -> (Self, rtrb::Consumer<Box<Party<C>>>) {
        let (request_tx, request_rx) = rtrb::RingBuffer::new(REQUESTS_MAX);
        let door = Arc::new(Door {
            requests: Mutex::new(request_tx),
            board,
            wishes,
        });
        (Self { door }, request_rx)
    }

    /// Asks for a row. A seat comes back also for a waiting place; its events tell which.
    ///
    /// Answered within a tick. Safe to cancel: the request or the seat is given back.
    ///
    /// # Errors
    /// [`JoinError`], for the caller.
    pub async fn join(&self, request: JoinRequest<C>) -> Result<Seat, JoinError> {
        let mut seat = self.ask(request)?;
        seat.speaker.answer().await?;
        Ok(seat)
    }

    /// The first half of [`StepperHandle::join`]: puts the request into the queue.
    pub(super) fn ask(&self, request: JoinRequest<C>) -> Result<Seat, JoinError> {
        match self.door.board.phase() {
            Phase::Loading => return Err(JoinError::Loading),
            Phase::Stopped | Phase::Failed => return Err(JoinError::EngineStopped),
            Phase::Ready | Phase::Draining => {}
        }
        let (mic, speaker, ends) = seat_pair(self.door.board.clone());
        let party = Box::new(Party::new(request, ends));
        let pushed = self
            .door
            .requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(party);
        pushed.map_err(|_| JoinError::Busy)?;
        // The thread sets `closed` and then empties the queue for the last time. Whoever does not see it here pushed
        // before that and gets an answer; whoever sees it may have come too late for one.
        if self.door.wishes.closed.load(SeqCst) {
            return Err(JoinError::EngineStopped);
        }
        self.door.wishes.rouse();
        Ok(Seat { mic, speaker })
    }

    /// Numbers about the tick; atomics only.
    pub fn board(&self) -> &Arc<Board> {
        &self.door.board
    }

    /// Takes no new callers, ends those who wait, and lets running calls finish up to a limit. Then the thread ends.
    pub fn drain(&self) {
        self.door.wishes.drain.store(true, SeqCst);
        self.door.wishes.rouse();
    }

    /// Ends every call now, as [`CloseReason::ServerStopping`](slots::slot::CloseReason::ServerStopping); then the
    /// thread ends.
    pub fn stop(&self) {
        self.door.wishes.stop.store(true, SeqCst);
        self.door.wishes.rouse();
    }
}
