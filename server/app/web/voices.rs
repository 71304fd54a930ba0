//! Voices: which there are, their names, the archive.
//!
//! `voices/upload.rs` adds some, `voices/preview.rs` lets them be heard, `voices/quiet.rs` is the thread for long work.
//! May not live here: SQL, bundles and recordings themselves.

mod preview;
mod quiet;
mod upload;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use slots::call::{AddVoiceError, PrepareCall};
use tokio::sync::{Mutex, Semaphore};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::api::live::Changed;
use wire::api::voices::{Voice, VoiceChange, VoiceOrigin};
use wire::api::{ErrorBody, Page};
use wire::query::voice_name;

use super::body::{Asked, Body, limit};
use super::desk::Desk;
use super::error::ApiError;
use super::identity::Operator;
use super::room::EngineRoom;
use crate::store::{Store, StoreError, StoredVoice};

/// What a bundle out of the store calls itself: all are kept in this form.
const KEPT_AS: &str = "voice.safetensors";

/// Whose turn it is to make or change voices. Nothing here is ever waited for by a call.
#[derive(Debug)]
pub(super) struct Bench {
    /// One upload at a time: it holds its file in memory, and takes a processor for seconds.
    making: Arc<Semaphore>,
    /// Held while names change, so that store and engine agree. For as long as a few statements take.
    changing: Mutex<()>,
    /// Held while a preview is rendered: two askers at once render once, and never take two slots.
    rendering: Mutex<()>,
}

impl Default for Bench {
    fn default() -> Self {
        Self {
            making: Arc::new(Semaphore::new(1)),
            changing: Mutex::default(),
            rendering: Mutex::default(),
        }
    }
}

/// The routes of this resource.
pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(change, delete))
        .merge(preview::routes())
        .merge(upload::routes())
}

/// Gives `prepare` the voices that operators added for its model, without those they put away. To be called before the
/// first caller comes. A voice that cannot be read is logged and left out.
///
/// # Errors
/// The store's.
pub async fn load_voices<P: PrepareCall>(store: &Store, prepare: &P) -> Result<(), StoreError> {
    let model = prepare.model_id();
    for (name, bundle) in store.voice_bundles(&model).await? {
        if let Err(error) = prepare.add_voice(&name, KEPT_AS, &bundle) {
            tracing::warn!(voice = name, %error, "a voice was left out");
        }
    }
    for voice in store.voices(&model).await? {
        if voice.archived && voice.origin == "model" {
            prepare.remove_voice(&voice.name);
        }
    }
    Ok(())
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// `next` of the page before.
    cursor: Option<String>,
    /// 1 to 200, 50 by default.
    limit: Option<u32>,
}

/// All voices by name, the archived ones among them
#[utoipa::path(get, path = "/api/voices", tag = "voices", params(ListQuery),
    responses((status = 200, body = Page<Voice>), (status = "default", body = ErrorBody)))]
async fn list(
    _: Operator,
    State(desk): State<Desk>,
    Query(asked): Query<ListQuery>,
) -> Asked<Page<Voice>> {
    let limit = limit(asked.limit)? as usize;
    let mut items = all(&desk).await?;
    if let Some(last) = asked.cursor.filter(|cursor| !cursor.is_empty()) {
        items.retain(|voice| order(&voice.name) > order(&last));
    }
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|last| last.name.clone());
    Ok(Json(Page { items, next }))
}

/// Another name, into the archive, or back. Personas that use the voice follow its name by a version of their own
#[utoipa::path(patch, path = "/api/voices/{name}", tag = "voices", request_body = VoiceChange,
    params(("name" = String, Path)),
    responses((status = 200, body = Voice), (status = "default", body = ErrorBody)))]
async fn change(
    Operator(by): Operator,
    State(desk): State<Desk>,
    Path(name): Path<String>,
    Body(change): Body<VoiceChange>,
) -> Asked<Voice> {
    let _turn = desk.voices().changing.lock().await;
    let mut voice = one(&desk, &name).await?;
    if let Some(archived) = change.archived
        && archived != voice.archived
    {
        match archived {
            true => put_away(&desk, &voice).await?,
            false => take_back(&desk, &voice).await?,
        }
        desk.tell(Changed::Voices);
        voice = one(&desk, &voice.name).await?;
    }
    if let Some(to) = change.name {
        let to = new_name(&to)?;
        if to != voice.name {
            rename(&desk, &voice, &to, &by.label).await?;
            desk.tell(Changed::Voices);
            desk.tell(Changed::Personas);
            voice = one(&desk, &to).await?;
        }
    }
    Ok(Json(voice))
}

/// Deletes a voice that an operator added
#[utoipa::path(delete, path = "/api/voices/{name}", tag = "voices", params(("name" = String, Path)),
    responses((status = 204), (status = "default", body = ErrorBody)))]
async fn delete(
    _: Operator,
    State(desk): State<Desk>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let _turn = desk.voices().changing.lock().await;
    let voice = match one(&desk, &name).await {
        Ok(voice) => voice,
        Err(ApiError::Missing { .. }) => return Ok(StatusCode::NO_CONTENT),
        Err(error) => return Err(error),
    };
    not_the_models(&voice, "deleted")?;
    not_in_use(&voice)?;
    let room = desk.room()?;
    let model = room.model_id();
    desk.store().delete_voice(&model, &voice.name).await?;
    room.remove_voice(&voice.name);
    desk.tell(Changed::Voices);
    Ok(StatusCode::NO_CONTENT)
}

async fn put_away(desk: &Desk, voice: &Voice) -> Result<(), ApiError> {
    not_in_use(voice)?;
    let room = desk.room()?;
    let (model, frames) = (room.model_id(), i64::from(voice.frames));
    let store = desk.store();
    store
        .set_voice_archived(&model, &voice.name, frames, true)
        .await?;
    room.remove_voice(&voice.name);
    Ok(())
}

async fn take_back(desk: &Desk, voice: &Voice) -> Result<(), ApiError> {
    let room = desk.room()?.clone();
    let (model, frames) = (room.model_id(), i64::from(voice.frames));
    if voice.origin == VoiceOrigin::Model {
        room.restore_voice(&voice.name);
    } else {
        let bundle = desk.store().voice_bundle(&model, &voice.name).await?;
        add(room, voice.name.clone(), bundle).await?;
    }
    let store = desk.store();
    store
        .set_voice_archived(&model, &voice.name, frames, false)
        .await?;
    Ok(())
}

async fn rename(desk: &Desk, voice: &Voice, to: &str, by: &str) -> Result<(), ApiError> {
    not_the_models(voice, "renamed")?;
    if order(to) != order(&voice.name) {
        free(desk, to).await?;
    }
    let room = desk.room()?.clone();
    let model = room.model_id();
    // The engine knows both names while the store changes, so that no caller falls in between.
    if !voice.archived {
        let bundle = desk.store().voice_bundle(&model, &voice.name).await?;
        add(room.clone(), to.to_owned(), bundle).await?;
    }
    let done = desk.store().rename_voice(&model, &voice.name, to, by).await;
    room.remove_voice(if done.is_ok() { &voice.name } else { to });
    Ok(done?)
}

/// Reads a bundle and adds it, where blocking is allowed.
async fn add(room: Arc<dyn EngineRoom>, name: String, bundle: Vec<u8>) -> Result<(), ApiError> {
    let added = tokio::task::spawn_blocking(move || room.add_voice(&name, KEPT_AS, &bundle)).await;
    let added = added.map_err(|error| ApiError::Internal {
        what: error.to_string(),
    })?;
    added.map(|_| ()).map_err(bad_voice)
}

fn bad_voice(error: AddVoiceError) -> ApiError {
    ApiError::BadValue { what: error.what }
}

fn not_the_models(voice: &Voice, what: &str) -> Result<(), ApiError> {
    match voice.origin {
        VoiceOrigin::Model => Err(ApiError::Conflict {
            code: "voice_of_the_model",
            what: format!(
                "{:?} belongs to the model; it can be archived, not {what}",
                voice.name
            ),
        }),
        _ => Ok(()),
    }
}

fn not_in_use(voice: &Voice) -> Result<(), ApiError> {
    match voice.personas.is_empty() {
        true => Ok(()),
        false => Err(ApiError::Conflict {
            code: "in_use",
            what: format!("personas use this voice: {}", voice.personas.join(", ")),
        }),
    }
}

/// A name for a voice as somebody wrote it.
fn new_name(wished: &str) -> Result<String, ApiError> {
    voice_name(wished.trim()).map_err(|_| ApiError::BadValue {
        what: "name must be 1 to 64 letters, digits, '_' or '-', with '.' and ' ' between them; never a path"
            .to_owned(),
    })
}

/// # Errors
/// [`StoreError::NameTaken`]: some voice has this name, archived or not.
async fn free(desk: &Desk, name: &str) -> Result<(), ApiError> {
    match one(desk, name).await {
        Ok(_) => Err(StoreError::NameTaken {
            name: name.to_owned(),
        }
        .into()),
        Err(ApiError::Missing { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The voice of that name, without regard to case.
async fn one(desk: &Desk, name: &str) -> Result<Voice, ApiError> {
    let name = voice_name(name)?;
    let all = all(desk).await?.into_iter();
    let mut named = all.filter(|voice| order(&voice.name) == order(&name));
    named.next().ok_or_else(|| ApiError::Missing {
        what: format!("voice {name:?}"),
    })
}

fn order(name: &str) -> String {
    name.to_ascii_lowercase()
}

/// Every voice the engine has or an operator decided about, by name.
async fn all(desk: &Desk) -> Result<Vec<Voice>, ApiError> {
    let room = desk.room()?;
    let (store, model) = (desk.store(), room.model_id());
    let rows = store.voices(&model).await?;
    let used = store.voices_of_personas().await?;
    let previews: BTreeSet<String> = store.previewed_voices(&model).await?.into_iter().collect();
    let callable = room.voices();
    let finish = |name: &str, row: Option<&StoredVoice>, frames: u32| Voice {
        origin: row.map_or(VoiceOrigin::Model, origin),
        frames,
        archived: true,
        is_default: false,
        consent: row.and_then(|row| row.consent.clone()),
        created_at_ms: row
            .filter(|row| origin(row) != VoiceOrigin::Model)
            .map(|row| row.created_at_ms),
        personas: used
            .iter()
            .filter(|(voice, _)| order(voice) == order(name))
            .map(|(_, persona)| persona.clone())
            .collect(),
        preview_ready: previews.contains(name),
        name: name.to_owned(),
    };
    let named = |name: &str| rows.iter().find(|row| order(&row.name) == order(name));
    let present = callable.iter().map(|facts| Voice {
        archived: false,
        is_default: facts.is_default,
        ..finish(&facts.name, named(&facts.name), facts.frames as u32)
    });
    let is_callable = |name: &str| {
        callable
            .iter()
            .any(|facts| order(&facts.name) == order(name))
    };
    // What an operator added and the engine could not read is as good as archived. A voice of the model that is neither
    // archived nor there was taken out of the model's folder.
    let rest = rows
        .iter()
        .filter(|row| !is_callable(&row.name) && (row.archived || row.origin != "model"))
        .map(|row| finish(&row.name, Some(row), row.frames as u32));
    let mut all: Vec<Voice> = present.chain(rest).collect();
    all.sort_by_cached_key(|voice| order(&voice.name));
    Ok(all)
}

fn origin(row: &StoredVoice) -> VoiceOrigin {
    match row.origin.as_str() {
        "bundle" => VoiceOrigin::Bundle,
        "recording" => VoiceOrigin::Recording,
        _ => VoiceOrigin::Model,
    }
}
