//! How long a caller's finished frames wait for the tick, told about once a second.
//!
//! May not live here: a clock; who is told.

use std::time::{Duration, Instant};

/// The least wait of a stretch of time.
#[derive(Debug)]
pub(super) struct PhaseMeter {
    every: Duration,
    since: Instant,
    least_us: Option<u64>,
}

impl PhaseMeter {
    pub(super) fn new(every: Duration, now: Instant) -> Self {
        Self {
            every,
            since: now,
            least_us: None,
        }
    }

    /// A frame was finished `wait_us` before the next tick. The least wait, when it is time to tell it: with less
    /// shift than that, no frame of this stretch would have missed its tick.
    pub(super) fn finished(&mut self, wait_us: u64, now: Instant) -> Option<u32> {
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
