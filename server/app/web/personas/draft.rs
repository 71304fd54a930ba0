//! From what an operator wrote to what is kept: every field checked, with the reason in one line.

use slots::call::{CallSpec, Sampling};
use wire::api::personas::{NAME_CHARS_MAX, PersonaDraft, ROLE_TEXT_BYTES_MAX, SamplingWish};
use wire::query::voice_name;

use crate::store::{Store, StoreError};
use crate::web::desk::Desk;
use crate::web::error::ApiError;

/// The draft as it is kept: name and text trimmed, the voice under its own spelling.
///
/// # Errors
/// [`ApiError::BadValue`] names the field; a voice has to be there while the engine is.
pub(in crate::web) async fn checked(
    draft: PersonaDraft,
    desk: &Desk,
) -> Result<PersonaDraft, ApiError> {
    let desk = desk.clone();
    where_blocking_is_fine(move || check(draft, &desk)).await
}

/// Tokenizing a long text takes longer than a thread that carries calls may be gone.
pub(super) async fn where_blocking_is_fine<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ApiError::Internal {
        what: error.to_string(),
    })?
}

/// [`checked`], where blocking is allowed.
pub(super) fn check(draft: PersonaDraft, desk: &Desk) -> Result<PersonaDraft, ApiError> {
    let bad = |what: String| Err(ApiError::BadValue { what });
    let name = draft.name.trim().to_owned();
    let chars = name.chars().count();
    if !(1..=NAME_CHARS_MAX).contains(&chars) {
        return bad(format!(
            "name has {chars} characters, 1 to {NAME_CHARS_MAX} are taken"
        ));
    }
    if name.chars().any(char::is_control) {
        return bad("name holds a control character".to_owned());
    }
    let role_text = draft.role_text.trim().replace("\r\n", "\n");
    if role_text.len() > ROLE_TEXT_BYTES_MAX {
        return bad(format!(
            "role_text has {} bytes, at most {ROLE_TEXT_BYTES_MAX} are taken",
            role_text.len()
        ));
    }
    if role_text
        .chars()
        .any(|c| c.is_control() && c != '\n' && c != '\t')
    {
        return bad("role_text holds a control character".to_owned());
    }
    let sampling = draft.sampling.clone();
    sampling_of(&sampling, Sampling::default())?;
    let voice = match draft.voice.as_deref().map(str::trim) {
        None | Some("") => None,
        Some(voice) => Some(known_voice(voice, desk)?),
    };
    let draft = PersonaDraft {
        name,
        role_text,
        voice,
        sampling,
        greeting: draft.greeting,
    };
    if let Ok(room) = desk.room() {
        let facts = room.prompt_facts(&call_spec(&draft))?;
        if facts.positions > facts.positions_max {
            return Err(slots::call::PrepareError::PromptTooLong {
                positions: facts.positions,
                text_tokens: facts.text_tokens,
                positions_max: facts.positions_max,
            }
            .into());
        }
    }
    Ok(draft)
}

fn known_voice(voice: &str, desk: &Desk) -> Result<String, ApiError> {
    let name = voice_name(voice)?;
    let Ok(room) = desk.room() else {
        return Ok(name);
    };
    let voices = room.voices();
    match voices
        .iter()
        .find(|known| known.name.eq_ignore_ascii_case(&name))
    {
        Some(known) => Ok(known.name.clone()),
        None => Err(slots::call::PrepareError::UnknownVoice {
            name,
            known: voices
                .iter()
                .map(|voice| voice.name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        }
        .into()),
    }
}

/// What `wish` leaves out comes from `base`; a wish without a seed keeps that of `base`.
///
/// # Errors
/// Values out of range, named.
pub(in crate::web) fn sampling_of(
    wish: &SamplingWish,
    base: Sampling,
) -> Result<Sampling, ApiError> {
    let seed = match &wish.seed {
        None => base.seed,
        Some(seed) => seed.parse().map_err(|_| ApiError::BadValue {
            what: format!("seed is {seed:?}, it must be a whole number below 2^64"),
        })?,
    };
    let sampling = Sampling {
        text_temperature: wish.text_temperature.unwrap_or(base.text_temperature),
        text_top_k: wish.text_top_k.unwrap_or(base.text_top_k),
        audio_temperature: wish.audio_temperature.unwrap_or(base.audio_temperature),
        audio_top_k: wish.audio_top_k.unwrap_or(base.audio_top_k),
        repetition_penalty: wish.repetition_penalty.unwrap_or(base.repetition_penalty),
        repetition_penalty_context: wish
            .repetition_penalty_context
            .unwrap_or(base.repetition_penalty_context),
        seed,
    };
    Ok(sampling.check()?)
}

/// The prompt of a draft.
pub(in crate::web) fn call_spec(draft: &PersonaDraft) -> CallSpec {
    CallSpec {
        text_prompt: Some(draft.role_text.clone()),
        voice: draft.voice.clone(),
        ..CallSpec::default()
    }
}

/// `NAME copy`, `NAME copy 2`, ...: the first that no present persona has and that is not `taken` otherwise.
pub(super) async fn free_name(
    store: &Store,
    name: &str,
    word: &str,
    taken: impl Fn(&str) -> bool,
) -> Result<String, StoreError> {
    let room = NAME_CHARS_MAX - word.len() - 8;
    let short: String = name.chars().take(room).collect();
    let short = short.trim_end();
    let mut wished = format!("{short} {word}");
    let mut n = 1;
    while taken(&wished) || store.persona_by_name(&wished).await?.is_some() {
        n += 1;
        wished = format!("{short} {word} {n}");
    }
    Ok(wished)
}
