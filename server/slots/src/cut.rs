//! Where a caller's sound is cut into frames, and whether one move of that cut makes the answers sooner.
//!
//! Lives here: [`Cut`], the decision for one call; it sees counts, times and loudness, never samples.
//! May not live here: the samples themselves, clocks. Whoever cuts tells what it sees and asks what to leave out.
//! Start reading at [`Cut::samples_to_drop`].
//!
//! A tick takes whole frames. What was decoded by then and does not fill one stands over until the next tick, 80 ms
//! later; and since a frame begins where the one before it ended, that remainder stays for the whole call. If at every
//! tick of a stretch at least `n` samples stood over, then without those `n` every tick would have found just as many
//! whole frames: all that changes is that each of them is `n` samples newer. That holds whatever the lengths of the
//! client's packets are, and it moves nothing for a client whose packets are whole frames.

use crate::loudness::Room;
use crate::units::{FRAME_SAMPLES, SAMPLE_RATE_HZ};

/// Ticks that are watched before anything is decided, and again after that (6 s): jitter of the network shows.
pub const WATCHED_TICKS: u32 = 75;
/// A client whose frames come to wait no longer than this is left alone.
pub const WELL_WAIT_US: u64 = 20_000;
/// Sound that comes this shortly before a tick may come after the next one, so it does not count as there.
pub const GUARD_US: u64 = 10_000;
/// The least that is worth a cut (10 ms).
pub const DROP_SAMPLES_MIN: usize = SAMPLE_RATE_HZ as usize / 100;
/// Frames that must have been quiet in a row: more than the pause inside a word.
const QUIET_FRAMES: u32 = 4;
/// Ticks without a whole frame from the caller after which what was watched is no longer true.
const GAP_TICKS: u64 = 3;

/// What whoever cuts sees right after it decoded what came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Ticks so far.
    pub ticks: u64,
    /// How often the schedule of the ticks began anew.
    pub resyncs: u64,
    /// Microseconds until the next tick takes its frames.
    pub wait_us: u64,
    /// Whether a frame became whole by what came.
    pub finished: bool,
    /// Samples that do not fill a frame, less than [`FRAME_SAMPLES`].
    pub standing_samples: usize,
}

/// The least of what was seen over a stretch of ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Least {
    wait_us: u64,
    standing_samples: usize,
}

impl Least {
    /// Of nothing.
    const NONE: Self = Self {
        wait_us: u64::MAX,
        standing_samples: usize::MAX,
    };

    fn and(self, other: Self) -> Self {
        Self {
            wait_us: self.wait_us.min(other.wait_us),
            standing_samples: self.standing_samples.min(other.standing_samples),
        }
    }
}

/// Watches one call and moves its cut at most once.
#[derive(Clone, Debug)]
pub struct Cut {
    moved: bool,
    room: Room,
    quiet_frames: u32,
    /// What the newest sight said; `None` at the start and after a gap.
    last: Option<Sight>,
    /// Samples that will surely stand over when the next tick comes.
    before_tick: usize,
    finished_at_tick: u64,
    n_ticks: u32,
    now: Least,
    /// Of the last whole stretch of [`WATCHED_TICKS`].
    watched: Option<Least>,
}

impl Default for Cut {
    fn default() -> Self {
        Self {
            moved: false,
            room: Room::unknown(),
            quiet_frames: 0,
            last: None,
            before_tick: 0,
            finished_at_tick: 0,
            n_ticks: 0,
            now: Least::NONE,
            watched: None,
        }
    }
}

impl Cut {
    /// A frame of `power` (mean square) became whole.
    pub fn heard(&mut self, power: f32) {
        self.room.heard(power);
        let quiet = power <= self.room.quiet_power();
        self.quiet_frames = if quiet {
            self.quiet_frames.saturating_add(1)
        } else {
            0
        };
    }

    /// To be told whenever something was decoded, or at least now and then.
    pub fn saw(&mut self, sight: Sight) {
        if self.moved {
            return;
        }
        let went_on = self
            .last
            .is_some_and(|last| last.resyncs == sight.resyncs && last.ticks <= sight.ticks);
        let gap = sight.ticks.saturating_sub(self.finished_at_tick);
        if !went_on || gap > GAP_TICKS {
            self.begin_anew(sight);
            return;
        }
        if let Some(last) = self.last
            && last.ticks < sight.ticks
        {
            self.tick_passed(sight.ticks - last.ticks, last.standing_samples);
        }
        if sight.wait_us >= GUARD_US {
            self.before_tick = sight.standing_samples;
        }
        if sight.finished {
            self.finished_at_tick = sight.ticks;
            self.now.wait_us = self.now.wait_us.min(sight.wait_us);
        }
        self.last = Some(sight);
    }

    /// How many samples to leave out now, from the front of the `standing_samples` that do not fill a frame, of which
    /// the loudest part has a mean square of `loudest_power`. 0 is the usual answer; another one is given once a call.
    pub fn samples_to_drop(&mut self, standing_samples: usize, loudest_power: f32) -> usize {
        let Some(watched) = self.watched.filter(|_| !self.moved) else {
            return 0;
        };
        let least = watched.and(self.now);
        let samples = least.standing_samples.min(FRAME_SAMPLES - 1);
        let worth = least.wait_us > WELL_WAIT_US && samples >= DROP_SAMPLES_MIN;
        let quiet = self.quiet_frames >= QUIET_FRAMES && loudest_power <= self.room.quiet_power();
        if !worth || !quiet || samples > standing_samples {
            return 0;
        }
        self.moved = true;
        samples
    }

    fn begin_anew(&mut self, sight: Sight) {
        self.last = Some(sight);
        self.before_tick = sight.standing_samples;
        self.finished_at_tick = sight.ticks;
        self.n_ticks = 0;
        self.now = Least::NONE;
        self.watched = None;
    }

    fn tick_passed(&mut self, ticks: u64, standing_samples: usize) {
        self.now.standing_samples = self.now.standing_samples.min(self.before_tick);
        if ticks > 1 {
            // Nothing came in between, so the last remainder was there at the later ticks.
            self.now.standing_samples = self.now.standing_samples.min(standing_samples);
        }
        self.before_tick = standing_samples;
        self.n_ticks = self
            .n_ticks
            .saturating_add(u32::try_from(ticks).unwrap_or(u32::MAX));
        if self.n_ticks >= WATCHED_TICKS {
            self.watched = Some(self.now);
            self.now = Least::NONE;
            self.n_ticks = 0;
        }
    }
}

#[cfg(test)]
#[path = "cut_tests.rs"]
mod tests;
