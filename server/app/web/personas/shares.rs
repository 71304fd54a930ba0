//! Share links of a persona.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::api::live::Changed;
use wire::api::personas::{NAME_CHARS_MAX, NewShare, Share, ShareMade};
use wire::api::{ErrorBody, Page};

use crate::store::{DAY_MS, now_ms};
use crate::web::body::{Asked, Body};
use crate::web::desk::Desk;
use crate::web::error::ApiError;
use crate::web::identity::{Operator, new_secret};

/// The longest a link lasts that ends by itself.
const DAYS_MAX: u32 = 365;

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(delete))
}

/// Links that work, newest first
#[utoipa::path(get, path = "/api/personas/{id}/shares", tag = "personas", params(("id" = i64, Path)),
    responses((status = 200, body = Page<Share>), (status = "default", body = ErrorBody)))]
async fn list(_: Operator, State(desk): State<Desk>, Path(id): Path<i64>) -> Asked<Page<Share>> {
    desk.store().persona(id).await?;
    let items = desk.store().shares(id).await?;
    Ok(Json(Page { items, next: None }))
}

/// Makes a link; its address is shown this once
#[utoipa::path(post, path = "/api/personas/{id}/shares", tag = "personas", request_body = NewShare,
    params(("id" = i64, Path)),
    responses((status = 201, body = ShareMade), (status = "default", body = ErrorBody)))]
async fn create(
    _: Operator,
    State(desk): State<Desk>,
    Path(id): Path<i64>,
    Body(wish): Body<NewShare>,
) -> Result<(StatusCode, Json<ShareMade>), ApiError> {
    let label = wish.label.trim();
    if label.chars().count() > NAME_CHARS_MAX || label.chars().any(char::is_control) {
        return Err(ApiError::BadValue {
            what: format!(
                "label may have {NAME_CHARS_MAX} characters, none of them control characters"
            ),
        });
    }
    if wish
        .days
        .is_some_and(|days| !(1..=DAYS_MAX).contains(&days))
    {
        return Err(ApiError::BadValue {
            what: format!("days must be from 1 to {DAYS_MAX}"),
        });
    }
    let expires_at_ms = wish.days.map(|days| now_ms() + i64::from(days) * DAY_MS);
    let token = new_secret()?;
    let store = desk.store();
    let share = store.insert_share(id, &token, label, expires_at_ms).await?;
    desk.tell(Changed::Personas);
    let path = format!("talk/{token}");
    Ok((StatusCode::CREATED, Json(ShareMade { share, path })))
}

/// Ends a link
#[utoipa::path(delete, path = "/api/shares/{id}", tag = "personas", params(("id" = i64, Path)),
    responses((status = 204), (status = "default", body = ErrorBody)))]
async fn delete(
    _: Operator,
    State(desk): State<Desk>,
    Path(id): Path<i64>,
) -> Result<StatusCode, ApiError> {
    desk.store().delete_share(id).await?;
    desk.tell(Changed::Personas);
    Ok(StatusCode::NO_CONTENT)
}
