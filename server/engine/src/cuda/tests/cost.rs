//! What a tick asks for, held to what the network needs, so that a launch or a byte too many shows without a GPU.

use std::path::Path;
use std::sync::Arc;

use slots::call::CallSpec;
use slots::engine::{Engine, FrameOutput, Readiness, TickPlan};
use slots::units::{FRAME_SAMPLES, SlotId};

use crate::backend::KvDtype;
use crate::config::ModelConfig;
use crate::cuda::machine::Machine;
use crate::cuda::{Count, Cuda, Host, Part};
use crate::device::{GPU_FIXED_BYTES, Sizing, Target};
use crate::kernels::Dtype;
use crate::prepare::CallMaker;
use crate::voice_model::{EngineOptions, VoiceModel};
use crate::weights::Checkpoint;

const ROWS: usize = 2;

fn fixture() -> Arc<Checkpoint> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny2/checkpoint");
    Arc::new(Checkpoint::open(&folder).expect("the fixture"))
}

/// The parts of a recorded tick of [`ROWS`] live rows with full windows.
fn cost<M: Machine>(machine: M, dtype: Dtype, kv_dtype: KvDtype) -> (ModelConfig, Vec<Part>) {
    let checkpoint = fixture();
    let model = after_some_ticks(machine, &checkpoint, (dtype, kv_dtype), ROWS);
    (checkpoint.config().clone(), model.backend().tick_cost(1.0))
}

/// An engine of `rows` rows, all live.
fn after_some_ticks<M: Machine>(
    machine: M,
    checkpoint: &Arc<Checkpoint>,
    (dtype, kv_dtype): (Dtype, KvDtype),
    rows: usize,
) -> VoiceModel<Cuda<M>> {
    let options = EngineOptions {
        positions_max: usize::MAX,
        ..EngineOptions::serving(checkpoint.config(), rows)
    };
    let backend = Cuda::new(machine, dtype, kv_dtype);
    let mut model =
        VoiceModel::load(backend, checkpoint, options, &mut |_, _| {}).expect("it is whole");
    let maker = CallMaker::new(Arc::clone(checkpoint), &["Hm."]);
    let mut plan = TickPlan::default();
    for row in 0..rows {
        let call = maker
            .prepare_within(&CallSpec::default(), usize::MAX)
            .expect("a call");
        let slot = SlotId::new(row).expect("few rows");
        let mut ready = model.seat(slot, call).expect("a seat");
        while let Readiness::Prefill { .. } = ready {
            ready = model.prefill(slot).expect("a chunk");
        }
        plan.live.push(slot);
    }
    let mut out = vec![FrameOutput::idle(); rows];
    for _ in 0..5 {
        let mic = vec![0.0; rows * FRAME_SAMPLES];
        model.step(&plan, &mic, &mut out).expect("a tick");
    }
    model
}

#[test]
fn the_bytes_that_are_asked_for_are_known_before() {
    let demo = Arc::new(Checkpoint::demo().expect("the demo"));
    for (name, checkpoint) in [("fixture", fixture()), ("demo", demo)] {
        for rows in [1, 8, 64] {
            for (dtype, kv_dtype) in [(Dtype::Bf16, KvDtype::Bf16), (Dtype::Q8_0, KvDtype::Fp8)] {
                let machine = Count::default();
                let options = EngineOptions::serving(checkpoint.config(), rows);
                let sizing = Sizing {
                    target: Target::Cuda(0),
                    dtype,
                    kv_dtype,
                    depformer_steps: options.depformer_steps,
                    prefill_chunk: options.prefill_chunk,
                    prompt_cache_bytes: 0,
                };
                let needed = sizing.bytes_needed(checkpoint.config(), rows);
                let _model =
                    after_some_ticks(machine.clone(), &checkpoint, (dtype, kv_dtype), rows);
                let (held, said) = (machine.held_bytes(), needed.total() - GPU_FIXED_BYTES);
                let what =
                    format!("{name}, {rows} rows, {dtype}: {held} held, {said} said, {needed:?}");
                println!("{what}");
                // Snapshots of a prompt or two are among what is held.
                assert!(held <= said + (2 << 20), "{what}");
                assert!(said <= held + held / 4, "{what}");
            }
        }
    }
}

#[test]
fn counting_sees_the_tick_that_is_computed() {
    for (dtype, kv_dtype) in [
        (Dtype::F32, KvDtype::F32),
        (Dtype::Bf16, KvDtype::Bf16),
        (Dtype::Q8_0, KvDtype::Fp8),
    ] {
        let (_, counted) = cost(Count::default(), dtype, kv_dtype);
        let (_, computed) = cost(Host::default(), dtype, kv_dtype);
        assert_eq!(counted, computed);
    }
}

#[test]
fn a_tick_launches_and_moves_what_the_network_needs_and_no_more() {
    let (config, parts) = cost(Count::default(), Dtype::Bf16, KvDtype::Bf16);
    let (lm, dep) = (&config.lm, &config.depformer);
    let steps = config.codes() as u64;
    let [_, temporal, depformer, _] = parts[..] else {
        panic!("{parts:?}");
    };
    // Of a layer: two norms, four products of which two add, write, attend, join, gate. Whoever writes the input of a
    // product rounds it at once.
    let layer = 2 + 4 + 3 + 1;
    // The sum of embeddings; where the queries are; their angles; output norm, head; the draw.
    let around = 1 + 1 + 1 + 2 + 1;
    assert_eq!(temporal.launches, layer * lm.num_layers as u64 + around);
    // Of a step: product in, the embedding, where the queries are; rounding, head, the draw.
    let step = 1 + 1 + 1 + layer * dep.num_layers as u64 + 2 + 1;
    assert_eq!(depformer.launches, step * steps);

    let layer_numbers = |dim: usize, ffn: usize| (4 * dim * dim + 3 * dim * ffn) as u64;
    let numbers =
        lm.num_layers as u64 * layer_numbers(lm.dim, lm.ffn_dim) + (lm.dim * lm.text_card) as u64;
    assert_eq!(temporal.weight_bytes, 2 * numbers);
    let numbers = dep.num_layers as u64 * layer_numbers(dep.dim, dep.ffn_dim)
        + (dep.dim * (lm.dim + lm.card)) as u64;
    assert_eq!(depformer.weight_bytes, 2 * numbers * steps);
    // Heads are filled up to whole eights.
    let width = lm.num_heads * (lm.dim / lm.num_heads).next_multiple_of(8);
    let window = (lm.num_layers * lm.context * width) as u64;
    assert_eq!(temporal.kv_bytes, ROWS as u64 * 2 * 2 * window);
}
