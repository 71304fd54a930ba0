//! The whole engine with more and more callers.
//!
//! Lives here: seating a full batch, stepping it without waiting for real time, one line for each batch size.
//! May not live here: the clock (`timing.rs`), what memory is needed (`engine::device`).

use std::sync::Arc;

use anyhow::Context;
use engine::backend::Backend;
use engine::device::{Breakdown, Sizing};
use engine::prepare::CallMaker;
use engine::voice_model::{EngineOptions, VoiceCall, VoiceModel};
use engine::weights::Checkpoint;
use serde::Serialize;
use slots::call::{CallSpec, PrepareCall};
use slots::engine::{Engine, EngineError, FrameKind, FrameOutput, Readiness, TickPlan};
use slots::units::{FRAME_MS, FRAME_SAMPLES, SlotId};

use super::BenchArgs;
use super::process::{Boost, resident_bytes};
use super::timing::{Timing, rounded};
use crate::cli::disk::bytes_text;
use crate::cli::engine::{
    WithBackend, call_maker, engine_options, open_checkpoint, sizing, with_backend,
};
use crate::cli::progress::Progress;
use crate::cli::{Outcome, note, tell};
use crate::config::Config;

/// Role texts that neighbours in the batch do not share.
const PERSONAS: [&str; 4] = [
    "You enjoy having a good conversation.",
    "You work at a pizza shop.",
    "You are a museum guide.",
    "You are a wise and friendly teacher.",
];
/// Snapshots of prompts: enough for the few prompts of a sweep, so that seating a large batch does not take minutes.
const PROMPT_CACHE_BYTES: usize = 256 << 20;
/// Frames of noise that are spoken over and over.
const NOISE_FRAMES: usize = 7;

/// Measures every batch size and prints.
///
/// # Errors
/// One line: what cannot be loaded, or that nothing fits.
pub fn run(args: &BenchArgs, config: &Config) -> anyhow::Result<Outcome> {
    let checkpoint = open_checkpoint(config)?;
    let options = |batch| EngineOptions {
        prompt_cache_bytes: PROMPT_CACHE_BYTES,
        ..engine_options(config, checkpoint.config(), batch)
    };
    // The engine of one batch size is gone when the next is built, but the system may still be taking its memory back:
    // what was free at the beginning counts.
    let (sizing, free_bytes) = sizing(config, &checkpoint)?;
    let sizing = Sizing {
        prompt_cache_bytes: PROMPT_CACHE_BYTES as u64,
        ..sizing
    };
    let (mut done, mut refused) = (Vec::new(), Vec::new());
    for batch in args.batches() {
        if let Err(error) = sizing.check(checkpoint.config(), batch, free_bytes) {
            refused.push((batch, error));
            continue;
        }
        let measure = Measure {
            args,
            calls: calls(config, &checkpoint, batch)?,
            checkpoint: &checkpoint,
            options: options(batch),
            sizing,
        };
        let (line, device) = with_backend(config, &checkpoint, measure)??;
        match args.json {
            true => tell(serde_json::to_string(&line.json(config, &device))?),
            false => {
                if done.is_empty() {
                    tell(heading(config, &device, &line, args.fill));
                }
                tell(line.row());
            }
        }
        done.push(line);
    }
    if done.is_empty()
        && let Some((_, error)) = refused.first()
    {
        anyhow::bail!("--model {}: {error}", config.model);
    }
    for (_, error) in &refused {
        note(format!("not measured: {error}"));
    }
    if !args.json {
        tell(summary(&done));
    }
    Ok(match refused.is_empty() {
        true => Outcome::Done,
        false => Outcome::Refused,
    })
}

/// Calls of `batch` callers who differ in voice, persona and seed.
pub(super) fn calls(
    config: &Config,
    checkpoint: &Arc<Checkpoint>,
    batch: usize,
) -> anyhow::Result<Vec<VoiceCall>> {
    let maker = call_maker(config, checkpoint);
    let voices: Vec<String> = maker
        .voice_facts()
        .into_iter()
        .map(|voice| voice.name)
        .collect();
    (0..batch)
        .map(|row| {
            let voice = voices.get(row % voices.len().max(1)).cloned();
            let persona = row / voices.len().max(1) % PERSONAS.len();
            let spec = CallSpec {
                text_prompt: Some(PERSONAS[persona].into()),
                voice,
                sampling: CallMaker::sampling(checkpoint.config(), row as u64),
            };
            Ok(maker.prepare(&spec)?)
        })
        .collect()
}

/// One batch size, once the backend is chosen.
struct Measure<'a> {
    args: &'a BenchArgs,
    calls: Vec<VoiceCall>,
    checkpoint: &'a Checkpoint,
    options: EngineOptions,
    sizing: Sizing,
}

impl WithBackend for Measure<'_> {
    /// The line, and the device in words.
    type Output = anyhow::Result<(Line, String)>;

    fn with<B: Backend>(
        self,
        make: impl Fn() -> Result<B, EngineError> + Send + Sync + 'static,
    ) -> Self::Output {
        let batch = self.calls.len();
        let parts = 1 + self.checkpoint.config().lm.num_layers + self.options.depformer_steps;
        let progress = Progress::new(parts as u64, "parts of the model");
        let mut model = VoiceModel::load(make()?, self.checkpoint, self.options, &mut |_, _| {
            progress.add(1);
        })?;
        progress.done();
        let mut plan = TickPlan::default();
        for (row, call) in self.calls.into_iter().enumerate() {
            let slot = SlotId::new(row).context("more rows than slots")?;
            let mut ready = model.seat(slot, call)?;
            while let Readiness::Prefill { .. } = ready {
                ready = model.prefill(slot)?;
            }
            plan.live.push(slot);
        }
        model.stand_late(f64::from(self.args.fill) / 100.0)?;

        let noise = noise(NOISE_FRAMES * batch * FRAME_SAMPLES);
        let mut frames = noise.chunks_exact(batch * FRAME_SAMPLES).cycle();
        let mut out = vec![FrameOutput::idle(); batch];
        let boosted = self.args.boost == 1;
        let (timing, boost) = self.args.plan().run(
            || boosted.then(Boost::start),
            || {
                let mic = frames.next().unwrap_or_default();
                model.step(&plan, mic, &mut out)?;
                let fault = out
                    .iter()
                    .enumerate()
                    .find_map(|(row, out)| match out.kind {
                        FrameKind::Live => None,
                        kind => Some((row, kind)),
                    });
                match fault {
                    // The frame that was spoken before the calls stood late is not whole yet.
                    None | Some((_, FrameKind::WarmingUp)) => Ok(()),
                    Some((row, kind)) => anyhow::bail!("row {row} of {batch}: {kind:?}"),
                }
            },
        )?;
        let config = self.checkpoint.config();
        let needed = self.sizing.bytes_needed(config, batch);
        let line = Line {
            batch,
            boost: boost.map(|boost| super::boost_text(&boost)),
            resident_bytes: resident_bytes(),
            engine_bytes: kept_bytes(&needed, model.counters().prompt_cache_bytes),
            timing,
        };
        Ok((line, model.describe()))
    }
}

/// What is there as long as an engine is: weights, keys and values, state of the codec, and `prompts` bytes of prompts.
fn kept_bytes(needed: &Breakdown, prompts: u64) -> u64 {
    needed.weights + needed.codec_weights + needed.kv + needed.codec_state + prompts
}

/// Half as loud as a voice, and never the same twice in a frame.
fn noise(samples: usize) -> Vec<f32> {
    let mut state = 1u32;
    (0..samples)
        .map(|_| {
            // xorshift32
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            0.1 * (state as f32 / u32::MAX as f32 - 0.5)
        })
        .collect()
}

/// What was measured with one batch size.
struct Line {
    batch: usize,
    timing: Timing,
    boost: Option<String>,
    resident_bytes: Option<u64>,
    engine_bytes: u64,
}

/// One line of JSON.
#[derive(Serialize)]
struct JsonLine<'a> {
    model: String,
    batch: usize,
    device: &'a str,
    order: String,
    ticks: usize,
    cores_got: Option<f64>,
    ms_per_tick: MsPerTick,
    /// Median tick over 80 ms: every stream gets a frame of 80 ms out of each tick.
    rtf: f64,
    rtf_p99: f64,
    real_time: bool,
    memory: Memory,
    #[serde(skip_serializing_if = "Option::is_none")]
    boost: &'a Option<String>,
}

#[derive(Serialize)]
struct MsPerTick {
    median: f64,
    min: f64,
    p90: f64,
    p99: f64,
}

#[derive(Serialize)]
struct Memory {
    resident_bytes: Option<u64>,
    engine_bytes: u64,
}

impl Line {
    fn rtf(&self, ms: f64) -> f64 {
        ms / f64::from(FRAME_MS)
    }

    /// 99 of 100 ticks are over before the next is due.
    fn real_time(&self) -> bool {
        self.timing.percentile_ms(99) < f64::from(FRAME_MS)
    }

    fn json<'a>(&'a self, config: &Config, device: &'a str) -> JsonLine<'a> {
        let timing = &self.timing;
        JsonLine {
            model: config.model.to_string(),
            batch: self.batch,
            device,
            order: config.order.to_string(),
            ticks: timing.ticks(),
            cores_got: timing.cores_got().map(rounded),
            ms_per_tick: MsPerTick {
                median: rounded(timing.median_ms()),
                min: rounded(timing.min_ms()),
                p90: rounded(timing.percentile_ms(90)),
                p99: rounded(timing.percentile_ms(99)),
            },
            rtf: rounded(self.rtf(timing.median_ms())),
            rtf_p99: rounded(self.rtf(timing.percentile_ms(99))),
            real_time: self.real_time(),
            memory: Memory {
                resident_bytes: self.resident_bytes,
                engine_bytes: self.engine_bytes,
            },
            boost: &self.boost,
        }
    }

    fn row(&self) -> String {
        let timing = &self.timing;
        format!(
            "{:>4}  {:>9.2}  {:>9.2}  {:>14.3}  {:>10}  {:>10}",
            self.batch,
            timing.median_ms(),
            timing.percentile_ms(99),
            self.rtf(timing.median_ms()),
            self.resident_bytes.map_or("-".into(), bytes_text),
            bytes_text(self.engine_bytes),
        )
    }
}

fn heading(config: &Config, device: &str, line: &Line, fill: u8) -> String {
    let fill = match fill {
        100 => "full".to_owned(),
        percent => format!("{percent} % full"),
    };
    let boost = match &line.boost {
        Some(boost) => format!(", real-time scheduling: {boost}"),
        None => String::new(),
    };
    format!(
        "{} on {device}, order {}, every window {fill}{boost}\n   B  ms median     ms p99  RTF per stream    resident      engine",
        config.model, config.order
    )
}

fn summary(lines: &[Line]) -> String {
    let frame_ms = FRAME_MS;
    let in_time = lines.iter().filter(|line| line.real_time());
    match in_time.max_by_key(|line| line.batch) {
        Some(line) => format!(
            "{} callers are in real time: p99 is {:.1} ms of {frame_ms} ms",
            line.batch,
            line.timing.percentile_ms(99)
        ),
        None => format!("no batch size measured is in real time: every p99 is above {frame_ms} ms"),
    }
}
