//! A scripted engine for tests and benches: it does what its script says, and panics when it is misused.
//!
//! Lives here: [`ScriptedEngine`], its call, its log; [`ScriptedPrepare`] stands in `testing/prepare.rs`.
//! May not live here: clocks. What a step costs is up to the hook that a test hands in.

mod prepare;

pub use prepare::{ScriptedPrepare, scripted_bundle};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::engine::{
    Engine, EngineError, FrameKind, FrameOutput, Readiness, RowFault, SeatError, TickPlan,
};
use crate::units::{FRAME_SAMPLES, SlotId};

/// The longest prompt a scripted call may have, in positions.
pub const POSITIONS_MAX: usize = 1_000;

/// A call of the scripted engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScriptedCall {
    /// Chunks of prompt to read; 0 is live at once.
    pub chunks: u32,
    /// Positions of the prompt; more than [`POSITIONS_MAX`] are refused.
    pub positions: usize,
    /// What a row speaks under [`Speech::Voice`].
    pub voice: f32,
    /// Steps that give a frame that is not for the caller.
    pub warm_up: u64,
}

/// What the engine is asked to do; handed to the hook before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The n-th step, from 0.
    Step(u64),
    /// The n-th chunk of prompt, from 0.
    Prefill(u64),
    /// The n-th call seated, from 0.
    Seat(u64),
}

/// What rows say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speech {
    /// What they hear.
    Echo,
    /// Their call's `voice`, in every sample.
    Voice,
    /// Whatever is in the buffers: costs nothing, for benches.
    Untouched,
}

/// What the engine was asked to do so far; shared with the test.
#[derive(Debug, Default)]
pub struct EngineLog {
    steps: AtomicU64,
    chunks: AtomicU64,
    seated: AtomicU64,
    vacated: AtomicU64,
}

impl EngineLog {
    /// Steps begun.
    pub fn steps(&self) -> u64 {
        self.steps.load(SeqCst)
    }

    /// Chunks of prompt begun.
    pub fn chunks(&self) -> u64 {
        self.chunks.load(SeqCst)
    }

    /// Calls seated.
    pub fn seated(&self) -> u64 {
        self.seated.load(SeqCst)
    }

    /// Rows vacated.
    pub fn vacated(&self) -> u64 {
        self.vacated.load(SeqCst)
    }
}

#[derive(Clone, Copy, Debug, Default)]
enum RowScript {
    #[default]
    Free,
    Held {
        call: ScriptedCall,
        chunks_left: u32,
        stepped: u64,
    },
}

/// What to call before each piece of work.
type Hook = Box<dyn FnMut(Work) + Send>;

/// An engine that follows a script.
pub struct ScriptedEngine {
    rows: Vec<RowScript>,
    speech: Speech,
    text: Option<(&'static str, u64)>,
    fail_at: Option<(u64, &'static str)>,
    panic_at: Option<u64>,
    row_fault_at: Option<(usize, u64)>,
    hook: Option<Hook>,
    log: Arc<EngineLog>,
}

impl ScriptedEngine {
    /// Four rows that say what `speech` says, in no time.
    pub fn new(speech: Speech) -> Self {
        Self {
            rows: vec![RowScript::Free; 4],
            speech,
            text: None,
            fail_at: None,
            panic_at: None,
            row_fault_at: None,
            hook: None,
            log: Arc::default(),
        }
    }

    /// Rows say what they hear.
    pub fn echo() -> Self {
        Self::new(Speech::Echo)
    }

    /// Rows say their call's `voice`.
    pub fn voices() -> Self {
        Self::new(Speech::Voice)
    }

    /// An engine that cannot be started.
    ///
    /// # Errors
    /// Always, with `what`.
    pub fn failing_to_start(what: &str) -> Result<Self, EngineError> {
        Err(EngineError { what: what.into() })
    }

    /// With this number of rows.
    pub fn with_capacity(mut self, rows: usize) -> Self {
        self.rows = vec![RowScript::Free; rows];
        self
    }

    /// Adds `text` to each row's frames 0, `every`, 2 `every` and so on.
    pub fn saying(mut self, text: &'static str, every: u64) -> Self {
        self.text = Some((text, every.max(1)));
        self
    }

    /// The device fails at step `step` and at every later one.
    pub fn failing_at(mut self, step: u64, what: &'static str) -> Self {
        self.fail_at = Some((step, what));
        self
    }

    /// The engine panics at step `step`.
    pub fn panicking_at(mut self, step: u64) -> Self {
        self.panic_at = Some(step);
        self
    }

    /// Row `row` alone fails at step `step`.
    pub fn row_fault_at(mut self, row: usize, step: u64) -> Self {
        self.row_fault_at = Some((row, step));
        self
    }

    /// Calls `hook` before each piece of work: to let time pass, to stand still, to note.
    pub fn with_hook(mut self, hook: impl FnMut(Work) + Send + 'static) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// The log, to be kept when the engine is given away.
    pub fn log(&self) -> Arc<EngineLog> {
        self.log.clone()
    }

    fn begin(&mut self, work: Work) {
        if let Some(hook) = &mut self.hook {
            hook(work);
        }
    }
}

impl Engine for ScriptedEngine {
    type Call = ScriptedCall;

    fn capacity(&self) -> usize {
        self.rows.len()
    }

    fn seat(&mut self, slot: SlotId, call: ScriptedCall) -> Result<Readiness, SeatError> {
        let nth = self.log.seated();
        self.begin(Work::Seat(nth));
        assert!(
            matches!(self.rows[slot.row()], RowScript::Free),
            "{slot:?} is seated twice"
        );
        if call.positions > POSITIONS_MAX {
            return Err(SeatError::PromptTooLong {
                positions: call.positions,
                positions_max: POSITIONS_MAX,
            });
        }
        self.log.seated.fetch_add(1, SeqCst);
        self.rows[slot.row()] = RowScript::Held {
            call,
            chunks_left: call.chunks,
            stepped: 0,
        };
        Ok(readiness(call.chunks))
    }

    fn prefill(&mut self, slot: SlotId) -> Result<Readiness, EngineError> {
        let nth = self.log.chunks.fetch_add(1, SeqCst);
        self.begin(Work::Prefill(nth));
        match &mut self.rows[slot.row()] {
            RowScript::Held { chunks_left, .. } if *chunks_left > 0 => {
                *chunks_left -= 1;
                Ok(readiness(*chunks_left))
            }
            row => panic!("{slot:?} has no prompt to read: {row:?}"),
        }
    }

    fn vacate(&mut self, slot: SlotId) {
        assert!(
            matches!(self.rows[slot.row()], RowScript::Held { .. }),
            "{slot:?} is vacated, and nobody held it"
        );
        self.log.vacated.fetch_add(1, SeqCst);
        self.rows[slot.row()] = RowScript::Free;
    }

    fn step(
        &mut self,
        plan: &TickPlan,
        mic: &[f32],
        out: &mut [FrameOutput],
    ) -> Result<(), EngineError> {
        let step = self.log.steps.fetch_add(1, SeqCst);
        self.begin(Work::Step(step));
        assert!(
            self.panic_at != Some(step),
            "panic at step {step}, as scripted"
        );
        if let Some((_, what)) = self.fail_at.filter(|&(at, _)| step >= at) {
            return Err(EngineError { what: what.into() });
        }
        assert!(!plan.live.is_empty(), "a step without a row");
        assert!(plan.live.is_sorted(), "rows out of order: {plan:?}");
        assert_eq!(mic.len(), self.rows.len() * FRAME_SAMPLES);
        assert_eq!(out.len(), self.rows.len());
        out.iter_mut()
            .for_each(|frame| frame.kind = FrameKind::Idle);
        for &slot in &plan.live {
            let row = slot.row();
            let RowScript::Held {
                call,
                chunks_left: 0,
                stepped,
            } = &mut self.rows[row]
            else {
                panic!("{slot:?} is stepped and not live: {:?}", self.rows[row]);
            };
            let frame = &mut out[row];
            frame.kind = if *stepped < call.warm_up {
                FrameKind::WarmingUp
            } else {
                FrameKind::Live
            };
            match self.speech {
                Speech::Echo => frame
                    .pcm
                    .copy_from_slice(&mic[row * FRAME_SAMPLES..][..FRAME_SAMPLES]),
                Speech::Voice => frame.pcm.fill(call.voice),
                Speech::Untouched => {}
            }
            frame.text.clear();
            if let Some((text, every)) = self.text
                && stepped.is_multiple_of(every)
            {
                frame.text.push_str(text);
            }
            *stepped += 1;
            if self.row_fault_at == Some((row, step)) {
                frame.kind = FrameKind::Fault(RowFault::NotFinite);
            }
        }
        Ok(())
    }
}

fn readiness(chunks_left: u32) -> Readiness {
    match chunks_left {
        0 => Readiness::Live,
        chunks_left => Readiness::Prefill { chunks_left },
    }
}
