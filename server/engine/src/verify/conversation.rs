//! Whole conversations against topics `loop_f32`, `loop_f32_short`, `loop_f32_bare`, through the engine that serves.

use std::sync::{Arc, Mutex, PoisonError};

use slots::call::Sampling;
use slots::engine::{Engine, EngineError, FrameKind, FrameOutput, Readiness, TickPlan};
use slots::units::{FRAME_SAMPLES, SlotId};

use crate::backend::Backend;
use crate::model::RingRule;
use crate::prompt::Prompt;
use crate::voice_model::{CallTrace, EngineOptions, Order, Probe, VoiceCall, VoiceModel};
use crate::weights::Checkpoint;

use super::goldens::{Golden, Goldens};
use super::temporal::{HIDDEN, LOGITS};
use super::{Report, VerifyError};

/// Largest difference of the decoded samples. Source: the table of the recordings.
const PCM: f64 = 1e-5;

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<CallTrace>>>);

impl Probe for Recorder {
    fn call(&mut self, trace: CallTrace) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(trace);
    }
}

/// What one conversation gave.
struct Found {
    traces: Vec<CallTrace>,
    /// Frame after frame.
    pcm: Vec<f32>,
    /// Text of each frame.
    texts: Vec<String>,
}

/// How the engine runs it.
struct Run<'a> {
    rule: RingRule,
    order: Order,
    steps: usize,
    user_pcm: &'a [f32],
    probed: bool,
}

pub(super) fn compare<B: Backend>(
    goldens: &Goldens,
    checkpoint: &Checkpoint,
    make: &mut dyn FnMut() -> Result<B, EngineError>,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<(), VerifyError> {
    let all = checkpoint.config().depformer.steps;
    let full = goldens.topic("loop_f32")?;
    let rules = [
        ("loop_f32", RingRule::Full),
        ("loop_f32_short", RingRule::Short),
        ("loop_f32_bare", RingRule::Full),
    ];
    for (topic, rule) in rules {
        let Some(golden) = goldens.topic(topic)? else {
            continue;
        };
        progress(topic);
        let inputs = if golden.has("user_pcm") {
            Some(&golden)
        } else {
            full.as_ref()
        };
        let Some(inputs) = inputs else {
            return Err(golden
                .malformed("it has no user_pcm, and there is no loop_f32")
                .into());
        };
        let user_pcm = inputs.f32s("user_pcm")?;
        let recorded = |order, steps, probed| Run {
            rule,
            order,
            steps,
            user_pcm: &user_pcm,
            probed,
        };
        let found = converse(
            &golden,
            checkpoint,
            &recorded(Order::Overlapped, all, true),
            make,
        )?;
        judge(&golden, inputs, checkpoint, &found, report)?;

        // As it is served: only the agent's codes, and every frame one tick sooner, so the first is never sent.
        let codes = checkpoint.config().codes();
        let sooner = converse(
            &golden,
            checkpoint,
            &recorded(Order::Sooner, codes, false),
            make,
        )?;
        let pcm = golden.f32s("live.out_pcm")?;
        let sent = &sooner.pcm[..sooner.pcm.len().min(pcm.len()) - FRAME_SAMPLES];
        report.absolute(topic, "sooner.out_pcm", sent, &pcm[FRAME_SAMPLES..], PCM);
        let sent = sooner.texts.len().min(found.texts.len()) - 1;
        report.equal(
            topic,
            "sooner.text",
            &sooner.texts[..sent],
            &found.texts[1..],
        );
    }
    Ok(())
}

/// Seats the recorded voice and prompt in the second of three rows and plays the caller's frames.
fn converse<B: Backend>(
    golden: &Golden,
    checkpoint: &Checkpoint,
    run: &Run<'_>,
    make: &mut dyn FnMut() -> Result<B, EngineError>,
) -> Result<Found, VerifyError> {
    let options = EngineOptions {
        order: run.order,
        ring: run.rule,
        depformer_steps: run.steps,
        positions_max: usize::MAX,
        ..EngineOptions::serving(checkpoint.config(), 3)
    };
    let slot = SlotId::new(1).expect("below the limit");
    let mut model = VoiceModel::load(make()?, checkpoint, options, &mut |_, _| {})?;
    let recorder = Recorder::default();
    if run.probed {
        model.set_probe(Box::new(recorder.clone()));
    }
    let voice = Some(golden.metadata("voice")).filter(|voice| !voice.is_empty());
    let prompt =
        Prompt::new(checkpoint, voice, golden.metadata("prompt"), usize::MAX).map_err(|error| {
            VerifyError::Conversation {
                what: error.to_string(),
            }
        })?;
    let call = VoiceCall {
        prompt,
        sampling: Sampling::greedy(),
    };
    let mut ready = model
        .seat(slot, call)
        .map_err(|error| VerifyError::Conversation {
            what: error.to_string(),
        })?;
    while let Readiness::Prefill { .. } = ready {
        ready = model.prefill(slot)?;
    }
    let plan = TickPlan { live: vec![slot] };
    let mut mic = vec![0.0; 3 * FRAME_SAMPLES];
    let mut out: Vec<FrameOutput> = (0..3).map(|_| FrameOutput::idle()).collect();
    let mut found = Found {
        traces: Vec::new(),
        pcm: Vec::new(),
        texts: Vec::new(),
    };
    for frame in run.user_pcm.chunks_exact(FRAME_SAMPLES) {
        mic[FRAME_SAMPLES..2 * FRAME_SAMPLES].copy_from_slice(frame);
        model.step(&plan, &mic, &mut out)?;
        if let FrameKind::Fault(fault) = out[1].kind {
            return Err(VerifyError::Conversation {
                what: fault.to_string(),
            });
        }
        found.pcm.extend_from_slice(&out[1].pcm);
        found.texts.push(out[1].text.to_string());
    }
    drop(model);
    found.traces = std::mem::take(&mut *recorder.0.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(found)
}

fn judge(
    golden: &Golden,
    inputs: &Golden,
    checkpoint: &Checkpoint,
    found: &Found,
    report: &mut Report,
) -> Result<(), VerifyError> {
    let topic = golden.topic();
    let config = checkpoint.config();
    let streams = config.streams();
    let live_len = golden.shape("live.fed_tokens")?[0];
    let (prompt, live) = found
        .traces
        .split_at(found.traces.len().saturating_sub(live_len));
    let wide = |values: &[i32]| {
        values
            .iter()
            .map(|&token| i64::from(token))
            .collect::<Vec<_>>()
    };
    if inputs.has("text_prompt_ids") && !golden.metadata("prompt").is_empty() {
        let ids = checkpoint.tokenizer().encode(&crate::prompt::wrap(
            golden.metadata("prompt"),
            &config.prompt.system_tag,
        ));
        let ids: Vec<i64> = ids.into_iter().map(i64::from).collect();
        report.equal(
            topic,
            "text_prompt_ids",
            &ids,
            &inputs.i64s("text_prompt_ids")?,
        );
    }
    let fed: Vec<i64> = prompt
        .iter()
        .chain(live)
        .flat_map(|trace| match trace.fed.is_empty() {
            // A voice's recorded vectors have no tokens.
            true => vec![-2; streams],
            false => wide(&trace.fed),
        })
        .collect();
    report.equal(topic, "fed_tokens", &fed, &golden.i64s("fed_tokens")?);
    if golden.has("hidden") {
        let hidden: Vec<f32> = found
            .traces
            .iter()
            .flat_map(|trace| trace.hidden.clone())
            .collect();
        report.absolute(topic, "hidden", &hidden, &golden.f32s("hidden")?, HIDDEN);
    }
    if golden.has("live.text_logits") {
        let logits: Vec<f32> = live
            .iter()
            .flat_map(|trace| trace.text_logits.clone())
            .collect();
        report.absolute(
            topic,
            "live.text_logits",
            &logits,
            &golden.f32s("live.text_logits")?,
            LOGITS,
        );
    }
    type Tokens = fn(&CallTrace) -> Vec<i64>;
    let tokens: [(&str, Tokens); 7] = [
        ("live.user_codes", |trace| {
            trace.user.iter().map(|&code| code.into()).collect()
        }),
        ("live.fed_tokens", |trace| {
            trace.fed.iter().map(|&token| token.into()).collect()
        }),
        ("live.text_token", |trace| vec![trace.text.into()]),
        ("live.forced", |trace| {
            trace.given.iter().map(|&token| token.into()).collect()
        }),
        ("live.audio_tokens", |trace| {
            trace.chosen.iter().map(|&code| code.into()).collect()
        }),
        ("live.target_tokens", |trace| {
            trace.target.iter().map(|&token| token.into()).collect()
        }),
        ("live.out_tokens", |trace| {
            trace.out.iter().map(|&token| token.into()).collect()
        }),
    ];
    for (what, of) in tokens {
        let values: Vec<i64> = live.iter().flat_map(of).collect();
        report.equal(topic, what, &values, &golden.i64s(what)?);
    }
    report.absolute(
        topic,
        "live.out_pcm",
        &found.pcm,
        &golden.f32s("live.out_pcm")?,
        PCM,
    );

    let spoken: Vec<Option<String>> = serde_json::from_str(golden.metadata("spoken"))
        .map_err(|error| golden.malformed(format!("metadata spoken: {error}")))?;
    let pieces: Vec<Option<String>> = live
        .iter()
        .map(|trace| trace.out[0] as u32)
        .map(|id| match config.text.silent_ids.contains(&id) {
            true => None,
            false => checkpoint.tokenizer().name(id).map(str::to_owned),
        })
        .collect();
    report.equal(topic, "spoken", &pieces, &spoken);
    Ok(())
}
