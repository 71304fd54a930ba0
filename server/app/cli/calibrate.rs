//! How many callers a loaded engine keeps in time: measured once at start, every window full.
//!
//! Lives here: the search ([`largest_in_time`]), the measuring of one number of callers, the engine that offers no more
//! slots than that ([`Limited`]).
//! May not live here: how many fit into memory (`engine::device`).

use std::time::Instant;

use engine::backend::Backend;
use engine::voice_model::{VoiceCall, VoiceModel};
use slots::engine::{
    Engine, EngineCounters, EngineError, FrameOutput, Readiness, SeatError, TickPlan,
};
use slots::units::{FRAME_SAMPLES, SlotId};

/// What a tick may take: admission closes at 72 ms, and in a tick there is more than the engine.
pub const TICK_MS_MAX: f64 = 64.0;
/// Ticks before the clock counts: first uses of memory, of kernels.
const WARMUP_TICKS: usize = 3;
/// Ticks that count, for each number of callers tried.
const TICKS: usize = 20;
/// So many of them may be longer than what is reported: other programs have the machine now and then.
const OUTLIERS: usize = 2;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Callers that stay in time; 1 if not even one does.
    pub slots: usize,
    /// What a tick with so many takes.
    pub tick_ms: f64,
    /// Rows that the engine has.
    pub rows: usize,
}

impl Calibration {
    /// Whether so many are in time at all.
    pub fn in_time(&self) -> bool {
        self.tick_ms <= TICK_MS_MAX
    }

    /// In one line.
    pub fn text(&self) -> String {
        let Self {
            slots,
            tick_ms,
            rows,
        } = self;
        format!(
            "{slots} of {rows} slots are offered: with full windows a tick of {slots} takes {tick_ms:.1} ms, \
             {TICK_MS_MAX:.0} are allowed"
        )
    }
}

/// The largest number up to `rows` with which a tick is not too long. `tick_ms` measures one number; it is asked for few,
/// first for all.
///
/// # Errors
/// The first that `tick_ms` gives.
pub fn largest_in_time<E>(
    rows: usize,
    mut tick_ms: impl FnMut(usize) -> Result<f64, E>,
) -> Result<Calibration, E> {
    let mut tried = |slots| {
        Ok(Calibration {
            slots,
            tick_ms: tick_ms(slots)?,
            rows,
        })
    };
    let mut best = tried(rows)?;
    if best.in_time() {
        return Ok(best);
    }
    // `enough` is in time, or 0; `too_many` is not.
    let (mut enough, mut too_many) = (0, rows);
    while too_many - enough > 1 {
        let found = tried((enough + too_many) / 2)?;
        match found.in_time() {
            true => enough = found.slots,
            false => too_many = found.slots,
        }
        if found.in_time() || enough == 0 {
            best = found;
        }
    }
    Ok(best)
}

/// Measures `model`, all of whose rows are free and are so again afterwards. `call` is held by every row meanwhile.
///
/// # Errors
/// The device failed, or refuses the call.
pub fn calibrate<B: Backend>(
    model: &mut VoiceModel<B>,
    call: &VoiceCall,
) -> Result<Calibration, EngineError> {
    let rows: Vec<SlotId> = (0..model.capacity()).filter_map(SlotId::new).collect();
    for &slot in &rows {
        let seated = model.seat(slot, call.clone());
        let mut ready = seated.map_err(|error| EngineError {
            what: format!("it cannot be measured: {error}"),
        })?;
        while let Readiness::Prefill { .. } = ready {
            ready = model.prefill(slot)?;
        }
    }
    model.stand_late(1.0)?;
    let mic = vec![0.0; rows.len() * FRAME_SAMPLES];
    let mut out = vec![FrameOutput::idle(); rows.len()];
    let mut plan = TickPlan::default();
    let found = largest_in_time(rows.len(), |callers| {
        plan.live.clear();
        plan.live.extend_from_slice(&rows[..callers]);
        let mut ticks_ms = Vec::with_capacity(TICKS);
        for tick in 0..WARMUP_TICKS + TICKS {
            let begun = Instant::now();
            model.step(&plan, &mic, &mut out)?;
            if tick >= WARMUP_TICKS {
                ticks_ms.push(begun.elapsed().as_secs_f64() * 1e3);
            }
        }
        ticks_ms.sort_by(f64::total_cmp);
        Ok::<_, EngineError>(ticks_ms[TICKS - 1 - OUTLIERS])
    });
    rows.iter().for_each(|&slot| model.vacate(slot));
    found
}

/// An engine of which only the first slots are offered.
pub struct Limited<E> {
    /// With as many rows or more.
    pub engine: E,
    /// How many are offered.
    pub slots: usize,
}

impl<E: Engine> Engine for Limited<E> {
    type Call = E::Call;

    fn capacity(&self) -> usize {
        self.slots
    }

    fn seat(&mut self, slot: SlotId, call: Self::Call) -> Result<Readiness, SeatError> {
        self.engine.seat(slot, call)
    }

    fn prefill(&mut self, slot: SlotId) -> Result<Readiness, EngineError> {
        self.engine.prefill(slot)
    }

    fn vacate(&mut self, slot: SlotId) {
        self.engine.vacate(slot);
    }

    fn step(
        &mut self,
        plan: &TickPlan,
        mic: &[f32],
        out: &mut [FrameOutput],
    ) -> Result<(), EngineError> {
        self.engine.step(plan, mic, out)
    }

    fn counters(&self) -> EngineCounters {
        self.engine.counters()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// The answer for an engine whose tick takes `base_ms` and `caller_ms` for each caller, and what was asked.
    fn found(rows: usize, base_ms: f64, caller_ms: f64) -> (Calibration, Vec<usize>) {
        let mut asked = Vec::new();
        let Ok(found) = largest_in_time(rows, |callers| {
            asked.push(callers);
            Ok::<_, Infallible>(base_ms + caller_ms * callers as f64)
        });
        (found, asked)
    }

    #[test]
    fn all_rows_are_offered_when_all_are_in_time_and_nothing_else_is_tried() {
        let (calibration, asked) = found(128, 10.0, 0.3);
        assert_eq!((calibration.slots, asked), (128, vec![128]));
        assert!(calibration.in_time());
    }

    #[test]
    fn the_largest_number_in_time_is_found_whatever_it_is() {
        for rows in [1, 2, 3, 7, 64, 256] {
            for most in 1..=rows {
                // One caller more would be too slow.
                let caller_ms = TICK_MS_MAX / (most as f64 + 0.5);
                let (calibration, asked) = found(rows, 0.0, caller_ms);
                assert_eq!(calibration.slots, most, "of {rows}");
                assert!(calibration.in_time());
                assert_eq!(calibration.tick_ms, caller_ms * most as f64);
                assert!(asked.len() <= 10, "{asked:?}");
            }
        }
    }

    #[test]
    fn a_device_that_is_too_slow_for_one_caller_offers_one_and_says_so() {
        for rows in [1, 2, 9, 256] {
            let (calibration, _) = found(rows, 90.0, 1.0);
            assert_eq!((calibration.slots, calibration.in_time()), (1, false));
            assert_eq!(calibration.tick_ms, 91.0);
        }
        let (calibration, _) = found(4, 90.0, 1.0);
        assert_eq!(
            calibration.text(),
            "1 of 4 slots are offered: with full windows a tick of 1 takes 91.0 ms, 64 are allowed"
        );
    }
}
