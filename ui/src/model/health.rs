//! How good a call's connection is, in words a caller understands.
//!
//! Lives here: [`Health`], which judges the last half minute and forgets what was before. May not live here: buffers,
//! clocks; they report.

use std::collections::VecDeque;

/// Gaps older than this no longer count.
const RECENT_MS: f64 = 30_000.0;
/// The first moments of a call, in which the buffer finds its size.
const SETTLES_MS: f64 = 2_000.0;
/// From so many recent gaps on a connection is poor.
const MANY: u32 = 4;
/// Reports that the delay is averaged over, about: a frame comes every 80 ms, in lumps. Reports come four times a second.
const SMOOTHED_OVER: f64 = 8.0;
/// Less delay than this nobody notices.
const DELAY_NOTICED_MS: f64 = 200.0;

/// Gaps and delay of one call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// Gaps since the loudspeaker was opened, as last reported.
    counted: u32,
    /// When there were how many new ones.
    recent: VecDeque<(f64, u32)>,
    held_ms: f64,
    wait_ms: f64,
}

impl Health {
    /// The loudspeaker's buffer reports, `at_ms` into the call: gaps since it was opened, and how much sound it holds.
    pub fn heard(&mut self, at_ms: f64, gaps: u32, held_ms: f64) {
        // Another loudspeaker counts from 0 again.
        let new = match gaps < self.counted {
            true => gaps,
            false => gaps - self.counted,
        };
        self.counted = gaps;
        self.held_ms += (held_ms - self.held_ms) / SMOOTHED_OVER;
        if new > 0 && at_ms >= SETTLES_MS {
            self.recent.push_back((at_ms, new));
        }
        while self
            .recent
            .front()
            .is_some_and(|(then, _)| at_ms - then > RECENT_MS)
        {
            self.recent.pop_front();
        }
    }

    /// The server reports how long frames of the microphone wait for its tick.
    pub fn waits(&mut self, wait_ms: f64) {
        self.wait_ms = wait_ms;
    }

    /// Gaps of the last half minute.
    pub fn gaps(&self) -> u32 {
        self.recent.iter().map(|(_, new)| new).sum()
    }

    /// How long sound stands in buffers on its way there and back, without the network itself.
    pub fn delay_ms(&self) -> f64 {
        self.held_ms + self.wait_ms
    }

    /// One line.
    pub fn words(&self) -> String {
        let gaps = match self.gaps() {
            0 => "good",
            1..MANY => "fair, with short gaps",
            _ => "poor, with many gaps",
        };
        match self.delay_ms() < DELAY_NOTICED_MS {
            true => format!("Connection: {gaps}"),
            false => format!(
                "Connection: {gaps}, about {:.1} s behind",
                self.delay_ms() / 1_000.0
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_count_for_half_a_minute() {
        let mut health = Health::default();
        health.heard(10_000.0, 1, 60.0);
        assert_eq!(health.words(), "Connection: fair, with short gaps");
        health.heard(11_000.0, 5, 60.0);
        assert_eq!(health.words(), "Connection: poor, with many gaps");
        health.heard(40_500.0, 5, 60.0);
        assert_eq!(health.gaps(), 4);
        health.heard(41_001.0, 5, 60.0);
        assert_eq!(health.words(), "Connection: good");
    }

    #[test]
    fn the_first_moments_and_another_loudspeaker_are_not_held_against_it() {
        let mut health = Health::default();
        health.heard(500.0, 6, 60.0);
        assert_eq!(health.gaps(), 0);
        health.heard(9_000.0, 0, 60.0);
        health.heard(9_250.0, 1, 60.0);
        assert_eq!(health.gaps(), 1);
    }

    #[test]
    fn a_delay_is_told_once_it_can_be_noticed() {
        let mut health = Health::default();
        health.waits(12.0);
        for report in 0..40 {
            // Lumps of one frame.
            health.heard(
                250.0 * f64::from(report),
                0,
                [60.0, 140.0][report as usize % 2],
            );
            assert_eq!(health.words(), "Connection: good");
        }
        for report in 40..80 {
            health.heard(250.0 * f64::from(report), 0, 300.0);
        }
        assert_eq!(health.words(), "Connection: good, about 0.3 s behind");
    }
}
