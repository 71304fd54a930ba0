//! What the two halves of one connection share, and how a connection can end.
//!
//! May not live here: bytes of any kind.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tokio::sync::mpsc;
use tokio::time::Instant;
use wire::notice::EndReason;

/// Words that may wait for the writing half.
const WORDS_MAX: usize = 8;

/// Flags between the reading and the writing half of one connection. Both run in one task.
#[derive(Debug)]
pub(super) struct Link {
    began: Instant,
    notices: bool,
    live: AtomicBool,
    last_life_ms: AtomicU64,
    /// When the oldest unanswered WebSocket ping went out, plus one; 0 for none.
    asked_ms: AtomicU64,
    words: mpsc::Sender<Word>,
}

/// What the reading half has the writing half say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// An error message (0x05) that does not end the call.
    Error(String),
    /// Where the caller's frame boundaries lie; only for callers with `ext=1`.
    Phase {
        /// How long frames wait for the tick, in microseconds.
        wait_us: u32,
    },
}

/// How a connection ended.
#[derive(Debug)]
pub(super) enum Over {
    /// The peer sent a close message.
    HungUp,
    /// The network broke; the peer may come back.
    Lost,
    /// This side ends the call. The text is for the caller.
    Ended(EndReason, String),
}

impl Link {
    /// A link at the start of a connection; `live` when it resumes a call, `notices` when the caller asked for them.
    pub(super) fn new(live: bool, notices: bool) -> (Self, mpsc::Receiver<Word>) {
        let (words, heard) = mpsc::channel(WORDS_MAX);
        let link = Self {
            began: Instant::now(),
            notices,
            live: AtomicBool::new(live),
            last_life_ms: AtomicU64::new(0),
            asked_ms: AtomicU64::new(0),
            words,
        };
        (link, heard)
    }

    pub(super) fn wants_notices(&self) -> bool {
        self.notices
    }

    pub(super) fn is_live(&self) -> bool {
        self.live.load(Relaxed)
    }

    pub(super) fn set_live(&self) {
        self.live.store(true, Relaxed);
    }

    /// Something came from the peer.
    pub(super) fn note_life(&self) {
        self.last_life_ms.store(self.now_ms(), Relaxed);
    }

    /// The peer answered a WebSocket ping, so it has read all that was sent before it.
    pub(super) fn note_pong(&self) {
        self.asked_ms.store(0, Relaxed);
    }

    /// A WebSocket ping goes out.
    pub(super) fn note_ping(&self) {
        // If one is unanswered, its age is what counts.
        let _ = self
            .asked_ms
            .compare_exchange(0, self.now_ms() + 1, Relaxed, Relaxed);
    }

    /// Milliseconds since anything came from the peer.
    pub(super) fn quiet_ms(&self) -> u64 {
        self.now_ms()
            .saturating_sub(self.last_life_ms.load(Relaxed))
    }

    /// Milliseconds since the oldest unanswered ping; 0 if there is none.
    pub(super) fn unanswered_ms(&self) -> u64 {
        match self.asked_ms.load(Relaxed) {
            0 => 0,
            asked => (self.now_ms() + 1).saturating_sub(asked),
        }
    }

    /// Leaves a word for the writing half; full: dropped.
    pub(super) fn say(&self, word: Word) {
        let _ = self.words.try_send(word);
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn silence_and_unanswered_pings_age_separately() {
        let (mut link, _words) = Link::new(false, false);
        // Moving the beginning back lets time pass; a little real time passes on top.
        let about = |ms: u64| ms..ms + 5_000;
        link.note_ping();
        link.began -= Duration::from_secs(100);
        link.note_ping();
        link.note_life();
        link.began -= Duration::from_secs(50);
        assert!(about(50_000).contains(&link.quiet_ms()));
        assert!(about(150_000).contains(&link.unanswered_ms()));
        link.note_pong();
        assert!(about(50_000).contains(&link.quiet_ms()));
        assert_eq!(link.unanswered_ms(), 0);
    }
}
