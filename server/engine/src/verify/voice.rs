//! How a voice bundle comes from audio, against topic `voice`.

use slots::engine::EngineError;

use crate::backend::{Backend, Lanes};
use crate::codec::Codec;
use crate::model::{Loader, RingRule, Temporal};
use crate::tokens::Staging;
use crate::weights::Checkpoint;

use super::goldens::Goldens;
use super::temporal::HIDDEN;
use super::{Report, VerifyError};

pub(super) fn compare<B: Backend>(
    goldens: &Goldens,
    checkpoint: &Checkpoint,
    make: &mut dyn FnMut() -> Result<B, EngineError>,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<(), VerifyError> {
    let Some(golden) = goldens.topic("voice")? else {
        return Ok(());
    };
    progress("voice");
    let topic = golden.topic();
    let config = checkpoint.config();
    let pcm = golden.f32s("pcm")?;
    let frames = golden.shape("pcm")?[0];

    let mut backend = make()?;
    let mut loader = Loader {
        backend: &mut backend,
        tensors: checkpoint.codec_tensors(),
    };
    let mut codec = Codec::load(&mut loader, config, RingRule::Full, 1)?;
    let mut lanes = Lanes::default();
    lanes.set(&[0], 1, backend.padded());
    let (mut codes, mut frame_codes) = (Vec::new(), Vec::new());
    for frame in pcm.chunks_exact(pcm.len() / frames) {
        codec.encode(
            &mut backend,
            &lanes,
            frame,
            &mut frame_codes,
            &mut |_, _, _| Ok(()),
        )?;
        codes.push(frame_codes.clone());
    }
    let found: Vec<i64> = codes.iter().flatten().map(|&code| code.into()).collect();
    report.equal(topic, "codes", &found, &golden.i64s("codes")?);

    let mut staging = Staging::new(config);
    let streams = staging.streams();
    let mut fed = Vec::new();
    for codes in &codes {
        staging.give_text(config.prompt.text_while_prompting);
        staging.give_agent(codes);
        let given = staging.give_user(&config.prompt.sine_tokens);
        let call = given.and_then(|()| staging.begin_call());
        let call = call.map_err(|error| VerifyError::Conversation {
            what: error.to_string(),
        })?;
        if let Some(call) = call {
            fed.extend_from_slice(&call.input[..streams]);
            staging.end_call(config.prompt.text_while_prompting, &[]);
        }
    }
    let recorded = golden.i64s("cache")?;
    let columns = recorded.len() / streams;
    // Position p of a stream is in column p modulo the ring's width.
    let newest = staging.calls();
    let mut cache = vec![0i64; recorded.len()];
    for position in (newest + 1).saturating_sub(columns as u64)..=newest {
        let row = staging.tokens_at(position);
        for stream in 0..streams {
            let column = position as usize % columns;
            cache[stream * columns + column] = row[stream].into();
        }
    }
    report.equal(topic, "cache", &cache, &recorded);

    let mut loader = Loader {
        backend: &mut backend,
        tensors: checkpoint.lm_tensors(),
    };
    let mut temporal = Temporal::load(&mut loader, config, 1, &mut || {})?;
    let mut embeddings = Vec::new();
    temporal.embed(&mut backend, &fed, &mut Vec::new())?;
    backend.download(temporal.input(), &mut embeddings)?;
    let what = "embeddings_f32";
    report.absolute(topic, what, &embeddings, &golden.f32s(what)?, HIDDEN);

    let what = "embeddings_bf16";
    if let Some((_, bundle)) = checkpoint.voices().get(golden.metadata("voice")) {
        report.equal(topic, what, &bundle.embeddings, &golden.bf16s(what)?);
    }
    Ok(())
}
