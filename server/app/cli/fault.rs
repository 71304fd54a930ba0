//! A device that fails or hangs when a test wants it to, since a sound CPU never does. Only in builds with debug
//! assertions.

use std::thread;

use slots::engine::{
    Engine, EngineCounters, EngineError, FrameOutput, Readiness, SeatError, TickPlan,
};
use slots::units::SlotId;

/// `fail N` or `hang N`: what the device does at its Nth tick with a caller.
pub const FAULT_VARIABLE: &str = "VIVAVOCE_TEST_FAULT";

/// An engine with such a device.
pub struct Faulty<E> {
    engine: E,
    fault: Option<(Fault, u64)>,
    steps: u64,
}

enum Fault {
    Fail,
    Hang,
}

impl<E> Faulty<E> {
    /// With the fault that [`FAULT_VARIABLE`] names, if it names one.
    pub fn planned(engine: E) -> Self {
        let asked = std::env::var(FAULT_VARIABLE).unwrap_or_default();
        let fault = asked.split_once(' ').and_then(|(what, at)| {
            let fault = match what {
                "fail" => Fault::Fail,
                "hang" => Fault::Hang,
                _ => return None,
            };
            Some((fault, at.parse().ok()?))
        });
        Self {
            engine,
            fault,
            steps: 0,
        }
    }
}

impl<E: Engine> Engine for Faulty<E> {
    type Call = E::Call;

    fn capacity(&self) -> usize {
        self.engine.capacity()
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
        self.steps += u64::from(!plan.live.is_empty());
        match &self.fault {
            Some((Fault::Fail, at)) if *at == self.steps => Err(EngineError {
                what: "the device failed, as planned".to_owned(),
            }),
            Some((Fault::Hang, at)) if *at == self.steps => loop {
                thread::park();
            },
            _ => self.engine.step(plan, mic, out),
        }
    }

    fn counters(&self) -> EngineCounters {
        self.engine.counters()
    }
}
