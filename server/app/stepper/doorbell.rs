//! The doorbell: does for the tick what the tick must not do itself.
//!
//! Lives here: waking session tasks, freeing what a session leaves behind, logging. A thread of its own, since all of
//! these take locks (of the async runtime, the allocator, the log) that the tick must never wait for.
//! May not live here: decisions.

use std::sync::Arc;
use std::thread::{self, Thread};

use super::party::Party;
use super::queues::SeatLine;

/// Errands that may wait for the doorbell thread: several ticks' worth for a full house.
///
/// Full: a wake is tried again at the next tick; whatever else it is, the tick does it itself or leaves it.
pub(super) const ERRANDS_MAX: usize = 2_048;
/// Places that wakes leave for errands that are not tried again.
const RESERVED: usize = 512;

/// What the tick leaves at the door.
pub(super) enum Errand<C> {
    /// Something new is in the seat's queue or cell.
    Wake(Arc<SeatLine>),
    /// The session is over or was refused: wake its task and free the tick's side of it.
    Bury(Box<Party<C>>),
    /// To be logged.
    Note(Note),
}

/// What the tick has to say to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// A tick ended after the next one was due, and the one before it had not.
    Late {
        tick: u64,
        took_us: u64,
        rows: usize,
    },
    /// The schedule was given up.
    Resynchronised { tick: u64, late_us: u64 },
    /// Whether new callers are taken has changed.
    Admission { open: bool, p99_us: u64 },
}

/// The tick's end.
pub(super) struct Bell<C> {
    // Dropped in this order: the doorbell thread is roused when it can see that the queue is abandoned.
    errands: rtrb::Producer<Errand<C>>,
    rope: Rope,
    left: bool,
}

/// Rouses the doorbell thread, for the last time when dropped. Unparking a thread takes no lock.
#[derive(Default)]
struct Rope(Option<Thread>);

impl Rope {
    fn pull(&self) {
        if let Some(thread) = &self.0 {
            thread.unpark();
        }
    }
}

impl Drop for Rope {
    fn drop(&mut self) {
        self.pull();
    }
}

impl<C> Bell<C> {
    /// Leaves a wake. False: no room, to be tried again.
    pub(super) fn wake(&mut self, line: &Arc<SeatLine>) -> bool {
        if self.errands.slots() <= RESERVED {
            return false;
        }
        self.leave(Errand::Wake(line.clone()));
        true
    }

    /// Leaves a session that is over.
    pub(super) fn bury(&mut self, party: Box<Party<C>>) {
        self.leave(Errand::Bury(party));
    }

    /// Leaves a note for the log.
    pub(super) fn note(&mut self, note: Note) {
        self.leave(Errand::Note(note));
    }

    fn leave(&mut self, errand: Errand<C>) {
        // Without room the doorbell thread has been away for many ticks. Dropping a party here frees it all the same,
        // and the dropped end of its queue tells its task.
        let _ = self.errands.push(errand);
        self.left = true;
    }

    /// Rings, if anything was left.
    pub(super) fn ring(&mut self) {
        if std::mem::take(&mut self.left) {
            self.rope.pull();
        }
    }

    /// From now on `thread` is rung.
    pub(super) fn rings_at(&mut self, thread: Thread) {
        self.rope = Rope(Some(thread));
    }
}

/// The doorbell thread's end.
pub(super) struct Doorbell<C> {
    errands: rtrb::Consumer<Errand<C>>,
}

/// Both ends of a doorbell, without a thread: whoever holds the second runs it.
pub(super) fn doorbell<C>() -> (Bell<C>, Doorbell<C>) {
    let (errand_tx, errand_rx) = rtrb::RingBuffer::new(ERRANDS_MAX);
    let bell = Bell {
        errands: errand_tx,
        rope: Rope::default(),
        left: false,
    };
    (bell, Doorbell { errands: errand_rx })
}

impl<C> Doorbell<C> {
    /// Runs errands until the tick's end is gone.
    pub(super) fn run(mut self) {
        loop {
            // Asked before the queue is emptied, so that nothing left before the end is missed.
            let over = self.errands.is_abandoned();
            self.run_errands();
            if over {
                return;
            }
            thread::park();
        }
    }

    /// Runs the errands that are there.
    pub(super) fn run_errands(&mut self) {
        while let Ok(errand) = self.errands.pop() {
            match errand {
                Errand::Wake(line) => line.wake(),
                Errand::Bury(party) => {
                    let line = party.ends.line().clone();
                    drop(party);
                    line.wake();
                }
                Errand::Note(note) => log(note),
            }
        }
    }
}

fn log(note: Note) {
    match note {
        Note::Late {
            tick,
            took_us,
            rows,
        } => tracing::warn!(tick, took_us, rows, "a tick ended late"),
        Note::Resynchronised { tick, late_us } => {
            tracing::warn!(tick, late_us, "over 1 s behind: the schedule begins anew");
        }
        Note::Admission { open: true, p99_us } => {
            tracing::info!(p99_us, "in time again: new callers are taken");
        }
        Note::Admission {
            open: false,
            p99_us,
        } => {
            tracing::warn!(p99_us, "too slow: no new callers are taken");
        }
    }
}
