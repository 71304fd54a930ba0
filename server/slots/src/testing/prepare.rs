//! Calls for the scripted engine, and the voices it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{POSITIONS_MAX, ScriptedCall};
use crate::call::{AddVoiceError, CallSpec, PrepareCall, PrepareError, PromptFacts, VoiceFacts};
use crate::units::FRAME_SAMPLES;

/// The longest recording that becomes a scripted voice, in frames (60 s).
const RECORDING_FRAMES_MAX: usize = 750;
/// How much of a call it sees, in frames: four minutes.
const MEMORY_FRAMES: usize = 3_000;
/// How a bundle of the scripted engine begins: as a zip archive does, so that nothing takes it for sound.
const BUNDLE_MAGIC: &[u8] = b"PK\x03\x04 scripted ";

/// A bundle of the scripted engine: so many frames long, and its rows speak at this level in hundredths.
pub fn scripted_bundle(frames: u32, level_percent: u32) -> Vec<u8> {
    let numbers = [frames, level_percent];
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    BUNDLE_MAGIC.iter().copied().chain(numbers).collect()
}

/// Prepares calls for the scripted engine: a role text of n bytes takes n positions.
#[derive(Clone, Debug)]
pub struct ScriptedPrepare {
    /// Names of the model's own voices, sorted; the n-th speaks at level (n + 1) / 100.
    pub voices: Vec<String>,
    /// Chunks of every prompt.
    pub chunks: u32,
    // Locked by whoever prepares calls or changes voices, for a look.
    changes: Arc<Mutex<Changes>>,
}

#[derive(Debug, Default)]
struct Changes {
    /// Frames and level by name.
    added: BTreeMap<String, (usize, f32)>,
    taken_out: BTreeSet<String>,
}

impl Default for ScriptedPrepare {
    fn default() -> Self {
        Self {
            voices: vec!["NATF0".into(), "NATM0".into()],
            chunks: 0,
            changes: Arc::default(),
        }
    }
}

impl ScriptedPrepare {
    /// Name, frames and level of all voices, sorted by name.
    fn present(&self) -> Vec<(String, usize, f32)> {
        let changes = self.changes();
        let own = self.voices.iter().enumerate();
        let own = own
            .filter(|(_, name)| !changes.taken_out.contains(*name))
            .map(|(nth, name)| (name.clone(), 1, (nth + 1) as f32 / 100.0));
        let added = changes.added.iter();
        let added = added.map(|(name, &(frames, level))| (name.clone(), frames, level));
        let mut all: Vec<_> = own.chain(added).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Frames and level of a scripted bundle.
fn read(bundle: &[u8]) -> Result<(usize, f32), AddVoiceError> {
    let refused = || AddVoiceError {
        what: "this is no voice of the scripted engine".to_owned(),
    };
    let numbers = bundle.strip_prefix(BUNDLE_MAGIC).ok_or_else(refused)?;
    match numbers.as_chunks::<4>() {
        ([frames, level], []) => Ok((
            u32::from_le_bytes(*frames) as usize,
            u32::from_le_bytes(*level) as f32 / 100.0,
        )),
        _ => Err(refused()),
    }
}

impl PrepareCall for ScriptedPrepare {
    type Call = ScriptedCall;

    fn prepare(&self, spec: &CallSpec) -> Result<ScriptedCall, PrepareError> {
        let voices = self.present();
        let named = |name: &String| {
            let found = voices.iter().find(|(known, ..)| known == name);
            found.ok_or_else(|| PrepareError::UnknownVoice {
                name: name.clone(),
                known: voices
                    .iter()
                    .map(|(name, ..)| name.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            })
        };
        let voice = spec.voice.as_ref().map(named).transpose()?;
        let voice = voice.or(voices.first()).map_or(0.0, |(.., level)| *level);
        let positions = spec.text_prompt.as_deref().map_or(0, str::len);
        if positions > POSITIONS_MAX {
            return Err(PrepareError::PromptTooLong {
                positions,
                text_tokens: positions,
                positions_max: POSITIONS_MAX,
            });
        }
        Ok(ScriptedCall {
            chunks: self.chunks,
            positions,
            voice,
            warm_up: 0,
        })
    }

    fn model_id(&self) -> String {
        "scripted".to_owned()
    }

    fn prompt_facts(&self, spec: &CallSpec) -> Result<PromptFacts, PrepareError> {
        let text_tokens = spec.text_prompt.as_deref().map_or(0, str::len);
        Ok(PromptFacts {
            text_tokens,
            positions: text_tokens,
            positions_max: POSITIONS_MAX,
        })
    }

    fn voice_facts(&self) -> Vec<VoiceFacts> {
        let voices = self.present().into_iter().enumerate();
        voices
            .map(|(nth, (name, frames, _))| VoiceFacts {
                name,
                frames,
                is_default: nth == 0,
            })
            .collect()
    }

    fn add_voice(
        &self,
        name: &str,
        _file_name: &str,
        bundle: &[u8],
    ) -> Result<VoiceFacts, AddVoiceError> {
        let (frames, level) = read(bundle)?;
        if self.voices.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            return Err(AddVoiceError {
                what: format!("the model has a voice named {name} of its own"),
            });
        }
        let mut changes = self.changes();
        changes.added.insert(name.to_owned(), (frames, level));
        Ok(VoiceFacts {
            name: name.to_owned(),
            frames,
            is_default: false,
        })
    }

    fn remove_voice(&self, name: &str) {
        let mut changes = self.changes();
        if changes.added.remove(name).is_none() && self.voices.iter().any(|own| own == name) {
            changes.taken_out.insert(name.to_owned());
        }
    }

    fn restore_voice(&self, name: &str) -> bool {
        self.changes().taken_out.remove(name);
        self.voices.iter().any(|own| own == name)
    }

    fn convert_bundle(&self, _file_name: &str, bundle: &[u8]) -> Result<Vec<u8>, AddVoiceError> {
        read(bundle)?;
        Ok(bundle.to_vec())
    }

    fn recording_frames_max(&self) -> usize {
        RECORDING_FRAMES_MAX
    }

    fn memory_frames(&self) -> usize {
        MEMORY_FRAMES
    }

    /// Its level is the loudest sample of the recording.
    fn voice_from_recording(&self, pcm: &[f32]) -> Result<Vec<u8>, AddVoiceError> {
        let peak = pcm
            .iter()
            .fold(0.0, |most: f32, sample| most.max(sample.abs()));
        let frames = pcm.len().div_ceil(FRAME_SAMPLES) - 1;
        Ok(scripted_bundle(frames as u32, (peak * 100.0) as u32))
    }
}
