//! The temporal transformer against topics `temporal`, `temporal_short`, `temporal_lanes`, and `bf16`.

use slots::engine::EngineError;

use crate::backend::{Backend, Query, WriteOrder};
use crate::kernels::Dtype;
use crate::model::{BuildError, Loader, RingRule, Temporal, Window};
use crate::weights::Checkpoint;

use super::goldens::{Golden, Goldens};
use super::{Report, VerifyError};

/// Source: the table of the recordings (standard deviations 0.7, 1.0 and 5.4).
pub(super) const HIDDEN: f64 = 3e-5;
pub(super) const LOGITS: f64 = 4e-4;
/// Twice the relative error of the recorded bfloat16 run against float32. Source: the recordings.
const HIDDEN_BF16: f64 = 2.0 * 0.014;
const LOGITS_BF16: f64 = 2.0 * 0.014;

/// Everything of a run over recorded tokens, in the recording's order; zeros where a lane did not run.
struct Found {
    embedding: Vec<f32>,
    /// Layer by layer.
    layers: Vec<Vec<f32>>,
    hidden: Vec<f32>,
    text_logits: Vec<f32>,
}

/// Which lanes run and which are cleared before each step; all run and none is cleared if the topic does not say.
fn flags(golden: &Golden, name: &str, default: u8, len: usize) -> Result<Vec<u8>, VerifyError> {
    Ok(if golden.has(name) {
        golden.u8s(name)?.to_vec()
    } else {
        vec![default; len]
    })
}

fn run<B: Backend>(
    inputs: &Golden,
    checkpoint: &Checkpoint,
    rule: RingRule,
    make: &mut dyn FnMut() -> Result<B, EngineError>,
) -> Result<Found, VerifyError> {
    let config = checkpoint.config();
    let shape = inputs.shape("tokens")?.to_vec();
    let (steps, rows, streams) = (shape[0], shape[1], shape[2]);
    let tokens = inputs.i64s("tokens")?;
    let running = flags(inputs, "run", 1, steps * rows)?;
    let reset = flags(inputs, "reset", 0, steps * rows)?;
    let mut backend = make().map_err(BuildError::from)?;
    let mut loader = Loader {
        backend: &mut backend,
        tensors: checkpoint.lm_tensors(),
    };
    let mut temporal = Temporal::load(&mut loader, config, rows, &mut || {})?;
    let window = Window {
        context: config.lm.context,
        rule,
    };
    let (dim, card) = (config.lm.dim, config.lm.text_card);
    let mut found = Found {
        embedding: vec![0.0; steps * rows * dim],
        layers: vec![vec![0.0; steps * rows * dim]; config.lm.num_layers],
        hidden: vec![0.0; steps * rows * dim],
        text_logits: vec![0.0; steps * rows * card],
    };
    let mut positions = vec![0u64; rows];
    let (mut scratch, mut values) = (Vec::new(), Vec::new());
    for step in 0..steps {
        for row in (0..rows).filter(|row| reset[step * rows + row] != 0) {
            positions[row] = 0;
        }
        let live: Vec<usize> = (0..rows)
            .filter(|row| running[step * rows + row] != 0)
            .collect();
        let (mut queries, mut ids) = (Vec::new(), Vec::new());
        for row in 0..rows {
            let active = live.contains(&row);
            if active || backend.padded() {
                let query = window.query(row, positions[row], positions[row]);
                queries.push(Query { active, ..query });
                let tokens = &tokens[(step * rows + row) * streams..][..streams];
                ids.extend(tokens.iter().map(|&id| id as i32));
            }
            positions[row] += u64::from(active);
        }
        if queries.is_empty() {
            continue;
        }
        let put = |to: &mut Vec<f32>, width: usize, values: &[f32]| {
            for (query, values) in queries.iter().zip(values.chunks_exact(width)) {
                if query.active {
                    to[(step * rows + query.row) * width..][..width].copy_from_slice(values);
                }
            }
        };
        temporal.embed(&mut backend, &ids, &mut scratch)?;
        backend.download(temporal.input(), &mut values)?;
        put(&mut found.embedding, dim, &values);
        let layers = &mut found.layers;
        temporal.forward(
            &mut backend,
            &queries,
            WriteOrder::AllThenAttend,
            &mut |b, layer, x| {
                b.download(x, &mut values)?;
                put(&mut layers[layer], dim, &values);
                Ok(())
            },
        )?;
        temporal.finish(&mut backend)?;
        let mut values = Vec::new();
        backend.download(temporal.hidden(), &mut values)?;
        put(&mut found.hidden, dim, &values);
        backend.download(temporal.text_logits(), &mut values)?;
        put(&mut found.text_logits, card, &values);
    }
    Ok(found)
}

pub(super) fn compare<B: Backend>(
    goldens: &Goldens,
    checkpoint: &Checkpoint,
    make: &mut dyn FnMut() -> Result<B, EngineError>,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<(), VerifyError> {
    if let Some(golden) = goldens.topic("temporal")? {
        progress("temporal");
        let found = run(&golden, checkpoint, RingRule::Full, make)?;
        let topic = golden.topic();
        report.absolute(
            topic,
            "embedding",
            &found.embedding,
            &golden.f32s("embedding")?,
            HIDDEN,
        );
        report.absolute(
            topic,
            "layers",
            &found.layers.concat(),
            &golden.f32s("layers")?,
            HIDDEN,
        );
        outputs(&golden, &found, report)?;
        if let Some(short) = goldens.topic("temporal_short")? {
            progress("temporal_short");
            outputs(
                &short,
                &run(&golden, checkpoint, RingRule::Short, make)?,
                report,
            )?;
        }
    }
    if let Some(golden) = goldens.topic("temporal_lanes")? {
        progress("temporal_lanes");
        outputs(
            &golden,
            &run(&golden, checkpoint, RingRule::Full, make)?,
            report,
        )?;
    }
    Ok(())
}

fn outputs(golden: &Golden, found: &Found, report: &mut Report) -> Result<(), VerifyError> {
    let topic = golden.topic();
    report.absolute(
        topic,
        "hidden",
        &found.hidden,
        &golden.f32s("hidden")?,
        HIDDEN,
    );
    report.absolute(
        topic,
        "text_logits",
        &found.text_logits,
        &golden.f32s("text_logits")?,
        LOGITS,
    );
    Ok(())
}

/// In half precision and below: against the float32 recording, relative to its size.
pub(super) fn compare_half<B: Backend>(
    goldens: &Goldens,
    checkpoint: &Checkpoint,
    dtype: Dtype,
    make: &mut dyn FnMut() -> Result<B, EngineError>,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<(), VerifyError> {
    let Some(golden) = goldens.topic("temporal")? else {
        return Ok(());
    };
    progress("temporal");
    let found = run(&golden, checkpoint, RingRule::Full, make)?;
    let judged = |limit| (dtype == Dtype::Bf16).then_some(limit);
    let topic = golden.topic();
    report.relative(
        topic,
        "hidden",
        &found.hidden,
        &golden.f32s("hidden")?,
        judged(HIDDEN_BF16),
    );
    let recorded = golden.f32s("text_logits")?;
    report.relative(
        topic,
        "text_logits",
        &found.text_logits,
        &recorded,
        judged(LOGITS_BF16),
    );
    Ok(())
}
