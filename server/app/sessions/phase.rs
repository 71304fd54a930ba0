//! Where a caller's frame boundaries lie against the tick, and what is done about it.
//!
//! Lives here: [`Phase`]: clients with `ext=1` are told and move their own frames; for others the cut is moved here, once.
//! May not live here: the decision to move it (`slots::cut`), reading and decoding (`uplink`).

use std::time::{Duration, Instant};

use slots::cut::{Cut, DROP_SAMPLES_MIN, Sight};
use slots::loudness::mean_square;

use super::counters::SessionCounters;
use crate::stepper::handle::Board;
use audio::opus_read::OpusReader;

/// Who brings the frames of a connection near the tick.
#[derive(Debug)]
pub(super) enum Phase {
    /// The client, which is told how long its frames wait.
    Told(PhaseMeter),
    /// This server.
    Moved(Box<Cut>),
}

impl Phase {
    /// For a client with `ext=1`, which is told at intervals of `every`.
    pub(super) fn told(every: Duration, now: Instant) -> Self {
        Self::Told(PhaseMeter::new(every, now))
    }

    /// For any other client.
    pub(super) fn moved() -> Self {
        Self::Moved(Box::default())
    }

    /// A frame became whole.
    pub(super) fn heard(&mut self, frame: &[f32]) {
        if let Self::Moved(cut) = self {
            cut.heard(mean_square(frame));
        }
    }

    /// All that came is decoded, and `finished` says whether a frame became whole by it. The least wait in
    /// microseconds, when the client is to be told.
    pub(super) fn decoded(
        &mut self,
        finished: bool,
        reader: &mut OpusReader,
        board: &Board,
        counters: &SessionCounters,
    ) -> Option<u32> {
        let wait_us = board.next_tick_in_us();
        match self {
            Self::Told(_) if !finished => None,
            Self::Told(meter) => meter.finished(wait_us, Instant::now()),
            Self::Moved(cut) => {
                cut.saw(Sight {
                    ticks: board.ticks(),
                    resyncs: board.resyncs(),
                    wait_us,
                    finished,
                    standing_samples: reader.standing().len(),
                });
                move_cut(cut, reader, counters);
                None
            }
        }
    }
}

fn move_cut(cut: &mut Cut, reader: &mut OpusReader, counters: &SessionCounters) {
    let standing = reader.standing();
    // In parts, or a word's first milliseconds would pass in the company of silence.
    let loudest_power = standing
        .chunks(DROP_SAMPLES_MIN)
        .map(mean_square)
        .fold(0.0, f32::max);
    let samples = cut.samples_to_drop(standing.len(), loudest_power);
    if samples > 0 {
        reader.drop_standing(samples);
        counters.cuts_moved.add(1);
        counters.cut_samples_dropped.add(samples as u64);
    }
}

/// How long a caller's finished frames wait for the tick: the least of a stretch of time.
#[derive(Debug)]
pub(super) struct PhaseMeter {
    every: Duration,
    since: Instant,
    least_us: Option<u64>,
}

impl PhaseMeter {
    fn new(every: Duration, now: Instant) -> Self {
        Self {
            every,
            since: now,
            least_us: None,
        }
    }

    /// A frame was finished `wait_us` before the next tick. The least wait, when it is time to tell it: with less
    /// shift than that, no frame of this stretch would have missed its tick.
    fn finished(&mut self, wait_us: u64, now: Instant) -> Option<u32> {
        let least_us = self
            .least_us
            .map_or(wait_us, |least_us| least_us.min(wait_us));
        if now.saturating_duration_since(self.since) < self.every {
            self.least_us = Some(least_us);
            return None;
        }
        self.since = now;
        self.least_us = None;
        Some(u32::try_from(least_us).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_wait_of_each_second_is_told() {
        let start = Instant::now();
        let mut meter = PhaseMeter::new(Duration::from_secs(1), start);
        let mut told = Vec::new();
        for frame in 1..=26u64 {
            let now = start + Duration::from_millis(80 * frame);
            told.extend(meter.finished(30_000 + frame * 100, now));
        }
        assert_eq!(told, [30_100, 31_400]);
    }
}
