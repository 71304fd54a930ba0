//! A voice bundle out of a recording: what the model would have read, had it said the recording itself.
//!
//! Lives here: encoding with the codec, staging frame by frame, sums of token embeddings. One thread, no device: takes
//! seconds, and is done beside live calls. The numbers are those that the CPU's backend feeds for the same tokens.
//! May not live here: audio files, loudness, where bundles are kept.
//!
//! Source: the published server's prompt from a WAV: call 0 of M frames runs no model, so M - 1 input vectors are kept,
//! and the ring of tokens as it stands after the last frame.

use super::{BUNDLE_BYTES_MAX, BundleError, VoiceBundle};
use crate::backend::KvDtype;
use crate::backend::{Backend, Lanes};
use crate::codec::Codec;
use crate::config::{ModelConfig, RING_COLUMNS_MAX};
use crate::kernels::Dtype;
use crate::model::{BuildError, Loader, RingRule};
use crate::native::Native;
use crate::prompt::live_positions_max;
use crate::tokens::{OutOfOrder, Staging, UNWRITTEN};
use crate::weights::{Checkpoint, Digest, LoadError, TensorView, floats};

/// Of the positions that a live call's prompt may take, so many sixteenths stay for the role text.
const ROLE_TEXT_SIXTEENTHS: usize = 7;
/// Frames of the shortest recording: one vector.
const FRAMES_MIN: usize = 2;

/// A recording that gives no voice.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Too short or too long for this model.
    #[error(
        "the recording has {frames} frames of 80 ms, this model takes {FRAMES_MIN} to {frames_max}"
    )]
    Length {
        /// The last one may be part of a frame.
        frames: usize,
        /// See [`frames_max`].
        frames_max: usize,
    },
    /// A sample that is no number.
    #[error("the recording holds samples that are no numbers")]
    NotFinite,
    /// The codec cannot be loaded.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Never seen: the order of frames is fixed.
    #[error(transparent)]
    OutOfOrder(#[from] OutOfOrder),
}

impl From<LoadError> for RecordError {
    fn from(error: LoadError) -> Self {
        Self::Build(error.into())
    }
}

/// What the staging of a recording left behind.
pub(crate) struct Staged {
    /// Tokens of every position, `[n, streams]`.
    pub(crate) fed: Vec<i32>,
    /// The ring after the last frame.
    pub(crate) cache: Vec<[i32; RING_COLUMNS_MAX]>,
}

/// Most frames of a recording: the rest of a live call's prompt stays for the role text.
pub fn frames_max(config: &ModelConfig) -> usize {
    let positions = live_positions_max(config);
    let rest = positions * ROLE_TEXT_SIXTEENTHS / 16 + 2 * config.prompt.silence_frames;
    // The first frame takes no position.
    positions.saturating_sub(rest) + 1
}

impl VoiceBundle {
    /// A voice out of `pcm`: 24 kHz mono, in -1..=1, of the loudness that voices have. The last frame is filled up with
    /// silence.
    ///
    /// # Errors
    /// [`RecordError`]: too short or too long, or the checkpoint's files cannot be read any more.
    pub fn record(checkpoint: &Checkpoint, pcm: &[f32]) -> Result<Self, RecordError> {
        let config = checkpoint.config();
        let frames = pcm.len().div_ceil(config.mimi.frame_size);
        let frames_max = frames_max(config);
        if !(FRAMES_MIN..=frames_max).contains(&frames) {
            return Err(RecordError::Length { frames, frames_max });
        }
        if pcm.iter().any(|sample| !sample.is_finite()) {
            return Err(RecordError::NotFinite);
        }
        let mut backend = Native::new(Dtype::F32, KvDtype::F32, 1);
        let codes = encode(&mut backend, checkpoint, pcm)?;
        let Staged { fed, cache } = stage(config, &codes)?;
        let embeddings = embed(checkpoint, &fed)?;
        let mut bundle = Self {
            n: embeddings.len() / config.lm.dim,
            embeddings,
            cache,
            digest: Digest::of(&[]),
        };
        bundle.digest = Digest::of(&bundle.to_safetensors(config));
        Ok(bundle)
    }

    /// The bundle as a file: `embeddings` as f32 `[n, 1, 1, dim]` and `cache` as i64 `[1, streams, columns]`.
    pub fn to_safetensors(&self, config: &ModelConfig) -> Vec<u8> {
        let (n, dim) = (self.n, config.lm.dim);
        let columns = config.ring_columns();
        let numbers = self.embeddings.iter().flat_map(|value| value.to_le_bytes());
        let embeddings: Vec<u8> = numbers.collect();
        let ids = self.cache.iter().flat_map(|row| &row[..columns]);
        let cache: Vec<u8> = ids.flat_map(|&id| i64::from(id).to_le_bytes()).collect();
        let header = format!(
            "{{\"cache\":{{\"dtype\":\"I64\",\"shape\":[1,{},{columns}],\"data_offsets\":[0,{}]}},\
             \"embeddings\":{{\"dtype\":\"F32\",\"shape\":[{n},1,1,{dim}],\"data_offsets\":[{},{}]}}}}",
            self.cache.len(),
            cache.len(),
            cache.len(),
            cache.len() + embeddings.len(),
        );
        // Filled up with spaces, so that the numbers lie where they can be read without a copy.
        let header = format!("{header:<width$}", width = header.len().next_multiple_of(8));
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&cache);
        bytes.extend_from_slice(&embeddings);
        bytes
    }

    /// A bundle in whichever container, as a safetensors file.
    ///
    /// # Errors
    /// [`BundleError`]: it is damaged, hostile, or of another model.
    pub fn converted(
        file_name: &str,
        bytes: &[u8],
        config: &ModelConfig,
    ) -> Result<Vec<u8>, BundleError> {
        let bundle = Self::read(file_name, bytes, config)?;
        let converted = bundle.to_safetensors(config);
        match converted.len() as u64 > BUNDLE_BYTES_MAX {
            true => Err(BundleError::TooLarge {
                bytes_max: BUNDLE_BYTES_MAX,
            }),
            false => Ok(converted),
        }
    }
}

/// Codes of every frame, from a fresh encoder. Loads the codec and drops it again.
pub(crate) fn encode<B: Backend>(
    backend: &mut B,
    checkpoint: &Checkpoint,
    pcm: &[f32],
) -> Result<Vec<Vec<u32>>, BuildError> {
    let config = checkpoint.config();
    let mut loader = Loader {
        backend,
        tensors: checkpoint.codec_tensors(),
    };
    let mut codec = Codec::load(&mut loader, config, RingRule::Full, 1)?;
    let mut lanes = Lanes::default();
    lanes.set(&[0], 1, backend.padded());
    let mut frame = vec![0.0; config.mimi.frame_size];
    let mut codes = Vec::new();
    for part in pcm.chunks(frame.len()) {
        frame[..part.len()].copy_from_slice(part);
        frame[part.len()..].fill(0.0);
        let mut frame_codes = Vec::new();
        codec.encode(backend, &lanes, &frame, &mut frame_codes, &mut |_, _, _| {
            Ok(())
        })?;
        codes.push(frame_codes);
    }
    Ok(codes)
}

/// Steps `codes` as the agent's through a fresh row, while the user sends what users send in prompts.
pub(crate) fn stage(config: &ModelConfig, codes: &[Vec<u32>]) -> Result<Staged, OutOfOrder> {
    let text = config.prompt.text_while_prompting;
    let mut staging = Staging::new(config);
    let streams = staging.streams();
    let mut fed = Vec::with_capacity(codes.len() * streams);
    for codes in codes {
        staging.give_text(text);
        staging.give_agent(codes);
        staging.give_user(&config.prompt.sine_tokens)?;
        if let Some(call) = staging.begin_call()? {
            fed.extend_from_slice(&call.input[..streams]);
            // Everything was given, so no choice is written.
            staging.end_call(text, &[]);
        }
    }
    // Position p of a stream is in column p modulo the ring's width.
    let columns = config.ring_columns() as u64;
    let newest = staging.calls();
    let mut cache = vec![[UNWRITTEN; RING_COLUMNS_MAX]; streams];
    for position in (newest + 1).saturating_sub(columns)..=newest {
        let row = staging.tokens_at(position);
        for (cells, token) in cache.iter_mut().zip(row) {
            cells[(position % columns) as usize] = token;
        }
    }
    Ok(Staged { fed, cache })
}

/// Sums of token embeddings, `[n, dim]`: reads only the rows that are needed. Audio first, text last, as the temporal
/// transformer's own table look-up does, so that the bits are the same.
fn embed(checkpoint: &Checkpoint, fed: &[i32]) -> Result<Vec<f32>, LoadError> {
    let lm = &checkpoint.config().lm;
    let streams = 1 + lm.audio_streams;
    let audio_names: Vec<String> = (0..lm.audio_streams)
        .map(|stream| format!("emb.{stream}.weight"))
        .collect();
    let names = audio_names.iter().map(String::as_str);
    let tables: Vec<TensorView<'_>> = names
        .chain(["text_emb.weight"])
        .map(|name| checkpoint.lm(name))
        .collect::<Result<_, _>>()?;
    let mut sums = vec![0.0; fed.len() / streams * lm.dim];
    for (tokens, sum) in fed.chunks_exact(streams).zip(sums.chunks_exact_mut(lm.dim)) {
        let tokens = tokens[1..].iter().chain(&tokens[..1]);
        for (&token, table) in tokens.zip(&tables) {
            let Ok(token) = usize::try_from(token) else {
                continue;
            };
            let row_bytes = lm.dim * table.dtype.bytes();
            let row = &table.bytes[token * row_bytes..][..row_bytes];
            for (sum, value) in sum.iter_mut().zip(floats(table.dtype, row)) {
                *sum += value;
            }
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Temporal;
    use crate::prepare::{CallMaker, DEMO_PERSONAS};
    use slots::call::{CallSpec, PrepareCall};

    /// A sweep with a beat in it: other codes in every frame.
    fn sound(samples: usize) -> Vec<f32> {
        let at = |sample: usize| sample as f32 / 24_000.0;
        let wave = |t: f32| (900.0 * t * (1.0 + t)).sin() * (9.0 * t).sin() * 0.2;
        (0..samples).map(|sample| wave(at(sample))).collect()
    }

    /// 40 frames and a part of one.
    const SAMPLES: usize = 40 * 1_920 + 700;

    fn demo() -> Checkpoint {
        Checkpoint::demo().expect("the demo is part of the program")
    }

    #[test]
    fn the_model_reads_a_recorded_voice_bit_for_bit_as_it_would_have_read_the_recording() {
        let demo = demo();
        let config = demo.config();
        let pcm = sound(SAMPLES);
        let bundle = VoiceBundle::record(&demo, &pcm).expect("a voice");
        assert_eq!(bundle.n, 40, "the first of 41 frames runs no model");

        // The way of the recording: tokens into the model's own table look-up.
        let mut backend = Native::new(Dtype::F32, KvDtype::F32, 1);
        let codes = encode(&mut backend, &demo, &pcm).expect("codes");
        let staged = stage(config, &codes).expect("in order");
        let mut loader = Loader {
            backend: &mut backend,
            tensors: demo.lm_tensors(),
        };
        let mut temporal = Temporal::load(&mut loader, config, 1, &mut || {}).expect("the demo");
        temporal
            .embed(&mut backend, &staged.fed, &mut Vec::new())
            .expect("a CPU");
        assert_eq!(temporal.input(), &bundle.embeddings);

        // And what both rows feed afterwards.
        let mut replayed = Staging::new(config);
        replayed.replay_voice(&bundle);
        let mut played = Staging::new(config);
        let pad = config.prompt.text_while_prompting;
        let frame = |row: &mut Staging, codes: &[u32]| {
            row.give_text(pad);
            row.give_agent(codes);
            row.give_user(&config.prompt.sine_tokens).expect("in order");
            let call = row.begin_call().expect("in order");
            if call.is_some() {
                row.end_call(pad, &[]);
            }
            call
        };
        for codes in &codes {
            frame(&mut played, codes);
        }
        for _ in 0..8 {
            let silence = &config.prompt.silence_tokens;
            let (a, b) = (frame(&mut played, silence), frame(&mut replayed, silence));
            assert_eq!(a, b);
        }
    }

    #[test]
    fn a_recorded_voice_is_read_back_from_its_file_as_it_was() {
        let demo = demo();
        let bundle = VoiceBundle::record(&demo, &sound(SAMPLES)).expect("a voice");
        let bytes = bundle.to_safetensors(demo.config());
        let read = VoiceBundle::read("x.safetensors", &bytes, demo.config()).expect("a bundle");
        assert_eq!(read, bundle);
        let again = VoiceBundle::converted("x.safetensors", &bytes, demo.config());
        assert_eq!(again.as_deref(), Ok(&bytes[..]));
    }

    #[test]
    fn recordings_that_give_no_voice_are_refused() {
        let demo = demo();
        let most = frames_max(demo.config()) * 1_920;
        for samples in [0, 1_920, most + 1] {
            let refused = VoiceBundle::record(&demo, &sound(samples));
            assert!(
                matches!(refused, Err(RecordError::Length { .. })),
                "{samples}"
            );
        }
        let mut pcm = sound(SAMPLES);
        pcm[7] = f32::NAN;
        let refused = VoiceBundle::record(&demo, &pcm);
        assert!(matches!(refused, Err(RecordError::NotFinite)));
    }

    #[test]
    fn the_longest_recording_leaves_room_for_every_persona() {
        let demo = std::sync::Arc::new(demo());
        let maker = CallMaker::new(demo.clone(), &DEMO_PERSONAS);
        let pcm = sound(maker.recording_frames_max() * 1_920);
        let bytes = maker.voice_from_recording(&pcm).expect("a voice");
        let facts = maker.add_voice("Ada", "Ada.safetensors", &bytes);
        assert_eq!(
            facts.expect("a voice").frames,
            frames_max(demo.config()) - 1
        );
        for text in DEMO_PERSONAS {
            let spec = CallSpec {
                text_prompt: Some(text.into()),
                voice: Some("Ada".into()),
                ..CallSpec::default()
            };
            maker.prepare(&spec).expect("fits");
        }
    }
}
