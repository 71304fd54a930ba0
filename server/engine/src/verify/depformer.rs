//! The depformer against topic `depformer`, and `bf16`.

use slots::engine::EngineError;

use crate::backend::{Backend, Done};
use crate::kernels::Dtype;
use crate::model::{BuildError, Depformer, Loader, RingRule, StepChoice};
use crate::weights::Checkpoint;

use super::goldens::Goldens;
use super::temporal::LOGITS;
use super::{Report, VerifyError};

/// Residual stream after a layer: the transformers' layers are held to the same figure.
const LAYERS: f64 = 3e-5;
/// Twice the relative error of the recorded bfloat16 run against float32. Source: the recordings.
const LOGITS_BF16: f64 = 2.0 * 0.009;

/// Takes the given token where there is one, else the most probable, and keeps everything.
struct Recorder<'a> {
    lanes: usize,
    steps: usize,
    card: usize,
    /// `[lanes, steps]`, -1: not given.
    given: &'a [i64],
    values: Vec<f32>,
    /// `[lanes, steps]`.
    tokens: Vec<i64>,
    /// `[lanes, steps, card]`.
    logits: Vec<f32>,
    layer_count: usize,
    /// `[lanes, steps, layers, dim]`.
    layers: Vec<f32>,
}

impl<B: Backend> StepChoice<B> for Recorder<'_> {
    fn choose(
        &mut self,
        backend: &mut B,
        step: usize,
        logits: &B::Buf,
        tokens: &mut [i32],
    ) -> Done {
        backend.download(logits, &mut self.values)?;
        for (lane, logits) in self.values.chunks_exact(self.card).enumerate() {
            let at = lane * self.steps + step;
            self.logits[at * self.card..][..self.card].copy_from_slice(logits);
            let mut best = 0;
            for (token, logit) in logits.iter().enumerate() {
                if *logit > logits[best] {
                    best = token;
                }
            }
            self.tokens[at] = best as i64;
            let given = self.given.get(at).copied().unwrap_or(-1);
            tokens[lane] = if given >= 0 {
                given as i32
            } else {
                best as i32
            };
        }
        Ok(())
    }

    fn tap(&mut self, backend: &mut B, step: usize, layer: usize, x: &B::Buf) -> Done {
        backend.download(x, &mut self.values)?;
        let dim = self.values.len() / self.lanes;
        self.layers
            .resize(self.lanes * self.steps * self.layer_count * dim, 0.0);
        for (lane, values) in self.values.chunks_exact(dim).enumerate() {
            let at = (lane * self.steps + step) * self.layer_count + layer;
            self.layers[at * dim..][..dim].copy_from_slice(values);
        }
        Ok(())
    }
}

/// The recorded inputs.
struct Inputs {
    hidden: Vec<f32>,
    text: Vec<i32>,
}

fn run<'a, B: Backend>(
    inputs: &Inputs,
    given: &'a [i64],
    steps: usize,
    rule: RingRule,
    checkpoint: &Checkpoint,
    make: &mut dyn FnMut() -> Result<B, EngineError>,
) -> Result<Recorder<'a>, VerifyError> {
    let config = checkpoint.config();
    let lanes = inputs.text.len();
    let mut backend = make().map_err(BuildError::from)?;
    let mut loader = Loader {
        backend: &mut backend,
        tensors: checkpoint.lm_tensors(),
    };
    let mut depformer = Depformer::load(&mut loader, config, steps, rule, lanes, &mut || {})?;
    let mut hidden = B::Buf::default();
    backend.upload(&inputs.hidden, config.lm.dim, &mut hidden)?;
    let mut recorder = Recorder {
        lanes,
        steps,
        card: config.lm.card,
        given,
        values: Vec::new(),
        tokens: vec![0; lanes * steps],
        logits: vec![0.0; lanes * steps * config.lm.card],
        layer_count: config.depformer.num_layers,
        layers: Vec::new(),
    };
    depformer.run(&mut backend, &hidden, &inputs.text, &mut recorder)?;
    Ok(recorder)
}

fn inputs(golden: &super::goldens::Golden) -> Result<Inputs, VerifyError> {
    let text = golden.i64s("text")?.iter().map(|&id| id as i32).collect();
    Ok(Inputs {
        hidden: golden.f32s("hidden")?,
        text,
    })
}

pub(super) fn compare<B: Backend>(
    goldens: &Goldens,
    checkpoint: &Checkpoint,
    make: &mut dyn FnMut() -> Result<B, EngineError>,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<(), VerifyError> {
    let Some(golden) = goldens.topic("depformer")? else {
        return Ok(());
    };
    progress("depformer");
    let inputs = inputs(&golden)?;
    let steps = checkpoint.config().depformer.steps;
    let given = golden.i64s("forced.given")?;
    let topic = golden.topic();

    let free = run(&inputs, &[], steps, RingRule::Full, checkpoint, make)?;
    report.equal(
        topic,
        "free.tokens",
        &free.tokens,
        &golden.i64s("free.tokens")?,
    );
    report.absolute(
        topic,
        "free.logits",
        &free.logits,
        &golden.f32s("free.logits")?,
        LOGITS,
    );
    report.absolute(
        topic,
        "free.layers",
        &free.layers,
        &golden.f32s("free.layers")?,
        LAYERS,
    );

    let forced = run(&inputs, &given, steps, RingRule::Full, checkpoint, make)?;
    report.equal(
        topic,
        "forced.tokens",
        &forced.tokens,
        &golden.i64s("forced.tokens")?,
    );
    report.absolute(
        topic,
        "forced.logits",
        &forced.logits,
        &golden.f32s("forced.logits")?,
        LOGITS,
    );

    let prefix = golden.shape("prefix8.tokens")?[1];
    let eight = run(&inputs, &[], prefix, RingRule::Full, checkpoint, make)?;
    report.equal(
        topic,
        "prefix8.tokens",
        &eight.tokens,
        &golden.i64s("prefix8.tokens")?,
    );

    if golden.has("short.last_logits") {
        // The other steps see the same keys under both rules.
        let recorded = golden.f32s("short.last_logits")?;
        let card = checkpoint.config().lm.card;
        let short = run(&inputs, &[], steps, RingRule::Short, checkpoint, make)?;
        let last: Vec<f32> = (1..=inputs.text.len())
            .flat_map(|lane| short.logits[(lane * steps - 1) * card..][..card].to_vec())
            .collect();
        report.absolute(topic, "short.last_logits", &last, &recorded, LOGITS);
    }
    Ok(())
}

/// In half precision and below: given tokens, against the float32 recording, relative to its size.
pub(super) fn compare_half<B: Backend>(
    goldens: &Goldens,
    checkpoint: &Checkpoint,
    dtype: Dtype,
    make: &mut dyn FnMut() -> Result<B, EngineError>,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<(), VerifyError> {
    let Some(golden) = goldens.topic("depformer")? else {
        return Ok(());
    };
    progress("depformer");
    let inputs = inputs(&golden)?;
    let steps = checkpoint.config().depformer.steps;
    // Every token is given: a code left to the most probable may be another one in half precision, and all steps
    // after it would then be compared with those of another frame.
    let chosen = golden.i64s("forced.tokens")?;
    let given: Vec<i64> = golden
        .i64s("forced.given")?
        .into_iter()
        .zip(chosen)
        .map(|(given, chosen)| if given >= 0 { given } else { chosen })
        .collect();
    let forced = run(&inputs, &given, steps, RingRule::Full, checkpoint, make)?;
    let limit = (dtype == Dtype::Bf16).then_some(LOGITS_BF16);
    let recorded = golden.f32s("forced.logits")?;
    report.relative(
        golden.topic(),
        "forced.logits",
        &forced.logits,
        &recorded,
        limit,
    );
    Ok(())
}
