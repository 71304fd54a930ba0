//! Personas as a file: out, and in again.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, header};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::api::ErrorBody;
use wire::api::live::Changed;
use wire::api::personas::{Imported, PERSONA_FILE_MAX, PERSONA_FILE_SCHEMA, PersonaFile};

use super::draft::{checked, free_name};
use crate::store::PersonaQuestion;
use crate::web::body::{Asked, Body, LIMIT_MAX};
use crate::web::desk::Desk;
use crate::web::error::ApiError;
use crate::web::identity::Operator;

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(export))
        .routes(routes!(import))
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
    let mut drafts = Vec::with_capacity(file.personas.len());
    for (index, draft) in file.personas.into_iter().enumerate() {
        let named = format!("persona {} ({:?})", index + 1, draft.name);
        let draft = checked(draft, &desk).map_err(|error| ApiError::BadValue {
            what: format!("{named}: {error}; nothing was imported"),
        })?;
        drafts.push(draft);
    }
    let store = desk.store();
    let mut imported = Imported::default();
    for mut draft in drafts {
        match store.persona_by_name(&draft.name).await? {
            Some(there) if there.draft == draft => imported.unchanged.push(draft.name),
            Some(_) => {
                let wished = draft.name.clone();
                draft.name = free_name(store, &wished, "imported").await?;
                store.insert_persona(&draft, &by.label).await?;
                imported.renamed.push((wished, draft.name));
            }
            None => {
                store.insert_persona(&draft, &by.label).await?;
                imported.created.push(draft.name);
            }
        }
    }
    desk.tell(Changed::Personas);
    Ok(Json(imported))
}
