//! The stepper with a scripted engine and a clock moved by hand; nothing here depends on how fast the machine is.

mod calls;
mod late;
mod steady;
mod threads;

use std::sync::Arc;
use std::time::Duration;

use slots::slot::CloseReason;
use slots::testing::{EngineLog, ScriptedCall, ScriptedEngine};
use slots::units::{FRAME_SAMPLES, SessionKey, TICK_US};

use super::board::{Board, Loss, Phase, SlotPhase};
use super::by_hand::ByHand;
use super::clock::{Clock, HandClock};
use super::handle::{JoinError, JoinRequest, Seat, SeatEvent, SpeakerFrame, StepperHandle};
use super::thread::Next;

/// A stepper without a thread: the test makes it tick.
struct House {
    handle: StepperHandle<ScriptedCall>,
    stepper: ByHand<ScriptedEngine>,
    clock: Arc<HandClock>,
    log: Arc<EngineLog>,
}

impl House {
    fn new(engine: ScriptedEngine) -> Self {
        Self::on_clock(engine, Arc::new(HandClock::free_running()))
    }

    fn on_clock(engine: ScriptedEngine, clock: Arc<HandClock>) -> Self {
        let log = engine.log();
        let (handle, stepper) = ByHand::new(engine, clock.clone());
        Self {
            handle,
            stepper,
            clock,
            log,
        }
    }

    /// One tick and the sleep after it.
    fn tick(&mut self) -> Next {
        let next = self.stepper.tick().expect("the script has no engine fault");
        self.stepper.rest().expect("the script has no engine fault");
        self.stepper.run_errands();
        next
    }

    fn ticks(&mut self, n: usize) {
        for _ in 0..n {
            assert_eq!(self.tick(), Next::Tick);
        }
    }

    fn board(&self) -> &Board {
        self.handle.board()
    }

    fn free(&self) -> usize {
        self.board().slots_in(SlotPhase::Free)
    }

    /// Puts a request into the queue; the next tick answers it.
    fn ask(&self, session: u128, generation: u32, call: ScriptedCall) -> Seat {
        let request = JoinRequest {
            call,
            session: SessionKey(session),
            generation,
            may_wait: true,
        };
        self.handle.ask(request).expect("the house is open")
    }

    /// Seats a caller whose prompt is known, and makes the tick that it takes.
    fn call(&mut self, session: u128) -> Seat {
        let mut seat = self.ask(session, 0, ScriptedCall::default());
        self.tick();
        assert_eq!(seat.speaker.try_answer(), Some(Ok(())));
        assert!(matches!(seat.speaker.try_next(), Some(SeatEvent::Live)));
        seat
    }
}

/// A frame whose samples are all `level`.
fn frame(level: f32) -> [f32; FRAME_SAMPLES] {
    [level; FRAME_SAMPLES]
}

/// Everything that has happened to a seat by now.
fn events(seat: &mut Seat) -> Vec<SeatEvent> {
    std::iter::from_fn(|| seat.speaker.try_next()).collect()
}

/// The frames among everything that has happened to a seat by now.
fn frames(seat: &mut Seat) -> Vec<SpeakerFrame> {
    let frames = events(seat).into_iter();
    frames
        .filter_map(|event| match event {
            SeatEvent::Frame(frame) => Some(frame),
            _ => None,
        })
        .collect()
}

/// How a seat ended, if it has.
fn ended(seat: &mut Seat) -> Option<CloseReason> {
    events(seat).into_iter().find_map(|event| match event {
        SeatEvent::Ended(reason) => Some(reason),
        _ => None,
    })
}
