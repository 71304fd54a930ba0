//! What operators ask of the engine beside calls: voices, what a prompt costs, rehearsals, draining.
//!
//! Lives here: [`EngineRoom`], the engine without its type, and [`Room`], which makes one out of any engine.
//! May not live here: HTTP, SQL.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use slots::call::{AddVoiceError, CallSpec, PrepareCall, PrepareError, PromptFacts, VoiceFacts};

use crate::stepper::handle::{Board, StepperHandle};

/// The loaded engine, for handlers that need not know which one it is.
pub trait EngineRoom: Send + Sync {
    /// Numbers about the tick.
    fn board(&self) -> &Arc<Board>;

    /// Takes no new callers; running calls finish; then the process ends.
    fn drain(&self);

    /// Identity of the checkpoint: a voice of one means nothing to another.
    fn model_id(&self) -> String;

    /// All voices that can be called now, sorted by name.
    fn voices(&self) -> Vec<VoiceFacts>;

    /// What a prompt costs. Tokenizes, so call it where blocking is allowed.
    ///
    /// # Errors
    /// [`PrepareError`], for whoever wrote the prompt.
    fn prompt_facts(&self, spec: &CallSpec) -> Result<PromptFacts, PrepareError>;

    /// Adds or replaces a voice out of the bytes of a bundle; `file_name` says which container it is. Reads it whole, so
    /// call it where blocking is allowed.
    ///
    /// # Errors
    /// [`AddVoiceError`]: one line.
    fn add_voice(
        &self,
        name: &str,
        file_name: &str,
        bundle: &[u8],
    ) -> Result<VoiceFacts, AddVoiceError>;

    /// Takes a voice out; calls that run with it go on.
    fn remove_voice(&self, name: &str);

    /// Puts a voice of the model's own back that was taken out. Whether the model has one of that name.
    fn restore_voice(&self, name: &str) -> bool;

    /// The bytes of a bundle in safetensors form; `file_name` says which container it is. Reads it whole, so call it
    /// where blocking is allowed.
    ///
    /// # Errors
    /// [`AddVoiceError`]: one line.
    fn convert_bundle(&self, file_name: &str, bundle: &[u8]) -> Result<Vec<u8>, AddVoiceError>;

    /// The most frames of 80 ms that a recording may have for this model.
    fn recording_frames_max(&self) -> usize;

    /// How many frames of 80 ms of a call the model still sees.
    fn memory_frames(&self) -> usize;

    /// Turns a recording (24 kHz mono) into the bytes of a bundle (safetensors). Takes seconds of a processor: call it
    /// where blocking is allowed. Never touches the tick.
    ///
    /// # Errors
    /// [`AddVoiceError`]: one line.
    fn voice_from_recording(&self, pcm: &[f32]) -> Result<Vec<u8>, AddVoiceError>;

    /// Takes a free slot for a call to nobody: reads its prompt, so that later callers are live at once, and returns the
    /// first `frames` frames of what the agent says to silence (24 kHz mono). Never waits for a slot.
    fn rehearse(
        &self,
        spec: CallSpec,
        frames: usize,
    ) -> BoxFuture<'_, Result<Vec<f32>, RehearseError>>;
}

/// Why there was no rehearsal.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RehearseError {
    /// Callers go first.
    #[error("no slot is free for it now")]
    NoSlot,
    /// The prompt is not fit for a call.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The call ended before its time.
    #[error("the rehearsal ended early: {what}")]
    Ended {
        /// One line.
        what: String,
    },
}

/// Any engine as an [`EngineRoom`].
pub struct Room<P: PrepareCall> {
    prepare: Arc<P>,
    stepper: StepperHandle<P::Call>,
}

impl<P: PrepareCall> Room<P> {
    /// Of a running engine.
    pub fn new(prepare: Arc<P>, stepper: StepperHandle<P::Call>) -> Self {
        Self { prepare, stepper }
    }
}

impl<P: PrepareCall> EngineRoom for Room<P> {
    fn board(&self) -> &Arc<Board> {
        self.stepper.board()
    }

    fn drain(&self) {
        self.stepper.drain();
    }

    fn model_id(&self) -> String {
        self.prepare.model_id()
    }

    fn voices(&self) -> Vec<VoiceFacts> {
        self.prepare.voice_facts()
    }

    fn prompt_facts(&self, spec: &CallSpec) -> Result<PromptFacts, PrepareError> {
        self.prepare.prompt_facts(spec)
    }

    fn add_voice(
        &self,
        name: &str,
        file_name: &str,
        bundle: &[u8],
    ) -> Result<VoiceFacts, AddVoiceError> {
        self.prepare.add_voice(name, file_name, bundle)
    }

    fn remove_voice(&self, name: &str) {
        self.prepare.remove_voice(name);
    }

    fn restore_voice(&self, name: &str) -> bool {
        self.prepare.restore_voice(name)
    }

    fn convert_bundle(&self, file_name: &str, bundle: &[u8]) -> Result<Vec<u8>, AddVoiceError> {
        self.prepare.convert_bundle(file_name, bundle)
    }

    fn recording_frames_max(&self) -> usize {
        self.prepare.recording_frames_max()
    }

    fn memory_frames(&self) -> usize {
        self.prepare.memory_frames()
    }

    fn voice_from_recording(&self, pcm: &[f32]) -> Result<Vec<u8>, AddVoiceError> {
        self.prepare.voice_from_recording(pcm)
    }

    fn rehearse(
        &self,
        spec: CallSpec,
        frames: usize,
    ) -> BoxFuture<'_, Result<Vec<f32>, RehearseError>> {
        Box::pin(super::rehearsal::rehearse(
            &self.prepare,
            &self.stepper,
            spec,
            frames,
        ))
    }
}
