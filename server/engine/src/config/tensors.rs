//! The tensors that both weight files must hold, as they follow from the configuration.
//!
//! Lives here: names, shapes and published storage types. May not live here: files.
//! Source: the published checkpoint's 475 and 318 tensors; `tests/files.rs` compares the list.

use super::{ModelConfig, SeanetConfig};

/// How the numbers of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StorageDtype {
    /// bfloat16.
    Bf16,
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
}

impl StorageDtype {
    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// The name in a safetensors header.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "BF16",
            Self::F16 => "F16",
            Self::F32 => "F32",
        }
    }
}

/// One tensor a weight file must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name in the file.
    pub name: String,
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// How the published file stores it. Another float type is taken as well.
    pub dtype: StorageDtype,
}

impl TensorSpec {
    /// Numbers in the tensor.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The tensors of the transformers' file and of the codec's file.
pub fn expected_tensors(config: &ModelConfig) -> (Vec<TensorSpec>, Vec<TensorSpec>) {
    (lm_tensors(config), codec_tensors(config))
}

/// A list under construction: one storage type for the whole file.
struct List {
    dtype: StorageDtype,
    specs: Vec<TensorSpec>,
}

impl List {
    fn add(&mut self, name: impl Into<String>, shape: &[usize]) {
        self.specs.push(TensorSpec {
            name: name.into(),
            shape: shape.to_vec(),
            dtype: self.dtype,
        });
    }

    /// A convolution and its bias.
    fn conv(&mut self, prefix: &str, shape: [usize; 3], bias: usize) {
        self.add(format!("{prefix}.weight"), &shape);
        self.add(format!("{prefix}.bias"), &[bias]);
    }
}

fn lm_tensors(config: &ModelConfig) -> Vec<TensorSpec> {
    let (lm, depformer) = (&config.lm, &config.depformer);
    let mut list = List {
        dtype: StorageDtype::Bf16,
        specs: Vec::new(),
    };
    list.add("text_emb.weight", &[lm.text_card + 1, lm.dim]);
    for stream in 0..lm.audio_streams {
        list.add(format!("emb.{stream}.weight"), &[lm.card + 1, lm.dim]);
    }
    for layer in 0..lm.num_layers {
        let prefix = format!("transformer.layers.{layer}");
        attention(&mut list, &prefix, lm.dim, 1);
        gating(&mut list, &format!("{prefix}.gating"), lm.dim, lm.ffn_dim);
    }
    list.add("out_norm.alpha", &[1, 1, lm.dim]);
    list.add("text_linear.weight", &[lm.text_card, lm.dim]);

    let (dim, steps) = (depformer.dim, depformer.steps);
    list.add("depformer_text_emb.weight", &[lm.text_card + 1, dim]);
    for step in 0..steps {
        list.add(format!("depformer_in.{step}.weight"), &[dim, lm.dim]);
        list.add(format!("linears.{step}.weight"), &[lm.card, dim]);
    }
    for step in 1..steps {
        list.add(
            format!("depformer_emb.{}.weight", step - 1),
            &[lm.card + 1, dim],
        );
    }
    for layer in 0..depformer.num_layers {
        let prefix = format!("depformer.layers.{layer}");
        attention(&mut list, &prefix, dim, steps);
        for step in 0..steps {
            gating(
                &mut list,
                &format!("{prefix}.gating.{step}"),
                dim,
                depformer.ffn_dim,
            );
        }
    }
    list.specs
}

/// Norms and attention of one layer; the weights of `steps` steps are stacked on the first axis.
fn attention(list: &mut List, prefix: &str, dim: usize, steps: usize) {
    list.add(format!("{prefix}.norm1.alpha"), &[1, 1, dim]);
    list.add(format!("{prefix}.norm2.alpha"), &[1, 1, dim]);
    list.add(
        format!("{prefix}.self_attn.in_proj_weight"),
        &[steps * 3 * dim, dim],
    );
    list.add(
        format!("{prefix}.self_attn.out_proj.weight"),
        &[steps * dim, dim],
    );
}

fn gating(list: &mut List, prefix: &str, dim: usize, ffn_dim: usize) {
    list.add(format!("{prefix}.linear_in.weight"), &[2 * ffn_dim, dim]);
    list.add(format!("{prefix}.linear_out.weight"), &[dim, ffn_dim]);
}

fn codec_tensors(config: &ModelConfig) -> Vec<TensorSpec> {
    let mimi = &config.mimi;
    let dimension = mimi.seanet.dimension;
    let mut list = List {
        dtype: StorageDtype::F32,
        specs: Vec::new(),
    };
    seanet_encoder(&mut list, &mimi.seanet, mimi.channels);
    seanet_decoder(&mut list, &mimi.seanet, mimi.channels);
    let kernel = mimi.resample.kernel_size;
    list.add(
        "downsample.conv.conv.conv.weight",
        &[dimension, dimension, kernel],
    );
    list.add(
        "upsample.convtr.convtr.convtr.weight",
        &[dimension, 1, kernel],
    );
    for side in ["encoder", "decoder"] {
        for layer in 0..mimi.transformer.num_layers {
            codec_layer(
                &mut list,
                &format!("{side}_transformer.transformer.layers.{layer}"),
                config,
            );
        }
    }
    let quantizer = &mimi.quantizer;
    for (half, layers) in [
        ("rvq_first", quantizer.n_q_semantic),
        ("rvq_rest", quantizer.n_q - quantizer.n_q_semantic),
    ] {
        let prefix = format!("quantizer.{half}");
        let width = quantizer.dimension;
        list.add(
            format!("{prefix}.input_proj.weight"),
            &[width, dimension, 1],
        );
        list.add(
            format!("{prefix}.output_proj.weight"),
            &[dimension, width, 1],
        );
        for layer in 0..layers {
            let prefix = format!("{prefix}.vq.layers.{layer}._codebook");
            list.add(
                format!("{prefix}.embedding_sum"),
                &[quantizer.bins, quantizer.dimension],
            );
            list.add(format!("{prefix}.cluster_usage"), &[quantizer.bins]);
            list.add(format!("{prefix}._initialized"), &[1]);
        }
    }
    list.specs
}

fn codec_layer(list: &mut List, prefix: &str, config: &ModelConfig) {
    let (dim, ffn_dim) = (config.mimi.transformer.dim, config.mimi.transformer.ffn_dim);
    list.add(
        format!("{prefix}.self_attn.in_proj_weight"),
        &[3 * dim, dim],
    );
    list.add(format!("{prefix}.self_attn.out_proj.weight"), &[dim, dim]);
    for norm in ["norm1", "norm2"] {
        list.add(format!("{prefix}.{norm}.weight"), &[dim]);
        list.add(format!("{prefix}.{norm}.bias"), &[dim]);
    }
    list.add(format!("{prefix}.linear1.weight"), &[ffn_dim, dim]);
    list.add(format!("{prefix}.linear2.weight"), &[dim, ffn_dim]);
    list.add(format!("{prefix}.layer_scale_1.scale"), &[dim]);
    list.add(format!("{prefix}.layer_scale_2.scale"), &[dim]);
}

/// The index of a layer in the published `Sequential` is part of its name; activations take an index too.
fn seanet_encoder(list: &mut List, seanet: &SeanetConfig, channels: usize) {
    let conv = |index: usize| format!("encoder.model.{index}.conv.conv");
    let mut width = seanet.n_filters;
    let mut index = 0;
    list.conv(&conv(index), [width, channels, seanet.kernel_size], width);
    index += 1;
    for &ratio in seanet.ratios.iter().rev() {
        for _ in 0..seanet.n_residual_layers {
            residual(list, &format!("encoder.model.{index}"), seanet, width);
            index += 1;
        }
        index += 1;
        list.conv(&conv(index), [2 * width, width, 2 * ratio], 2 * width);
        index += 1;
        width *= 2;
    }
    index += 1;
    list.conv(
        &conv(index),
        [seanet.dimension, width, seanet.last_kernel_size],
        seanet.dimension,
    );
}

fn seanet_decoder(list: &mut List, seanet: &SeanetConfig, channels: usize) {
    let mut width = seanet.n_filters << seanet.ratios.len();
    let mut index = 0;
    list.conv(
        "decoder.model.0.conv.conv",
        [width, seanet.dimension, seanet.kernel_size],
        width,
    );
    index += 1;
    for &ratio in &seanet.ratios {
        index += 1;
        list.conv(
            &format!("decoder.model.{index}.convtr.convtr"),
            [width, width / 2, 2 * ratio],
            width / 2,
        );
        index += 1;
        width /= 2;
        for _ in 0..seanet.n_residual_layers {
            residual(list, &format!("decoder.model.{index}"), seanet, width);
            index += 1;
        }
    }
    index += 1;
    list.conv(
        &format!("decoder.model.{index}.conv.conv"),
        [channels, width, seanet.last_kernel_size],
        channels,
    );
}

fn residual(list: &mut List, prefix: &str, seanet: &SeanetConfig, width: usize) {
    let hidden = width / seanet.compress;
    list.conv(
        &format!("{prefix}.block.1.conv.conv"),
        [hidden, width, seanet.residual_kernel_size],
        hidden,
    );
    list.conv(
        &format!("{prefix}.block.3.conv.conv"),
        [width, hidden, 1],
        width,
    );
}
