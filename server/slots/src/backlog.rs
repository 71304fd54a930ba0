//! How long a row's input queue may be, and which frames go when it is too long.
//!
//! Lives here: [`Backlog`], the rules for one row; it sees counts and loudness, never samples.
//! May not live here: the queue itself. Its only reader, the tick, asks here before it takes a frame.
//!
//! A frame that waits is delay that the caller hears in every answer. So more than [`STANDING_FRAMES`] are worked off
//! by leaving out quiet frames, which nobody notices; after 3 s without enough of those, and wherever the waiting
//! frames are the past anyway (the start of a call, a stall), the oldest go at once.

use crate::loudness::{QUIET_OVER_NOISE, QUIET_POWER, Room};

/// Frames that may wait for long (160 ms): what jitter of the network needs.
pub const STANDING_FRAMES: usize = 2;
/// Frames that wait at most (2 s), whatever the reason.
pub const BACKLOG_FRAMES_MAX: usize = 25;
/// Ticks within which more than [`STANDING_FRAMES`] are worked off (3 s).
pub const WORK_OFF_TICKS: u32 = 37;
/// Ticks after which "quiet" is taken more generously (2 s).
const IMPATIENT_TICKS: u32 = 25;
/// Ticks after the start of a call or a stall in which a burst is cut at once (about 1 s).
const CUT_TICKS: u32 = 13;
/// Ticks without any input that count as a stall of the caller's side (over 1 s).
const INPUT_STALL_TICKS: u32 = 13;
/// After the caller's side was silent for long, a burst up to this length (1 s) may be speech held back until it was
/// recognised as such; more is a connection that caught up.
const HELD_BACK_FRAMES: usize = 12;

/// Weight of the newest frame in the running mean of loudness.
const MEAN_WEIGHT: f32 = 0.05;

/// The state of one row's input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backlog {
    /// Ticks for which a queue longer than `cut_above` is still cut at once.
    cut_ticks: u32,
    cut_above: usize,
    /// Ticks in a row with more than [`STANDING_FRAMES`] waiting.
    long_ticks: u32,
    /// Ticks in a row without input.
    missing_ticks: u32,
    room: Room,
    mean_power: f32,
}

impl Backlog {
    /// At the start of a call.
    pub fn at_start() -> Self {
        Self {
            cut_ticks: CUT_TICKS,
            cut_above: STANDING_FRAMES,
            long_ticks: 0,
            missing_ticks: 0,
            room: Room::unknown(),
            mean_power: QUIET_POWER,
        }
    }

    /// The tick itself stood still for over 1 s: what waits is the past.
    pub fn after_stall(&mut self) {
        self.cut_ticks = CUT_TICKS;
        self.cut_above = STANDING_FRAMES;
    }

    /// Asked once a tick with the number of waiting frames: how many to drop from the front, unheard.
    pub fn cut(&mut self, queued: usize) -> usize {
        if queued > 0 {
            if self.missing_ticks >= INPUT_STALL_TICKS && self.cut_ticks == 0 {
                self.cut_ticks = CUT_TICKS;
                self.cut_above = HELD_BACK_FRAMES;
            }
            self.missing_ticks = 0;
        } else {
            self.missing_ticks = self.missing_ticks.saturating_add(1);
        }
        let past = self.cut_ticks > 0 && queued > self.cut_above;
        self.cut_ticks = self.cut_ticks.saturating_sub(1);
        self.long_ticks = if queued > STANDING_FRAMES {
            self.long_ticks + 1
        } else {
            0
        };
        if past || self.long_ticks >= WORK_OFF_TICKS {
            self.long_ticks = 0;
            return queued - STANDING_FRAMES;
        }
        queued.saturating_sub(BACKLOG_FRAMES_MAX)
    }

    /// Whether the frame at the front, of `power` (mean square), is to be left out, with `queued` frames waiting and
    /// it among them. Asked again for the next one after a yes.
    pub fn skip(&self, queued: usize, power: f32) -> bool {
        let mut limit = self.room.quiet_power();
        if self.long_ticks >= IMPATIENT_TICKS {
            limit = limit.max(self.mean_power / QUIET_OVER_NOISE);
        }
        queued > STANDING_FRAMES && power <= limit
    }

    /// A frame of `power` (mean square) was seen, taken or left out.
    pub fn heard(&mut self, power: f32) {
        self.room.heard(power);
        self.mean_power += (power - self.mean_power) * MEAN_WEIGHT;
    }
}

/// What a row hears in a tick for which its caller sent nothing: digital silence.
///
/// The one place for it, should a model need a room's noise instead.
pub fn missing_frame(row: &mut [f32]) {
    row.fill(0.0);
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
