//! How a voice bundle comes from audio, against topic `voice`.

use slots::engine::EngineError;

use crate::backend::Backend;
use crate::model::{Loader, Temporal};
use crate::voices::record;
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

    let mut backend = make()?;
    let codes = record::encode(&mut backend, checkpoint, &pcm)?;
    let found: Vec<i64> = codes.iter().flatten().map(|&code| code.into()).collect();
    report.equal(topic, "codes", &found, &golden.i64s("codes")?);

    let staged = record::stage(config, &codes).map_err(|error| VerifyError::Conversation {
        what: error.to_string(),
    })?;
    let recorded = golden.i64s("cache")?;
    let columns = recorded.len() / config.streams();
    let cells = staged.cache.iter().flat_map(|row| &row[..columns]);
    let cache: Vec<i64> = cells.map(|&token| token.into()).collect();
    report.equal(topic, "cache", &cache, &recorded);

    let mut loader = Loader {
        backend: &mut backend,
        tensors: checkpoint.lm_tensors(),
    };
    let mut temporal = Temporal::load(&mut loader, config, 1, &mut || {})?;
    let mut embeddings = Vec::new();
    temporal.embed(&mut backend, &staged.fed, &mut Vec::new())?;
    backend.download(temporal.input(), &mut embeddings)?;
    let what = "embeddings_f32";
    report.absolute(topic, what, &embeddings, &golden.f32s(what)?, HIDDEN);

    let what = "embeddings_bf16";
    if let Some((_, bundle)) = checkpoint.voices().get(golden.metadata("voice")) {
        report.equal(topic, what, &bundle.embeddings, &golden.bf16s(what)?);
    }
    Ok(())
}
