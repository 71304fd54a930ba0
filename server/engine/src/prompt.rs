//! Voice and role text as the model reads them: a list of inputs, and the state of the row's tokens after it.
//!
//! Lives here: system tags, [`Prompt`], its key for caches, the frames of every phase.
//! May not live here: the model, the cache of snapshots, queries.

use std::sync::Arc;

use slots::call::PrepareError;

use crate::config::{ModelConfig, PromptConfig};
use crate::tokens::{Staging, TokenRow};
use crate::voices::{NamedVoice, VoiceBundle};
use crate::weights::{Checkpoint, Digest};

/// Characters of an unknown voice's name that an error repeats.
const SHOWN_NAME_CHARS_MAX: usize = 64;

/// A prompt ready to be read into a row.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// Name of the voice; `None`: no voice phase.
    pub voice: Option<String>,
    /// The voice.
    pub bundle: Option<Arc<VoiceBundle>>,
    /// Tokens of the role text with its tags; empty: no text phase.
    pub text_ids: Vec<u32>,
    /// What makes two prompts the same for this model.
    pub key: PromptKey,
    /// What is fed, position by position.
    pub inputs: Vec<PromptInput>,
    /// The row's tokens after the last position; the next call is live.
    pub after: Staging,
}

/// Two prompts with the same key leave the same state in a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PromptKey {
    /// The checkpoint.
    pub checkpoint: Digest,
    /// Name and identity of the voice.
    pub voice: Option<(String, Digest)>,
    /// Tokens of the role text.
    pub text_ids: Vec<u32>,
}

/// Part of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The voice's recorded inputs.
    Voice,
    /// Silence after the voice.
    SilenceAfterVoice,
    /// One token of the role text a frame.
    Text,
    /// Silence after the text.
    SilenceAfterText,
}

/// One temporal position of a prompt. Nothing is sampled and nothing comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptInput {
    /// Where in the prompt.
    pub phase: Phase,
    /// What is fed.
    pub source: InputSource,
}

/// What a position is fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputSource {
    /// Row of the bundle's embeddings, in place of the sum of token embeddings.
    Embedding(usize),
    /// Tokens of all streams.
    Tokens(TokenRow),
}

/// The role text between its tags, as the model was trained to read it; `None` for a blank one.
pub fn wrap_role_text(text: &str, prompt: &PromptConfig) -> Option<String> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    Some(wrap(text, &prompt.system_tag))
}

/// Trims `text` and puts `tag` on both sides, unless it is on both sides already.
pub fn wrap(text: &str, tag: &str) -> String {
    let text = text.trim();
    if text.starts_with(tag) && text.ends_with(tag) {
        return text.into();
    }
    format!("{tag} {text} {tag}")
}

/// Most positions a live call's prompt may take: the rest of the window stays for the conversation.
pub fn live_positions_max(config: &ModelConfig) -> usize {
    config.lm.context / 2
}

impl Prompt {
    /// The prompt of voice `voice` (a name, with or without extension) and role text `text`, of at most `positions_max`
    /// positions: [`live_positions_max`] for a live call.
    ///
    /// # Errors
    /// [`PrepareError`]: no such voice, or too long.
    pub fn new(
        checkpoint: &Checkpoint,
        voice: Option<&str>,
        text: &str,
        positions_max: usize,
    ) -> Result<Self, PrepareError> {
        let library = checkpoint.voices();
        let find = |name: &str| match library.get(name) {
            Some((name, bundle)) => Ok((name.to_owned(), Arc::clone(bundle))),
            None => Err(unknown_voice(name, library.names())),
        };
        let voice = voice.map(find).transpose()?;
        Self::of(checkpoint, voice, text, positions_max)
    }

    /// The same with a voice that is at hand.
    ///
    /// # Errors
    /// [`PrepareError::PromptTooLong`].
    pub fn of(
        checkpoint: &Checkpoint,
        voice: Option<NamedVoice>,
        text: &str,
        positions_max: usize,
    ) -> Result<Self, PrepareError> {
        let config = checkpoint.config();
        let wrapped = wrap_role_text(text, &config.prompt);
        let text_ids = wrapped.map_or_else(Vec::new, |text| checkpoint.tokenizer().encode(&text));
        let positions = positions(config, voice.as_ref().map(|(_, voice)| &**voice), &text_ids);
        if positions > positions_max {
            return Err(PrepareError::PromptTooLong {
                positions,
                text_tokens: text_ids.len(),
                positions_max,
            });
        }
        Ok(Self::from_parts(
            config,
            checkpoint.digest(),
            voice,
            text_ids,
        ))
    }

    /// The prompt of a voice and of tokens that are known already.
    pub fn from_parts(
        config: &ModelConfig,
        checkpoint: Digest,
        voice: Option<NamedVoice>,
        text_ids: Vec<u32>,
    ) -> Self {
        let (voice, bundle) = voice.unzip();
        let (inputs, after) = play(config, bundle.as_deref(), &text_ids);
        Self {
            key: PromptKey {
                checkpoint,
                voice: voice
                    .clone()
                    .zip(bundle.as_ref().map(|bundle| bundle.digest)),
                text_ids: text_ids.clone(),
            },
            voice,
            bundle,
            text_ids,
            inputs,
            after,
        }
    }

    /// Positions the prompt takes in the temporal transformer.
    pub fn positions(&self) -> usize {
        self.inputs.len()
    }
}

/// The error that names what is known.
pub(crate) fn unknown_voice<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> PrepareError {
    PrepareError::UnknownVoice {
        name: name.chars().take(SHOWN_NAME_CHARS_MAX).collect(),
        known: known.collect::<Vec<_>>().join(", "),
    }
}

/// Without a voice the first silent frame is the call that runs no model.
fn positions(config: &ModelConfig, voice: Option<&VoiceBundle>, text_ids: &[u32]) -> usize {
    let frames = 2 * config.prompt.silence_frames + text_ids.len();
    voice.map_or(frames - 1, |voice| voice.n + frames)
}

/// Every frame is given, so the model has no say in what is fed.
fn play(
    config: &ModelConfig,
    voice: Option<&VoiceBundle>,
    text_ids: &[u32],
) -> (Vec<PromptInput>, Staging) {
    let mut staging = Staging::new(config);
    let mut inputs = Vec::with_capacity(positions(config, voice, text_ids));
    if let Some(voice) = voice {
        inputs.extend((0..voice.n).map(|index| PromptInput {
            phase: Phase::Voice,
            source: InputSource::Embedding(index),
        }));
        staging.replay_voice(voice);
    }
    let silence = [config.prompt.text_while_prompting];
    let silent_frames = |phase| {
        let frames = std::iter::repeat_n(&silence[0], config.prompt.silence_frames);
        frames.map(move |&id| (phase, id))
    };
    let frames = silent_frames(Phase::SilenceAfterVoice)
        .chain(text_ids.iter().map(|&id| (Phase::Text, id)))
        .chain(silent_frames(Phase::SilenceAfterText));
    for (phase, text) in frames {
        staging.give_text(text);
        staging.give_agent(&config.prompt.silence_tokens);
        let given = staging.give_user(&config.prompt.sine_tokens);
        let call = given.and_then(|()| staging.begin_call());
        let call = call.expect("every prompt frame has a user frame of its own");
        if let Some(call) = call {
            inputs.push(PromptInput {
                phase,
                source: InputSource::Tokens(call.input),
            });
            // Nothing is free in a prompt, so no choice is written.
            staging.end_call(text, &[]);
        }
    }
    (inputs, staging)
}
