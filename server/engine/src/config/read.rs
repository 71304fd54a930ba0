//! `config.json` field by field, so that an error names the field.
//!
//! Lives here: reading. May not live here: rules between fields (`check.rs`).

use serde_json::Value;

use super::{
    CONFIG_SCHEMA, CodecTransformerConfig, ConfigError, DepformerConfig, FileNames, LmConfig,
    MimiConfig, ModelConfig, PromptConfig, QuantizerConfig, ResampleConfig, SamplingDefaults,
    SeanetConfig, TextConfig,
};

/// The configuration in `text`, or `None` where the text has no schema of ours.
pub(super) fn model(text: &[u8]) -> Result<Option<ModelConfig>, ConfigError> {
    let value: Value = serde_json::from_slice(text).map_err(|error| ConfigError::Json {
        what: error.to_string(),
    })?;
    if value.get("schema").and_then(Value::as_str) != Some(CONFIG_SCHEMA) {
        return Ok(None);
    }
    let root = Section {
        path: String::new(),
        value: &value,
    };
    let mimi = root.section("mimi")?;
    Ok(Some(ModelConfig {
        files: files(&root.section("files")?)?,
        lm: lm(&root.section("lm")?)?,
        depformer: depformer(&root.section("depformer")?)?,
        mimi: MimiConfig {
            sample_rate: mimi.size("sample_rate")?,
            frame_rate: mimi.number("frame_rate")?,
            frame_size: mimi.size("frame_size")?,
            channels: mimi.size("channels")?,
            seanet: seanet(&mimi.section("seanet")?)?,
            resample: resample(&mimi.section("resample")?)?,
            transformer: codec_transformer(&mimi.section("transformer")?)?,
            quantizer: quantizer(&mimi.section("quantizer")?)?,
        },
        text: special_ids(&root.section("text")?)?,
        prompt: prompt(&root.section("prompt")?)?,
        sampling: sampling(&root.section("sampling")?)?,
    }))
}

/// One object of the file, with the way to it.
struct Section<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> Section<'a> {
    fn get<T>(
        &self,
        name: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, ConfigError> {
        let value = self.value.get(name);
        value.and_then(read).ok_or_else(|| ConfigError::Field {
            field: self.join(name),
            expected,
            found: value.map_or_else(|| "nothing".into(), shortened),
        })
    }

    fn join(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.into()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    fn section(&self, name: &str) -> Result<Section<'a>, ConfigError> {
        let value = self.get(name, "an object", |value| {
            value.is_object().then_some(value)
        })?;
        Ok(Section {
            path: self.join(name),
            value,
        })
    }

    fn size(&self, name: &str) -> Result<usize, ConfigError> {
        self.get(name, "a whole number", as_size)
    }

    fn id(&self, name: &str) -> Result<u32, ConfigError> {
        self.get(name, "an id", as_id)
    }

    fn number(&self, name: &str) -> Result<f64, ConfigError> {
        self.get(name, "a number", Value::as_f64)
    }

    fn text(&self, name: &str) -> Result<String, ConfigError> {
        self.get(name, "a string", |value| value.as_str().map(String::from))
    }

    fn sizes(&self, name: &str) -> Result<Vec<usize>, ConfigError> {
        self.get(name, "a list of whole numbers", |value| {
            value.as_array()?.iter().map(as_size).collect()
        })
    }

    fn ids(&self, name: &str) -> Result<Vec<u32>, ConfigError> {
        self.get(name, "a list of ids", |value| {
            value.as_array()?.iter().map(as_id).collect()
        })
    }
}

fn as_size(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok()
}

fn as_id(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

/// A value for an error line, never longer than a few words.
fn shortened(value: &Value) -> String {
    const CHARS_MAX: usize = 40;
    let text = value.to_string();
    if text.chars().count() <= CHARS_MAX {
        return text;
    }
    text.chars().take(CHARS_MAX).chain("...".chars()).collect()
}

fn files(section: &Section<'_>) -> Result<FileNames, ConfigError> {
    Ok(FileNames {
        lm: section.text("lm")?,
        mimi: section.text("mimi")?,
        tokenizer: section.text("tokenizer")?,
        voices: section.text("voices")?,
    })
}

fn lm(section: &Section<'_>) -> Result<LmConfig, ConfigError> {
    Ok(LmConfig {
        dim: section.size("dim")?,
        num_heads: section.size("num_heads")?,
        num_layers: section.size("num_layers")?,
        ffn_dim: section.size("ffn_dim")?,
        context: section.size("context")?,
        card: section.size("card")?,
        text_card: section.size("text_card")?,
        rope_max_period: section.number("rope_max_period")?,
        norm_eps: section.number("norm_eps")?,
        audio_streams: section.size("audio_streams")?,
        delays: section.sizes("delays")?,
    })
}

fn depformer(section: &Section<'_>) -> Result<DepformerConfig, ConfigError> {
    Ok(DepformerConfig {
        dim: section.size("dim")?,
        num_heads: section.size("num_heads")?,
        num_layers: section.size("num_layers")?,
        ffn_dim: section.size("ffn_dim")?,
        steps: section.size("steps")?,
        norm_eps: section.number("norm_eps")?,
    })
}

fn seanet(section: &Section<'_>) -> Result<SeanetConfig, ConfigError> {
    Ok(SeanetConfig {
        dimension: section.size("dimension")?,
        n_filters: section.size("n_filters")?,
        ratios: section.sizes("ratios")?,
        kernel_size: section.size("kernel_size")?,
        residual_kernel_size: section.size("residual_kernel_size")?,
        last_kernel_size: section.size("last_kernel_size")?,
        n_residual_layers: section.size("n_residual_layers")?,
        dilation_base: section.size("dilation_base")?,
        compress: section.size("compress")?,
    })
}

fn resample(section: &Section<'_>) -> Result<ResampleConfig, ConfigError> {
    Ok(ResampleConfig {
        stride: section.size("stride")?,
        kernel_size: section.size("kernel_size")?,
    })
}

fn codec_transformer(section: &Section<'_>) -> Result<CodecTransformerConfig, ConfigError> {
    Ok(CodecTransformerConfig {
        dim: section.size("dim")?,
        num_heads: section.size("num_heads")?,
        num_layers: section.size("num_layers")?,
        ffn_dim: section.size("ffn_dim")?,
        context: section.size("context")?,
        rope_max_period: section.number("rope_max_period")?,
        norm_eps: section.number("norm_eps")?,
    })
}

fn quantizer(section: &Section<'_>) -> Result<QuantizerConfig, ConfigError> {
    Ok(QuantizerConfig {
        dimension: section.size("dimension")?,
        n_q: section.size("n_q")?,
        n_q_used: section.size("n_q_used")?,
        n_q_semantic: section.size("n_q_semantic")?,
        bins: section.size("bins")?,
        usage_epsilon: section.number("usage_epsilon")?,
    })
}

fn special_ids(section: &Section<'_>) -> Result<TextConfig, ConfigError> {
    Ok(TextConfig {
        unk_id: section.id("unk_id")?,
        bos_id: section.id("bos_id")?,
        eos_id: section.id("eos_id")?,
        pad_id: section.id("pad_id")?,
        silent_ids: section.ids("silent_ids")?,
    })
}

fn prompt(section: &Section<'_>) -> Result<PromptConfig, ConfigError> {
    Ok(PromptConfig {
        system_tag: section.text("system_tag")?,
        text_while_prompting: section.id("text_while_prompting")?,
        silence_tokens: section.ids("silence_tokens")?,
        sine_tokens: section.ids("sine_tokens")?,
        silence_frames: section.size("silence_frames")?,
    })
}

fn sampling(section: &Section<'_>) -> Result<SamplingDefaults, ConfigError> {
    Ok(SamplingDefaults {
        audio_temperature: section.number("audio_temperature")? as f32,
        audio_top_k: section.id("audio_top_k")?,
        text_temperature: section.number("text_temperature")? as f32,
        text_top_k: section.id("text_top_k")?,
    })
}
