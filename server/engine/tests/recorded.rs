//! This engine against the small recorded reference beside the tests, on the CPU's own kernels.

use std::path::{Path, PathBuf};

use engine::backend::KvDtype;
use engine::cuda::{Cuda, Host};
use engine::kernels::Dtype;
use engine::native::Native;
use engine::tensor::TensorBackend;
use engine::verify::{Measure, Report, verify, verify_kernels, verify_rows};
use engine::weights::Checkpoint;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny2")
}

fn compare(dir: &Path, dtype: Dtype, threads: usize) -> Report {
    let kv = if dtype == Dtype::F32 {
        KvDtype::F32
    } else {
        KvDtype::Bf16
    };
    verify(
        dir,
        dtype,
        &mut || Ok(Native::new(dtype, kv, threads)),
        &mut |_| {},
    )
    .expect("comparable")
}

/// One line for each check that failed.
fn failures(report: &Report) -> Vec<String> {
    let failed = report.checks.iter().filter(|check| !check.passed());
    failed
        .map(|c| {
            format!(
                "{} {}: {} above {:?}",
                c.topic, c.what, c.worst, c.tolerance
            )
        })
        .collect()
}

#[test]
fn every_recorded_topic_is_met_and_tokens_are_equal() {
    let report = compare(&fixture(), Dtype::F32, 1);
    assert_eq!(failures(&report), Vec::<String>::new());
    let topics: std::collections::BTreeSet<_> =
        report.checks.iter().map(|c| c.topic.as_str()).collect();
    let expected = [
        "depformer",
        "loop_f32",
        "loop_f32_bare",
        "loop_f32_short",
        "mimi",
        "mimi_lanes",
        "mimi_short",
        "sampling",
        "temporal",
        "temporal_lanes",
        "temporal_short",
        "tokenisation",
        "voice",
    ];
    assert_eq!(topics.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let (one, three) = (
        compare(&fixture(), Dtype::F32, 1),
        compare(&fixture(), Dtype::F32, 3),
    );
    assert_eq!(one.checks, three.checks);
}

#[test]
fn half_precision_is_as_near_as_the_recorded_half_precision() {
    let report = compare(&fixture(), Dtype::Bf16, 2);
    assert_eq!(failures(&report), Vec::<String>::new());
    assert!(
        report
            .checks
            .iter()
            .all(|check| check.measure == Measure::RelativeRms)
    );
}

#[test]
fn eight_bit_weights_are_reported_and_not_judged() {
    let report = compare(&fixture(), Dtype::Q8_0, 2);
    assert!(report.passed());
    assert!(
        report
            .checks
            .iter()
            .all(|check| check.worst.is_finite() && check.tolerance.is_none())
    );
}

#[test]
fn the_same_network_in_candle_tensors_meets_every_recorded_topic() {
    let device = candle_core::Device::Cpu;
    let mut make = || TensorBackend::new(device.clone(), Dtype::F32, KvDtype::F32);
    let report = verify(&fixture(), Dtype::F32, &mut make, &mut |_| {}).expect("comparable");
    assert_eq!(failures(&report), Vec::<String>::new());
}

/// The GPU's kernels on the host, the threads of their blocks in order or backwards.
fn gpu(dtype: Dtype, kv_dtype: KvDtype, backward: bool) -> Cuda<Host> {
    Cuda::new(Host { backward }, dtype, kv_dtype)
}

#[test]
fn the_kernels_of_a_gpu_meet_every_recorded_topic_in_any_order_of_threads() {
    for backward in [false, true] {
        let mut make = || Ok(gpu(Dtype::F32, KvDtype::F32, backward));
        let report = verify(&fixture(), Dtype::F32, &mut make, &mut |_| {}).expect("comparable");
        assert_eq!(failures(&report), Vec::<String>::new());
    }
}

#[test]
fn the_kernels_of_a_gpu_are_near_in_half_precision() {
    let mut make = || Ok(gpu(Dtype::Bf16, KvDtype::Bf16, false));
    let report = verify(&fixture(), Dtype::Bf16, &mut make, &mut |_| {}).expect("comparable");
    assert_eq!(failures(&report), Vec::<String>::new());
}

#[test]
fn a_call_has_the_same_bits_beside_others_on_a_recycled_row_and_from_a_snapshot() {
    let checkpoint =
        std::sync::Arc::new(Checkpoint::open(&fixture().join("checkpoint")).expect("the fixture"));
    let native = verify_rows(
        &checkpoint,
        &mut || Ok(Native::new(Dtype::F32, KvDtype::F32, 2)),
        &mut |_| {},
    );
    assert_eq!(failures(&native.expect("comparable")), Vec::<String>::new());
    for (dtype, kv_dtype) in [
        (Dtype::F32, KvDtype::F32),
        (Dtype::Bf16, KvDtype::Bf16),
        (Dtype::Q8_0, KvDtype::Fp8),
    ] {
        let mut make = || Ok(gpu(dtype, kv_dtype, false));
        let gpu = verify_rows(&checkpoint, &mut make, &mut |_| {}).expect("comparable");
        assert_eq!(failures(&gpu), Vec::<String>::new());
    }
}

#[test]
fn every_operation_of_a_gpu_is_that_of_the_cpu_in_every_format() {
    for (dtype, kv_dtype, backward) in [
        (Dtype::Bf16, KvDtype::F32, true),
        (Dtype::Q8_0, KvDtype::Fp8, false),
    ] {
        let mut make = || Ok(gpu(dtype, kv_dtype, backward));
        let report = verify_kernels(dtype, kv_dtype, &mut make, &mut |_| {}).expect("comparable");
        assert_eq!(failures(&report), Vec::<String>::new());
        assert!(report.checks.len() > 30, "{}", report.checks.len());
    }
}
