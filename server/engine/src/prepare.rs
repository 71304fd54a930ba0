//! From a caller's wish to a call that can be seated.
//!
//! Lives here: [`CallMaker`], which fills in what a wish leaves open, and the voices there are. May not live here:
//! queries, rows, the tick.

use std::sync::Arc;

use slots::call::{
    AddVoiceError, CallSpec, PrepareCall, PrepareError, PromptFacts, Sampling, VoiceFacts,
};

use crate::config::ModelConfig;
use crate::prompt::{Prompt, live_positions_max, unknown_voice};
use crate::voice_model::VoiceCall;
use crate::voices::{BundleError, NamedVoice, Shelf, VoiceBundle, frames_max};
use crate::weights::Checkpoint;

/// The persona of calls that bring none. Source: the published web client's first example.
pub const TEACHER: &str = "You are a wise and friendly teacher. Answer questions or provide \
                           advice in a clear and engaging way.";
/// The demo's personas, its general one first. Source: the demo's recipe.
pub const DEMO_PERSONAS: [&str; 4] = [
    "You enjoy having a good conversation.",
    "You are a museum guide.",
    "You work at a pizza shop.",
    TEACHER,
];
/// The voice of calls that bring none, if there is one of that name. Source: the published web client's default.
pub const DEFAULT_VOICE: &str = "NATF0";

/// Looks voices up and turns role texts into tokens. Shared by all callers.
#[derive(Debug)]
pub struct CallMaker {
    checkpoint: Arc<Checkpoint>,
    personas: Vec<String>,
    shelf: Shelf,
}

impl CallMaker {
    /// For calls to `checkpoint`; the first of `personas` is the role of calls that bring none.
    pub fn new(checkpoint: Arc<Checkpoint>, personas: &[&str]) -> Self {
        Self {
            personas: personas.iter().map(|&text| text.to_owned()).collect(),
            shelf: Shelf::new(Arc::clone(checkpoint.voices())),
            checkpoint,
        }
    }

    /// The voice of calls that bring none.
    fn default_voice(&self) -> Option<NamedVoice> {
        let default = self.shelf.get(DEFAULT_VOICE);
        default.or_else(|| self.shelf.all().into_iter().next())
    }

    fn voice(&self, name: Option<&str>) -> Result<Option<NamedVoice>, PrepareError> {
        let Some(name) = name else {
            return Ok(self.default_voice());
        };
        match self.shelf.get(name) {
            Some(voice) => Ok(Some(voice)),
            None => {
                let known = self.shelf.all();
                let known = known.iter().map(|(name, _)| name.as_str());
                Err(unknown_voice(name, known))
            }
        }
    }

    /// The calls worth reading ahead of the first caller: every persona with the default voice.
    pub fn presets(&self) -> Vec<CallSpec> {
        let spec = |text: &String| CallSpec {
            text_prompt: Some(text.clone()),
            ..CallSpec::default()
        };
        self.personas.iter().map(spec).collect()
    }

    /// As [`PrepareCall::prepare`], with a limit of one's own instead of that of live calls.
    pub(crate) fn prepare_within(
        &self,
        spec: &CallSpec,
        positions_max: usize,
    ) -> Result<VoiceCall, PrepareError> {
        let given = spec
            .text_prompt
            .as_deref()
            .filter(|text| !text.trim().is_empty());
        let text = given
            .or(self.personas.first().map(String::as_str))
            .unwrap_or_default();
        let voice = self.voice(spec.voice.as_deref())?;
        let prompt = Prompt::of(&self.checkpoint, voice, text, positions_max)?;
        Ok(VoiceCall {
            prompt,
            sampling: spec.sampling,
        })
    }

    /// The sampling that the checkpoint recommends, with `seed`.
    pub fn sampling(config: &ModelConfig, seed: u64) -> Sampling {
        let defaults = &config.sampling;
        Sampling {
            text_temperature: defaults.text_temperature,
            text_top_k: defaults.text_top_k,
            audio_temperature: defaults.audio_temperature,
            audio_top_k: defaults.audio_top_k,
            seed,
            ..Sampling::default()
        }
    }
}

impl PrepareCall for CallMaker {
    type Call = VoiceCall;

    fn prepare(&self, spec: &CallSpec) -> Result<VoiceCall, PrepareError> {
        self.prepare_within(spec, live_positions_max(self.checkpoint.config()))
    }

    fn default_sampling(&self) -> Sampling {
        Self::sampling(self.checkpoint.config(), 0)
    }

    fn model_id(&self) -> String {
        self.checkpoint.digest().to_string()
    }

    fn prompt_facts(&self, spec: &CallSpec) -> Result<PromptFacts, PrepareError> {
        let prompt = self.prepare_within(spec, usize::MAX)?.prompt;
        Ok(PromptFacts {
            text_tokens: prompt.text_ids.len(),
            positions: prompt.positions(),
            positions_max: live_positions_max(self.checkpoint.config()),
        })
    }

    fn voice_facts(&self) -> Vec<VoiceFacts> {
        let default = self.default_voice().map(|(name, _)| name);
        let facts = |(name, bundle): NamedVoice| VoiceFacts {
            frames: bundle.n,
            is_default: default.as_ref() == Some(&name),
            name,
        };
        self.shelf.all().into_iter().map(facts).collect()
    }

    fn add_voice(
        &self,
        name: &str,
        file_name: &str,
        bundle: &[u8],
    ) -> Result<VoiceFacts, AddVoiceError> {
        let bundle = VoiceBundle::read(file_name, bundle, self.checkpoint.config());
        let bundle = bundle.map_err(|error| refused(&BadBundle(error)))?;
        let frames = bundle.n;
        self.shelf
            .add(name, bundle)
            .map_err(|error| refused(&error))?;
        let default = self.default_voice().map(|(name, _)| name);
        Ok(VoiceFacts {
            name: name.to_owned(),
            frames,
            is_default: default.as_deref() == Some(name),
        })
    }

    fn remove_voice(&self, name: &str) {
        self.shelf.remove(name);
    }

    fn restore_voice(&self, name: &str) -> bool {
        self.shelf.put_back(name)
    }

    fn convert_bundle(&self, file_name: &str, bundle: &[u8]) -> Result<Vec<u8>, AddVoiceError> {
        let config = self.checkpoint.config();
        VoiceBundle::converted(file_name, bundle, config)
            .map_err(|error| refused(&BadBundle(error)))
    }

    fn recording_frames_max(&self) -> usize {
        frames_max(self.checkpoint.config())
    }

    fn memory_frames(&self) -> usize {
        self.checkpoint.config().lm.context
    }

    fn voice_from_recording(&self, pcm: &[f32]) -> Result<Vec<u8>, AddVoiceError> {
        let bundle = VoiceBundle::record(&self.checkpoint, pcm).map_err(|error| refused(&error))?;
        Ok(bundle.to_safetensors(self.checkpoint.config()))
    }
}

/// A bundle's error as a whole sentence: its text leaves the subject to whoever knows the file's name.
#[derive(Debug, thiserror::Error)]
#[error("this bundle: {0}")]
struct BadBundle(BundleError);

fn refused(error: &dyn std::error::Error) -> AddVoiceError {
    AddVoiceError {
        what: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maker() -> CallMaker {
        let demo = Checkpoint::demo().expect("the demo is part of the program");
        CallMaker::new(Arc::new(demo), &DEMO_PERSONAS)
    }

    #[test]
    fn a_wish_for_nothing_gets_the_default_persona_and_voice() {
        let blank = CallSpec {
            text_prompt: Some("  \n".into()),
            ..CallSpec::default()
        };
        let spelt = CallSpec {
            text_prompt: Some(DEMO_PERSONAS[0].into()),
            voice: Some("NATF0.pt".into()),
            ..CallSpec::default()
        };
        let keys = [CallSpec::default(), blank, spelt]
            .map(|spec| maker().prepare(&spec).expect("default").prompt.key);
        assert!(keys[0] == keys[1] && keys[1] == keys[2], "{keys:?}");
    }

    #[test]
    fn an_unknown_voice_is_refused_with_the_known_ones() {
        let spec = CallSpec {
            voice: Some("BASS9".into()),
            ..CallSpec::default()
        };
        let error = maker().prepare(&spec).expect_err("there is no such voice");
        let known = "NATF0, NATM0".to_owned();
        assert_eq!(
            error,
            PrepareError::UnknownVoice {
                name: "BASS9".into(),
                known
            }
        );
    }

    #[test]
    fn a_role_text_that_would_take_half_the_window_is_refused_with_both_numbers() {
        let spec = CallSpec {
            text_prompt: Some("word ".repeat(2_000)),
            ..CallSpec::default()
        };
        let error = maker().prepare(&spec).expect_err("too long");
        let PrepareError::PromptTooLong {
            positions,
            positions_max,
            ..
        } = error
        else {
            panic!("{error}");
        };
        assert!(positions > positions_max, "{positions} {positions_max}");
    }
}
