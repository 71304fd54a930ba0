//! Personas, their versions, what a prompt costs, share links.
//!
//! May not live here: SQL, what a good draft is (`personas/draft.rs`).

mod draft;
mod files;
mod shares;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use slots::call::CallSpec;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::api::live::Changed;
use wire::api::personas::{Persona, PersonaDraft, PersonaVersion, PromptCost, PromptQuestion};
use wire::api::{ErrorBody, Page};

use super::body::{Asked, Body, IfVersion, Versioned, cursor, limit};
use super::desk::Desk;
use super::error::ApiError;
use super::identity::Operator;
use crate::store::PersonaQuestion;

pub(super) use draft::{call_spec, checked, sampling_of};

/// The routes of this resource.
pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(read, update, archive))
        .routes(routes!(unarchive))
        .routes(routes!(duplicate))
        .routes(routes!(make_default))
        .routes(routes!(versions))
        .routes(routes!(restore))
        .routes(routes!(cost))
        .merge(files::routes())
        .merge(shares::routes())
}

/// What a list of personas shows.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Part of name or role text.
    query: Option<String>,
    /// The archived ones instead.
    #[serde(default)]
    archived: bool,
    /// `next` of the page before.
    cursor: Option<String>,
    /// 1 to 200, 50 by default.
    limit: Option<u32>,
}

/// Personas by name
#[utoipa::path(get, path = "/api/personas", tag = "personas", params(ListQuery),
    responses((status = 200, body = Page<Persona>), (status = "default", body = ErrorBody)))]
async fn list(
    _: Operator,
    State(desk): State<Desk>,
    Query(asked): Query<ListQuery>,
) -> Asked<Page<Persona>> {
    let question = PersonaQuestion {
        query: asked.query.filter(|query| !query.is_empty()),
        archived: asked.archived,
        cursor: cursor(asked.cursor.as_deref())?,
        limit: limit(asked.limit)?,
    };
    let (items, next) = desk.store().personas(&question).await?;
    Ok(Json(Page { items, next }))
}

/// Makes a persona
#[utoipa::path(post, path = "/api/personas", tag = "personas", request_body = PersonaDraft,
    responses((status = 201, body = Persona), (status = "default", body = ErrorBody)))]
async fn create(
    Operator(by): Operator,
    State(desk): State<Desk>,
    Body(draft): Body<PersonaDraft>,
) -> Result<Versioned<Persona>, ApiError> {
    let draft = checked(draft, &desk).await?;
    let made = desk.store().insert_persona(&draft, &by.label).await?;
    changed(&desk, &made);
    Ok(versioned(StatusCode::CREATED, made))
}

/// One persona, archived or not
#[utoipa::path(get, path = "/api/personas/{id}", tag = "personas", params(("id" = i64, Path)),
    responses((status = 200, body = Persona), (status = "default", body = ErrorBody)))]
async fn read(
    _: Operator,
    State(desk): State<Desk>,
    Path(id): Path<i64>,
) -> Result<Versioned<Persona>, ApiError> {
    Ok(versioned(StatusCode::OK, desk.store().persona(id).await?))
}

/// Makes its next version; `If-Match` names the present one
#[utoipa::path(put, path = "/api/personas/{id}", tag = "personas", request_body = PersonaDraft,
    params(("id" = i64, Path), ("If-Match" = String, Header)),
    responses((status = 200, body = Persona), (status = "default", body = ErrorBody)))]
async fn update(
    Operator(by): Operator,
    State(desk): State<Desk>,
    Path(id): Path<i64>,
    IfVersion(version): IfVersion,
    Body(draft): Body<PersonaDraft>,
) -> Result<Versioned<Persona>, ApiError> {
    let draft = checked(draft, &desk).await?;
    let store = desk.store();
    let made = store.update_persona(id, version, &draft, &by.label).await?;
    changed(&desk, &made);
    Ok(versioned(StatusCode::OK, made))
}

/// Into the archive. The default persona stays, since somebody has to answer
#[utoipa::path(delete, path = "/api/personas/{id}", tag = "personas", params(("id" = i64, Path)),
    responses((status = 204), (status = "default", body = ErrorBody)))]
async fn archive(
    _: Operator,
    State(desk): State<Desk>,
    Path(id): Path<i64>,
) -> Result<StatusCode, ApiError> {
    desk.store().archive_persona(id).await?;
    desk.tell(Changed::Personas);
    Ok(StatusCode::NO_CONTENT)
}

/// Out of the archive
#[utoipa::path(post, path = "/api/personas/{id}/unarchive", tag = "personas", params(("id" = i64, Path)),
    responses((status = 200, body = Persona), (status = "default", body = ErrorBody)))]
async fn unarchive(
    _: Operator,
    State(desk): State<Desk>,
    Path(id): Path<i64>,
) -> Result<Versioned<Persona>, ApiError> {
    let persona = desk.store().unarchive_persona(id).await?;
    desk.tell(Changed::Personas);
    Ok(versioned(StatusCode::OK, persona))
}

/// A copy under a name of its own
#[utoipa::path(post, path = "/api/personas/{id}/duplicate", tag = "personas", params(("id" = i64, Path)),
    responses((status = 201, body = Persona), (status = "default", body = ErrorBody)))]
async fn duplicate(
    Operator(by): Operator,
    State(desk): State<Desk>,
    Path(id): Path<i64>,
) -> Result<Versioned<Persona>, ApiError> {
    let store = desk.store();
    let mut draft = store.persona(id).await?.draft;
    draft.name = draft::free_name(store, &draft.name, "copy", |_| false).await?;
    let made = store.insert_persona(&draft, &by.label).await?;
    changed(&desk, &made);
    Ok(versioned(StatusCode::CREATED, made))
}

/// From now on it answers callers that name no persona
#[utoipa::path(post, path = "/api/personas/{id}/default", tag = "personas", params(("id" = i64, Path)),
    responses((status = 200, body = Persona), (status = "default", body = ErrorBody)))]
async fn make_default(
    _: Operator,
    State(desk): State<Desk>,
    Path(id): Path<i64>,
) -> Result<Versioned<Persona>, ApiError> {
    let persona = desk.store().set_default_persona(id).await?;
    desk.tell(Changed::Personas);
    Ok(versioned(StatusCode::OK, persona))
}

/// All its versions, newest first
#[utoipa::path(get, path = "/api/personas/{id}/versions", tag = "personas", params(("id" = i64, Path)),
    responses((status = 200, body = Page<PersonaVersion>), (status = "default", body = ErrorBody)))]
async fn versions(
    _: Operator,
    State(desk): State<Desk>,
    Path(id): Path<i64>,
) -> Asked<Page<PersonaVersion>> {
    let items = desk.store().persona_versions(id).await?;
    Ok(Json(Page { items, next: None }))
}

/// Makes an old version the newest again; `If-Match` names the present one
#[utoipa::path(post, path = "/api/personas/{id}/versions/{version}/restore", tag = "personas",
    params(("id" = i64, Path), ("version" = i64, Path), ("If-Match" = String, Header)),
    responses((status = 200, body = Persona), (status = "default", body = ErrorBody)))]
async fn restore(
    Operator(by): Operator,
    State(desk): State<Desk>,
    Path((id, wanted)): Path<(i64, i64)>,
    IfVersion(version): IfVersion,
) -> Result<Versioned<Persona>, ApiError> {
    let store = desk.store();
    let versions = store.persona_versions(id).await?;
    let old = versions.into_iter().find(|old| old.version == wanted);
    let old = old.ok_or_else(|| ApiError::Missing {
        what: format!("version {wanted} of persona {id}"),
    })?;
    let draft = checked(old.draft, &desk).await?;
    let made = store.update_persona(id, version, &draft, &by.label).await?;
    changed(&desk, &made);
    Ok(versioned(StatusCode::OK, made))
}

/// What a prompt costs, before it is saved
#[utoipa::path(post, path = "/api/personas/cost", tag = "personas", request_body = PromptQuestion,
    responses((status = 200, body = PromptCost), (status = "default", body = ErrorBody)))]
async fn cost(
    _: Operator,
    State(desk): State<Desk>,
    Body(question): Body<PromptQuestion>,
) -> Asked<PromptCost> {
    let room = desk.room()?.clone();
    let facts = draft::where_blocking_is_fine(move || {
        let spec = CallSpec {
            // A blank text stands for the default persona elsewhere; here it is counted as what it is.
            text_prompt: Some(question.role_text).filter(|text| !text.trim().is_empty()),
            voice: question.voice,
            ..CallSpec::default()
        };
        let blank = spec.text_prompt.is_none();
        let mut facts = room.prompt_facts(&spec)?;
        if blank {
            facts.positions -= facts.text_tokens;
            facts.text_tokens = 0;
        }
        Ok(facts)
    })
    .await?;
    let rest = facts.positions - facts.text_tokens;
    let us_per_position = desk.prepare_us_per_position().load(Relaxed);
    let prepare_ms = (us_per_position > 0)
        .then(|| (us_per_position * facts.positions as u64).div_ceil(1_000) as u32);
    Ok(Json(PromptCost {
        text_tokens: facts.text_tokens as u32,
        text_tokens_max: facts.positions_max.saturating_sub(rest) as u32,
        positions: facts.positions as u32,
        positions_max: facts.positions_max as u32,
        prepare_ms,
    }))
}

fn versioned(status: StatusCode, persona: Persona) -> Versioned<Persona> {
    Versioned {
        status,
        version: persona.version,
        body: persona,
    }
}

/// Tells open pages, and reads the new prompt once, so that its next caller is live at once.
fn changed(desk: &Desk, persona: &Persona) {
    desk.tell(Changed::Personas);
    let Ok(room) = desk.room() else { return };
    let (room, desk) = (room.clone(), desk.clone());
    let spec = call_spec(&persona.draft);
    tokio::spawn(async move {
        let began = Instant::now();
        let misses = room.board().engine().prompt_cache_misses;
        // No slot is free: its first caller waits for the prompt, which is said to them.
        if room.rehearse(spec.clone(), 0).await.is_err() {
            return;
        }
        let took_us = began.elapsed().as_micros() as u64;
        let facts = room.prompt_facts(&spec);
        if room.board().engine().prompt_cache_misses > misses
            && let Ok(facts) = facts
        {
            let each_us = took_us / facts.positions.max(1) as u64;
            desk.prepare_us_per_position()
                .store(each_us.max(1), Relaxed);
        }
    });
}
