//! Personas as a file: out, and in again.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderName, header};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::api::ErrorBody;
use wire::api::live::Changed;
use wire::api::personas::{
    Imported, PERSONA_FILE_MAX, PERSONA_FILE_SCHEMA, PersonaDraft, PersonaFile, ROLE_TEXT_BYTES_MAX,
};

use super::draft::{check, free_name, where_blocking_is_fine};
use crate::store::{PersonaQuestion, Store};
use crate::web::body::{Asked, Body, LIMIT_MAX};
use crate::web::desk::Desk;
use crate::web::error::ApiError;
use crate::web::identity::Operator;

/// The longest file, in bytes: in JSON a text takes up to twice its room.
const FILE_BYTES_MAX: usize = 2 * PERSONA_FILE_MAX * ROLE_TEXT_BYTES_MAX;

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(import))
        .layer(DefaultBodyLimit::max(FILE_BYTES_MAX))
        .routes(routes!(export))
}

/// All present personas as one file
#[utoipa::path(get, path = "/api/personas/export", tag = "personas",
    responses((status = 200, body = PersonaFile), (status = "default", body = ErrorBody)))]
async fn export(
    _: Operator,
    State(desk): State<Desk>,
) -> Result<([(HeaderName, &'static str); 1], Json<PersonaFile>), ApiError> {
    let mut question = PersonaQuestion {
        limit: LIMIT_MAX,
        ..PersonaQuestion::default()
    };
    let mut personas = Vec::new();
    loop {
        let (page, next) = desk.store().personas(&question).await?;
        personas.extend(page.into_iter().map(|persona| persona.draft));
        question.cursor = next.and_then(|next| next.parse().ok());
        if question.cursor.is_none() {
            break;
        }
    }
    let file = PersonaFile {
        schema: PERSONA_FILE_SCHEMA.to_owned(),
        personas,
    };
    let name = "attachment; filename=\"vivavoce-personas.json\"";
    Ok(([(header::CONTENT_DISPOSITION, name)], Json(file)))
}

/// Takes a file in: all of it, or, when one persona in it is no good, nothing
#[utoipa::path(post, path = "/api/personas/import", tag = "personas", request_body = PersonaFile,
    responses((status = 200, body = Imported), (status = "default", body = ErrorBody)))]
async fn import(
    Operator(by): Operator,
    State(desk): State<Desk>,
    Body(file): Body<PersonaFile>,
) -> Asked<Imported> {
    if file.schema != PERSONA_FILE_SCHEMA {
        return Err(ApiError::BadValue {
            what: format!(
                "schema is {:?}, only {PERSONA_FILE_SCHEMA:?} is understood",
                file.schema.chars().take(40).collect::<String>()
            ),
        });
    }
    if file.personas.len() > PERSONA_FILE_MAX {
        return Err(ApiError::BadValue {
            what: format!(
                "the file has {} personas, at most {PERSONA_FILE_MAX} are taken",
                file.personas.len()
            ),
        });
    }
    let checking = desk.clone();
    let drafts = where_blocking_is_fine(move || {
        let named = |(index, draft): (usize, PersonaDraft)| {
            let named = format!("persona {} ({:?})", index + 1, draft.name);
            check(draft, &checking).map_err(|error| ApiError::BadValue {
                what: format!("{named}: {error}; nothing was imported"),
            })
        };
        file.personas.into_iter().enumerate().map(named).collect()
    })
    .await?;
    let (imported, new) = sorted(desk.store(), drafts).await?;
    desk.store().insert_personas(&new, &by.label).await?;
    if !new.is_empty() {
        desk.tell(Changed::Personas);
    }
    Ok(Json(imported))
}

/// What becomes of each draft, and those that are to be made, under the names they get.
async fn sorted(
    store: &Store,
    drafts: Vec<PersonaDraft>,
) -> Result<(Imported, Vec<PersonaDraft>), ApiError> {
    let mut imported = Imported::default();
    let mut new: HashMap<String, PersonaDraft> = HashMap::new();
    let mut order = Vec::new();
    for mut draft in drafts {
        // Names are the same without regard to case, in ASCII, as the database has it.
        let there = match new.get(&draft.name.to_ascii_lowercase()) {
            Some(before) => Some(before.clone()),
            None => {
                let there = store.persona_by_name(&draft.name).await?;
                there.map(|there| there.draft)
            }
        };
        match there {
            Some(there) if there == draft => {
                imported.unchanged.push(draft.name);
                continue;
            }
            Some(_) => {
                let taken = |name: &str| new.contains_key(&name.to_ascii_lowercase());
                let given = free_name(store, &draft.name, "imported", taken).await?;
                let wished = std::mem::replace(&mut draft.name, given.clone());
                imported.renamed.push((wished, given));
            }
            None => imported.created.push(draft.name.clone()),
        }
        order.push(draft.name.to_ascii_lowercase());
        new.insert(draft.name.to_ascii_lowercase(), draft);
    }
    let new = order.iter().filter_map(|name| new.remove(name)).collect();
    Ok((imported, new))
}
