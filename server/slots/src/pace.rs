//! The pace of the tick: when the next one is due, when a late one gives the schedule up, and what fits in between.
//!
//! Lives here: [`Pace`], [`WorkTime`]; times are microseconds that are handed in.
//! May not live here: clocks, sleeping. How long ticks were over the last minute is in `times`.

use crate::units::TICK_US;

/// More than this behind schedule, and the schedule is begun anew. Less is caught up by ticking without pause.
pub const RESYNC_US: u64 = 1_000_000;

/// Left free before a tick when other work is fitted in, for the sleep to end and the frames to be taken.
pub const SLACK_MARGIN_US: u64 = 2_000;

/// The schedule: a tick every 80 ms, counted from the first, so that no error adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    due_us: u64,
    resyncs: u64,
}

/// What [`Pace::begin`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// How long after it was due the tick began.
    pub late_us: u64,
    /// Ticks that are given up because this one is over [`RESYNC_US`] late; otherwise 0.
    pub ticks_lost: u64,
}

impl Pace {
    /// A schedule whose first tick is due now.
    pub fn start(now_us: u64) -> Self {
        Self {
            due_us: now_us,
            resyncs: 0,
        }
    }

    /// When the next tick is due. In the past: no sleep.
    pub fn due_us(&self) -> u64 {
        self.due_us
    }

    /// How often the schedule was given up.
    pub fn resyncs(&self) -> u64 {
        self.resyncs
    }

    /// A tick begins now; afterwards [`Pace::due_us`] speaks of the one that follows.
    ///
    /// Giving up skips whole ticks, so the phase against the callers' frames stays what it was.
    pub fn begin(&mut self, now_us: u64) -> Begun {
        let late_us = now_us.saturating_sub(self.due_us);
        let ticks_lost = if late_us > RESYNC_US {
            self.resyncs += 1;
            late_us / TICK_US
        } else {
            0
        };
        self.due_us += (ticks_lost + 1) * TICK_US;
        Begun {
            late_us,
            ticks_lost,
        }
    }

    /// Whether the tick that was begun last is late at `now_us`: the next one is already due.
    pub fn is_late(&self, now_us: u64) -> bool {
        now_us > self.due_us
    }

    /// Whether work of `work_us` can be done between now and the next tick.
    pub fn fits(&self, now_us: u64, work_us: u64) -> bool {
        now_us
            .saturating_add(work_us)
            .saturating_add(SLACK_MARGIN_US)
            <= self.due_us
    }
}

/// How many of the last measurements [`WorkTime`] looks at.
const WORK_TIMES: usize = 8;

/// How long a piece of work is expected to take: as long as the longest of the last few.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkTime {
    last_us: [u64; WORK_TIMES],
    at: usize,
}

impl WorkTime {
    /// Notes one measurement.
    pub fn measured(&mut self, us: u64) {
        self.last_us[self.at] = us;
        self.at = (self.at + 1) % WORK_TIMES;
    }

    /// What to expect; 0 before the first measurement.
    pub fn expected_us(&self) -> u64 {
        self.last_us.iter().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the schedule against ticks of the given lengths; gives the beginnings, lost ticks, resyncs.
    fn play(lengths_us: impl IntoIterator<Item = u64>) -> (Vec<u64>, u64, u64) {
        let mut now_us = 0;
        let mut pace = Pace::start(now_us);
        let (mut begins, mut lost) = (Vec::new(), 0);
        for length_us in lengths_us {
            now_us = now_us.max(pace.due_us());
            lost += pace.begin(now_us).ticks_lost;
            begins.push(now_us);
            now_us += length_us;
        }
        (begins, lost, pace.resyncs())
    }

    #[test]
    fn a_million_ticks_do_not_drift() {
        let lengths = (0..1_000_000).map(|tick| 20_000 + tick * 7_919 % 50_000);
        let (begins, lost, resyncs) = play(lengths);
        assert!((0..).zip(&begins).all(|(tick, &at)| at == tick * TICK_US));
        assert_eq!((lost, resyncs), (0, 0));
    }

    #[test]
    fn a_stall_is_caught_up_or_given_up() {
        // One tick of the given length, then quick ones: (name, length, ticks lost, tick that is on schedule again).
        let cases = [
            ("just in time", 80_000, 0, 1),
            ("a little late", 80_001, 0, 2),
            ("300 ms", 300_000, 0, 4),
            ("1 s behind is still caught up", 1_080_000, 0, 14),
            ("a moment more is given up", 1_080_001, 12, 2),
            ("5 s", 5_000_000, 61, 2),
        ];
        for (name, stall_us, lost, back_at) in cases {
            let lengths = std::iter::once(stall_us).chain(std::iter::repeat_n(100, 40));
            let (begins, ticks_lost, resyncs) = play(lengths);
            assert_eq!(ticks_lost, lost, "{name}");
            assert_eq!(resyncs, u64::from(lost > 0), "{name}");
            for (tick, &at) in begins.iter().enumerate().skip(back_at) {
                assert_eq!(at, (tick as u64 + lost) * TICK_US, "{name}, tick {tick}");
            }
        }
    }

    #[test]
    fn a_device_that_is_always_too_slow_loses_ticks_but_is_never_far_behind() {
        let (begins, lost, resyncs) = play(std::iter::repeat_n(90_000, 1_000));
        assert!(resyncs > 0);
        // 1,000 ticks of 90 ms are 1,125 ticks of time; what is not lost is at most the patience of 1 s.
        assert!((112..=125).contains(&lost), "{lost}");
        let behind_us = begins[999] - (999 + lost) * TICK_US;
        assert!(behind_us <= RESYNC_US, "{behind_us}");
    }

    #[test]
    fn work_is_fitted_in_by_the_longest_of_the_last_measurements() {
        let mut pace = Pace::start(0);
        pace.begin(0);
        let mut work = WorkTime::default();
        assert!(pace.fits(70_000, work.expected_us()));
        work.measured(20_000);
        work.measured(5_000);
        assert_eq!(work.expected_us(), 20_000);
        assert!(pace.fits(58_000, work.expected_us()));
        assert!(!pace.fits(58_001, work.expected_us()));
        for _ in 0..WORK_TIMES {
            work.measured(6_000);
        }
        assert!(pace.fits(72_000, work.expected_us()));
        assert!(!pace.fits(90_000, 0), "a late tick has no slack");
    }
}
