//! `vivavoce bench`: the real program measures the demo and parts of the network. Nothing here judges how fast.

use serde_json::Value;

use crate::program::{Finished, Home};

fn lines(finished: &Finished) -> Vec<Value> {
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let lines = finished.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

fn ascending(values: &[&Value]) -> bool {
    let numbers: Option<Vec<f64>> = values.iter().map(|value| value.as_f64()).collect();
    numbers.is_some_and(|numbers| numbers[0] > 0.0 && numbers.is_sorted())
}

#[test]
fn the_demo_is_measured_at_every_batch_size() {
    let args = [
        "bench",
        "--batch",
        "1,2",
        "--ticks",
        "5",
        "--warmup",
        "1",
        "--threads",
        "1",
        "--json",
    ];
    let lines = lines(&Home::new().run(&args));
    let batches: Vec<_> = lines.iter().map(|line| line["batch"].as_u64()).collect();
    assert_eq!(batches, [Some(1), Some(2)]);
    for line in &lines {
        let ms = &line["ms_per_tick"];
        assert!(
            ascending(&[&ms["min"], &ms["median"], &ms["p90"], &ms["p99"]]),
            "{line}"
        );
        let ratio = ms["median"].as_f64().zip(line["rtf"].as_f64());
        let off = ratio.map(|(ms, rtf)| (ms / 80.0 - rtf).abs());
        assert!(off.is_some_and(|off| off < 1e-3), "{line}");
        let bytes = |name: &str| line["memory"][name].as_u64().unwrap_or(0);
        assert!(
            bytes("resident_bytes") > bytes("engine_bytes") / 2,
            "{line}"
        );
        assert!(bytes("engine_bytes") > 1_000_000, "{line}");
        assert_eq!(
            (&line["model"], &line["ticks"]),
            (&"demo".into(), &5.into())
        );
    }
    let engine_bytes = lines
        .iter()
        .map(|line| line["memory"]["engine_bytes"].as_u64());
    assert!(engine_bytes.is_sorted_by(|one, two| one < two), "{lines:?}");
}

#[test]
fn a_case_is_measured_alone_and_an_impossible_pair_says_why() {
    let args = [
        "bench",
        "--cases",
        "lm_depformer,mimi_encode",
        "--preset",
        "mid",
        "--batch",
        "1,2",
        "--dtype",
        "q8_0",
        "--ticks",
        "3",
        "--warmup",
        "1",
        "--threads",
        "1",
        "--json",
    ];
    let lines = lines(&Home::new().run(&args));
    let found: Vec<_> = lines
        .iter()
        .map(|line| (line["case"].as_str(), line["batch"].as_u64()))
        .collect();
    let (depformer, encode) = (Some("lm_depformer"), Some("mimi_encode"));
    let expected = [
        (depformer, Some(1)),
        (depformer, Some(2)),
        (encode, Some(1)),
        (encode, Some(2)),
    ];
    assert_eq!(found, expected);
    for line in &lines[..2] {
        let ms = &line["ms_per_tick"];
        assert!(
            ascending(&[&ms["min"], &ms["median"], &ms["p90"]]),
            "{line}"
        );
        assert!(
            line["cores_got"].as_f64().is_some_and(|cores| cores > 0.0),
            "{line}"
        );
        assert_eq!((&line["ticks"], &line["threads"]), (&3.into(), &1.into()));
    }
    for line in &lines[2..] {
        let reason = line["unsupported"].as_str().unwrap_or_default();
        assert!(reason.contains("preset mimi"), "{line}");
        assert!(line["ms_per_tick"].is_null(), "{line}");
    }
}

#[test]
fn real_time_scheduling_is_granted_or_its_refusal_is_stated() {
    let args = [
        "bench",
        "--batch",
        "1",
        "--ticks",
        "2",
        "--threads",
        "1",
        "--boost",
        "1",
        "--json",
    ];
    let lines = lines(&Home::new().run(&args));
    let boost = lines[0]["boost"].as_str().unwrap_or_default();
    assert!(boost == "on" || boost.starts_with("refused: "), "{boost:?}");
}

#[test]
fn a_model_that_does_not_fit_is_refused_with_both_numbers() {
    // 256 windows of the published size take 800 GB in f32.
    let args = [
        "bench", "--model", "random", "--device", "cpu", "--dtype", "f32", "--batch", "256",
        "--json",
    ];
    let finished = Home::new().run(&args);
    assert_eq!(
        (finished.code, finished.stdout.as_str()),
        (Some(1), ""),
        "{finished:?}"
    );
    let complaint = finished.complaint();
    assert!(
        complaint.contains("need") && complaint.contains("free"),
        "{complaint}"
    );
}
