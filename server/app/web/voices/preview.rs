//! Previews: the first seconds of what an agent says with a voice, rendered once and kept.

use std::io::Cursor;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use slots::call::CallSpec;
use slots::units::SAMPLE_RATE_HZ;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::api::ErrorBody;
use wire::api::live::Changed;

use super::one;
use crate::stepper::board::SlotPhase;
use crate::web::desk::Desk;
use crate::web::error::ApiError;
use crate::web::identity::Operator;
use crate::web::room::{EngineRoom, RehearseError};
use crate::web::wav;

/// Length of a preview: 6 s.
const FRAMES: usize = 75;
/// How long an asker waits for the preview that somebody else is rendering.
const TURN_LIMIT: Duration = Duration::from_secs(20);

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(preview))
}

/// Some seconds of the voice. Rendered by a free slot when it is asked for first, which takes as long as it lasts
#[utoipa::path(get, path = "/api/voices/{name}/preview", tag = "voices", params(("name" = String, Path)),
    responses((status = 200, content_type = "audio/wav"), (status = "default", body = ErrorBody)))]
async fn preview(
    _: Operator,
    State(desk): State<Desk>,
    Path(name): Path<String>,
    asked: HeaderMap,
) -> Result<Response, ApiError> {
    let voice = one(&desk, &name).await?;
    let (store, room) = (desk.store(), desk.room()?);
    let model = room.model_id();
    let file_name = format!("{}.wav", voice.name.replace(' ', "_"));
    let kept = store.voice_preview(&model, &voice.name).await?;
    if let Some(file) = kept {
        return Ok(wav::bytes(file, &file_name, &asked));
    }
    if voice.archived {
        return Err(ApiError::Conflict {
            code: "archived",
            what: format!("{:?} is archived and was never rendered", voice.name),
        });
    }
    let turn = tokio::time::timeout(TURN_LIMIT, desk.voices().rendering.lock()).await;
    let Ok(_turn) = turn else {
        return Err(not_now("another preview is being rendered"));
    };
    // Whoever went before may have rendered the same.
    let kept = store.voice_preview(&model, &voice.name).await?;
    if let Some(file) = kept {
        return Ok(wav::bytes(file, &file_name, &asked));
    }
    room_for_one_more(&**room)?;
    let persona = store.persona_for_call(None).await.ok();
    let spec = CallSpec {
        text_prompt: persona.map(|persona| persona.draft.role_text),
        voice: Some(voice.name.clone()),
        ..CallSpec::default()
    };
    let pcm = room
        .rehearse(spec, FRAMES)
        .await
        .map_err(|error| match error {
            RehearseError::Prepare(error) => error.into(),
            RehearseError::NoSlot => busy(),
            RehearseError::Ended { .. } => not_now(&error.to_string()),
        })?;
    let file = file_of(&pcm).map_err(|error| ApiError::Internal {
        what: error.to_string(),
    })?;
    // Under the name it has now: it may have been renamed or deleted meanwhile.
    if one(&desk, &voice.name).await.is_ok() {
        store.set_voice_preview(&model, &voice.name, &file).await?;
        desk.tell(Changed::Voices);
    }
    Ok(wav::bytes(file, &file_name, &asked))
}

/// Callers go first: a preview never takes the last of several slots, and never one that somebody waits for.
fn room_for_one_more(room: &dyn EngineRoom) -> Result<(), ApiError> {
    let board = room.board();
    let needed = if board.capacity() > 1 { 2 } else { 1 };
    match board.waiting() == 0 && board.slots_in(SlotPhase::Free) >= needed {
        true => Ok(()),
        false => Err(busy()),
    }
}

fn busy() -> ApiError {
    not_now("no slot is free for a preview; callers go first")
}

fn not_now(what: &str) -> ApiError {
    ApiError::NotNow {
        what: what.to_owned(),
    }
}

/// A WAV of 16 bits.
fn file_of(pcm: &[f32]) -> Result<Vec<u8>, hound::Error> {
    let mut file = Cursor::new(Vec::new());
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: SAMPLE_RATE_HZ,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut writer = hound::WavWriter::new(&mut file, spec)?;
    for sample in pcm {
        writer.write_sample((sample.clamp(-1.0, 1.0) * f32::from(i16::MAX)) as i16)?;
    }
    writer.finalize()?;
    Ok(file.into_inner())
}
