//! The numbers of a model: sizes, delays, special ids, prompt constants, sampling defaults.
//!
//! Lives here: [`ModelConfig`], the published dimensions, the rule which of the two applies.
//! May not live here: weight files. No other file of this room may hold a size of a network as a constant.
//! Start reading at [`ModelConfig::from_json`]; `config/check.rs` refuses what cannot work, `config/tensors.rs` lists
//! the tensors that follow from the numbers.

mod check;
mod mid;
mod read;
mod tensors;

pub use tensors::{StorageDtype, TensorSpec, expected_tensors};

/// The value of `schema` that makes a `config.json` ours.
pub const CONFIG_SCHEMA: &str = "personaplex-config/1";
/// File name of the configuration in a model folder.
pub const CONFIG_FILE: &str = "config.json";
/// Most audio codes of one side in one frame; sizes fixed arrays. The published model has 8.
pub const CODES_MAX: usize = 16;
/// Most token streams of a row: text, agent and user codes.
pub const STREAMS_MAX: usize = 1 + 2 * CODES_MAX;
/// Largest delay of a stream, in frames.
pub const DELAY_FRAMES_MAX: usize = 1;
/// Most columns of a staging ring: largest delay + 3. Source: the published sources' ring.
pub const RING_COLUMNS_MAX: usize = DELAY_FRAMES_MAX + 3;

/// Every number of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Names of the files beside `config.json`.
    pub files: FileNames,
    /// The temporal transformer.
    pub lm: LmConfig,
    /// The transformer over the codes of one frame.
    pub depformer: DepformerConfig,
    /// The codec.
    pub mimi: MimiConfig,
    /// Special ids of the text stream.
    pub text: TextConfig,
    /// What is fed while a prompt is read.
    pub prompt: PromptConfig,
    /// How tokens are chosen unless a call says otherwise.
    pub sampling: SamplingDefaults,
}

/// Names inside a model folder; never paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileNames {
    /// Weights of both transformers.
    pub lm: String,
    /// Weights of the codec.
    pub mimi: String,
    /// SentencePiece model.
    pub tokenizer: String,
    /// Folder of voice bundles; `<voices>.tgz` may stand in for it.
    pub voices: String,
}

/// The temporal transformer: one position a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct LmConfig {
    /// Width of the residual stream.
    pub dim: usize,
    /// Attention heads; keys and values have as many.
    pub num_heads: usize,
    /// Layers.
    pub num_layers: usize,
    /// Width after the gate; `linear_in` has twice as many rows.
    pub ffn_dim: usize,
    /// Keys an attention sees, the newest included.
    pub context: usize,
    /// Audio codes; id `card` is the initial token.
    pub card: usize,
    /// Text ids; id `text_card` is the initial token.
    pub text_card: usize,
    /// Base of the rotary angles.
    pub rope_max_period: f64,
    /// Inside the root of the RMS norm.
    pub norm_eps: f64,
    /// Audio streams: the agent's codes, then the user's.
    pub audio_streams: usize,
    /// Frames by which each stream lags: text, agent, user. Length `1 + audio_streams`, values 0 or 1.
    pub delays: Vec<usize>,
}

/// The depformer: one step a code, own weights at every step, no positions.
#[derive(Clone, Debug, PartialEq)]
pub struct DepformerConfig {
    /// Width of the residual stream.
    pub dim: usize,
    /// Attention heads.
    pub num_heads: usize,
    /// Layers.
    pub num_layers: usize,
    /// Width after the gate.
    pub ffn_dim: usize,
    /// Steps in the file: the agent's codes first, then the user's.
    pub steps: usize,
    /// Inside the root of the RMS norm.
    pub norm_eps: f64,
}

/// The codec: PCM frames to codes and back.
#[derive(Clone, Debug, PartialEq)]
pub struct MimiConfig {
    /// Samples per second.
    pub sample_rate: usize,
    /// Frames per second.
    pub frame_rate: f64,
    /// Samples of a frame.
    pub frame_size: usize,
    /// PCM channels; always 1.
    pub channels: usize,
    /// Convolutional encoder and decoder.
    pub seanet: SeanetConfig,
    /// Between 25 Hz and the frame rate.
    pub resample: ResampleConfig,
    /// Encoder and decoder have one each of this shape.
    pub transformer: CodecTransformerConfig,
    /// Residual vector quantizer.
    pub quantizer: QuantizerConfig,
}

/// Convolutional encoder and decoder of the codec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeanetConfig {
    /// Channels between encoder and transformer.
    pub dimension: usize,
    /// Channels after the first convolution; doubled at every ratio.
    pub n_filters: usize,
    /// Strides of the decoder; the encoder has them reversed.
    pub ratios: Vec<usize>,
    /// Kernel of the encoder's first and the decoder's first convolution.
    pub kernel_size: usize,
    /// Kernel of the first convolution of a residual block.
    pub residual_kernel_size: usize,
    /// Kernel of the last convolutions.
    pub last_kernel_size: usize,
    /// Residual blocks at every ratio.
    pub n_residual_layers: usize,
    /// Block `j` of a ratio has dilation `dilation_base^j`.
    pub dilation_base: usize,
    /// A block's hidden width is its width divided by this.
    pub compress: usize,
}

/// The convolutions between the transformers' rate and the frame rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResampleConfig {
    /// Transformer positions of a frame.
    pub stride: usize,
    /// Kernel of both convolutions.
    pub kernel_size: usize,
}

/// One of the codec's two transformers.
#[derive(Clone, Debug, PartialEq)]
pub struct CodecTransformerConfig {
    /// Width; equals the convolutions' `dimension`.
    pub dim: usize,
    /// Attention heads.
    pub num_heads: usize,
    /// Layers.
    pub num_layers: usize,
    /// Width of the plain feed-forward layer.
    pub ffn_dim: usize,
    /// Keys an attention sees, in positions (two a frame in the published codec).
    pub context: usize,
    /// Base of the rotary angles.
    pub rope_max_period: f64,
    /// Inside the root of the layer norm.
    pub norm_eps: f64,
}

/// The codec's quantizer.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantizerConfig {
    /// Width of a codebook entry.
    pub dimension: usize,
    /// Codebooks in the file.
    pub n_q: usize,
    /// Codebooks that are used: one a code of a frame.
    pub n_q_used: usize,
    /// How many of the first codebooks are in `rvq_first`.
    pub n_q_semantic: usize,
    /// Entries of a codebook.
    pub bins: usize,
    /// Lower bound of `cluster_usage`.
    pub usage_epsilon: f64,
}

/// Special ids of the text stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextConfig {
    /// Unknown piece; in the model's output the end of padding.
    pub unk_id: u32,
    /// Begin of sentence.
    pub bos_id: u32,
    /// End of sentence.
    pub eos_id: u32,
    /// Padding: nothing is said in this frame.
    pub pad_id: u32,
    /// Ids that are never shown.
    pub silent_ids: Vec<u32>,
}

/// What is fed while a prompt is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptConfig {
    /// Stands before and after the role text.
    pub system_tag: String,
    /// Text id of every prompt frame that has no token of the role text.
    pub text_while_prompting: u32,
    /// Agent codes of a silent prompt frame.
    pub silence_tokens: Vec<u32>,
    /// User codes of every prompt frame.
    pub sine_tokens: Vec<u32>,
    /// Silent frames after the voice, and again after the text.
    pub silence_frames: usize,
}

/// How tokens are chosen unless a call says otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingDefaults {
    /// Divides the audio logits.
    pub audio_temperature: f32,
    /// Audio codes that take part.
    pub audio_top_k: u32,
    /// Divides the text logits.
    pub text_temperature: f32,
    /// Text ids that take part.
    pub text_top_k: u32,
}

/// A configuration that cannot be used. One line; `field` is the path inside `config.json`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not JSON.
    #[error("not JSON: {what}")]
    Json {
        /// The parser's words.
        what: String,
    },
    /// A field is missing or of the wrong kind.
    #[error("{field}: expected {expected}, found {found}")]
    Field {
        /// Path of the field.
        field: String,
        /// What belongs there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A number that cannot work.
    #[error("{field} is {found}, it must be {rule}")]
    Value {
        /// Path of the field.
        field: String,
        /// What is there.
        found: String,
        /// What is taken.
        rule: String,
    },
}

impl ModelConfig {
    /// Reads the text of a `config.json`. One without our `schema` has no sizes: the published dimensions apply.
    ///
    /// # Errors
    /// [`ConfigError`] names the first field that is missing, of the wrong kind, or out of range.
    pub fn from_json(text: &[u8]) -> Result<Self, ConfigError> {
        let config = match read::model(text)? {
            Some(config) => config,
            None => Self::published(),
        };
        config.check()?;
        Ok(config)
    }

    /// The dimensions of the published 7B model, whose `config.json` holds none.
    pub fn published() -> Self {
        Self {
            files: FileNames {
                lm: "model.safetensors".into(),
                mimi: "tokenizer-e351c8d8-checkpoint125.safetensors".into(),
                tokenizer: "tokenizer_spm_32k_3.model".into(),
                voices: "voices".into(),
            },
            lm: LmConfig {
                dim: 4_096,
                num_heads: 32,
                num_layers: 32,
                ffn_dim: 11_264,
                context: 3_000,
                card: 2_048,
                text_card: 32_000,
                rope_max_period: 10_000.0,
                norm_eps: 1e-8,
                audio_streams: 16,
                delays: vec![0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1],
            },
            depformer: DepformerConfig {
                dim: 1_024,
                num_heads: 16,
                num_layers: 6,
                ffn_dim: 2_816,
                steps: 16,
                norm_eps: 1e-8,
            },
            mimi: MimiConfig {
                sample_rate: 24_000,
                frame_rate: 12.5,
                frame_size: 1_920,
                channels: 1,
                seanet: SeanetConfig {
                    dimension: 512,
                    n_filters: 64,
                    ratios: vec![8, 6, 5, 4],
                    kernel_size: 7,
                    residual_kernel_size: 3,
                    last_kernel_size: 3,
                    n_residual_layers: 1,
                    dilation_base: 2,
                    compress: 2,
                },
                resample: ResampleConfig {
                    stride: 2,
                    kernel_size: 4,
                },
                transformer: CodecTransformerConfig {
                    dim: 512,
                    num_heads: 8,
                    num_layers: 8,
                    ffn_dim: 2_048,
                    context: 250,
                    rope_max_period: 10_000.0,
                    norm_eps: 1e-5,
                },
                quantizer: QuantizerConfig {
                    dimension: 256,
                    n_q: 32,
                    n_q_used: 8,
                    n_q_semantic: 1,
                    bins: 2_048,
                    usage_epsilon: 1e-5,
                },
            },
            text: TextConfig {
                unk_id: 0,
                bos_id: 1,
                eos_id: 2,
                pad_id: 3,
                silent_ids: vec![0, 3],
            },
            prompt: PromptConfig {
                system_tag: "<system>".into(),
                text_while_prompting: 3,
                silence_tokens: vec![948, 243, 1_178, 546, 1_736, 1_030, 1_978, 2_008],
                sine_tokens: vec![430, 1_268, 381, 1_611, 1_095, 1_495, 56, 472],
                silence_frames: 6,
            },
            sampling: SamplingDefaults {
                audio_temperature: 0.8,
                audio_top_k: 250,
                text_temperature: 0.7,
                text_top_k: 25,
            },
        }
    }

    /// Token streams of a row: 1 text, then the agent's codes, then the user's.
    pub fn streams(&self) -> usize {
        1 + self.lm.audio_streams
    }

    /// Codes of one side in one frame.
    pub fn codes(&self) -> usize {
        self.lm.audio_streams / 2
    }

    /// Columns of the staging ring, and of a voice bundle's `cache`.
    pub fn ring_columns(&self) -> usize {
        self.lm.delays.iter().max().copied().unwrap_or(0) + 3
    }

    /// Transformer positions that one frame adds in the codec.
    pub fn codec_positions_per_frame(&self) -> usize {
        self.mimi.resample.stride
    }
}
