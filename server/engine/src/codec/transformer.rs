//! One of the codec's two transformers: plain pre-norm layers with layer norm, GELU and layer scales.

use crate::backend::{Backend, Done, Heads, Lanes, Query, WriteOrder};
use crate::config::MimiConfig;
use crate::model::{BuildError, Loader, RingRule, Window};

/// Layers, rings and positions of all rows. Both columns of a frame are written before either attends.
pub(super) struct CodecTransformer<B: Backend> {
    layers: Vec<Layer<B>>,
    window: Window,
    norm_eps: f32,
    positions_per_frame: u64,
    /// Position of each row's next column.
    positions: Vec<u64>,
    queries: Vec<Query>,
    normed: B::Buf,
    wide: B::Buf,
    attended: B::Buf,
}

struct Layer<B: Backend> {
    norm1: (B::Vector, B::Vector),
    in_proj: B::Weight,
    out_proj: B::Weight,
    scale1: B::Vector,
    norm2: (B::Vector, B::Vector),
    linear1: B::Weight,
    linear2: B::Weight,
    scale2: B::Vector,
    ring: B::Ring,
}

impl<B: Backend> CodecTransformer<B> {
    pub(super) fn load(
        loader: &mut Loader<'_, B>,
        side: &str,
        mimi: &MimiConfig,
        rule: RingRule,
        rows: usize,
    ) -> Result<Self, BuildError> {
        let c = &mimi.transformer;
        let heads = Heads {
            count: c.num_heads,
            dim: c.dim / c.num_heads,
            rope_max_period: Some(c.rope_max_period as f32),
        };
        let layers = (0..c.num_layers)
            .map(|index| {
                let name = |part: &str| format!("{side}.transformer.layers.{index}.{part}");
                let mut norm = |part: &str| -> Result<_, BuildError> {
                    Ok((
                        loader.vector(&name(&format!("{part}.weight")))?,
                        loader.vector(&name(&format!("{part}.bias")))?,
                    ))
                };
                Ok(Layer {
                    norm1: norm("norm1")?,
                    norm2: norm("norm2")?,
                    in_proj: loader.codec_matrix(&name("self_attn.in_proj_weight"))?,
                    out_proj: loader.codec_matrix(&name("self_attn.out_proj.weight"))?,
                    scale1: loader.vector(&name("layer_scale_1.scale"))?,
                    linear1: loader.codec_matrix(&name("linear1.weight"))?,
                    linear2: loader.codec_matrix(&name("linear2.weight"))?,
                    scale2: loader.vector(&name("layer_scale_2.scale"))?,
                    ring: loader.backend.ring(rows, heads, c.context, true)?,
                })
            })
            .collect::<Result<_, BuildError>>()?;
        Ok(Self {
            layers,
            window: Window {
                context: c.context,
                rule,
            },
            norm_eps: c.norm_eps as f32,
            positions_per_frame: mimi.resample.stride as u64,
            positions: vec![0; rows],
            queries: Vec::new(),
            normed: B::Buf::default(),
            wide: B::Buf::default(),
            attended: B::Buf::default(),
        })
    }

    /// The row starts at position 0 again; what its ring still holds is out of sight.
    pub(super) fn reset(&mut self, row: usize) {
        self.positions[row] = 0;
    }

    /// Every row stands past the first turn of its ring, which holds `cells`: for clocks.
    pub(super) fn stand_late(&mut self, backend: &mut B, cells: &B::RingPart) -> Done {
        let frames = 2 * self.window.context as u64;
        self.positions.fill(frames * self.positions_per_frame);
        for row in 0..self.positions.len() {
            for layer in &mut self.layers {
                backend.ring_load(&mut layer.ring, row, cells)?;
            }
        }
        Ok(())
    }

    /// Runs all layers on `x`, `[lanes * positions_per_frame, dim]`, in place.
    pub(super) fn forward(&mut self, backend: &mut B, lanes: &Lanes, x: &mut B::Buf) -> Done {
        self.queries.clear();
        for (&row, &active) in lanes.rows.iter().zip(&lanes.active) {
            let start = self.positions[row];
            let newest = start + self.positions_per_frame - 1;
            for position in start..=newest {
                let query = self.window.query(row, position, newest);
                self.queries.push(Query { active, ..query });
            }
            if active {
                self.positions[row] = newest + 1;
            }
        }
        let eps = self.norm_eps;
        for layer in &mut self.layers {
            backend.layer_norm(x, &layer.norm1.0, &layer.norm1.1, eps, &mut self.normed)?;
            backend.linear(&layer.in_proj, &self.normed, &mut self.wide)?;
            let (queries, order) = (&self.queries, WriteOrder::AllThenAttend);
            backend.attend(
                &mut layer.ring,
                queries,
                order,
                &self.wide,
                &mut self.attended,
            )?;
            backend.linear_add(&layer.out_proj, &self.attended, Some(&layer.scale1), x)?;
            backend.layer_norm(x, &layer.norm2.0, &layer.norm2.1, eps, &mut self.normed)?;
            backend.linear(&layer.linear1, &self.normed, &mut self.wide)?;
            backend.gelu(&mut self.wide)?;
            backend.linear_add(&layer.linear2, &self.wide, Some(&layer.scale2), x)?;
        }
        Ok(())
    }
}
