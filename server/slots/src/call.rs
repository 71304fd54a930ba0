//! What a caller may wish for: persona text, voice, sampling, seed; checked where it enters.
//!
//! Lives here: [`CallSpec`], [`Sampling`] with its ranges, and the trait that turns a wish into what an engine seats.
//! May not live here: tokenizers, voice files, queries.

/// How tokens are chosen. Made by [`Sampling::check`] or [`Sampling::greedy`], so the numbers are always in range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the text logits; 0 is greedy.
    pub text_temperature: f32,
    /// How many of the most probable text tokens take part.
    pub text_top_k: u32,
    /// Divides the audio logits; 0 is greedy.
    pub audio_temperature: f32,
    /// How many of the most probable audio codes take part.
    pub audio_top_k: u32,
    /// Divides positive and multiplies negative logits of text tokens used lately; 1 changes nothing.
    pub repetition_penalty: f32,
    /// How many of the last spoken text tokens the penalty looks at.
    pub repetition_penalty_context: u32,
    /// Names the random stream of the row: the same seed gives the same call, whatever the neighbours do.
    pub seed: u64,
}

/// Highest temperature that is taken; above it the choice is close to uniform noise.
pub const TEMPERATURE_MAX: f32 = 5.0;
/// Largest top-k that is taken; more than any vocabulary.
pub const TOP_K_MAX: u32 = 1 << 20;
/// Range of the repetition penalty: below 1 it would reward repetition.
pub const REPETITION_PENALTY_MAX: f32 = 10.0;
/// Most text tokens the repetition penalty looks back at (40 s of speech without a pause).
pub const REPETITION_CONTEXT_MAX: u32 = 500;

/// A sampling value out of range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name} is {value}, it must be {range}")]
pub struct SamplingError {
    /// The query parameter or flag.
    pub name: &'static str,
    /// What was given.
    pub value: String,
    /// What is taken.
    pub range: &'static str,
}

impl Default for Sampling {
    /// The published defaults. Source: the checkpoint's `config.json`, section `sampling`.
    fn default() -> Self {
        Self {
            text_temperature: 0.7,
            text_top_k: 25,
            audio_temperature: 0.8,
            audio_top_k: 250,
            repetition_penalty: 1.0,
            repetition_penalty_context: 64,
            seed: 0,
        }
    }
}

impl Sampling {
    /// Always the most probable token; what the recorded references use.
    pub fn greedy() -> Self {
        Self {
            text_temperature: 0.0,
            audio_temperature: 0.0,
            ..Self::default()
        }
    }

    /// The same values if all are in range.
    ///
    /// # Errors
    /// [`SamplingError`] names the first value that is not.
    pub fn check(self) -> Result<Self, SamplingError> {
        let error = |name, value: String, range| Err(SamplingError { name, value, range });
        for (name, value) in [
            ("text_temperature", self.text_temperature),
            ("audio_temperature", self.audio_temperature),
        ] {
            if !(0.0..=TEMPERATURE_MAX).contains(&value) {
                return error(name, value.to_string(), "from 0 (greedy) to 5");
            }
        }
        for (name, value) in [
            ("text_topk", self.text_top_k),
            ("audio_topk", self.audio_top_k),
        ] {
            if !(1..=TOP_K_MAX).contains(&value) {
                return error(name, value.to_string(), "from 1 to 1048576");
            }
        }
        if !(1.0..=REPETITION_PENALTY_MAX).contains(&self.repetition_penalty) {
            return error(
                "repetition_penalty",
                self.repetition_penalty.to_string(),
                "from 1 (off) to 10",
            );
        }
        if self.repetition_penalty_context > REPETITION_CONTEXT_MAX {
            return error(
                "repetition_penalty_context",
                self.repetition_penalty_context.to_string(),
                "from 0 to 500",
            );
        }
        Ok(self)
    }
}

/// One call as a caller asked for it; what is missing is filled in by [`PrepareCall`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallSpec {
    /// The role text, without system tags; `None` or blank: the default persona's.
    pub text_prompt: Option<String>,
    /// Name of the voice, without extension; `None`: the default persona's voice.
    pub voice: Option<String>,
    /// How tokens are chosen.
    pub sampling: Sampling,
}

/// Why a call cannot be prepared; each is the caller's to mend.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PrepareError {
    /// No such voice.
    #[error("there is no voice \"{name}\"; known voices: {known}")]
    UnknownVoice {
        /// What was asked for.
        name: String,
        /// Known names, joined by commas.
        known: String,
    },
    /// Voice and role text together take too many positions.
    #[error(
        "the prompt takes {positions} positions ({text_tokens} of them role text), the limit is {positions_max}"
    )]
    PromptTooLong {
        /// Positions of voice, role text and silences.
        positions: usize,
        /// Tokens of the role text.
        text_tokens: usize,
        /// The most a live call may use.
        positions_max: usize,
    },
    /// The role text cannot be turned into tokens.
    #[error("the role text cannot be read: {what}")]
    Text {
        /// One line.
        what: String,
    },
}

/// What a prompt costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptFacts {
    /// Tokens of the role text.
    pub text_tokens: usize,
    /// Positions of voice, role text and silences.
    pub positions: usize,
    /// The most a live call may use.
    pub positions_max: usize,
}

/// One voice that can be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoiceFacts {
    /// Its name.
    pub name: String,
    /// Length of its prompt, in frames; as many positions.
    pub frames: usize,
    /// Callers that name none get this one.
    pub is_default: bool,
}

/// Why a voice was not added. One line for whoever brought it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct AddVoiceError {
    /// What is wrong with the bundle or the recording.
    pub what: String,
}

/// Turns a wish into what the engine seats. Called off the tick, from many threads.
pub trait PrepareCall: Send + Sync + 'static {
    /// The engine's call.
    type Call: Send + 'static;

    /// Looks the voice up, turns the text into tokens, fills in what is missing.
    ///
    /// # Errors
    /// [`PrepareError`], for the caller.
    fn prepare(&self, spec: &CallSpec) -> Result<Self::Call, PrepareError>;

    /// What a call takes that says nothing about sampling; its seed means nothing.
    fn default_sampling(&self) -> Sampling {
        Sampling::default()
    }

    /// Identity of the checkpoint; voices of one mean nothing to another.
    fn model_id(&self) -> String;

    /// What a prompt costs, also of one that is too long for a call.
    ///
    /// # Errors
    /// [`PrepareError`], but for `PromptTooLong`.
    fn prompt_facts(&self, spec: &CallSpec) -> Result<PromptFacts, PrepareError>;

    /// All voices, sorted by name.
    fn voice_facts(&self) -> Vec<VoiceFacts>;

    /// Adds or replaces a voice out of the bytes of a bundle; the end of `file_name` says which container it is.
    ///
    /// # Errors
    /// [`AddVoiceError`]: it cannot be read, or belongs to another model.
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

    /// The bytes of a bundle in safetensors form, out of any container; the end of `file_name` says which one it is.
    ///
    /// # Errors
    /// [`AddVoiceError`]: it cannot be read, or belongs to another model.
    fn convert_bundle(&self, file_name: &str, bundle: &[u8]) -> Result<Vec<u8>, AddVoiceError>;

    /// The most frames of 80 ms that a recording may have for this model.
    fn recording_frames_max(&self) -> usize;

    /// How many frames of 80 ms of a call the model still sees: what was before, it has forgotten.
    fn memory_frames(&self) -> usize;

    /// Turns a recording (24 kHz mono, in -1..=1) into the bytes of a bundle in safetensors form.
    ///
    /// # Errors
    /// [`AddVoiceError`]: the recording is too short or too long for this model.
    fn voice_from_recording(&self, pcm: &[f32]) -> Result<Vec<u8>, AddVoiceError>;
}
