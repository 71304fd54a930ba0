//! How many bytes a batch needs, from the numbers of the model alone: known before anything is allocated.
//!
//! Lives here: [`Sizing`], and the answer when it does not fit. May not live here: how much is free.
//! State is exact, weights are so for the published file and bounds for others; the workspace is an upper estimate.

use slots::units::SLOTS_MAX;

use crate::backend::ConvShape;
use crate::backend::KvDtype;
use crate::config::{MimiConfig, ModelConfig, expected_tensors};
use crate::kernels::Dtype;

use super::Target;

/// What besides the model decides how much memory is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// Where.
    pub target: Target,
    /// Matrices of both transformers.
    pub dtype: Dtype,
    /// Keys and values of both transformers.
    pub kv_dtype: KvDtype,
    /// Depformer steps that are loaded.
    pub depformer_steps: usize,
    /// Positions of a prompt that are read at once.
    pub prefill_chunk: usize,
    /// Bytes that snapshots of prompts may take.
    pub prompt_cache_bytes: u64,
}

/// Bytes by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// Both transformers.
    pub weights: u64,
    /// The codec, always f32.
    pub codec_weights: u64,
    /// Keys and values of both transformers, all slots.
    pub kv: u64,
    /// Keys, values and carries of the codec, all slots.
    pub codec_state: u64,
    /// Snapshots of prompts, when their cache is full.
    pub prompt_cache: u64,
    /// Activations at their widest, and what a GPU's libraries take for themselves.
    pub workspace: u64,
}

impl Breakdown {
    /// All of it.
    pub fn total(&self) -> u64 {
        let Self {
            weights,
            codec_weights,
            kv,
            codec_state,
            prompt_cache,
            workspace,
        } = *self;
        weights + codec_weights + kv + codec_state + prompt_cache + workspace
    }
}

/// A batch that does not fit: both numbers, and what would fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// Fewer slots would fit.
    #[error("{slots} slots need {} on {target}, {} are free; the largest --slots that fits is {slots_max}",
        gb(*needed_bytes), gb(*free_bytes))]
    TooManySlots {
        /// Asked for.
        slots: usize,
        /// Where.
        target: Target,
        /// Needed for them.
        needed_bytes: u64,
        /// Free.
        free_bytes: u64,
        /// What fits.
        slots_max: usize,
    },
    /// Not even one slot fits.
    #[error("one slot needs {} on {target}, {} are free; take a smaller --dtype or a smaller model",
        gb(*needed_bytes), gb(*free_bytes))]
    NotEvenOne {
        /// Where.
        target: Target,
        /// Needed for one.
        needed_bytes: u64,
        /// Free.
        free_bytes: u64,
    },
}

/// "17.35 GB".
fn gb(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}

/// Context, libraries, their workspace and the slack of the memory pool on a GPU; estimated.
pub const GPU_FIXED_BYTES: u64 = 700_000_000;
/// Small inputs of a tick.
const GPU_CONTROL_BYTES: u64 = 8 << 20;
/// What a row's tokens and draws take beside its activations.
const GPU_ROW_BYTES: u64 = 4_096;
/// Cells that one block attends to.
const GPU_SPLIT_CELLS: usize = 256;
/// Copies of the scores that an attention over tensors holds at once.
const SCORE_COPIES: u64 = 6;

impl Sizing {
    /// Bytes that `slots` slots of `config` need.
    pub fn bytes_needed(&self, config: &ModelConfig, slots: usize) -> Breakdown {
        let slots = slots as u64;
        Breakdown {
            weights: self.weights(config),
            codec_weights: codec_weights(config),
            kv: slots * self.kv(config),
            codec_state: slots * codec_state(&config.mimi),
            prompt_cache: self.prompt_cache_bytes,
            workspace: self.workspace(config, slots),
        }
    }

    /// The most slots that fit into `free_bytes`; 0: not even one.
    pub fn largest_slots_that_fit(&self, config: &ModelConfig, free_bytes: u64) -> usize {
        let fits = |slots: &usize| self.bytes_needed(config, *slots).total() <= free_bytes;
        (1..=SLOTS_MAX).take_while(fits).last().unwrap_or(0)
    }

    /// The bytes that `slots` slots need, if that many are free.
    ///
    /// # Errors
    /// [`MemoryError`]: they are not.
    pub fn check(
        &self,
        config: &ModelConfig,
        slots: usize,
        free_bytes: u64,
    ) -> Result<Breakdown, MemoryError> {
        let needed = self.bytes_needed(config, slots);
        if needed.total() <= free_bytes {
            return Ok(needed);
        }
        let target = self.target;
        Err(match self.largest_slots_that_fit(config, free_bytes) {
            0 => MemoryError::NotEvenOne {
                target,
                needed_bytes: self.bytes_needed(config, 1).total(),
                free_bytes,
            },
            slots_max => MemoryError::TooManySlots {
                slots,
                target,
                needed_bytes: needed.total(),
                free_bytes,
                slots_max,
            },
        })
    }

    fn weights(&self, config: &ModelConfig) -> u64 {
        let (lm, depformer) = (&config.lm, &config.depformer);
        let steps = self.depformer_steps.min(depformer.steps);
        let layer = |dim: usize, ffn_dim: usize| 4 * dim * dim + 3 * ffn_dim * dim;
        let step = depformer.num_layers * layer(depformer.dim, depformer.ffn_dim)
            + depformer.dim * lm.dim
            + lm.card * depformer.dim;
        let matrices =
            lm.num_layers * layer(lm.dim, lm.ffn_dim) + lm.text_card * lm.dim + steps * step;
        let tables = (lm.text_card + 1) * (lm.dim + depformer.dim)
            + lm.audio_streams * (lm.card + 1) * lm.dim
            + steps.saturating_sub(1) * (lm.card + 1) * depformer.dim;
        let norms = (2 * lm.num_layers + 1) * lm.dim + 2 * depformer.num_layers * depformer.dim;
        let (matrix_bytes, table_bytes) = match self.dtype {
            // Tables of a bf16 file stay so, but a file may hold f32.
            Dtype::F32 => (4 * matrices, 4 * tables),
            Dtype::Bf16 => (2 * matrices, 2 * tables),
            // 32 bytes and a scale, of two bytes on a CPU and four on a GPU.
            Dtype::Q8_0 => {
                let block = if self.target == Target::Cpu { 34 } else { 36 };
                (matrices / 32 * block, 2 * tables)
            }
        };
        (matrix_bytes + table_bytes + 4 * norms) as u64
    }

    /// Bytes of one slot.
    fn kv(&self, config: &ModelConfig) -> u64 {
        let (lm, depformer) = (&config.lm, &config.depformer);
        let cells = lm.num_layers * lm.dim * lm.context
            + depformer.num_layers * depformer.dim * depformer.steps;
        let scales = lm.num_layers * lm.num_heads * lm.context
            + depformer.num_layers * depformer.num_heads * depformer.steps;
        let bytes = match self.kv_dtype {
            KvDtype::F32 => 4 * cells,
            KvDtype::Bf16 => 2 * cells,
            KvDtype::Fp8 => cells + 4 * scales,
        };
        2 * bytes as u64
    }

    fn workspace(&self, config: &ModelConfig, slots: u64) -> u64 {
        let lm = &config.lm;
        let lane = 4 * (10 * lm.dim + 6 * lm.ffn_dim + 3 * lm.text_card) as u64;
        let chunk = self.prefill_chunk as u64;
        let codec = slots * codec_lane(&config.mimi);
        match self.target {
            Target::Cpu => {
                let scores = |seen: usize| 4 * SCORE_COPIES * (lm.num_heads * seen) as u64;
                let step = slots * (lane + scores(lm.context));
                let chunk = chunk * (lane + scores(lm.context + self.prefill_chunk));
                step.max(chunk).max(codec)
            }
            // Every buffer has a place of its own, whether it is in use or not.
            Target::Cuda(_) => {
                let splits = lm.context.div_ceil(GPU_SPLIT_CELLS);
                let mixed = 4 * (splits * (lm.dim + 2 * lm.num_heads)) as u64;
                let lanes = slots.max(chunk) * (lane + mixed) + slots * GPU_ROW_BYTES;
                lanes + codec + codec / 4 + GPU_CONTROL_BYTES + GPU_FIXED_BYTES
            }
        }
    }
}

/// All codec tensors but the codebooks no frame uses; those in use are there once to search and once to look up.
fn codec_weights(config: &ModelConfig) -> u64 {
    let quantizer = &config.mimi.quantizer;
    let (_, tensors) = expected_tensors(config);
    let plain = tensors
        .iter()
        .filter(|spec| !spec.name.contains("._codebook."));
    let numbers: usize = plain.map(|spec| spec.elements()).sum();
    4 * (numbers + 2 * quantizer.n_q_used * quantizer.bins * quantizer.dimension) as u64
}

/// Bytes of one slot.
fn codec_state(mimi: &MimiConfig) -> u64 {
    let transformer = &mimi.transformer;
    let keys_and_values = 2 * 2 * transformer.num_layers * transformer.dim * transformer.context;
    let mut carries = 0;
    convolutions(mimi, &mut |conv, _| {
        carries += conv.carry() * conv.channels_in
    });
    4 * (keys_and_values + carries) as u64
}

/// The most bytes one slot has in flight inside the codec's convolutions: input, window, gathered window, outputs.
fn codec_lane(mimi: &MimiConfig) -> u64 {
    let mut most = 0;
    convolutions(mimi, &mut |conv, t| {
        let columns = t / conv.stride;
        let numbers = 3 * t * conv.channels_in
            + columns * (conv.kernel * conv.channels_in + 3 * conv.channels_out);
        most = most.max(numbers);
    });
    4 * most as u64
}

/// Every convolution of both sides with the columns of time it reads in a frame. A transposed one is listed as what it
/// is computed as: a product over two neighbouring columns.
fn convolutions(mimi: &MimiConfig, see: &mut dyn FnMut(ConvShape, usize)) {
    let seanet = &mimi.seanet;
    let plain = |channels_in, channels_out, kernel, stride| ConvShape {
        channels_in,
        channels_out,
        kernel,
        stride,
        dilation: 1,
        replicate: false,
    };
    let blocks = |width: usize, t: usize, see: &mut dyn FnMut(ConvShape, usize)| {
        for number in 0..seanet.n_residual_layers {
            let hidden = width / seanet.compress;
            let dilation = seanet.dilation_base.pow(number as u32);
            see(
                ConvShape {
                    dilation,
                    ..plain(width, hidden, seanet.residual_kernel_size, 1)
                },
                t,
            );
            see(plain(hidden, width, 1, 1), t);
        }
    };
    let (mut width, mut t) = (seanet.n_filters, mimi.frame_size);
    see(plain(mimi.channels, width, seanet.kernel_size, 1), t);
    for &ratio in seanet.ratios.iter().rev() {
        blocks(width, t, see);
        see(plain(width, 2 * width, 2 * ratio, ratio), t);
        (width, t) = (2 * width, t / ratio);
    }
    see(
        plain(width, seanet.dimension, seanet.last_kernel_size, 1),
        t,
    );
    let resample = &mimi.resample;
    see(
        plain(
            seanet.dimension,
            seanet.dimension,
            resample.kernel_size,
            resample.stride,
        ),
        t,
    );

    see(
        plain(seanet.dimension, resample.stride * seanet.dimension, 2, 1),
        t / resample.stride,
    );
    see(plain(seanet.dimension, width, seanet.kernel_size, 1), t);
    for &ratio in &seanet.ratios {
        see(plain(width, ratio * width / 2, 2, 1), t);
        (width, t) = (width / 2, t * ratio);
        blocks(width, t, see);
    }
    see(plain(width, mimi.channels, seanet.last_kernel_size, 1), t);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(depformer_steps: usize) -> Sizing {
        Sizing {
            target: Target::Cuda(0),
            dtype: Dtype::Bf16,
            kv_dtype: KvDtype::Bf16,
            depformer_steps,
            prefill_chunk: 32,
            prompt_cache_bytes: 2 << 30,
        }
    }

    #[test]
    fn weights_and_state_of_the_published_model_are_the_known_figures() {
        let config = ModelConfig::published();
        for (steps, parameters) in [(8, 7_687_729_152_u64), (16, 8_371_408_896)] {
            let weights = published(steps).bytes_needed(&config, 1).weights;
            // Norms are kept in f32, two bytes more for each of their numbers.
            let norms = (2 * 32 + 1) * 4_096 + 2 * 6 * 1_024;
            assert_eq!(weights, 2 * parameters + 2 * norms, "{steps} steps");
        }
        let one = published(8).bytes_needed(&config, 1);
        // 3,000 positions of the temporal transformer, 16 of the depformer.
        assert_eq!(one.kv, 1_572_864_000 + 2 * 6 * 1_024 * 16 * 2);
        // Keys and values of the codec, and less than the 96,792 bytes of carries of an implementation that keeps
        // outputs of transposed convolutions in place of inputs.
        let carries = one.codec_state - 16_384_000;
        assert!((50_000..96_792).contains(&carries), "{carries}");
        // 96,151,393 parameters in the file, 24 codebooks of 32 unused, 8 kept twice.
        let codebook = 2_048 * 256;
        let usage_and_flags = 32 * (2_048 + 1);
        assert_eq!(
            one.codec_weights,
            4 * (96_151_393 - 24 * codebook + 8 * codebook - usage_and_flags)
        );
    }

    #[test]
    fn a_whole_batch_comes_to_the_known_totals() {
        // Gigabytes with bf16 transformers, the f32 codec, full rings and codec state. They count all 32 codebooks, of
        // which this program keeps 8 twice (34 MB less), and no keys and values of the depformer (0.4 MB a slot more).
        let known = [
            (
                8,
                [
                    (1, 17.35),
                    (8, 28.47),
                    (16, 41.19),
                    (32, 66.62),
                    (64, 117.48),
                ],
            ),
            (
                16,
                [
                    (1, 18.72),
                    (8, 29.84),
                    (16, 42.56),
                    (32, 67.99),
                    (64, 118.85),
                ],
            ),
        ];
        for (steps, batches) in known {
            for (slots, expected) in batches {
                let found = published(steps).bytes_needed(&ModelConfig::published(), slots);
                let found = (found.total() - found.workspace - found.prompt_cache) as f64 / 1e9;
                assert!(
                    (expected - found).abs() < 0.04_f64,
                    "{slots} slots: {found}, known {expected}"
                );
            }
        }
    }

    #[test]
    fn the_answer_when_it_does_not_fit_names_both_numbers_and_what_does() {
        let config = ModelConfig::published();
        let sizing = published(8);
        let free_bytes = 80_000_000_000;
        let slots_max = sizing.largest_slots_that_fit(&config, free_bytes);
        assert!(sizing.check(&config, slots_max, free_bytes).is_ok());
        let refusal = sizing
            .check(&config, slots_max + 1, free_bytes)
            .expect_err("one too many")
            .to_string();
        let needed = gb(sizing.bytes_needed(&config, slots_max + 1).total());
        let expected = format!(
            "{} slots need {needed} on cuda:0, 80.00 GB are free; the largest --slots that fits is {slots_max}",
            slots_max + 1
        );
        assert_eq!(refusal, expected);
        assert!((36..=38).contains(&slots_max), "80 GB hold {slots_max}");

        let refusal = sizing
            .check(&config, 1, 12_000_000_000)
            .expect_err("too small")
            .to_string();
        assert!(
            refusal.starts_with("one slot needs 20.") && refusal.contains("12.00 GB are free"),
            "{refusal}"
        );
    }

    #[test]
    fn formats_take_what_their_numbers_take_and_a_cpu_has_no_libraries_to_feed() {
        let config = ModelConfig::published();
        let bf16 = published(8);
        let weights = |dtype| Sizing { dtype, ..bf16 }.bytes_needed(&config, 1).weights as f64;
        let in_bf16 = weights(Dtype::Bf16);
        assert!((weights(Dtype::F32) / in_bf16 - 2.0).abs() < 0.05);
        assert!((weights(Dtype::Q8_0) / in_bf16 - 36.0 / 64.0).abs() < 0.03);
        let kv = Sizing {
            kv_dtype: KvDtype::F32,
            ..bf16
        }
        .bytes_needed(&config, 3)
        .kv;
        assert_eq!(kv, 2 * bf16.bytes_needed(&config, 3).kv);
        let cpu = Sizing {
            target: Target::Cpu,
            ..bf16
        }
        .bytes_needed(&config, 1);
        assert!(cpu.workspace < GPU_FIXED_BYTES);
        assert!(bf16.bytes_needed(&config, 1).workspace > GPU_FIXED_BYTES);
    }
}
