//! What a caller needs before and after a call, and the door behind a share link.

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use axum::{Extension, Json};
use serde::Deserialize;
use slots::units::FRAME_MS;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::api::ErrorBody;
use wire::api::account::Role;
use wire::api::talk::{Talk, TalkPersona};

use super::account::{cookie_line, secure};
use super::body::{Asked, LIMIT_MAX};
use super::connections::Peer;
use super::desk::Desk;
use super::error::ApiError;
use super::identity::{Asker, LINK_COOKIE};
use super::{assets, wav};
use crate::journal::recording;
use crate::store::PersonaQuestion;

/// The routes of this resource.
pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(talk))
        .routes(routes!(own_recording))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Question {
    /// The token of a share link: only its persona, as its guests see it.
    link: Option<String>,
}

/// What this asker can call
#[utoipa::path(get, path = "/api/talk", tag = "talk", params(Question),
    responses((status = 200, body = Talk), (status = "default", body = ErrorBody)))]
async fn talk(
    asker: Asker,
    State(desk): State<Desk>,
    Query(question): Query<Question>,
) -> Asked<Talk> {
    if asker.role == Role::Nobody {
        return Err(ApiError::SignInNeeded);
    }
    let store = desk.store();
    let bound = match &question.link {
        None => asker.persona,
        Some(link) => {
            let share = store.share_by_token(link).await?;
            let share = share.ok_or_else(|| ApiError::Missing {
                what: "link like this: it has ended, or was never made".to_owned(),
            })?;
            Some(share.persona_id)
        }
    };
    let only = match bound {
        Some(only) => Some(store.persona(only).await?).filter(|persona| !persona.archived),
        None => None,
    };
    let personas = match (bound, only) {
        (Some(_), only) => only.into_iter().collect(),
        (None, _) => {
            let question = PersonaQuestion {
                limit: LIMIT_MAX,
                ..PersonaQuestion::default()
            };
            let (mut all, _) = store.personas(&question).await?;
            all.sort_by_key(|persona| !persona.is_default);
            all
        }
    };
    let may_choose = bound.is_none();
    let voices = match (may_choose, desk.room()) {
        (true, Ok(room)) => room.voices().into_iter().map(|voice| voice.name).collect(),
        _ => Vec::new(),
    };
    let memory_ms = desk
        .room()
        .ok()
        .map(|room| room.memory_frames() as u64 * u64::from(FRAME_MS));
    let policy = store.policy().await?.draft;
    Ok(Json(Talk {
        personas: personas
            .into_iter()
            .map(|persona| TalkPersona {
                id: persona.id,
                name: persona.draft.name,
                voice: persona.draft.voice,
            })
            .collect(),
        may_choose,
        voices,
        memory_s: memory_ms.map(|ms| (ms / 1_000) as u32),
        recorded: policy.record_audio && desk.journal().recordings().is_some(),
        recording_days: policy.recording_days,
        transcript_kept: policy.keep_transcripts,
    }))
}

/// The recording of one's own call, once it is over
#[utoipa::path(get, path = "/api/talk/recordings/{key}", tag = "talk", params(("key" = String, Path)),
    responses((status = 200, content_type = "audio/wav"), (status = "default", body = ErrorBody)))]
async fn own_recording(
    State(desk): State<Desk>,
    Path(key): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let missing = || ApiError::Missing {
        what: "recording under this address: the call is not over, or it is no longer kept"
            .to_owned(),
    };
    let row = desk
        .store()
        .recording_by_key(&key)
        .await?
        .ok_or_else(missing)?;
    let folder = desk.journal().recordings().ok_or_else(missing)?;
    let file = recording::path(folder, row.session_id, &row.key);
    wav::file(&file, &format!("call-{}.wav", row.session_id), &headers).await
}

/// The talk page behind a share link: from here on this browser may call that persona.
pub(super) async fn door(
    State(desk): State<Desk>,
    Path(token): Path<String>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let mut response = assets::index("talk/token", &headers);
    if desk.store().share_by_token(&token).await?.is_some() {
        let secure = secure(peer.as_deref(), &headers);
        let line = cookie_line(&desk, LINK_COOKIE, &token, secure);
        if let Ok(value) = HeaderValue::from_str(&line) {
            response.headers_mut().append(header::SET_COOKIE, value);
        }
    }
    Ok(response)
}
