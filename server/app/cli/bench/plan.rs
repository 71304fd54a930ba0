//! What a tick on a GPU costs, without one: counted, not measured.
//!
//! Lives here: building the network on a machine that only counts, one table for each batch size.
//! May not live here: what an operation costs (`engine::cuda`).

use anyhow::Context;
use engine::backend::KvDtype as RingDtype;
use engine::cuda::{Count, Cuda, Part};
use engine::kernels::Dtype as WeightDtype;
use engine::voice_model::{EngineOptions, VoiceCall, VoiceModel};
use engine::weights::Checkpoint;
use serde::Serialize;
use slots::engine::{Engine, FrameOutput, Readiness, TickPlan};
use slots::units::{FRAME_MS, FRAME_SAMPLES, SlotId};

use super::{BenchArgs, sweep};
use crate::cli::engine::{engine_options, open_checkpoint};
use crate::cli::progress::Progress;
use crate::cli::{Outcome, tell};
use crate::config::Config;
use crate::config::values::{Dtype, KvDtype};

/// Ticks until one is recorded, with one to spare.
const TICKS: usize = 4;

/// Counts for every batch size and prints.
///
/// # Errors
/// One line: what cannot be loaded.
pub fn run(args: &BenchArgs, config: &Config) -> anyhow::Result<Outcome> {
    let checkpoint = open_checkpoint(config)?;
    let dtype = match config.dtype {
        Dtype::F32 => WeightDtype::F32,
        Dtype::Q8_0 => WeightDtype::Q8_0,
        Dtype::Bf16 | Dtype::Auto => WeightDtype::Bf16,
    };
    let kv_dtype = match config.kv_dtype {
        KvDtype::F32 => RingDtype::F32,
        KvDtype::Fp8 => RingDtype::Fp8,
        KvDtype::Bf16 | KvDtype::Auto => RingDtype::Bf16,
    };
    for batch in args.batches() {
        let calls = sweep::calls(config, &checkpoint, batch)?;
        let options = engine_options(config, checkpoint.config(), batch);
        let backend = Cuda::new(Count::default(), dtype, kv_dtype);
        let parts = count(backend, &checkpoint, options, calls, args.fill)?;
        let table = Table::new(args, (dtype, kv_dtype), batch, &parts);
        match args.json {
            true => tell(serde_json::to_string(&table)?),
            false => tell(table.text()),
        }
    }
    Ok(Outcome::Done)
}

/// The parts of a recorded tick with every row live.
fn count(
    backend: Cuda<Count>,
    checkpoint: &Checkpoint,
    options: EngineOptions,
    calls: Vec<VoiceCall>,
    fill: u8,
) -> anyhow::Result<Vec<Part>> {
    let batch = calls.len();
    let progress = Progress::new(
        (1 + checkpoint.config().lm.num_layers + options.depformer_steps) as u64,
        "parts of the model",
    );
    let mut model = VoiceModel::load(backend, checkpoint, options, &mut |_, _| progress.add(1))?;
    progress.done();
    let mut plan = TickPlan::default();
    for (row, call) in calls.into_iter().enumerate() {
        let slot = SlotId::new(row).context("more rows than slots")?;
        let mut ready = model.seat(slot, call)?;
        while let Readiness::Prefill { .. } = ready {
            ready = model.prefill(slot)?;
        }
        plan.live.push(slot);
    }
    let mic = vec![0.0; batch * FRAME_SAMPLES];
    let mut out = vec![FrameOutput::idle(); batch];
    for _ in 0..TICKS {
        model.step(&plan, &mic, &mut out)?;
    }
    Ok(model.backend().tick_cost(f64::from(fill) / 100.0))
}

#[derive(Serialize)]
struct Table {
    batch: usize,
    dtype: String,
    kv_dtype: String,
    fill_percent: u8,
    card: &'static str,
    card_bytes_per_s: f64,
    parts: Vec<Row>,
    /// Least time for the bytes of weights, keys and values.
    floor_ms: f64,
    callers_at_80_ms: u64,
}

#[derive(Serialize)]
struct Row {
    part: &'static str,
    launches: u64,
    weight_bytes: u64,
    kv_bytes: u64,
    other_bytes: u64,
    operations: u64,
    floor_ms: f64,
}

impl Table {
    fn new(
        args: &BenchArgs,
        (dtype, kv_dtype): (WeightDtype, RingDtype),
        batch: usize,
        parts: &[Part],
    ) -> Self {
        let (card, per_s) = args.card.facts();
        let floor = |bytes: u64| bytes as f64 / per_s * 1e3;
        let must = |part: &Part| part.weight_bytes + part.kv_bytes;
        let kv: u64 = parts.iter().map(|part| part.kv_bytes).sum();
        let floor_ms = floor(parts.iter().map(must).sum());
        let a_caller_ms = floor(kv / batch as u64);
        let weights_ms = floor_ms - floor(kv);
        let callers = ((f64::from(FRAME_MS) - weights_ms) / a_caller_ms).max(0.0);
        Self {
            batch,
            dtype: dtype.to_string(),
            kv_dtype: kv_dtype.to_string(),
            fill_percent: args.fill,
            card,
            card_bytes_per_s: per_s,
            parts: parts
                .iter()
                .map(|part| Row {
                    part: part.name,
                    launches: part.launches,
                    weight_bytes: part.weight_bytes,
                    kv_bytes: part.kv_bytes,
                    other_bytes: part.other_bytes,
                    operations: part.operations,
                    floor_ms: floor(must(part)),
                })
                .collect(),
            floor_ms,
            callers_at_80_ms: callers as u64,
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "B {}, weights {}, keys and values {}, windows {} % full, {} ({:.1} TB/s); counted, not measured\n\
             {:<22} {:>8} {:>11} {:>11} {:>11} {:>10} {:>9}\n",
            self.batch,
            self.dtype,
            self.kv_dtype,
            self.fill_percent,
            self.card,
            self.card_bytes_per_s / 1e12,
            "part",
            "launches",
            "weights MB",
            "kv MB",
            "other MB",
            "GFLOP",
            "floor ms",
        );
        let mut line = |name: &str, launches: u64, numbers: [u64; 4], floor_ms: f64| {
            let [weights, kv, other, operations] = numbers.map(|number| number as f64);
            text += &format!(
                "{name:<22} {launches:>8} {:>11.1} {:>11.1} {:>11.1} {:>10.1} {floor_ms:>9.2}\n",
                weights / 1e6,
                kv / 1e6,
                other / 1e6,
                operations / 1e9,
            );
        };
        let mut all = [0u64; 4];
        for row in &self.parts {
            let numbers = [
                row.weight_bytes,
                row.kv_bytes,
                row.other_bytes,
                row.operations,
            ];
            line(row.part, row.launches, numbers, row.floor_ms);
            for (sum, number) in all.iter_mut().zip(numbers) {
                *sum += number;
            }
        }
        let launches = self.parts.iter().map(|row| row.launches).sum();
        line("a tick, one graph", launches, all, self.floor_ms);
        text + &format!(
            "at this floor {} callers fit into 80 ms\n",
            self.callers_at_80_ms
        )
    }
}
