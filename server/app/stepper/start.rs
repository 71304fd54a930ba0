//! Starting the stepping thread and learning how it ended.
//!
//! Lives here: [`spawn`], [`Options`], [`StepperThread`], the errors of both ends.
//! May not live here: what a tick does (`thread`).

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use slots::engine::{Engine, EngineError};
use slots::slot::CloseReason;
use tokio::sync::oneshot;

use super::board::{Board, Phase};
use super::clock::{Clock, RealClock};
use super::doorbell::doorbell;
use super::handle::{StepperHandle, Wishes};
use super::thread::{Parts, Stepper};
use super::watchdog::{self, WATCHDOG_PERIOD};

/// How long running calls may go on after [`StepperHandle::drain`], unless told otherwise.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(600);

/// Called with the number of the tick that does not end.
pub type OnHang = Box<dyn FnOnce(u64) + Send>;

/// How the stepping thread runs.
pub struct Options {
    /// The most rows; the engine may come with fewer.
    pub slots: usize,
    /// Tells the time of the tick.
    pub clock: Arc<dyn Clock>,
    /// Whether a measured tick that is too slow keeps new callers out.
    pub admission: bool,
    /// How long running calls may go on after a drain.
    pub drain_limit: Duration,
    /// Time between two looks of the watchdog; a tick seen 20 times in a row is hung.
    pub watchdog_period: Duration,
    /// What to do about a hung tick; the process is expected to end.
    pub on_hang: OnHang,
}

impl Options {
    /// As a server runs: real time, admission on, a watchdog that only logs.
    pub fn new(slots: usize) -> Self {
        Self {
            slots,
            clock: Arc::new(RealClock::new()),
            admission: true,
            drain_limit: DRAIN_LIMIT,
            watchdog_period: WATCHDOG_PERIOD,
            on_hang: Box::new(|_| {}),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("slots", &self.slots)
            .field("admission", &self.admission)
            .field("drain_limit", &self.drain_limit)
            .finish_non_exhaustive()
    }
}

/// Why the engine is not running. Told once, to whoever started it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The engine said so.
    #[error("the engine cannot be started: {0}")]
    Engine(#[source] EngineError),
    /// Loading panicked.
    #[error("the engine panicked while it was being loaded: {what}")]
    Panic {
        /// The panic's message.
        what: String,
    },
    /// The engine has no row, or more than were asked for.
    #[error("the engine has {engine} slots, {asked} were asked for")]
    Slots {
        /// Of the engine.
        engine: usize,
        /// Of [`Options::slots`].
        asked: usize,
    },
    /// The system gave no thread.
    #[error("no thread for the engine: {0}")]
    Thread(#[source] std::io::Error),
}

/// Why the stepping thread ended although nobody asked it to. The process exits with 3.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The device failed.
    #[error("the engine failed: {0}")]
    Engine(#[source] EngineError),
    /// The engine panicked.
    #[error("the engine panicked: {what}")]
    Panic {
        /// The panic's message.
        what: String,
    },
    /// The engine could not be started; [`StepperThread::ready`] tells why.
    #[error("the engine did not start")]
    NotStarted,
}

/// The thread, for whoever started it.
#[derive(Debug)]
pub struct StepperThread {
    ready: oneshot::Receiver<Result<(), StartError>>,
    stopped: oneshot::Receiver<Result<(), StopError>>,
    thread: JoinHandle<()>,
}

impl StepperThread {
    /// Waits until the engine is loaded. To be asked once; a second answer is [`StartError::Panic`].
    ///
    /// # Errors
    /// [`StartError`]: it could not be. It has been tried once and will not be tried again.
    pub async fn ready(&mut self) -> Result<(), StartError> {
        (&mut self.ready).await.unwrap_or_else(|_| {
            Err(StartError::Panic {
                what: "the thread is gone".into(),
            })
        })
    }

    /// Waits until every caller has been told and nothing ticks any more. To be asked once. Safe to cancel.
    ///
    /// # Errors
    /// [`StopError`]: it did not end by [`StepperHandle::drain`], `stop`, or the last handle's end.
    pub async fn stopped(&mut self) -> Result<(), StopError> {
        (&mut self.stopped)
            .await
            .unwrap_or(Err(StopError::NotStarted))
    }

    /// Blocks until the thread is gone and the engine is freed.
    pub fn join(self) {
        // The thread catches the engine's panics and tells them by `stopped`.
        let _ = self.thread.join();
    }
}

/// Starts the stepping thread, which loads the engine with `load` (a device's context belongs to its thread) and ticks.
///
/// Comes back at once: until the engine is loaded the board says [`Phase::Loading`] and joins are refused so.
///
/// # Errors
/// [`StartError::Thread`].
pub fn spawn<E, L>(
    load: L,
    options: Options,
) -> Result<(StepperHandle<E::Call>, StepperThread), StartError>
where
    E: Engine + 'static,
    L: FnOnce() -> Result<E, EngineError> + Send + 'static,
{
    let board = Arc::new(Board::new(options.slots, options.clock.clone()));
    let wishes = Arc::new(Wishes::default());
    let (handle, requests) = StepperHandle::new(board.clone(), wishes.clone());
    let (mut bell, doorbell) = doorbell();
    let errands = thread::Builder::new()
        .name("doorbell".into())
        .spawn(move || doorbell.run())
        .map_err(StartError::Thread)?;
    bell.rings_at(errands.thread().clone());
    let watchdog = thread::Builder::new().name("watchdog".into()).spawn({
        let (board, wishes) = (board.clone(), wishes.clone());
        move || watchdog::run(board, wishes, options.watchdog_period, options.on_hang)
    });
    let watchdog = watchdog.map_err(|error| {
        wishes.closed.store(true, SeqCst);
        StartError::Thread(error)
    })?;
    let (ready_tx, ready) = oneshot::channel();
    let (stopped_tx, stopped) = oneshot::channel();
    let parts = Parts {
        requests,
        bell,
        wishes: wishes.clone(),
        board,
        clock: options.clock,
        admission: options.admission,
        drain_limit_us: u64::try_from(options.drain_limit.as_micros()).unwrap_or(u64::MAX),
    };
    let asked = options.slots;
    let thread = thread::Builder::new().name("tick".into()).spawn(move || {
        // Nobody listening to `ready` or `stopped` is no reason to stop.
        let (wishes, board) = (parts.wishes.clone(), parts.board.clone());
        let _ = wishes.thread.set(thread::current());
        match load_once(load, asked) {
            Err(error) => {
                board.set_phase(Phase::Failed);
                wishes.closed.store(true, SeqCst);
                drop(parts);
                let _ = ready_tx.send(Err(error));
            }
            Ok(engine) => {
                board.open.store(engine.capacity(), Relaxed);
                board.set_phase(Phase::Ready);
                let _ = ready_tx.send(Ok(()));
                let ended = tick_until_the_end(engine, parts, errands);
                let _ = stopped_tx.send(ended);
            }
        }
        watchdog.thread().unpark();
    });
    let thread = thread.map_err(|error| {
        wishes.closed.store(true, SeqCst);
        StartError::Thread(error)
    })?;
    Ok((
        handle,
        StepperThread {
            ready,
            stopped,
            thread,
        },
    ))
}

fn load_once<E: Engine>(
    load: impl FnOnce() -> Result<E, EngineError>,
    asked: usize,
) -> Result<E, StartError> {
    let engine = catch_unwind(AssertUnwindSafe(load))
        .map_err(|panic| StartError::Panic {
            what: message(&*panic),
        })?
        .map_err(StartError::Engine)?;
    match engine.capacity() {
        slots if (1..=asked).contains(&slots) => Ok(engine),
        slots => Err(StartError::Slots {
            engine: slots,
            asked,
        }),
    }
}

/// Ticks, and tells everybody how it ended before it says so itself.
fn tick_until_the_end<E: Engine>(
    engine: E,
    parts: Parts<E::Call>,
    errands: JoinHandle<()>,
) -> Result<(), StopError> {
    let mut stepper = Stepper::new(engine, parts);
    let ended = catch_unwind(AssertUnwindSafe(|| stepper.run()));
    let ended = match ended {
        Ok(ended) => ended.map_err(StopError::Engine),
        Err(panic) => Err(StopError::Panic {
            what: message(&*panic),
        }),
    };
    stepper.finish(match ended {
        Ok(()) => CloseReason::ServerStopping,
        Err(_) => CloseReason::EngineFault,
    });
    // A device that failed may fail, panic or hang once more while it is freed. If it did, everybody knows by now;
    // after a fault it is left to the end of the process.
    let engine = stepper.into_engine();
    let _ = errands.join();
    match &ended {
        Ok(()) => drop(catch_unwind(AssertUnwindSafe(|| drop(engine)))),
        Err(_) => std::mem::forget(engine),
    }
    ended
}

fn message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}
