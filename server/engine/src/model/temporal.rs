//! The temporal transformer: one position for each frame of each row, over rings of keys and values.

use std::ops::Range;

use slots::engine::EngineError;

use crate::backend::{Backend, Done, Heads, Query, WriteOrder};
use crate::config::{LmConfig, ModelConfig};

use super::layer::{GatedLayer, Scratch};
use super::loader::{BuildError, Loader};

/// Embeddings, layers, output norm, text head, and the keys and values of all rows.
pub struct Temporal<B: Backend> {
    config: LmConfig,
    text_emb: B::Table,
    audio_emb: Vec<B::Table>,
    layers: Vec<Layer<B>>,
    out_norm: B::Vector,
    text_linear: B::Weight,
    rings: Vec<B::Ring>,
    scratch: Scratch<B>,
    hidden: B::Buf,
    text_logits: B::Buf,
}

struct Layer<B: Backend> {
    norm1: B::Vector,
    in_proj: B::Weight,
    out_proj: B::Weight,
    norm2: B::Vector,
    linear_in: B::Weight,
    linear_out: B::Weight,
}

impl<B: Backend> Temporal<B> {
    /// Reads the weights and makes empty rings for `rows` rows. `progress` hears about every layer.
    ///
    /// # Errors
    /// [`BuildError`]: a tensor is missing or the device refused.
    pub fn load(
        loader: &mut Loader<'_, B>,
        config: &ModelConfig,
        rows: usize,
        progress: &mut dyn FnMut(),
    ) -> Result<Self, BuildError> {
        let lm = config.lm.clone();
        let text_emb = loader.table("text_emb.weight")?;
        let audio_emb = (0..lm.audio_streams)
            .map(|stream| loader.table(&format!("emb.{stream}.weight")))
            .collect::<Result<_, _>>()?;
        let mut layers = Vec::new();
        let mut rings = Vec::new();
        let heads = Heads {
            count: lm.num_heads,
            dim: lm.dim / lm.num_heads,
            rope_max_period: Some(lm.rope_max_period as f32),
        };
        for index in 0..lm.num_layers {
            let name = |part: &str| format!("transformer.layers.{index}.{part}");
            layers.push(Layer {
                norm1: loader.vector(&name("norm1.alpha"))?,
                in_proj: loader.matrix(&name("self_attn.in_proj_weight"))?,
                out_proj: loader.matrix(&name("self_attn.out_proj.weight"))?,
                norm2: loader.vector(&name("norm2.alpha"))?,
                linear_in: loader.matrix(&name("gating.linear_in.weight"))?,
                linear_out: loader.matrix(&name("gating.linear_out.weight"))?,
            });
            rings.push(loader.backend.ring(rows, heads, lm.context, false)?);
            progress();
        }
        Ok(Self {
            text_emb,
            audio_emb,
            layers,
            out_norm: loader.vector("out_norm.alpha")?,
            text_linear: loader.matrix("text_linear.weight")?,
            rings,
            config: lm,
            scratch: Scratch::default(),
            hidden: B::Buf::default(),
            text_logits: B::Buf::default(),
        })
    }

    /// Input vectors of tokens: `tokens` is `[n, 1 + audio_streams]` (text, agent, user), -1 adds nothing. Summed audio
    /// first, text last, as the published sources do.
    pub fn embed(&mut self, backend: &mut B, tokens: &[i32], reordered: &mut Vec<i32>) -> Done {
        let streams = 1 + self.config.audio_streams;
        reordered.clear();
        for tokens in tokens.chunks_exact(streams) {
            reordered.extend_from_slice(&tokens[1..]);
            reordered.push(tokens[0]);
        }
        let tables: Vec<&B::Table> = self.audio_emb.iter().chain([&self.text_emb]).collect();
        backend.embed_sum(&tables, reordered, &mut self.scratch.x)
    }

    /// Adds vectors `[n, dim]` to the input: a voice bundle's, at positions whose tokens are all -1.
    pub fn add_input(&mut self, backend: &mut B, vectors: &B::Buf) -> Done {
        backend.add(vectors, &mut self.scratch.x)
    }

    /// The input vectors; overwritten by [`Temporal::forward`].
    pub fn input(&self) -> &B::Buf {
        &self.scratch.x
    }

    /// Runs all layers on the input vectors. `tap` sees the residual stream after each layer.
    pub fn forward(
        &mut self,
        backend: &mut B,
        queries: &[Query],
        order: WriteOrder,
        tap: &mut dyn FnMut(&mut B, usize, &B::Buf) -> Done,
    ) -> Done {
        let (hidden, norm_eps) = (self.config.ffn_dim, self.config.norm_eps as f32);
        for (index, (layer, ring)) in self.layers.iter().zip(&mut self.rings).enumerate() {
            let layer = GatedLayer {
                norm1: &layer.norm1,
                in_proj: &layer.in_proj,
                out_proj: &layer.out_proj,
                norm2: &layer.norm2,
                linear_in: &layer.linear_in,
                linear_out: &layer.linear_out,
                hidden,
                norm_eps,
            };
            layer.forward(backend, ring, queries, order, &mut self.scratch)?;
            tap(backend, index, &self.scratch.x)?;
        }
        Ok(())
    }

    /// Output norm and text head of the last [`Temporal::forward`]; not needed while a prompt is read.
    pub fn finish(&mut self, backend: &mut B) -> Done {
        let eps = self.config.norm_eps as f32;
        backend.rms_norm(&self.scratch.x, &self.out_norm, eps, &mut self.hidden)?;
        backend.linear(&self.text_linear, &self.hidden, &mut self.text_logits)
    }

    /// After the output norm, `[n, dim]`.
    pub fn hidden(&self) -> &B::Buf {
        &self.hidden
    }

    /// Logits of the next text token, `[n, text_card]`.
    pub fn text_logits(&self) -> &B::Buf {
        &self.text_logits
    }

    /// Saves cells of one row, layer by layer.
    pub fn save(
        &self,
        backend: &mut B,
        row: usize,
        cells: Range<usize>,
    ) -> Result<Vec<B::RingPart>, EngineError> {
        self.rings
            .iter()
            .map(|ring| backend.ring_save(ring, row, cells.clone()))
            .collect()
    }

    /// Puts saved cells into a row.
    pub fn restore(&mut self, backend: &mut B, row: usize, parts: &[B::RingPart]) -> Done {
        self.rings
            .iter_mut()
            .zip(parts)
            .try_for_each(|(ring, part)| backend.ring_load(ring, row, part))
    }
}
