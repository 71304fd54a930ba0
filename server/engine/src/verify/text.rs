//! Tokenizer and sampling against topics `tokenisation` and `sampling`.

use serde::Deserialize;

use crate::prompt::wrap;
use crate::sampling::probabilities;
use crate::weights::Checkpoint;

use super::goldens::{GoldenError, Goldens};
use super::{Report, VerifyError};

/// Largest difference of a probability: some roundings of values up to 1.
const PROBABILITY: f64 = 1e-5;

#[derive(Deserialize)]
struct Tokenisation {
    cases: Vec<Case>,
    /// What is sent for every id; silent ids have none.
    spoken: Vec<Option<String>>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
    wrapped: String,
    wrapped_ids: Vec<u32>,
}

pub(super) fn tokenisation(
    goldens: &Goldens,
    checkpoint: &Checkpoint,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<(), VerifyError> {
    let file = "tokenisation.json";
    let Some(text) = goldens.text(file)? else {
        return Ok(());
    };
    progress("tokenisation");
    let recorded: Tokenisation =
        serde_json::from_str(&text).map_err(|error| GoldenError::Format {
            path: file.into(),
            what: error.to_string(),
        })?;
    let (config, tokenizer) = (checkpoint.config(), checkpoint.tokenizer());
    let topic = "tokenisation";
    let encode = |text: &str| tokenizer.encode(text);
    let ids: Vec<_> = recorded
        .cases
        .iter()
        .map(|case| encode(&case.text))
        .collect();
    let expected: Vec<_> = recorded.cases.iter().map(|case| case.ids.clone()).collect();
    report.equal(topic, "ids", &ids, &expected);
    let tag = &config.prompt.system_tag;
    let wrapped: Vec<_> = recorded
        .cases
        .iter()
        .map(|case| wrap(&case.text, tag))
        .collect();
    let expected: Vec<_> = recorded
        .cases
        .iter()
        .map(|case| case.wrapped.clone())
        .collect();
    report.equal(topic, "wrapped", &wrapped, &expected);
    let ids: Vec<_> = wrapped.iter().map(|text| encode(text)).collect();
    let expected: Vec<_> = recorded
        .cases
        .iter()
        .map(|case| case.wrapped_ids.clone())
        .collect();
    report.equal(topic, "wrapped_ids", &ids, &expected);
    let found: Vec<_> = (0..recorded.spoken.len() as u32)
        .map(|id| match config.text.silent_ids.contains(&id) {
            true => None,
            false => tokenizer.name(id).map(str::to_owned),
        })
        .collect();
    report.equal(topic, "spoken", &found, &recorded.spoken);
    Ok(())
}

pub(super) fn sampling(
    goldens: &Goldens,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<(), VerifyError> {
    let Some(golden) = goldens.topic("sampling")? else {
        return Ok(());
    };
    progress("sampling");
    for case in ["audio", "text", "cold", "all"] {
        let name = |part: &str| format!("{case}.{part}");
        if !golden.has(&name("logits")) {
            continue;
        }
        let width = golden.shape(&name("logits"))?[1];
        let temperature = golden.f32s(&name("temperature"))?[0];
        let top_k = golden.i64s(&name("top_k"))?[0] as u32;
        let mut found = Vec::new();
        for logits in golden.f32s(&name("logits"))?.chunks_exact(width) {
            match probabilities(logits, temperature, top_k) {
                Ok(values) => found.extend(values),
                Err(fault) => return Err(golden.malformed(fault.to_string()).into()),
            }
        }
        let what = name("probabilities");
        report.absolute("sampling", &what, &found, &golden.f32s(&what)?, PROBABILITY);
    }
    Ok(())
}
