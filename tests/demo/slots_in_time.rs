//! How many slots the demo's engine runs in real time on one core. A measurement: it prints and asserts nothing.
//!
//! `taskset -c 0 cargo test --test demo -- --ignored --nocapture measure_slots`

use std::time::Instant;

use engine::backend::KvDtype;
use engine::kernels::Dtype;
use engine::native::Native;
use engine::prepare::{CallMaker, DEMO_PERSONAS};
use engine::voice_model::{EngineOptions, VoiceModel};
use engine::weights::Checkpoint;
use slots::call::{CallSpec, PrepareCall};
use slots::engine::{Engine, FrameOutput, Readiness, TickPlan};
use slots::units::{FRAME_SAMPLES, SlotId};
use std::sync::Arc;

use crate::user::{ROOM_RMS, user_line};

/// Ticks before the measurement, after which every ring of the demo's codec is full.
const WARMUP_TICKS: usize = 40;
const TICKS: usize = 100;

#[test]
#[ignore = "a measurement: prints, asserts nothing; its results are in benches/RESULTS.md"]
fn measure_slots_in_real_time_on_one_core() {
    let demo = Arc::new(Checkpoint::demo().expect("the demo is part of the program"));
    let maker = CallMaker::new(Arc::clone(&demo), &DEMO_PERSONAS);
    let line = user_line(WARMUP_TICKS + TICKS, &[], ROOM_RMS);
    for slots in [1, 4, 8, 16, 24, 32, 40, 48] {
        let backend = Native::new(Dtype::F32, KvDtype::F32, 1);
        let options = EngineOptions::serving(demo.config(), slots);
        let mut model = VoiceModel::load(backend, &demo, options, &mut |_, _| {}).expect("it fits");
        let rows: Vec<SlotId> = (0..slots)
            .map(|row| SlotId::new(row).expect("few rows"))
            .collect();
        for (row, &slot) in rows.iter().enumerate() {
            // Calls as they come: sampled, and not two of them the same.
            let spec = CallSpec {
                text_prompt: Some(DEMO_PERSONAS[row % DEMO_PERSONAS.len()].to_owned()),
                sampling: CallMaker::sampling(demo.config(), row as u64),
                ..CallSpec::default()
            };
            let call = maker.prepare(&spec).expect("a known persona");
            let mut ready = model.seat(slot, call).expect("a short prompt");
            while let Readiness::Prefill { .. } = ready {
                ready = model.prefill(slot).expect("the device works");
            }
        }
        let plan = TickPlan { live: rows };
        let mut out: Vec<FrameOutput> = (0..slots).map(|_| FrameOutput::idle()).collect();
        let mut wall_ms = Vec::new();
        let mut cpu_began_ms = 0.0;
        for (tick, frame) in line.iter().enumerate() {
            let mic: Vec<f32> = frame
                .iter()
                .copied()
                .cycle()
                .take(slots * FRAME_SAMPLES)
                .collect();
            if tick == WARMUP_TICKS {
                cpu_began_ms = thread_cpu_ms();
            }
            let began = Instant::now();
            model.step(&plan, &mic, &mut out).expect("the device works");
            if tick >= WARMUP_TICKS {
                wall_ms.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
        let cpu_ms = (thread_cpu_ms() - cpu_began_ms) / TICKS as f64;
        wall_ms.sort_by(f64::total_cmp);
        let wall_ms = [0, TICKS / 2, TICKS * 99 / 100].map(|at| wall_ms[at]);
        println!(
            "{slots:3} slots: ms a tick {wall_ms:.1?} (min, median, p99), of the core's time {cpu_ms:.1} (mean)"
        );
    }
}

/// Time this thread has run, without the time it waited for a core that others used. With one thread the engine
/// computes on the thread that calls it.
fn thread_cpu_ms() -> f64 {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    let ran_ns = line.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ran_ns.expect("nanoseconds") / 1e6
}
