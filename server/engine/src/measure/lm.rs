//! The transformers with random tokens in and the most probable token out.

use slots::call::Sampling;
use slots::engine::{EngineError, RowFault};

use crate::backend::{Backend, Done, Query, WriteOrder};
use crate::config::{ModelConfig, expected_tensors};
use crate::model::{BuildError, Depformer, Loader, RingRule, StepChoice, Temporal, Window};
use crate::sampling::{RowSampler, Scratch as SampleScratch};
use crate::tokens::ZERO;
use crate::weights::Tensors;

use super::{Network, Noise, Part, temporal_cells};

/// Seed of the weights.
const SEED: u64 = 12;
/// Positions between two neighbouring rows: callers do not start together.
const ROW_GAP: u64 = 37;

pub(super) struct LmRig<B: Backend> {
    config: ModelConfig,
    rows: usize,
    temporal: Option<Temporal<B>>,
    depformer: Option<Depformer<B>>,
    window: Window,
    /// Position of row 0.
    position: u64,
    noise: Noise,
    /// Inputs of the first operation where no embedding gives them, `[rows, dim]`.
    inputs: Vec<f32>,
    vectors: B::Buf,
    queries: Vec<Query>,
    tokens: Vec<i32>,
    reordered: Vec<i32>,
    text: Vec<i32>,
    greedy: Greedy,
}

/// Takes the most probable code, as a row with temperature 0 does.
struct Greedy {
    sampler: RowSampler,
    scratch: SampleScratch,
    values: Vec<f32>,
    card: usize,
    position: u64,
}

fn not_finite(fault: RowFault) -> EngineError {
    EngineError {
        what: fault.to_string(),
    }
}

impl<B: Backend> StepChoice<B> for Greedy {
    fn choose(
        &mut self,
        backend: &mut B,
        step: usize,
        logits: &B::Buf,
        tokens: &mut [i32],
    ) -> Done {
        backend.download(logits, &mut self.values)?;
        for (logits, token) in self.values.chunks_exact(self.card).zip(tokens) {
            let chosen = self
                .sampler
                .audio(self.position, step, logits, &mut self.scratch);
            *token = chosen.map_err(not_finite)? as i32;
        }
        Ok(())
    }
}

impl<B: Backend> LmRig<B> {
    pub(super) fn new(
        backend: &mut B,
        network: Network,
        config: &ModelConfig,
        rows: usize,
    ) -> Result<Self, BuildError> {
        let tensors = Tensors::random(expected_tensors(config).0, SEED);
        let mut loader = Loader {
            backend,
            tensors: &tensors,
        };
        let mut temporal = match network {
            Network::Depformer => None,
            _ => Some(Temporal::load(&mut loader, config, rows, &mut || ())?),
        };
        let depformer = match network {
            Network::Layer => None,
            _ => {
                let (steps, rule) = (config.codes(), RingRule::Full);
                Some(Depformer::load(
                    &mut loader,
                    config,
                    steps,
                    rule,
                    rows,
                    &mut || (),
                )?)
            }
        };
        if let Some(temporal) = &mut temporal {
            let cells = temporal_cells(backend, config)?;
            let cells = vec![cells; config.lm.num_layers];
            for row in 0..rows {
                temporal.restore(backend, row, &cells)?;
            }
        }
        let mut noise = Noise::new(SEED);
        let mut inputs = Vec::new();
        noise.fill(rows * config.lm.dim, 1.0, &mut inputs);
        Ok(Self {
            rows,
            temporal,
            depformer,
            window: Window {
                context: config.lm.context,
                rule: RingRule::Full,
            },
            // Well past the first turn of the ring.
            position: 2 * config.lm.context as u64,
            noise,
            inputs,
            vectors: B::Buf::default(),
            queries: Vec::new(),
            tokens: Vec::new(),
            reordered: Vec::new(),
            text: Vec::new(),
            greedy: Greedy {
                sampler: RowSampler::new(Sampling::greedy()),
                scratch: SampleScratch::default(),
                values: Vec::new(),
                card: config.lm.card,
                position: 0,
            },
            config: config.clone(),
        })
    }

    pub(super) fn tick(&mut self, backend: &mut B, part: Part, batch: usize) -> Done {
        let lanes = if backend.padded() { self.rows } else { batch };
        self.position += 1;
        self.greedy.position = self.position;
        match part {
            Part::LmStep => {
                self.temporal(backend, lanes, true)?;
                self.text_tokens(backend)?;
                self.depformer(backend, true)
            }
            Part::LmTemporal => self.temporal(backend, lanes, true),
            Part::TemporalLayer => self.temporal(backend, lanes, false),
            _ => {
                let (noise, card) = (&mut self.noise, self.config.lm.text_card);
                self.text.clear();
                self.text
                    .extend((0..lanes).map(|_| noise.below(card) as i32));
                self.depformer(backend, false)
            }
        }
    }

    /// One position of `lanes` rows; `whole`: with embeddings, output norm and text head.
    fn temporal(&mut self, backend: &mut B, lanes: usize, whole: bool) -> Done {
        let Some(temporal) = &mut self.temporal else {
            return Ok(());
        };
        let (lm, noise) = (&self.config.lm, &mut self.noise);
        self.queries.clear();
        self.queries.extend((0..lanes).map(|row| {
            let position = self.position + ROW_GAP * row as u64;
            self.window.query(row, position, position)
        }));
        self.tokens.clear();
        for _ in 0..lanes {
            if whole {
                self.tokens.push(noise.below(lm.text_card) as i32);
                let code = |_| noise.below(lm.card) as i32;
                self.tokens.extend((0..lm.audio_streams).map(code));
            } else {
                self.tokens
                    .extend(std::iter::repeat_n(ZERO, 1 + lm.audio_streams));
            }
        }
        temporal.embed(backend, &self.tokens, &mut self.reordered)?;
        if !whole {
            backend.upload(&self.inputs[..lanes * lm.dim], lm.dim, &mut self.vectors)?;
            temporal.add_input(backend, &self.vectors)?;
        }
        let order = WriteOrder::AllThenAttend;
        temporal.forward(backend, &self.queries, order, &mut |_, _, _| Ok(()))?;
        match whole {
            true => temporal.finish(backend),
            false => Ok(()),
        }
    }

    /// The most probable text token of every lane.
    fn text_tokens(&mut self, backend: &mut B) -> Done {
        let Some(temporal) = &self.temporal else {
            return Ok(());
        };
        let greedy = &mut self.greedy;
        backend.download(temporal.text_logits(), &mut greedy.values)?;
        self.text.clear();
        for logits in greedy.values.chunks_exact(self.config.lm.text_card) {
            let chosen = greedy
                .sampler
                .text(greedy.position, logits, &mut greedy.scratch);
            self.text.push(chosen.map_err(not_finite)? as i32);
        }
        Ok(())
    }

    /// All steps for the lanes that have a text token; `after`: on what the temporal transformer gave.
    fn depformer(&mut self, backend: &mut B, after: bool) -> Done {
        let Some(depformer) = &mut self.depformer else {
            return Ok(());
        };
        let hidden = match &self.temporal {
            Some(temporal) if after => temporal.hidden(),
            _ => {
                let dim = self.config.lm.dim;
                let inputs = &self.inputs[..self.text.len() * dim];
                backend.upload(inputs, dim, &mut self.vectors)?;
                &self.vectors
            }
        };
        depformer.run(backend, hidden, &self.text, &mut self.greedy)
    }
}
