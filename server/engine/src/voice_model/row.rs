//! What one row of the batch holds beside its rings and carries.

use slots::call::Sampling;
use slots::engine::RowFault;

use crate::config::ModelConfig;
use crate::prompt::Prompt;
use crate::sampling::RowSampler;
use crate::text::TextJoiner;
use crate::tokens::{Call, Staging};

/// One call, ready to be seated.
#[derive(Clone, Debug)]
pub struct VoiceCall {
    /// Voice and role text.
    pub prompt: Prompt,
    /// How tokens are chosen.
    pub sampling: Sampling,
}

/// Where a row stands.
pub(super) enum RowPhase {
    /// Nobody sits here.
    Free,
    /// The prompt is being read; `next` is the first position not yet read.
    Prefill { prompt: Box<Prompt>, next: usize },
    /// The prompt is read; the model call that goes ahead of the first caller frame is still to run.
    LeadIn,
    /// In conversation.
    Live,
    /// The row gave a number it must not give; it is not stepped any more.
    Faulted(RowFault),
}

/// One row.
pub(super) struct Row {
    pub phase: RowPhase,
    pub staging: Staging,
    pub sampler: RowSampler,
    pub text: TextJoiner,
    /// Positions of the prompt that stay in the window for good; 0: none.
    pub pinned: usize,
    /// The model call at hand.
    pub call: Option<Call>,
    /// What the call at hand has chosen so far: the text token, then the codes.
    pub text_token: u32,
    pub codes: Vec<u32>,
    /// Codes of the caller's last frame; kept only for a probe.
    pub user: Vec<u32>,
}

impl Row {
    pub(super) fn new(config: &ModelConfig) -> Self {
        Self {
            phase: RowPhase::Free,
            staging: Staging::new(config),
            sampler: RowSampler::new(Sampling::greedy()),
            text: TextJoiner::default(),
            pinned: 0,
            call: None,
            text_token: 0,
            codes: Vec::with_capacity(config.depformer.steps),
            user: Vec::new(),
        }
    }

    /// As good as new, but for rings and carries.
    pub(super) fn clear(&mut self, sampling: Sampling) {
        self.phase = RowPhase::Free;
        self.staging.reset();
        self.sampler = RowSampler::new(sampling);
        self.text.reset();
        self.pinned = 0;
        self.call = None;
        self.text_token = 0;
        self.codes.clear();
        self.user.clear();
    }
}
