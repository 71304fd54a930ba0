//! The batch engine: codec, temporal transformer and depformer, and the rows that callers sit in.
//!
//! Lives here: [`VoiceModel`], which seats calls, reads prompts, steps rows, and keeps snapshots.
//! May not live here: arithmetic (`backend`), layers (`model`, `codec`), which token enters when (`tokens`).
//! Start reading at `step` in `tick.rs`.

mod deferred;
mod late;
mod lm;
mod probe;
mod row;
mod seat;
mod tick;

use std::sync::Arc;

use slots::engine::FrameOutput;

use crate::backend::{Backend, Board, Lanes, Query};
use crate::codec::Codec;
use crate::config::ModelConfig;
use crate::model::{BuildError, Depformer, Loader, RingRule, Temporal, Window};
use crate::prompt::{PromptKey, live_positions_max};
use crate::sampling::Scratch as SampleScratch;
use crate::snapshots::Snapshots;
use crate::tokenizer::Tokenizer;
use crate::tokens::{OutFrame, Staging};
use crate::weights::Checkpoint;

use deferred::Pending;
pub use probe::{CallTrace, Probe};
use row::Row;
pub use row::VoiceCall;

/// What is done when inside a tick. The tokens are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Encode, then model, then decode: the answer to a frame leaves in the tick that brought it.
    #[default]
    Sooner,
    /// The model does not wait for the frame of its own tick, and the answer comes one tick later. The published timing.
    Overlapped,
}

/// How the engine is built.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineOptions {
    /// Rows of the batch.
    pub slots: usize,
    /// Order inside a tick.
    pub order: Order,
    /// Keys that are visible once a ring is full.
    pub ring: RingRule,
    /// Whether the prompt stays in the window for good, where it is short enough.
    pub pin_prompt: bool,
    /// Depformer steps that run; the first ones are the agent's codes.
    pub depformer_steps: usize,
    /// Positions of a prompt that are read at once.
    pub prefill_chunk: usize,
    /// Bytes of all snapshots.
    pub prompt_cache_bytes: usize,
    /// Most positions of a prompt.
    pub positions_max: usize,
}

impl EngineOptions {
    /// Positions of a prompt that are read at once: long enough for a matrix product, short enough for a tick's slack.
    pub const PREFILL_CHUNK: usize = 32;
    /// Bytes of all snapshots: some dozen prompts of the published size (47 MB for 89 positions in bfloat16).
    pub const PROMPT_CACHE_BYTES: usize = 2 << 30;

    /// What serving uses: only the agent's codes, the defaults elsewhere.
    pub fn serving(config: &ModelConfig, slots: usize) -> Self {
        Self {
            slots,
            order: Order::default(),
            ring: RingRule::default(),
            pin_prompt: false,
            depformer_steps: config.codes(),
            prefill_chunk: Self::PREFILL_CHUNK,
            prompt_cache_bytes: Self::PROMPT_CACHE_BYTES,
            positions_max: live_positions_max(config),
        }
    }
}

/// A saved row.
struct Snapshot<B: Backend> {
    rings: Vec<B::RingPart>,
    after: Staging,
}

/// The network with all its rows.
pub struct VoiceModel<B: Backend> {
    config: ModelConfig,
    options: EngineOptions,
    tokenizer: Arc<Tokenizer>,
    backend: B,
    codec: Codec<B>,
    temporal: Temporal<B>,
    depformer: Depformer<B>,
    window: Window,
    rows: Vec<Row>,
    snapshots: Snapshots<PromptKey, Snapshot<B>>,
    cache_hits: u64,
    cache_misses: u64,
    probe: Option<Box<dyn Probe>>,
    scratch: Scratch<B>,
}

/// Buffers that live as long as the engine, so that a tick allocates nothing that grows.
struct Scratch<B: Backend> {
    lanes: Lanes,
    queries: Vec<Query>,
    tokens: Vec<i32>,
    reordered: Vec<i32>,
    values: Vec<f32>,
    text: Vec<i32>,
    pcm: Vec<f32>,
    codes: Vec<u32>,
    live: Vec<usize>,
    speaking: Vec<usize>,
    frames: Vec<OutFrame>,
    unsent: Vec<FrameOutput>,
    sample: SampleScratch,
    vectors: B::Buf,
    ids: Vec<i32>,
    pending: Vec<Pending>,
    board: Board,
}

impl<B: Backend> VoiceModel<B> {
    /// Builds the network on `backend` for `options.slots` rows. `progress` hears done and total parts.
    ///
    /// # Errors
    /// [`BuildError`]: a tensor is missing or the device refused.
    pub fn load(
        mut backend: B,
        checkpoint: &Checkpoint,
        options: EngineOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, BuildError> {
        let config = checkpoint.config().clone();
        let rows = options.slots;
        let parts = 1 + config.lm.num_layers + options.depformer_steps.min(config.depformer.steps);
        let mut done = 0;
        let mut tick = || {
            done += 1;
            progress(done, parts);
        };
        let mut loader = Loader {
            backend: &mut backend,
            tensors: checkpoint.codec_tensors(),
        };
        let codec = Codec::load(&mut loader, &config, options.ring, rows)?;
        tick();
        let mut loader = Loader {
            backend: &mut backend,
            tensors: checkpoint.lm_tensors(),
        };
        let temporal = Temporal::load(&mut loader, &config, rows, &mut tick)?;
        let depformer = Depformer::load(
            &mut loader,
            &config,
            options.depformer_steps,
            options.ring,
            rows,
            &mut tick,
        )?;
        Ok(Self {
            window: Window {
                context: config.lm.context,
                rule: options.ring,
            },
            rows: (0..rows).map(|_| Row::new(&config)).collect(),
            snapshots: Snapshots::new(options.prompt_cache_bytes),
            tokenizer: Arc::clone(checkpoint.tokenizer()),
            backend,
            codec,
            temporal,
            depformer,
            config,
            options,
            cache_hits: 0,
            cache_misses: 0,
            probe: None,
            scratch: Scratch {
                lanes: Lanes::default(),
                queries: Vec::new(),
                tokens: Vec::new(),
                reordered: Vec::new(),
                values: Vec::new(),
                text: Vec::new(),
                pcm: Vec::new(),
                codes: Vec::new(),
                live: Vec::new(),
                speaking: Vec::new(),
                frames: Vec::new(),
                unsent: Vec::new(),
                sample: SampleScratch::default(),
                vectors: B::Buf::default(),
                ids: Vec::new(),
                pending: Vec::new(),
                board: Board::default(),
            },
        })
    }

    /// The numbers of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// How the engine was built.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// What computes.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// One line for logs: device and storage types.
    pub fn describe(&self) -> String {
        self.backend.describe()
    }

    /// Lets `probe` see every model call from now on; for verification. It costs copies of all values.
    pub fn set_probe(&mut self, probe: Box<dyn Probe>) {
        self.probe = Some(probe);
    }
}
