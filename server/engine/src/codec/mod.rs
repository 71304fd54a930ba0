//! The codec: PCM frames to codes and back, streaming, each row for itself.
//!
//! Lives here: convolutions, the two transformers, the quantizer, in the order of the published codec, written against
//! [`crate::backend::Backend`]. Everything is f32 on every backend.
//! May not live here: what codes mean to the transformers over tokens, when a row starts or ends.
//! Start reading at [`Codec::encode`] and [`Codec::decode`].

mod quantizer;
mod seanet;
mod transformer;

use slots::engine::EngineError;

use crate::backend::{Backend, ConvShape, ConvTrShape, Done, Lanes};
use crate::config::{MimiConfig, ModelConfig};
use crate::model::{BuildError, Loader, RingRule};

use quantizer::{CodesTo, Quantizer};
use seanet::Sequence;
use transformer::CodecTransformer;

/// A place inside the codec whose values verification compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodecTap {
    /// Output of entry `n` of the encoder's convolutions.
    EncoderEntry(usize),
    /// Output of the encoder's convolutions.
    EncoderConvs,
    /// Output of the encoder's transformer.
    EncoderTransformer,
    /// After the downsampling.
    Latent,
    /// Input of the semantic codebooks.
    ProjFirst,
    /// Input of the acoustic codebooks.
    ProjRest,
    /// Sum of the codebook entries, projected back.
    DecoderLatent,
    /// After the upsampling.
    Upsampled,
    /// Output of the decoder's transformer.
    DecoderTransformer,
    /// Output of entry `n` of the decoder's convolutions.
    DecoderEntry(usize),
}

/// Sees values at a [`CodecTap`], time-major.
pub type Tap<'a, B> = &'a mut dyn FnMut(&mut B, CodecTap, &<B as Backend>::Buf) -> Done;

/// Frames that cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// A code the codec has no entry for; nothing was decoded.
    #[error("code {code} is out of range, the codec has {bins}")]
    CodeOutOfRange {
        /// The code.
        code: u32,
        /// How many entries a codebook has.
        bins: usize,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] EngineError),
}

/// Encoder and decoder with the state of all rows.
pub struct Codec<B: Backend> {
    config: MimiConfig,
    encoder: Sequence<B>,
    encoder_transformer: CodecTransformer<B>,
    downsample: (B::Conv, B::Carry),
    quantizer: Quantizer<B>,
    upsample: (B::ConvTr, B::Carry),
    decoder_transformer: CodecTransformer<B>,
    decoder: Sequence<B>,
    x: B::Buf,
    y: B::Buf,
    ids: Vec<i32>,
}

impl<B: Backend> Codec<B> {
    /// Reads the weights and makes fresh state for `rows` rows.
    ///
    /// # Errors
    /// [`BuildError`]: a tensor is missing or the device refused.
    pub fn load(
        loader: &mut Loader<'_, B>,
        config: &ModelConfig,
        rule: RingRule,
        rows: usize,
    ) -> Result<Self, BuildError> {
        let mimi = config.mimi.clone();
        let (width, resample) = (mimi.seanet.dimension, &mimi.resample);
        let shape = ConvShape {
            channels_in: width,
            channels_out: width,
            kernel: resample.kernel_size,
            stride: resample.stride,
            dilation: 1,
            replicate: true,
        };
        let weight = loader.values("downsample.conv.conv.conv.weight")?;
        let down = loader.backend.conv(shape, &weight, None)?;
        let down_carry = loader.backend.carry(rows, &down)?;
        let shape = ConvTrShape {
            channels_in: width,
            channels_out: width,
            stride: resample.stride,
            depthwise: true,
        };
        let weight = loader.values("upsample.convtr.convtr.convtr.weight")?;
        let up = loader.backend.conv_tr(shape, &weight, None)?;
        let up_carry = loader.backend.carry_tr(rows, &up)?;
        let transformer = |loader: &mut Loader<'_, B>, side| {
            CodecTransformer::load(loader, side, &mimi, rule, rows)
        };
        Ok(Self {
            encoder: Sequence::encoder(loader, &mimi, rows)?,
            encoder_transformer: transformer(loader, "encoder_transformer")?,
            downsample: (down, down_carry),
            quantizer: Quantizer::load(loader, &mimi)?,
            upsample: (up, up_carry),
            decoder_transformer: transformer(loader, "decoder_transformer")?,
            decoder: Sequence::decoder(loader, &mimi, rows)?,
            config: mimi,
            x: B::Buf::default(),
            y: B::Buf::default(),
            ids: Vec::new(),
        })
    }

    /// Codes of a frame.
    pub fn codes(&self) -> usize {
        self.config.quantizer.n_q_used
    }

    /// Makes `row` as good as new: carries, positions, both transformers.
    ///
    /// # Errors
    /// The device failed.
    pub fn reset(&mut self, backend: &mut B, row: usize) -> Done {
        self.encoder.reset(backend, row)?;
        self.encoder_transformer.reset(row);
        backend.carry_reset(&mut self.downsample.1, row)?;
        backend.carry_reset(&mut self.upsample.1, row)?;
        self.decoder_transformer.reset(row);
        self.decoder.reset(backend, row)
    }

    /// Puts every row far into its call, with `cells` in the rings of both transformers: for clocks.
    pub(crate) fn stand_late(&mut self, backend: &mut B, cells: &B::RingPart) -> Done {
        self.encoder_transformer.stand_late(backend, cells)?;
        self.decoder_transformer.stand_late(backend, cells)
    }

    /// One frame of every active lane to codes: `pcm` is `[lanes, frame_size]`, `codes` becomes `[lanes, codes]`.
    ///
    /// # Errors
    /// The device failed.
    pub fn encode(
        &mut self,
        backend: &mut B,
        lanes: &Lanes,
        pcm: &[f32],
        codes: &mut Vec<u32>,
        tap: Tap<'_, B>,
    ) -> Done {
        self.encode_into(backend, lanes, pcm, CodesTo::Host(codes), tap)
    }

    /// As [`Codec::encode`]; code `n` goes to slot `first + n` of the board.
    ///
    /// # Errors
    /// The device failed.
    pub fn encode_to_board(
        &mut self,
        backend: &mut B,
        lanes: &Lanes,
        pcm: &[f32],
        first: usize,
    ) -> Done {
        let codes = CodesTo::Board(first);
        self.encode_into(backend, lanes, pcm, codes, &mut |_, _, _| Ok(()))
    }

    fn encode_into(
        &mut self,
        backend: &mut B,
        lanes: &Lanes,
        pcm: &[f32],
        codes: CodesTo<'_>,
        tap: Tap<'_, B>,
    ) -> Done {
        backend.set_lanes(lanes)?;
        backend.upload(pcm, self.config.channels, &mut self.x)?;
        self.encoder.forward(
            backend,
            lanes,
            &mut self.x,
            &mut self.y,
            &mut |b, entry, x| tap(b, CodecTap::EncoderEntry(entry), x),
        )?;
        tap(backend, CodecTap::EncoderConvs, &self.x)?;
        self.encoder_transformer
            .forward(backend, lanes, &mut self.x)?;
        tap(backend, CodecTap::EncoderTransformer, &self.x)?;
        let (conv, carry) = &mut self.downsample;
        backend.conv_step(conv, carry, lanes, &self.x, &mut self.y, false)?;
        tap(backend, CodecTap::Latent, &self.y)?;
        self.quantizer.encode(backend, &self.y, codes, tap)
    }

    /// One frame of codes of every active lane to PCM: `codes` is `[lanes, codes]`, `pcm` becomes
    /// `[lanes, frame_size]`, not clamped.
    ///
    /// # Errors
    /// [`CodecError`]; with a code out of range no row's state has moved.
    pub fn decode(
        &mut self,
        backend: &mut B,
        lanes: &Lanes,
        codes: &[u32],
        pcm: &mut Vec<f32>,
        tap: Tap<'_, B>,
    ) -> Result<(), CodecError> {
        let bins = self.config.quantizer.bins;
        if let Some(&code) = codes.iter().find(|&&code| code as usize >= bins) {
            return Err(CodecError::CodeOutOfRange { code, bins });
        }
        self.ids.clear();
        self.ids.extend(codes.iter().map(|&code| code as i32));
        let ids = std::mem::take(&mut self.ids);
        let done = self.decode_ids(backend, lanes, &ids, tap);
        self.ids = ids;
        done?;
        Ok(backend.download(&self.x, pcm)?)
    }

    /// As [`Codec::decode`] of codes that are in range or on the board; the samples stay where they are, see
    /// [`Codec::pcm`].
    ///
    /// # Errors
    /// The device failed.
    pub fn decode_ids(
        &mut self,
        backend: &mut B,
        lanes: &Lanes,
        codes: &[i32],
        tap: Tap<'_, B>,
    ) -> Done {
        backend.set_lanes(lanes)?;
        self.quantizer.decode(backend, codes, &mut self.y)?;
        tap(backend, CodecTap::DecoderLatent, &self.y)?;
        let (conv, carry) = &mut self.upsample;
        backend.conv_tr_step(conv, carry, lanes, &self.y, &mut self.x)?;
        tap(backend, CodecTap::Upsampled, &self.x)?;
        self.decoder_transformer
            .forward(backend, lanes, &mut self.x)?;
        tap(backend, CodecTap::DecoderTransformer, &self.x)?;
        self.decoder.forward(
            backend,
            lanes,
            &mut self.x,
            &mut self.y,
            &mut |b, entry, x| tap(b, CodecTap::DecoderEntry(entry), x),
        )
    }

    /// What was decoded last, `[lanes, frame_size]`.
    pub fn pcm(&self) -> &B::Buf {
        &self.x
    }
}
