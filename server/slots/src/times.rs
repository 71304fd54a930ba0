//! How long ticks took over the last 60 s, and whether that leaves room for one more caller.
//!
//! Lives here: [`TickTimes`], a window of measured ticks with percentiles.
//! May not live here: what a tick is (`pace`), where the numbers are shown.

use crate::units::{FRAME_MS, TICK_US};

/// Ticks in the window: 60 s.
pub const WINDOW_TICKS: usize = 750;
const _: () = assert!(WINDOW_TICKS as u32 * FRAME_MS == 60_000);

/// No new callers while the 99th percentile of the window is above this: nine tenths of a tick.
pub const ADMISSION_P99_US: u64 = 72_000;
const _: () = assert!(ADMISSION_P99_US == TICK_US * 9 / 10);

/// Width of a bucket up to [`FINE_END_US`]; the admission limit falls on an edge.
const FINE_US: u64 = 250;
const FINE_END_US: u64 = 100_000;
const FINE: usize = (FINE_END_US / FINE_US) as usize;
/// Width of a bucket above.
const COARSE_US: u64 = 10_000;
const COARSE: usize = 200;
const _: () = assert!(ADMISSION_P99_US.is_multiple_of(FINE_US));
const BUCKETS: usize = FINE + COARSE;

/// The lengths of the last [`WINDOW_TICKS`] ticks, as bucket counts.
#[derive(Clone, Debug)]
pub struct TickTimes {
    /// Bucket of each tick plus one; 0 is a tick in which no row was stepped.
    window: Box<[u16]>,
    at: usize,
    counts: Box<[u16]>,
    measured: u32,
    slow: u32,
}

impl Default for TickTimes {
    fn default() -> Self {
        Self {
            window: vec![0; WINDOW_TICKS].into(),
            at: 0,
            counts: vec![0; BUCKETS].into(),
            measured: 0,
            slow: 0,
        }
    }
}

/// First bucket of ticks above the admission limit.
const SLOW_FROM: usize = (ADMISSION_P99_US / FINE_US) as usize;

impl TickTimes {
    /// Notes one tick: how long it took, or `None` if no row was stepped.
    pub fn push(&mut self, tick_us: Option<u64>) {
        let new = tick_us.map_or(0, |us| bucket(us) as u16 + 1);
        let old = std::mem::replace(&mut self.window[self.at], new);
        self.at = (self.at + 1) % WINDOW_TICKS;
        if let Some(bucket) = usize::from(old).checked_sub(1) {
            self.counts[bucket] -= 1;
            self.measured -= 1;
            self.slow -= u32::from(bucket >= SLOW_FROM);
        }
        if let Some(bucket) = usize::from(new).checked_sub(1) {
            self.counts[bucket] += 1;
            self.measured += 1;
            self.slow += u32::from(bucket >= SLOW_FROM);
        }
    }

    /// The length that `percent` of the measured ticks do not exceed, rounded up to a bucket's edge; 0 without any.
    pub fn percentile_us(&self, percent: u32) -> u64 {
        let rank = (self.measured * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += u32::from(count);
            if seen >= rank {
                return upper_us(bucket);
            }
        }
        0
    }

    /// Whether one more caller can be taken: no more than 1 % of the window's ticks were above [`ADMISSION_P99_US`].
    ///
    /// Ticks without a step count as quick ones here. So a single slow tick after a quiet minute closes nothing, and
    /// a house that has emptied opens again.
    pub fn admission_open(&self) -> bool {
        self.slow as usize * 100 <= WINDOW_TICKS
    }
}

/// The bucket of a length: it holds lengths up to and including its upper edge.
fn bucket(us: u64) -> usize {
    if us <= FINE_END_US {
        (us.div_ceil(FINE_US) as usize).saturating_sub(1)
    } else {
        let coarse = (us - FINE_END_US).div_ceil(COARSE_US) as usize;
        FINE + (coarse - 1).min(COARSE - 1)
    }
}

fn upper_us(bucket: usize) -> u64 {
    if bucket < FINE {
        (bucket as u64 + 1) * FINE_US
    } else {
        FINE_END_US + (bucket - FINE + 1) as u64 * COARSE_US
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(ticks: impl IntoIterator<Item = Option<u64>>) -> TickTimes {
        let mut times = TickTimes::default();
        ticks.into_iter().for_each(|tick| times.push(tick));
        times
    }

    #[test]
    fn admission_follows_the_99th_percentile_of_the_last_minute() {
        let many = |us, n| std::iter::repeat_n(Some(us), n);
        let idle = |n| std::iter::repeat_n(None, n);
        let cases = [
            ("nothing measured", filled([]), true),
            ("at the limit", filled(many(72_000, 750)), true),
            ("above the limit", filled(many(72_001, 750)), false),
            (
                "one slow first tick",
                filled(many(200_000, 1).chain(many(9_000, 20))),
                true,
            ),
            (
                "1 % slow",
                filled(many(90_000, 7).chain(many(9_000, 743))),
                true,
            ),
            (
                "more than 1 % slow",
                filled(many(90_000, 8).chain(many(9_000, 742))),
                false,
            ),
            (
                "slow, a minute ago",
                filled(many(90_000, 99).chain(many(9_000, 750))),
                true,
            ),
            (
                "slow, then nobody left",
                filled(many(90_000, 99).chain(idle(750))),
                true,
            ),
            (
                "slow, nobody just now",
                filled(many(90_000, 99).chain(idle(100))),
                false,
            ),
        ];
        for (name, times, open) in cases {
            assert_eq!(times.admission_open(), open, "{name}");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_measured_ticks() {
        let times = filled((1..=100).map(|ms| Some(ms * 1_000)).chain([None; 50]));
        assert_eq!(times.percentile_us(50), 50_000);
        assert_eq!(times.percentile_us(99), 99_000);
        assert_eq!(filled([None]).percentile_us(99), 0);
        assert_eq!(filled([Some(u64::MAX)]).percentile_us(50), 2_100_000);
    }

    proptest! {
        #[test]
        fn the_window_forgets_everything_older(old in prop::collection::vec(prop::option::of(0u64..3_000_000), 0..900),
                                               last in prop::collection::vec(prop::option::of(0u64..3_000_000), WINDOW_TICKS)) {
            let with_past = filled(old.into_iter().chain(last.iter().copied()));
            let without = filled(last.iter().copied());
            prop_assert_eq!(&with_past.counts, &without.counts);
            prop_assert_eq!((with_past.measured, with_past.slow), (without.measured, without.slow));
            for percent in [1, 50, 99, 100] {
                let mut sorted: Vec<u64> = last.iter().flatten().copied().collect();
                sorted.sort_unstable();
                let exact = sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
                let shown = without.percentile_us(percent as u32);
                let width = if exact > FINE_END_US { COARSE_US } else { FINE_US };
                prop_assert!(exact > 2_100_000 || (exact..=exact + width).contains(&shown), "{exact} {shown}");
            }
        }
    }
}
