//! Adding a voice: a bundle, or a recording that becomes one. What a file is, its content says, never its name.

use std::error::Error;
use std::time::Duration;

use axum::Json;
use axum::extract::multipart::{Field, MultipartError, MultipartRejection};
use axum::extract::{DefaultBodyLimit, Multipart, State};
use axum::http::StatusCode;
use http_body_util::LengthLimitError;
use tokio::sync::OwnedSemaphorePermit;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::api::ErrorBody;
use wire::api::live::Changed;
use wire::api::voices::{CONSENT_CHARS_MAX, UPLOAD_BYTES_MAX, VoiceMade};

use super::quiet::quietly;
use super::{add, bad_voice, free, new_name, one};
use crate::voice_sample::prepared;
use crate::web::desk::Desk;
use crate::web::error::ApiError;
use crate::web::identity::Operator;
use crate::web::room::EngineRoom;

/// The form around the file: name, consent, headers of the parts.
const FORM_BYTES_MAX: usize = 16 * 1024;
/// The longest text field, in bytes; what it may hold is checked later, in characters.
const FIELD_BYTES_MAX: usize = 4 * 1024;
/// How long a file may be on its way, since others wait for their turn.
const UPLOAD_LIMIT: Duration = Duration::from_secs(120);
/// How long a form is still read that was refused already, so that the answer is not lost behind a broken connection.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(upload))
        .layer(DefaultBodyLimit::max(UPLOAD_BYTES_MAX + FORM_BYTES_MAX))
}

/// What is sent.
#[derive(Debug, Default, ToSchema)]
struct VoiceForm {
    /// How callers name it.
    name: String,
    /// Who is heard, and that they agreed. Recordings need it.
    consent: String,
    /// A `.pt` or `.safetensors` bundle of this model, or a recording: wav, flac, ogg (Vorbis or Opus), mp3.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
}

/// Adds a voice; callers can have it at once
#[utoipa::path(post, path = "/api/voices", tag = "voices",
    request_body(content = VoiceForm, content_type = "multipart/form-data"),
    responses((status = 201, body = VoiceMade), (status = "default", body = ErrorBody)))]
async fn upload(
    _: Operator,
    State(desk): State<Desk>,
    form: Result<Multipart, MultipartRejection>,
) -> Result<(StatusCode, Json<VoiceMade>), ApiError> {
    let form = form.map_err(|rejection| ApiError::BadBody {
        status: rejection.status(),
        what: rejection.body_text(),
    })?;
    let Ok(turn) = desk.voices().making.clone().try_acquire_owned() else {
        drain(form).await;
        return Err(ApiError::NotNow {
            what: "another voice is being added; one is taken at a time".to_owned(),
        });
    };
    let form = tokio::time::timeout(UPLOAD_LIMIT, read(form)).await;
    let form = form.map_err(|_| ApiError::BadBody {
        status: StatusCode::REQUEST_TIMEOUT,
        what: format!(
            "the file did not arrive within {} s",
            UPLOAD_LIMIT.as_secs()
        ),
    })??;
    // A task of its own: whoever sent it may leave, and nothing is left half done.
    let made = tokio::spawn(make(desk, form, turn)).await;
    let made = made.map_err(|error| ApiError::Internal {
        what: error.to_string(),
    })?;
    Ok((StatusCode::CREATED, Json(made?)))
}

async fn make(
    desk: Desk,
    form: VoiceForm,
    _turn: OwnedSemaphorePermit,
) -> Result<VoiceMade, ApiError> {
    let name = new_name(&form.name)?;
    free(&desk, &name).await?;
    if form.file.is_empty() {
        return Err(ApiError::BadValue {
            what: "file is missing or empty".to_owned(),
        });
    }
    let container = container(&form.file);
    let consent = match container {
        Some(_) => None,
        None => Some(checked_consent(&form.consent)?),
    };
    let room = desk.room()?.clone();
    let working = room.clone();
    let work = move || match container {
        Some(file_name) => {
            let bundle = working.convert_bundle(file_name, &form.file);
            Ok((bundle.map_err(bad_voice)?, Vec::new()))
        }
        None => from_recording(&*working, form.file),
    };
    let (bundle, notes) = quietly(work).await.ok_or_else(|| ApiError::BadValue {
        what: "the file could not be read".to_owned(),
    })??;
    let _changing = desk.voices().changing.lock().await;
    free(&desk, &name).await?;
    let model = room.model_id();
    add(room.clone(), name.clone(), bundle.clone()).await?;
    let facts = room.voices().into_iter().find(|facts| facts.name == name);
    let frames = facts.map_or(1, |facts| facts.frames) as i64;
    let kept = desk
        .store()
        .insert_voice(&model, &name, &bundle, frames, consent.as_deref())
        .await;
    if let Err(error) = kept {
        room.remove_voice(&name);
        return Err(error.into());
    }
    desk.tell(Changed::Voices);
    let voice = one(&desk, &name).await?;
    Ok(VoiceMade { voice, notes })
}

fn from_recording(
    room: &dyn EngineRoom,
    file: Vec<u8>,
) -> Result<(Vec<u8>, Vec<String>), ApiError> {
    let sample = prepared(file, room.recording_frames_max());
    let sample = sample.map_err(|error| ApiError::BadValue {
        what: error.to_string(),
    })?;
    let bundle = room.voice_from_recording(&sample.pcm).map_err(bad_voice)?;
    Ok((bundle, sample.notes))
}

/// The name that says which container a bundle is; `None`: no bundle, so a recording.
fn container(file: &[u8]) -> Option<&'static str> {
    if file.starts_with(b"PK\x03\x04") {
        return Some("voice.pt");
    }
    let (length, rest) = file.split_first_chunk::<8>()?;
    let is_header = rest.starts_with(b"{") && u64::from_le_bytes(*length) <= rest.len() as u64;
    is_header.then_some("voice.safetensors")
}

fn checked_consent(consent: &str) -> Result<String, ApiError> {
    let consent = consent.trim();
    let chars = consent.chars().count();
    match chars {
        0 => Err(ApiError::BadValue {
            what: "consent is missing: say who is heard in the recording, and that they agreed"
                .to_owned(),
        }),
        1..=CONSENT_CHARS_MAX => Ok(consent.to_owned()),
        _ => Err(ApiError::BadValue {
            what: format!("consent has {chars} characters, at most {CONSENT_CHARS_MAX} are taken"),
        }),
    }
}

/// The whole form. Fields that nobody asked for are read over.
async fn read(mut parts: Multipart) -> Result<VoiceForm, ApiError> {
    let mut form = VoiceForm::default();
    while let Some(field) = parts.next_field().await.map_err(broken)? {
        match field.name() {
            Some("name") => form.name = text(field, "name").await?,
            Some("consent") => form.consent = text(field, "consent").await?,
            Some("file") => form.file = bytes(field, "file", UPLOAD_BYTES_MAX).await?,
            _ => {}
        }
    }
    Ok(form)
}

async fn text(field: Field<'_>, name: &str) -> Result<String, ApiError> {
    let bytes = bytes(field, name, FIELD_BYTES_MAX).await?;
    String::from_utf8(bytes).map_err(|_| ApiError::BadValue {
        what: format!("{name} is not UTF-8"),
    })
}

async fn bytes(mut field: Field<'_>, name: &str, bytes_max: usize) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = field.chunk().await.map_err(broken)? {
        if bytes.len() + chunk.len() > bytes_max {
            return Err(too_big(name, bytes_max));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn too_big(name: &str, bytes_max: usize) -> ApiError {
    ApiError::Refused {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        what: format!("{name} has more than {bytes_max} bytes"),
    }
}

fn broken(error: MultipartError) -> ApiError {
    let causes = std::iter::successors(Some(&error as &dyn Error), |&error| error.source());
    if causes
        .into_iter()
        .any(|cause| cause.is::<LengthLimitError>())
    {
        return too_big("the form", UPLOAD_BYTES_MAX);
    }
    ApiError::BadBody {
        status: StatusCode::BAD_REQUEST,
        what: error.body_text(),
    }
}

async fn drain(mut parts: Multipart) {
    let all = async {
        while let Ok(Some(mut field)) = parts.next_field().await {
            while let Ok(Some(_)) = field.chunk().await {}
        }
    };
    let _ = tokio::time::timeout(DRAIN_LIMIT, all).await;
}
