//! The log of sessions.

mod text;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::api::live::Changed;
use wire::api::sessions::{
    Levels, SESSION_FILE_SCHEMA, SessionDetail, SessionFile, SessionSummary, TranscriptPiece,
};
use wire::api::{ErrorBody, Page};

use super::body::{Asked, cursor, limit};
use super::desk::Desk;
use super::error::ApiError;
use super::identity::Operator;
use super::wav;
use crate::journal::recording;
use crate::store::{SessionQuestion, StoreError};

/// The most steps of a session's levels.
const LEVEL_STEPS_MAX: usize = 2_000;
/// One frame.
const FRAME_MS: u32 = slots::units::FRAME_MS;

/// The routes of this resource.
pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(read, delete))
        .routes(routes!(transcript))
        .routes(routes!(audio))
        .routes(routes!(export))
}

/// What a list of sessions shows.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Part of the caller's name.
    caller: Option<String>,
    /// Calls with this persona.
    persona_id: Option<i64>,
    /// Calls with this voice.
    voice: Option<String>,
    /// A name of an end reason.
    reason: Option<String>,
    /// Only those that run, or only those that do not.
    running: Option<bool>,
    /// Begun at or after, Unix milliseconds.
    from_ms: Option<i64>,
    /// Begun before, Unix milliseconds.
    to_ms: Option<i64>,
    /// The agent said this.
    query: Option<String>,
    /// `next` of the page before.
    cursor: Option<String>,
    /// 1 to 200, 50 by default.
    limit: Option<u32>,
}

/// Sessions, the newest first
#[utoipa::path(get, path = "/api/sessions", tag = "sessions", params(ListQuery),
    responses((status = 200, body = Page<SessionSummary>), (status = "default", body = ErrorBody)))]
async fn list(
    _: Operator,
    State(desk): State<Desk>,
    Query(asked): Query<ListQuery>,
) -> Asked<Page<SessionSummary>> {
    let some = |text: Option<String>| text.filter(|text| !text.is_empty());
    let question = SessionQuestion {
        caller: some(asked.caller),
        persona_id: asked.persona_id,
        voice: some(asked.voice),
        reason: some(asked.reason),
        running: asked.running,
        from_ms: asked.from_ms,
        to_ms: asked.to_ms,
        query: some(asked.query),
        cursor: cursor(asked.cursor.as_deref())?,
        limit: limit(asked.limit)?,
    };
    let (items, next) = desk.store().sessions(&question).await?;
    Ok(Json(Page { items, next }))
}

/// One session, without transcript and audio
#[utoipa::path(get, path = "/api/sessions/{id}", tag = "sessions", params(("id" = i64, Path)),
    responses((status = 200, body = SessionDetail), (status = "default", body = ErrorBody)))]
async fn read(_: Operator, State(desk): State<Desk>, Path(id): Path<i64>) -> Asked<SessionDetail> {
    Ok(Json(detail(&desk, id).await?))
}

async fn detail(desk: &Desk, id: i64) -> Result<SessionDetail, ApiError> {
    let store = desk.store();
    let summary = store.session(id).await?;
    let (role_text, caller, agent) = store.session_text_and_levels(id).await?;
    let recording = store.recording(id).await?;
    Ok(SessionDetail {
        timeline: store.session_events(id).await?,
        levels: levels(&caller, &agent),
        recording_seconds: recording
            .filter(|recording| recording.complete)
            .map(|recording| recording.seconds as u32),
        role_text,
        summary,
    })
}

/// One byte a frame, brought down to the loudest of every few.
fn levels(caller: &[u8], agent: &[u8]) -> Levels {
    let frames = caller.len().max(agent.len());
    let together = frames.div_ceil(LEVEL_STEPS_MAX).max(1);
    let loudest = |side: &[u8]| {
        let steps = side.chunks(together);
        steps
            .filter_map(|step| step.iter().max().copied())
            .collect()
    };
    Levels {
        step_ms: FRAME_MS * together as u32,
        caller: loudest(caller),
        agent: loudest(agent),
    }
}

/// Deletes a session with transcript and recording
#[utoipa::path(delete, path = "/api/sessions/{id}", tag = "sessions", params(("id" = i64, Path)),
    responses((status = 204), (status = "default", body = ErrorBody)))]
async fn delete(
    _: Operator,
    State(desk): State<Desk>,
    Path(id): Path<i64>,
) -> Result<StatusCode, ApiError> {
    let store = desk.store();
    match store.session(id).await {
        Ok(session) if session.ended_at_ms.is_none() => {
            return Err(StoreError::Running { session: id }.into());
        }
        Ok(_) => {}
        Err(StoreError::Missing { .. }) => return Ok(StatusCode::NO_CONTENT),
        Err(error) => return Err(error.into()),
    }
    if let Some(row) = store.recording(id).await?
        && let Some(folder) = desk.journal().recordings()
    {
        recording::delete(store, folder, &row).await?;
    }
    store.delete_session(id).await?;
    desk.tell(Changed::Sessions);
    Ok(StatusCode::NO_CONTENT)
}

/// What the agent said, piece by piece
#[utoipa::path(get, path = "/api/sessions/{id}/transcript", tag = "sessions", params(("id" = i64, Path)),
    responses((status = 200, body = Page<TranscriptPiece>), (status = "default", body = ErrorBody)))]
async fn transcript(
    _: Operator,
    State(desk): State<Desk>,
    Path(id): Path<i64>,
) -> Asked<Page<TranscriptPiece>> {
    desk.store().session(id).await?;
    let items = desk.store().transcript(id).await?;
    Ok(Json(Page { items, next: None }))
}

/// The recording: caller left, agent right
#[utoipa::path(get, path = "/api/sessions/{id}/audio", tag = "sessions", params(("id" = i64, Path)),
    responses((status = 200, content_type = "audio/wav"), (status = 206, content_type = "audio/wav"),
        (status = "default", body = ErrorBody)))]
async fn audio(
    _: Operator,
    State(desk): State<Desk>,
    Path(id): Path<i64>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    desk.store().session(id).await?;
    let missing = || ApiError::Missing {
        what: format!("recording of session {id}"),
    };
    let row = desk.store().recording(id).await?.ok_or_else(missing)?;
    let folder = desk.journal().recordings().ok_or_else(missing)?;
    let file = recording::path(folder, id, &row.key);
    wav::file(&file, &format!("session-{id}.wav"), &headers).await
}

/// How a session is exported.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ExportQuery {
    /// `json` (default) or `text`.
    format: Option<String>,
}

/// Everything about a session in one file
#[utoipa::path(get, path = "/api/sessions/{id}/export", tag = "sessions",
    params(("id" = i64, Path), ExportQuery),
    responses((status = 200, body = SessionFile), (status = "default", body = ErrorBody)))]
async fn export(
    _: Operator,
    State(desk): State<Desk>,
    Path(id): Path<i64>,
    Query(asked): Query<ExportQuery>,
) -> Result<Response, ApiError> {
    let session = detail(&desk, id).await?;
    let transcript = desk.store().transcript(id).await?;
    let saved_as = |ending| format!("attachment; filename=\"session-{id}.{ending}\"");
    match asked.format.as_deref().unwrap_or("json") {
        "json" => {
            let file = SessionFile {
                schema: SESSION_FILE_SCHEMA.to_owned(),
                session,
                transcript,
            };
            Ok((
                [(header::CONTENT_DISPOSITION, saved_as("json"))],
                Json(file),
            )
                .into_response())
        }
        "text" => {
            let headers = [
                (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
                (header::CONTENT_DISPOSITION, saved_as("txt")),
            ];
            Ok((headers, text::of(&session, &transcript)).into_response())
        }
        other => Err(ApiError::BadValue {
            what: format!(
                "format is {:?}, it must be json or text",
                other.chars().take(20).collect::<String>()
            ),
        }),
    }
}
