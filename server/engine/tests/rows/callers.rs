//! Who calls: voice, persona, sampling, and what they say into the microphone.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use engine::prompt::Prompt;
use engine::voice_model::VoiceCall;
use engine::voices::VoiceBundle;
use engine::weights::{Checkpoint, Digest};
use slots::call::Sampling;

/// The recorded checkpoint with a window of [`CONTEXT`] positions.
pub static FIXTURE: LazyLock<Checkpoint> = LazyLock::new(|| {
    Checkpoint::open(&fixture_folder()).expect("the fixture is a whole checkpoint")
});

/// Positions of the fixture's window.
pub const CONTEXT: usize = 24;

/// The model inside the program.
pub static DEMO: LazyLock<Checkpoint> =
    LazyLock::new(|| Checkpoint::demo().expect("the demo is a whole checkpoint"));

pub fn fixture_folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny2/checkpoint")
}

/// One caller.
#[derive(Clone)]
pub struct Caller {
    pub name: &'static str,
    pub prompt: Prompt,
    pub sampling: Sampling,
    /// Which sound the microphone hears.
    pub voice_seed: u32,
    /// Puts something else into some frames of the microphone.
    pub spoil: fn(usize, &mut [f32]),
}

impl Caller {
    pub fn voice_call(&self) -> VoiceCall {
        VoiceCall {
            prompt: self.prompt.clone(),
            sampling: self.sampling,
        }
    }

    /// Frame `frame` of what the caller says: a second of a wavering tone with some noise, a second of hush, and so on.
    pub fn speak(&self, frame: usize, mic: &mut [f32]) {
        let mut noise = self.voice_seed.wrapping_mul(0x9e37_79b9) ^ frame as u32;
        let pitch = 0.02 + 0.004 * self.voice_seed as f32;
        let loud = if (frame / 12).is_multiple_of(2) {
            0.3
        } else {
            0.001
        };
        let start = frame * mic.len();
        for (at, sample) in mic.iter_mut().enumerate() {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let hiss = (noise >> 8) as f32 / (1 << 23) as f32 - 1.0;
            *sample = loud * (((start + at) as f32 * pitch).sin() + 0.1 * hiss);
        }
        (self.spoil)(frame, mic);
    }

    pub fn with_sampling(&self, sampling: Sampling) -> Self {
        Self {
            sampling,
            ..self.clone()
        }
    }
}

/// A caller of `checkpoint` with voice `voice` and role text `text`, of any length.
pub fn caller(
    checkpoint: &Checkpoint,
    name: &'static str,
    voice: Option<&str>,
    text: &str,
    sampling: Sampling,
    voice_seed: u32,
) -> Caller {
    Caller {
        name,
        prompt: Prompt::new(checkpoint, voice, text, usize::MAX).expect("the voice is known"),
        sampling,
        voice_seed,
        spoil: |_, _| {},
    }
}

/// Draws by `seed` with the published temperatures.
pub fn sampled(seed: u64) -> Sampling {
    Sampling {
        seed,
        ..Sampling::default()
    }
}

/// Callers of the fixture that differ in everything: voice, length of the prompt, sampling, microphone.
pub static CALLERS: LazyLock<Vec<Caller>> = LazyLock::new(|| {
    let harbour = "You run the lost and found of a small harbour. Ask one question at a time.";
    let hot = Sampling {
        text_temperature: 1.3,
        audio_temperature: 1.1,
        repetition_penalty: 1.6,
        repetition_penalty_context: 20,
        ..sampled(2)
    };
    let narrow = Sampling {
        text_top_k: 3,
        audio_top_k: 5,
        ..sampled(3)
    };
    let model = &*FIXTURE;
    vec![
        caller(
            model,
            "greedy harbour",
            Some("NATF0"),
            harbour,
            Sampling::greedy(),
            1,
        ),
        caller(model, "voice alone", Some("NATM0"), "", sampled(1), 2),
        caller(model, "bare", None, "", hot, 3),
        caller(model, "short persona", Some("NATF0"), "Hello.", narrow, 4),
        caller(model, "text alone", None, harbour, sampled(4), 5),
    ]
});

/// A caller whose voice makes the row's numbers NaN.
pub static POISON: LazyLock<Caller> = LazyLock::new(|| poison(&FIXTURE));

pub fn poison(model: &Checkpoint) -> Caller {
    let (_, voice) = model.voices().get("NATM0").expect("a voice of the model");
    let mut voice = VoiceBundle::clone(voice);
    voice.embeddings.fill(f32::NAN);
    let named = caller(model, "poison", None, "", sampled(6), 6);
    Caller {
        prompt: made_voice(model, "POISON", voice, &[]),
        ..named
    }
}

/// The prompt of a voice that is in no library.
pub fn made_voice(
    model: &Checkpoint,
    name: &str,
    mut voice: VoiceBundle,
    text_ids: &[u32],
) -> Prompt {
    voice.digest = Digest::of(name.as_bytes());
    let voice = Some((name.to_owned(), Arc::new(voice)));
    Prompt::from_parts(model.config(), model.digest(), voice, text_ids.to_vec())
}
