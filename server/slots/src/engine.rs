//! What a batch engine offers to the tick, and nothing of how it does it.
//!
//! Lives here: the trait [`Engine`], the plan of one tick, what a row gives back, and the errors.
//! May not live here: tensors, threads, clocks.

use arrayvec::ArrayString;

use crate::units::{FRAME_SAMPLES, SlotId};

/// Longest text one frame can bring, in bytes. A SentencePiece piece has at most 16 characters of at most 4 bytes;
/// bytes that were held back until they formed a character come on top.
pub const TEXT_BYTES_MAX: usize = 128;

/// What one row gives back for one tick.
#[derive(Clone, Debug)]
pub struct FrameOutput {
    /// `FRAME_SAMPLES` samples at 24 kHz, nominally in -1..=1; zeros where `kind` is not `Live`.
    pub pcm: Box<[f32]>,
    /// Text that became complete in this frame: always whole UTF-8 characters, often empty.
    pub text: ArrayString<TEXT_BYTES_MAX>,
    /// Whether this frame is to be delivered.
    pub kind: FrameKind,
}

/// Whether a row's output of one tick is to be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// The row took no part in this tick.
    Idle,
    /// The row was stepped, but what came out is warm-up and is not for the caller.
    WarmingUp,
    /// A frame for the caller.
    Live,
    /// This row alone failed (its numbers are not finite, say). Its session must end; others are unharmed.
    Fault(RowFault),
}

impl FrameOutput {
    /// An idle frame of silence.
    pub fn idle() -> Self {
        Self {
            pcm: vec![0.0; FRAME_SAMPLES].into(),
            text: ArrayString::new(),
            kind: FrameKind::Idle,
        }
    }

    /// Makes this an idle frame again, keeping the buffer.
    pub fn clear(&mut self) {
        self.pcm.fill(0.0);
        self.text.clear();
        self.kind = FrameKind::Idle;
    }
}

/// Why one row failed while the others go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowFault {
    /// A value that must be finite was not.
    #[error("the model gave a number that is not finite")]
    NotFinite,
    /// The row's frames came in an order that cannot be.
    #[error("a frame came out of order")]
    OutOfOrder,
    /// A code outside the codec's range came up where none can.
    #[error("the model gave code {code}, the codec has {codes}")]
    CodeOutOfRange {
        /// The code.
        code: u32,
        /// How many codes there are.
        codes: u32,
    },
}

/// The rows that take part in one tick. Every other row stands still: not one bit of its state moves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TickPlan {
    /// Rows to step, in ascending order, each once.
    pub live: Vec<SlotId>,
}

/// Whether a seated row can take part in the next tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The next [`Engine::step`] may name the row.
    Live,
    /// The prompt is still being read: call [`Engine::prefill`] this many more times.
    Prefill {
        /// Chunks of constant length still to run; at least 1.
        chunks_left: u32,
    },
}

/// What the engine counts, for metrics. All counters only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Calls seated from a snapshot.
    pub prompt_cache_hits: u64,
    /// Calls seated by reading the prompt.
    pub prompt_cache_misses: u64,
    /// Bytes the snapshots take now (a gauge, not a counter).
    pub prompt_cache_bytes: u64,
}

/// A call that cannot be seated; nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum SeatError {
    /// The prompt is longer than the engine takes in a live call.
    #[error("the persona prompt takes {positions} positions, the limit is {positions_max}")]
    PromptTooLong {
        /// Positions of voice, role text and silences.
        positions: usize,
        /// The most a live call may use.
        positions_max: usize,
    },
}

/// The device failed: the batch is lost and the engine must not be used again.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct EngineError {
    /// One line for the operator.
    pub what: String,
}

/// A batch of rows stepped together. All methods are called from one thread.
pub trait Engine {
    /// What the engine needs to know of one call (prompt, sampling, seed), made ready off the tick.
    type Call: Send + 'static;

    /// Number of rows.
    fn capacity(&self) -> usize;

    /// Clears row `slot`, so that nothing of its last holder is left, and gives it to `call`.
    ///
    /// # Errors
    /// [`SeatError`]: the call cannot be taken, and the row is free.
    fn seat(&mut self, slot: SlotId, call: Self::Call) -> Result<Readiness, SeatError>;

    /// Reads one more chunk of row `slot`'s prompt. Other rows are not touched.
    ///
    /// # Errors
    /// [`EngineError`]: the device failed.
    fn prefill(&mut self, slot: SlotId) -> Result<Readiness, EngineError>;

    /// Frees row `slot`. Other rows are not touched.
    fn vacate(&mut self, slot: SlotId);

    /// Advances every row of `plan` by one frame.
    ///
    /// `mic` is `[capacity, FRAME_SAMPLES]`, row-major, f32 in -1..=1; rows that `plan` leaves out are not read.
    /// `out` has one entry a row; rows that `plan` leaves out come back idle.
    ///
    /// # Errors
    /// [`EngineError`]: the device failed.
    fn step(
        &mut self,
        plan: &TickPlan,
        mic: &[f32],
        out: &mut [FrameOutput],
    ) -> Result<(), EngineError>;

    /// Counters for metrics.
    fn counters(&self) -> EngineCounters {
        EngineCounters::default()
    }
}
