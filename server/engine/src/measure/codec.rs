//! The codec with noise for sound and for codes.

use slots::engine::EngineError;

use crate::backend::{Backend, Done, Lanes};
use crate::codec::{Codec, CodecError};
use crate::config::{ModelConfig, expected_tensors};
use crate::model::{BuildError, Loader, RingRule};
use crate::weights::Tensors;

use super::{Noise, Part, codec_cells};

/// Seed of the weights.
const SEED: u64 = 11;
/// Half the range of the sound: a voice close to the microphone.
const LOUD: f32 = 0.3;

pub(super) struct CodecRig<B: Backend> {
    codec: Codec<B>,
    rows: usize,
    frame_size: usize,
    bins: usize,
    noise: Noise,
    lanes: Lanes,
    live: Vec<usize>,
    sound: Vec<f32>,
    codes: Vec<u32>,
    heard: Vec<u32>,
    pcm: Vec<f32>,
}

impl<B: Backend> CodecRig<B> {
    pub(super) fn new(
        backend: &mut B,
        config: &ModelConfig,
        rows: usize,
    ) -> Result<Self, BuildError> {
        let tensors = Tensors::random(expected_tensors(config).1, SEED);
        let mut loader = Loader {
            backend,
            tensors: &tensors,
        };
        let mut codec = Codec::load(&mut loader, config, RingRule::Full, rows)?;
        let cells = codec_cells(backend, config)?;
        codec.stand_late(backend, &cells)?;
        let mut noise = Noise::new(SEED);
        let mut sound = Vec::new();
        noise.fill(rows * config.mimi.frame_size, LOUD, &mut sound);
        Ok(Self {
            codec,
            rows,
            frame_size: config.mimi.frame_size,
            bins: config.mimi.quantizer.bins,
            noise,
            lanes: Lanes::default(),
            live: Vec::new(),
            sound,
            codes: Vec::new(),
            heard: Vec::new(),
            pcm: Vec::new(),
        })
    }

    pub(super) fn tick(&mut self, backend: &mut B, part: Part, batch: usize) -> Done {
        self.live.clear();
        self.live.extend(0..batch);
        self.lanes.set(&self.live, self.rows, backend.padded());
        let lanes = self.lanes.len();
        if part == Part::MimiEncode {
            let sound = &self.sound[..lanes * self.frame_size];
            return self.codec.encode(
                backend,
                &self.lanes,
                sound,
                &mut self.heard,
                &mut |_, _, _| Ok(()),
            );
        }
        let (noise, bins) = (&mut self.noise, self.bins);
        self.codes.clear();
        self.codes
            .extend((0..lanes * self.codec.codes()).map(|_| noise.below(bins) as u32));
        let decoded = self.codec.decode(
            backend,
            &self.lanes,
            &self.codes,
            &mut self.pcm,
            &mut |_, _, _| Ok(()),
        );
        decoded.map_err(|error| match error {
            CodecError::Device(error) => error,
            error => EngineError {
                what: error.to_string(),
            },
        })
    }
}
