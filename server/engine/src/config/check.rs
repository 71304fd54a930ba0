//! What a configuration must fulfil before anything is built from it.
//!
//! Lives here: ranges and the rules between fields. May not live here: reading.

use slots::{call, units};

use super::{CODES_MAX, ConfigError, DELAY_FRAMES_MAX, ModelConfig};

/// Widths above this are a typing error, not a model (16 times the published width).
const WIDTH_MAX: usize = 1 << 16;
/// Layers above this are a typing error.
const LAYERS_MAX: usize = 512;
/// Context above this is a typing error (more than a day of frames).
const CONTEXT_MAX: usize = 1 << 21;
/// Vocabularies above this are a typing error.
const CARD_MAX: usize = 1 << 22;
/// Silent prompt frames above this are a typing error (20 s).
const SILENCE_FRAMES_MAX: usize = 250;

impl ModelConfig {
    /// Whether a network can be built from these numbers.
    ///
    /// # Errors
    /// [`ConfigError::Value`] names the first field that is out of range or does not fit another.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_files()?;
        self.check_lm()?;
        self.check_depformer()?;
        self.check_codec()?;
        self.check_prompt()?;
        self.check_sampling()
    }

    fn check_files(&self) -> Result<(), ConfigError> {
        let files = &self.files;
        for (name, file) in [
            ("lm", &files.lm),
            ("mimi", &files.mimi),
            ("tokenizer", &files.tokenizer),
            ("voices", &files.voices),
        ] {
            let bare = !file.is_empty()
                && file != "."
                && file != ".."
                && !file.contains(['/', '\\', ':', '\0']);
            holds(bare, || {
                (format!("files.{name}"), quoted(file), "a bare file name")
            })?;
        }
        Ok(())
    }

    fn check_lm(&self) -> Result<(), ConfigError> {
        let lm = &self.lm;
        in_range("lm.dim", lm.dim, 2, WIDTH_MAX)?;
        in_range("lm.num_layers", lm.num_layers, 1, LAYERS_MAX)?;
        in_range("lm.ffn_dim", lm.ffn_dim, 1, 4 * WIDTH_MAX)?;
        in_range("lm.context", lm.context, 4, CONTEXT_MAX)?;
        in_range("lm.card", lm.card, 2, CARD_MAX)?;
        in_range("lm.text_card", lm.text_card, 2, CARD_MAX)?;
        heads("lm", lm.dim, lm.num_heads)?;
        even_head("lm", lm.dim, lm.num_heads)?;
        above_zero("lm.rope_max_period", lm.rope_max_period)?;
        above_zero("lm.norm_eps", lm.norm_eps)?;
        let streams = lm.audio_streams;
        holds(
            streams.is_multiple_of(2) && (2..=2 * CODES_MAX).contains(&streams),
            || {
                let rule = "an even number from 2 to 32";
                ("lm.audio_streams".into(), streams.to_string(), rule)
            },
        )?;
        if lm.delays.len() != 1 + streams {
            return Err(ConfigError::Value {
                field: "lm.delays".into(),
                found: format!("a list of {}", lm.delays.len()),
                rule: format!("a list of 1 + lm.audio_streams = {}", 1 + streams),
            });
        }
        for (stream, &delay) in lm.delays.iter().enumerate() {
            in_range(
                &format!("lm.delays[{stream}]"),
                delay,
                0,
                if stream == 0 { 0 } else { DELAY_FRAMES_MAX },
            )?;
        }
        Ok(())
    }

    fn check_depformer(&self) -> Result<(), ConfigError> {
        let depformer = &self.depformer;
        in_range("depformer.dim", depformer.dim, 1, WIDTH_MAX)?;
        in_range("depformer.num_layers", depformer.num_layers, 1, LAYERS_MAX)?;
        in_range("depformer.ffn_dim", depformer.ffn_dim, 1, 4 * WIDTH_MAX)?;
        heads("depformer", depformer.dim, depformer.num_heads)?;
        above_zero("depformer.norm_eps", depformer.norm_eps)?;
        in_range(
            "depformer.steps",
            depformer.steps,
            self.codes(),
            self.lm.audio_streams,
        )
    }

    fn check_codec(&self) -> Result<(), ConfigError> {
        let mimi = &self.mimi;
        equal(
            "mimi.sample_rate",
            mimi.sample_rate,
            units::SAMPLE_RATE_HZ as usize,
        )?;
        equal("mimi.frame_size", mimi.frame_size, units::FRAME_SAMPLES)?;
        equal("mimi.channels", mimi.channels, 1)?;
        let frame_rate = mimi.sample_rate as f64 / mimi.frame_size as f64;
        if mimi.frame_rate != frame_rate {
            return Err(ConfigError::Value {
                field: "mimi.frame_rate".into(),
                found: mimi.frame_rate.to_string(),
                rule: format!("sample_rate / frame_size = {frame_rate}"),
            });
        }
        self.check_seanet()?;
        let transformer = &mimi.transformer;
        equal(
            "mimi.transformer.dim",
            transformer.dim,
            mimi.seanet.dimension,
        )?;
        in_range(
            "mimi.transformer.num_layers",
            transformer.num_layers,
            1,
            LAYERS_MAX,
        )?;
        in_range(
            "mimi.transformer.ffn_dim",
            transformer.ffn_dim,
            1,
            4 * WIDTH_MAX,
        )?;
        in_range(
            "mimi.transformer.context",
            transformer.context,
            2 * mimi.resample.stride,
            CONTEXT_MAX,
        )?;
        heads("mimi.transformer", transformer.dim, transformer.num_heads)?;
        even_head("mimi.transformer", transformer.dim, transformer.num_heads)?;
        above_zero(
            "mimi.transformer.rope_max_period",
            transformer.rope_max_period,
        )?;
        above_zero("mimi.transformer.norm_eps", transformer.norm_eps)?;
        let quantizer = &mimi.quantizer;
        in_range(
            "mimi.quantizer.dimension",
            quantizer.dimension,
            1,
            WIDTH_MAX,
        )?;
        equal("mimi.quantizer.bins", quantizer.bins, self.lm.card)?;
        equal("mimi.quantizer.n_q_used", quantizer.n_q_used, self.codes())?;
        in_range(
            "mimi.quantizer.n_q",
            quantizer.n_q,
            quantizer.n_q_used,
            LAYERS_MAX,
        )?;
        in_range(
            "mimi.quantizer.n_q_semantic",
            quantizer.n_q_semantic,
            1,
            quantizer.n_q_used.saturating_sub(1).max(1),
        )?;
        above_zero("mimi.quantizer.usage_epsilon", quantizer.usage_epsilon)
    }

    fn check_seanet(&self) -> Result<(), ConfigError> {
        let seanet = &self.mimi.seanet;
        let resample = &self.mimi.resample;
        in_range("mimi.seanet.dimension", seanet.dimension, 2, WIDTH_MAX)?;
        in_range("mimi.seanet.n_filters", seanet.n_filters, 1, WIDTH_MAX)?;
        for (name, kernel) in [
            ("kernel_size", seanet.kernel_size),
            ("residual_kernel_size", seanet.residual_kernel_size),
            ("last_kernel_size", seanet.last_kernel_size),
        ] {
            in_range(&format!("mimi.seanet.{name}"), kernel, 1, 255)?;
        }
        in_range(
            "mimi.seanet.n_residual_layers",
            seanet.n_residual_layers,
            1,
            8,
        )?;
        in_range("mimi.seanet.dilation_base", seanet.dilation_base, 1, 8)?;
        in_range(
            "mimi.seanet.compress",
            seanet.compress,
            1,
            seanet.n_filters.max(1),
        )?;
        in_range(
            "mimi.resample.stride",
            resample.stride,
            1,
            self.mimi.frame_size,
        )?;
        equal(
            "mimi.resample.kernel_size",
            resample.kernel_size,
            2 * resample.stride,
        )?;
        in_range("length of mimi.seanet.ratios", seanet.ratios.len(), 1, 8)?;
        let mut samples = resample.stride;
        for (index, &ratio) in seanet.ratios.iter().enumerate() {
            in_range(&format!("mimi.seanet.ratios[{index}]"), ratio, 1, 64)?;
            samples = samples.saturating_mul(ratio);
        }
        if samples != self.mimi.frame_size {
            return Err(ConfigError::Value {
                field: "mimi.seanet.ratios".into(),
                found: format!("{:?}", seanet.ratios),
                rule: format!(
                    "factors of frame_size / resample.stride = {}",
                    self.mimi.frame_size / resample.stride
                ),
            });
        }
        in_range(
            "mimi.seanet.n_filters at the last ratio",
            seanet.n_filters << seanet.ratios.len(),
            1,
            WIDTH_MAX,
        )
    }

    fn check_prompt(&self) -> Result<(), ConfigError> {
        for (name, id) in [
            ("text.unk_id", self.text.unk_id),
            ("text.bos_id", self.text.bos_id),
            ("text.eos_id", self.text.eos_id),
            ("text.pad_id", self.text.pad_id),
            (
                "prompt.text_while_prompting",
                self.prompt.text_while_prompting,
            ),
        ] {
            below(name, id, self.lm.text_card, "lm.text_card")?;
        }
        for &id in &self.text.silent_ids {
            below("text.silent_ids", id, self.lm.text_card, "lm.text_card")?;
        }
        for (name, codes) in [
            ("prompt.silence_tokens", &self.prompt.silence_tokens),
            ("prompt.sine_tokens", &self.prompt.sine_tokens),
        ] {
            equal(&format!("length of {name}"), codes.len(), self.codes())?;
            for &code in codes {
                below(name, code, self.lm.card, "lm.card")?;
            }
        }
        in_range(
            "prompt.silence_frames",
            self.prompt.silence_frames,
            1,
            SILENCE_FRAMES_MAX,
        )
    }

    fn check_sampling(&self) -> Result<(), ConfigError> {
        let sampling = &self.sampling;
        for (name, value) in [
            ("audio_temperature", sampling.audio_temperature),
            ("text_temperature", sampling.text_temperature),
        ] {
            holds((0.0..=call::TEMPERATURE_MAX).contains(&value), || {
                (format!("sampling.{name}"), value.to_string(), "from 0 to 5")
            })?;
        }
        let top_k_max = call::TOP_K_MAX as usize;
        in_range(
            "sampling.audio_top_k",
            sampling.audio_top_k as usize,
            1,
            top_k_max,
        )?;
        in_range(
            "sampling.text_top_k",
            sampling.text_top_k as usize,
            1,
            top_k_max,
        )
    }
}

fn holds(
    condition: bool,
    error: impl FnOnce() -> (String, String, &'static str),
) -> Result<(), ConfigError> {
    if condition {
        return Ok(());
    }
    let (field, found, rule) = error();
    Err(ConfigError::Value {
        field,
        found,
        rule: rule.into(),
    })
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn in_range(field: &str, value: usize, min: usize, max: usize) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::Value {
        field: field.into(),
        found: value.to_string(),
        rule: if min == max {
            min.to_string()
        } else {
            format!("from {min} to {max}")
        },
    })
}

fn equal(field: &str, value: usize, wanted: usize) -> Result<(), ConfigError> {
    in_range(field, value, wanted, wanted)
}

fn below(field: &str, id: u32, limit: usize, limit_field: &str) -> Result<(), ConfigError> {
    if (id as usize) < limit {
        return Ok(());
    }
    Err(ConfigError::Value {
        field: field.into(),
        found: id.to_string(),
        rule: format!("below {limit_field} = {limit}"),
    })
}

fn above_zero(field: &str, value: f64) -> Result<(), ConfigError> {
    holds(value.is_finite() && value > 0.0, || {
        (field.into(), value.to_string(), "above 0 and finite")
    })
}

fn heads(section: &str, dim: usize, num_heads: usize) -> Result<(), ConfigError> {
    if num_heads >= 1 && dim.is_multiple_of(num_heads) {
        return Ok(());
    }
    Err(ConfigError::Value {
        field: format!("{section}.num_heads"),
        found: num_heads.to_string(),
        rule: format!("a divisor of {section}.dim = {dim}"),
    })
}

/// Rotary positions turn pairs of numbers.
fn even_head(section: &str, dim: usize, num_heads: usize) -> Result<(), ConfigError> {
    if (dim / num_heads).is_multiple_of(2) {
        return Ok(());
    }
    Err(ConfigError::Value {
        field: format!("{section}.num_heads"),
        found: num_heads.to_string(),
        rule: format!("such that {section}.dim = {dim} gives heads of even width"),
    })
}
