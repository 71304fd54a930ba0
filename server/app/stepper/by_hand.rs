//! A stepper without threads, for tests and benches: whoever holds it makes it tick and runs the doorbell's errands.
//!
//! Lives here: [`ByHand`]. May not live here: anything the real thread does not do as well (`start`).

use std::sync::Arc;

use slots::engine::{Engine, EngineError};
use slots::slot::CloseReason;

use super::board::{Board, Phase};
use super::clock::Clock;
use super::doorbell::{Doorbell, doorbell};
use super::handle::{JoinError, JoinRequest, Seat, StepperHandle, Wishes};
use super::start::DRAIN_LIMIT;
use super::thread::{Parts, Stepper};

pub use super::thread::Next;

/// The tick, the table and the queues as the stepping thread has them, on the caller's thread.
pub struct ByHand<E: Engine> {
    stepper: Stepper<E>,
    doorbell: Doorbell<E::Call>,
    handle: StepperHandle<E::Call>,
}

impl<E: Engine> ByHand<E> {
    /// A stepper that is ready for its first tick.
    pub fn new(engine: E, clock: Arc<dyn Clock>) -> (StepperHandle<E::Call>, Self) {
        let board = Arc::new(Board::new(engine.capacity(), clock.clone()));
        board.set_phase(Phase::Ready);
        let wishes = Arc::new(Wishes::default());
        let (handle, requests) = StepperHandle::new(board.clone(), wishes.clone());
        let (bell, doorbell) = doorbell();
        let parts = Parts {
            requests,
            bell,
            wishes,
            board,
            clock,
            admission: true,
            drain_limit_us: DRAIN_LIMIT.as_micros() as u64,
        };
        let by_hand = Self {
            stepper: Stepper::new(engine, parts),
            doorbell,
            handle: handle.clone(),
        };
        (handle, by_hand)
    }

    /// Asks for a seat without waiting for the answer; the next tick gives it, and the seat's events tell.
    ///
    /// # Errors
    /// [`JoinError`], as far as it needs no tick.
    pub fn ask(&self, request: JoinRequest<E::Call>) -> Result<Seat, JoinError> {
        self.handle.ask(request)
    }

    /// One tick, without the sleep that follows it.
    ///
    /// # Errors
    /// [`EngineError`]: the device failed.
    pub fn tick(&mut self) -> Result<Next, EngineError> {
        self.stepper.tick()
    }

    /// The sleep after a tick.
    ///
    /// # Errors
    /// [`EngineError`]: the device failed while a prompt was read.
    pub fn rest(&mut self) -> Result<(), EngineError> {
        self.stepper.rest()
    }

    /// Wakes, frees and logs what ticks have left to do.
    pub fn run_errands(&mut self) {
        self.doorbell.run_errands();
    }

    /// Ends every call, as the thread does at its end.
    pub fn finish(&mut self, reason: CloseReason) {
        self.stepper.finish(reason);
    }
}
