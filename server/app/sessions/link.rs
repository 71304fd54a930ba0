//! What the two halves of one connection share, and how a connection can end.
//!
//! Lives here: [`Link`], with the peer's signs of life; time in which this process stood still is not held against it.
//! May not live here: bytes of any kind.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};
use wire::notice::EndReason;

/// Words that may wait for the writing half.
const WORDS_MAX: usize = 8;
/// Time between two looks at the clock.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A look that comes this much after the last one shows that the process was stopped, or its machine: five looks were
/// missed. What the peer said meanwhile is not read yet.
const STOOD_STILL_MS: u64 = 5_000;

/// Flags between the reading and the writing half of one connection. Both run in one task.
#[derive(Debug)]
pub(super) struct Link {
    began: Instant,
    notices: bool,
    live: AtomicBool,
    last_life_ms: AtomicU64,
    /// When the oldest unanswered WebSocket ping went out, plus one; 0 for none.
    asked_ms: AtomicU64,
    /// When the clock was last looked at.
    looked_ms: AtomicU64,
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
            looked_ms: AtomicU64::new(0),
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

    /// Looks at the clock for as long as it is awaited, beside both halves and whatever they wait for.
    pub(super) async fn watch_the_clock(&self) -> Infallible {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            self.look();
        }
    }

    /// Looks at the clock. After a pause of this process the peer gets all its time once more.
    pub(super) fn look(&self) {
        let now_ms = self.now_ms();
        let still_ms = now_ms.saturating_sub(self.looked_ms.swap(now_ms, Relaxed));
        if still_ms < STOOD_STILL_MS {
            return;
        }
        tracing::debug!(still_ms, "this process stood still");
        self.last_life_ms.store(now_ms, Relaxed);
        if self.asked_ms.load(Relaxed) != 0 {
            self.asked_ms.store(now_ms + 1, Relaxed);
        }
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

    /// A little real time passes beside that of the tests.
    fn about(ms: u64) -> std::ops::Range<u64> {
        ms..ms + 4_000
    }

    /// Moving the beginning back lets time pass.
    fn pass(link: &mut Link, seconds: u64) {
        link.began -= Duration::from_secs(seconds);
    }

    #[test]
    fn silence_and_unanswered_pings_age_separately() {
        let (mut link, _words) = Link::new(false, false);
        link.note_ping();
        pass(&mut link, 100);
        link.note_ping();
        link.note_life();
        pass(&mut link, 50);
        assert!(about(50_000).contains(&link.quiet_ms()));
        assert!(about(150_000).contains(&link.unanswered_ms()));
        link.note_pong();
        assert!(about(50_000).contains(&link.quiet_ms()));
        assert_eq!(link.unanswered_ms(), 0);
    }

    #[test]
    fn a_pause_of_this_process_is_not_held_against_the_peer() {
        let (mut link, _words) = Link::new(true, false);
        link.note_ping();
        for _ in 0..15 {
            pass(&mut link, 1);
            link.look();
        }
        assert!(about(15_000).contains(&link.quiet_ms()), "looks in time");
        assert!(about(15_000).contains(&link.unanswered_ms()));
        pass(&mut link, 60);
        link.look();
        assert!(about(0).contains(&link.quiet_ms()), "a missing minute");
        assert!(about(0).contains(&link.unanswered_ms()));
        for _ in 0..9 {
            pass(&mut link, 1);
            link.look();
        }
        assert!(about(9_000).contains(&link.quiet_ms()), "and on from there");
        link.note_pong();
        pass(&mut link, 60);
        link.look();
        assert_eq!(link.unanswered_ms(), 0, "nothing was asked");
    }
}
