//! The depformer: the codes of one frame, one step after the other, each step with weights of its own.

use crate::backend::{Backend, Done, Heads, Query, WriteOrder};
use crate::config::{DepformerConfig, ModelConfig};

use super::layer::{GatedLayer, Scratch};
use super::loader::{BuildError, Loader};
use super::window::{RingRule, Window};

/// All steps and the keys and values of the frame at hand.
pub struct Depformer<B: Backend> {
    config: DepformerConfig,
    text_emb: B::Table,
    steps: Vec<Step<B>>,
    norms: Vec<[B::Vector; 2]>,
    rings: Vec<B::Ring>,
    window: Window,
    queries: Vec<Query>,
    ids: Vec<i32>,
    scratch: Scratch<B>,
    logits: B::Buf,
}

struct Step<B: Backend> {
    input: B::Weight,
    /// The embedding of the code before; step 0 has the text's instead.
    emb: Option<B::Table>,
    layers: Vec<StepLayer<B>>,
    head: B::Weight,
}

struct StepLayer<B: Backend> {
    in_proj: B::Weight,
    out_proj: B::Weight,
    linear_in: B::Weight,
    linear_out: B::Weight,
}

/// Who decides the tokens while the steps run.
pub trait StepChoice<B: Backend> {
    /// `logits` is `[n, card]` of step `step`; fills `tokens` with what the next step is fed, one for each lane.
    ///
    /// # Errors
    /// [`slots::engine::EngineError`]: the device failed while logits were fetched.
    fn choose(&mut self, backend: &mut B, step: usize, logits: &B::Buf, tokens: &mut [i32])
    -> Done;

    /// Sees the residual stream `[n, dim]` after a layer; for verification.
    ///
    /// # Errors
    /// As [`StepChoice::choose`].
    fn tap(&mut self, _backend: &mut B, _step: usize, _layer: usize, _x: &B::Buf) -> Done {
        Ok(())
    }
}

impl<B: Backend> Depformer<B> {
    /// Reads the first `steps` steps; `lanes` is the most rows that are stepped together.
    ///
    /// # Errors
    /// [`BuildError`]: a tensor is missing or the device refused.
    pub fn load(
        loader: &mut Loader<'_, B>,
        config: &ModelConfig,
        steps: usize,
        rule: RingRule,
        lanes: usize,
        progress: &mut dyn FnMut(),
    ) -> Result<Self, BuildError> {
        let c = config.depformer.clone();
        let steps = steps.min(c.steps);
        let (mut in_proj, mut out_proj) = (Vec::new(), Vec::new());
        let (mut norms, mut rings) = (Vec::new(), Vec::new());
        let heads = Heads {
            count: c.num_heads,
            dim: c.dim / c.num_heads,
            rope_max_period: None,
        };
        for layer in 0..c.num_layers {
            let name = |part: &str| format!("depformer.layers.{layer}.{part}");
            let parts = |width: usize| (0..steps).map(move |s| s * width..(s + 1) * width);
            in_proj.push(
                loader
                    .parts(&name("self_attn.in_proj_weight"), parts(3 * c.dim))?
                    .into_iter(),
            );
            out_proj.push(
                loader
                    .parts(&name("self_attn.out_proj.weight"), parts(c.dim))?
                    .into_iter(),
            );
            norms.push([
                loader.vector(&name("norm1.alpha"))?,
                loader.vector(&name("norm2.alpha"))?,
            ]);
            rings.push(loader.backend.ring(lanes, heads, c.steps, false)?);
        }
        let mut loaded = Vec::new();
        for step in 0..steps {
            let mut layers = Vec::new();
            for layer in 0..c.num_layers {
                let name =
                    |part: &str| format!("depformer.layers.{layer}.gating.{step}.{part}.weight");
                layers.push(StepLayer {
                    in_proj: in_proj[layer].next().expect("one part for each step"),
                    out_proj: out_proj[layer].next().expect("one part for each step"),
                    linear_in: loader.matrix(&name("linear_in"))?,
                    linear_out: loader.matrix(&name("linear_out"))?,
                });
            }
            loaded.push(Step {
                input: loader.matrix(&format!("depformer_in.{step}.weight"))?,
                emb: match step {
                    0 => None,
                    _ => Some(loader.table(&format!("depformer_emb.{}.weight", step - 1))?),
                },
                layers,
                head: loader.matrix(&format!("linears.{step}.weight"))?,
            });
            progress();
        }
        Ok(Self {
            text_emb: loader.table("depformer_text_emb.weight")?,
            steps: loaded,
            norms,
            rings,
            // The ring holds all steps of the file, so that with fewer loaded the window is plainly causal.
            window: Window {
                context: c.steps,
                rule,
            },
            config: c,
            queries: Vec::new(),
            ids: Vec::new(),
            scratch: Scratch::default(),
            logits: B::Buf::default(),
        })
    }

    /// Number of steps that run.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Runs all steps for `text.len()` lanes.
    ///
    /// `hidden` is `[n, dim of the temporal transformer]`, `text` the text token of each lane, and `choice` gives the
    /// token after each step. Lane `i` is computed for itself alone.
    ///
    /// # Errors
    /// The device failed.
    pub fn run(
        &mut self,
        backend: &mut B,
        hidden: &B::Buf,
        text: &[i32],
        choice: &mut dyn StepChoice<B>,
    ) -> Done {
        let n = text.len();
        self.ids.clear();
        self.ids.extend_from_slice(text);
        for (index, step) in self.steps.iter().enumerate() {
            backend.linear(&step.input, hidden, &mut self.scratch.x)?;
            let table = step.emb.as_ref().unwrap_or(&self.text_emb);
            backend.embed_add(table, &self.ids, &mut self.scratch.x)?;
            let position = index as u64;
            self.queries.clear();
            self.queries
                .extend((0..n).map(|lane| self.window.query(lane, position, position)));
            for (number, layer) in step.layers.iter().enumerate() {
                let [norm1, norm2] = &self.norms[number];
                let layer = GatedLayer {
                    norm1,
                    in_proj: &layer.in_proj,
                    out_proj: &layer.out_proj,
                    norm2,
                    linear_in: &layer.linear_in,
                    linear_out: &layer.linear_out,
                    hidden: self.config.ffn_dim,
                    norm_eps: self.config.norm_eps as f32,
                };
                layer.forward(
                    backend,
                    &mut self.rings[number],
                    &self.queries,
                    WriteOrder::AllThenAttend,
                    &mut self.scratch,
                )?;
                choice.tap(backend, index, number, &self.scratch.x)?;
            }
            backend.linear(&step.head, &self.scratch.x, &mut self.logits)?;
            choice.choose(backend, index, &self.logits, &mut self.ids)?;
        }
        Ok(())
    }
}
