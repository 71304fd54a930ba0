//! The clock of `bench`: warm-up, timed ticks, and what their lengths come to.
//!
//! Lives here: [`Plan`], [`Timing`]. May not live here: what a tick is.

use std::time::{Duration, Instant};

use super::process::cpu_time;

/// How many ticks are run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Ticks that are timed, at least 1.
    pub ticks: u32,
    /// Ticks that are run before.
    pub warmup: u32,
    /// Timing, and before it warming up, stops after this long even if ticks are left.
    pub limit: Option<Duration>,
}

/// Lengths of timed ticks.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Ascending.
    ticks_ms: Vec<f64>,
    wall: Duration,
    /// Processor time of the whole process; `None`: the system does not tell.
    cpu: Option<Duration>,
}

impl Plan {
    /// Runs `tick` as planned. `begin` is called between warm-up and timing; what it gives back is kept until the end.
    ///
    /// # Errors
    /// The first that `tick` gives.
    pub fn run<G>(
        &self,
        begin: impl FnOnce() -> G,
        mut tick: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<(Timing, G)> {
        let over = |since: Instant| self.limit.is_some_and(|limit| since.elapsed() >= limit);
        let start = Instant::now();
        for _ in 0..self.warmup {
            tick()?;
            if over(start) {
                break;
            }
        }
        let guard = begin();
        // Made before the clock starts, so that no timed tick pays for its growth.
        let mut ticks_ms = Vec::with_capacity(self.ticks as usize);
        let cpu_before = cpu_time();
        let start = Instant::now();
        for _ in 0..self.ticks {
            let before = Instant::now();
            tick()?;
            ticks_ms.push(before.elapsed().as_secs_f64() * 1e3);
            if over(start) {
                break;
            }
        }
        let wall = start.elapsed();
        let cpu = cpu_time().zip(cpu_before).map(|(now, then)| now - then);
        Ok((Timing::new(ticks_ms, wall, cpu), guard))
    }
}

impl Timing {
    fn new(mut ticks_ms: Vec<f64>, wall: Duration, cpu: Option<Duration>) -> Self {
        ticks_ms.sort_by(f64::total_cmp);
        Self {
            ticks_ms,
            wall,
            cpu,
        }
    }

    /// Ticks that were timed.
    pub fn ticks(&self) -> usize {
        self.ticks_ms.len()
    }

    /// The shortest.
    pub fn min_ms(&self) -> f64 {
        self.ticks_ms.first().copied().unwrap_or(f64::NAN)
    }

    /// Half of them are shorter; of an even number the mean of the middle two.
    pub fn median_ms(&self) -> f64 {
        let ticks = &self.ticks_ms;
        match ticks.len() {
            0 => f64::NAN,
            odd if odd % 2 == 1 => ticks[odd / 2],
            even => (ticks[even / 2 - 1] + ticks[even / 2]) / 2.0,
        }
    }

    /// The shortest that at least `percent` of all do not exceed (nearest rank: always one that was measured).
    pub fn percentile_ms(&self, percent: usize) -> f64 {
        let rank = (self.ticks_ms.len() * percent).div_ceil(100).max(1);
        self.ticks_ms.get(rank - 1).copied().unwrap_or(f64::NAN)
    }

    /// How many cores worked for the process while it was timed, on average. Below the number of threads the machine
    /// was shared, or threads waited.
    pub fn cores_got(&self) -> Option<f64> {
        Some(self.cpu?.as_secs_f64() / self.wall.as_secs_f64())
    }
}

/// Enough digits for a clock, few enough for a reader.
pub fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(ticks_ms: &[f64]) -> Timing {
        Timing::new(ticks_ms.to_vec(), Duration::from_secs(2), None)
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_ticks() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let cases: [(&[f64], [f64; 4]); 4] = [
            (&[7.0], [7.0, 7.0, 7.0, 7.0]),
            (&[4.0, 1.0], [1.0, 2.5, 4.0, 4.0]),
            (&[3.0, 1.0, 2.0], [1.0, 2.0, 3.0, 3.0]),
            (&hundred, [1.0, 50.5, 90.0, 99.0]),
        ];
        for (ticks, expected) in cases {
            let t = timing(ticks);
            let found = [
                t.min_ms(),
                t.median_ms(),
                t.percentile_ms(90),
                t.percentile_ms(99),
            ];
            assert_eq!(found, expected, "{ticks:?}");
        }
    }

    #[test]
    fn cores_are_processor_time_over_wall_time() {
        let mut busy = timing(&[1.0]);
        busy.cpu = Some(Duration::from_secs(3));
        assert_eq!(busy.cores_got(), Some(1.5));
        assert_eq!(timing(&[1.0]).cores_got(), None);
    }

    #[test]
    fn warm_up_comes_before_the_guard_and_timing_after_it() {
        let plan = Plan {
            ticks: 3,
            warmup: 2,
            limit: None,
        };
        let ran = std::cell::Cell::new(0);
        let (timing, warm) = plan
            .run(
                || ran.get(),
                || {
                    ran.set(ran.get() + 1);
                    Ok(())
                },
            )
            .expect("nothing fails");
        assert_eq!((timing.ticks(), warm, ran.get()), (3, 2, 5));
    }

    #[test]
    fn a_limit_that_is_over_at_once_still_times_one_tick() {
        let plan = Plan {
            ticks: 1_000,
            warmup: 1_000,
            limit: Some(Duration::ZERO),
        };
        let (timing, ()) = plan.run(|| (), || Ok(())).expect("nothing fails");
        assert_eq!(timing.ticks(), 1);
    }
}
