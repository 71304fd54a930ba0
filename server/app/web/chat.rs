//! `GET /api/chat`: everything that can be said before the upgrade: who may call, which persona, what it costs.
//!
//! May not live here: what happens after it (`sessions`).

use axum::extract::ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection};
use axum::extract::{RawQuery, State};
use axum::response::Response;
use slots::call::{CallSpec, PrepareCall};
use wire::api::account::Role;
use wire::api::personas::{Greeting, PersonaDraft, SamplingWish};
use wire::query::ChatQuery;

use super::desk::Desk;
use super::error::ApiError;
use super::identity::Asker;
use super::personas::sampling_of;
use super::state::AppState;
use crate::journal::CallFacts;
use crate::sessions::host::{Wish, limited};
use crate::store::StoreError;

/// Checks the query, prepares the call, upgrades. Whether there is a slot is said on the socket, where browsers can
/// hear it.
pub(super) async fn chat<P: PrepareCall>(
    asker: Asker,
    State(app): State<AppState<P>>,
    RawQuery(query): RawQuery,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let query = ChatQuery::parse(query.as_deref().unwrap_or_default())?;
    if asker.role == Role::Nobody {
        return Err(match asker.by_token {
            true => ApiError::NotAllowed,
            false => ApiError::SignInNeeded,
        });
    }
    let Some(loaded) = app.loaded() else {
        return Err(ApiError::Loading);
    };
    let host = loaded.host.clone();
    if let Some(token) = query.resume {
        let upgrade = upgrade.map_err(|_| ApiError::NotAnUpgrade)?;
        return Ok(limited(upgrade).on_upgrade(async move |socket| {
            host.resume(socket, token.reveal()).await;
        }));
    }
    let (wished, facts, caller_first) = wished(app.desk(), &asker, &query).await?;
    let mut spec = CallSpec {
        sampling: sampling_of(&wished.sampling, loaded.prepare.default_sampling())?,
        text_prompt: Some(wished.role_text),
        voice: wished.voice,
    };
    if wished.sampling.seed.is_none() {
        spec.sampling.seed = drawn_seed()?;
    }
    let seed = spec.sampling.seed;
    let prepare = loaded.prepare.clone();
    // Tokenizing a long prompt takes milliseconds, and a voice may have to be read.
    let prepared = tokio::task::spawn_blocking(move || {
        let voices = prepare.voice_facts();
        let voice = match &spec.voice {
            Some(name) => Some(name.clone()),
            None => voices
                .into_iter()
                .find(|voice| voice.is_default)
                .map(|voice| voice.name),
        };
        prepare
            .prepare(&spec)
            .map(|call| (call, voice.unwrap_or_default()))
    })
    .await;
    let (call, voice) = prepared.map_err(|error| ApiError::Internal {
        what: format!("preparing a call failed: {error}"),
    })??;
    let wish = Wish {
        call,
        seed,
        ext: query.ext,
        facts: CallFacts {
            voice,
            seed,
            ..facts
        },
        caller_first,
    };
    let upgrade = upgrade.map_err(|_| ApiError::NotAnUpgrade)?;
    if let Some(share) = asker.share {
        app.desk().store().share_used(share).await?;
    }
    Ok(limited(upgrade).on_upgrade(async move |socket| host.run(socket, wish).await))
}

/// The persona that answers, with what the query names in place of its own.
async fn wished(
    desk: &Desk,
    asker: &Asker,
    query: &ChatQuery,
) -> Result<(PersonaDraft, CallFacts, bool), ApiError> {
    let own_text = query
        .text_prompt
        .clone()
        .filter(|text| !text.trim().is_empty());
    let asked = query.persona.map(i64::from);
    if let Some(only) = asker.persona {
        let chooses = own_text.is_some() || query.voice.is_some() || query.seed.is_some();
        if chooses || asked.is_some_and(|asked| asked != only) {
            return Err(ApiError::NotAllowed);
        }
    }
    let persona = match own_text.is_some() && asked.is_none() {
        true => None,
        false => match desk.store().persona_for_call(asker.persona.or(asked)).await {
            Ok(persona) => Some(persona),
            // No persona at all: the engine has a role text of its own.
            Err(StoreError::Missing { .. }) if asker.persona.is_none() && asked.is_none() => None,
            Err(error) => return Err(error.into()),
        },
    };
    let policy = desk.store().policy().await?.draft;
    let mut facts = CallFacts {
        caller: asker.label.clone(),
        persona: match own_text.is_some() {
            true => "own text".to_owned(),
            false => String::new(),
        },
        record: policy.record_audio,
        keep_transcript: policy.keep_transcripts,
        ..CallFacts::default()
    };
    let mut draft = PersonaDraft::default();
    if let Some(persona) = persona {
        draft = persona.draft;
        // With a text of the caller's own only voice and sampling are the persona's.
        if own_text.is_none() {
            facts.persona_id = Some((persona.id, persona.version));
            facts.persona = draft.name.clone();
        }
    }
    let caller_first = draft.greeting == Greeting::CallerFirst;
    if let Some(text) = own_text {
        draft.role_text = text;
    }
    if let Some(voice) = &query.voice {
        draft.voice = Some(voice.clone());
    }
    facts.role_text = draft.role_text.clone();
    draft.sampling = over(draft.sampling, query);
    Ok((draft, facts, caller_first))
}

/// The query's values where it has some.
fn over(base: SamplingWish, query: &ChatQuery) -> SamplingWish {
    SamplingWish {
        text_temperature: query.text_temperature.or(base.text_temperature),
        text_top_k: query.text_top_k.or(base.text_top_k),
        audio_temperature: query.audio_temperature.or(base.audio_temperature),
        audio_top_k: query.audio_top_k.or(base.audio_top_k),
        repetition_penalty: query.repetition_penalty.or(base.repetition_penalty),
        repetition_penalty_context: query
            .repetition_penalty_context
            .or(base.repetition_penalty_context),
        seed: query.seed.map(|seed| seed.to_string()).or(base.seed),
    }
}

/// A seed for a call that asked for none.
fn drawn_seed() -> Result<u64, ApiError> {
    getrandom::u64().map_err(|error| ApiError::Internal {
        what: format!("no randomness: {error}"),
    })
}
