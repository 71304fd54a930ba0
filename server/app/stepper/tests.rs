//! The stepper with a scripted engine and a clock moved by hand; nothing here depends on how fast the machine is.

mod calls;
mod late;
mod steady;
mod threads;

use std::sync::Arc;
use std::time::Duration;

use slots::engine::EngineError;
use slots::slot::CloseReason;
use slots::testing::{EngineLog, ScriptedCall, ScriptedEngine};
use slots::units::{FRAME_SAMPLES, SessionKey, TICK_US};

use super::board::{Board, Loss, Phase, SlotPhase};
use super::clock::{Clock, HandClock};
use super::doorbell::{Doorbell, doorbell};
use super::handle::{JoinError, JoinRequest, Seat, SeatEvent, SpeakerFrame, StepperHandle, Wishes};
use super::thread::{Next, Parts, Stepper};

/// A stepper without a thread: the test makes it tick.
struct House {
    handle: StepperHandle<ScriptedCall>,
    stepper: Stepper<ScriptedEngine>,
    doorbell: Doorbell<ScriptedCall>,
    clock: Arc<HandClock>,
    log: Arc<EngineLog>,
}

impl House {
    fn new(engine: ScriptedEngine) -> Self {
        Self::on_clock(engine, Arc::new(HandClock::free_running()))
    }

    fn on_clock(engine: ScriptedEngine, clock: Arc<HandClock>) -> Self {
        use slots::engine::Engine;
        let board = Arc::new(Board::new(engine.capacity(), clock.clone()));
        board.set_phase(Phase::Ready);
        let wishes = Arc::new(Wishes::default());
        let (handle, requests) = StepperHandle::new(board.clone(), wishes.clone());
        let (bell, doorbell) = doorbell();
        let log = engine.log();
        let parts = Parts {
            requests,
            bell,
            wishes,
            board,
            clock: clock.clone(),
            admission: true,
            drain_limit_us: 600_000_000,
        };
        Self {
            handle,
            stepper: Stepper::new(engine, parts),
            doorbell,
            clock,
            log,
        }
    }

    /// One tick and the sleep after it.
    fn tick(&mut self) -> Next {
        self.try_tick().expect("the script has no engine fault")
    }

    fn try_tick(&mut self) -> Result<Next, EngineError> {
        let next = self.stepper.tick()?;
        if next == Next::Tick {
            self.stepper.rest()?;
        }
        self.doorbell.run_errands();
        Ok(next)
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
