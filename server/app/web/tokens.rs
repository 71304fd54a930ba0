//! API tokens.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::api::account::{ApiToken, NewToken, TokenMade};
use wire::api::live::Changed;
use wire::api::personas::NAME_CHARS_MAX;
use wire::api::{ErrorBody, Page};

use super::body::{Asked, Body};
use super::desk::Desk;
use super::error::ApiError;
use super::identity::{OperatorInPerson, new_secret};
use crate::store::{DAY_MS, TokenWish, now_ms};

/// The longest a token lasts that ends by itself.
const DAYS_MAX: u32 = 3_650;

/// The routes of this resource.
pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(delete))
}

/// All tokens, newest first, without what is secret
#[utoipa::path(get, path = "/api/tokens", tag = "tokens",
    responses((status = 200, body = Page<ApiToken>), (status = "default", body = ErrorBody)))]
async fn list(_: OperatorInPerson, State(desk): State<Desk>) -> Asked<Page<ApiToken>> {
    let items = desk.store().tokens().await?;
    Ok(Json(Page { items, next: None }))
}

/// Makes a token, which is shown this once
#[utoipa::path(post, path = "/api/tokens", tag = "tokens", request_body = NewToken,
    responses((status = 201, body = TokenMade), (status = "default", body = ErrorBody)))]
async fn create(
    _: OperatorInPerson,
    State(desk): State<Desk>,
    Body(wish): Body<NewToken>,
) -> Result<(StatusCode, Json<TokenMade>), ApiError> {
    let bad = |what: String| Err(ApiError::BadValue { what });
    let name = wish.name.trim();
    let chars = name.chars().count();
    if !(1..=NAME_CHARS_MAX).contains(&chars) || name.chars().any(char::is_control) {
        return bad(format!(
            "name must have 1 to {NAME_CHARS_MAX} characters, none of them control characters"
        ));
    }
    let mut scopes = wish.scopes;
    scopes.sort_unstable();
    scopes.dedup();
    if scopes.is_empty() {
        return bad("scopes must name at least one of call, metrics, operate".to_owned());
    }
    if wish
        .days
        .is_some_and(|days| !(1..=DAYS_MAX).contains(&days))
    {
        return bad(format!("days must be from 1 to {DAYS_MAX}"));
    }
    let token = new_secret()?;
    let wish = TokenWish {
        name,
        scopes: &scopes,
        persona_id: wish.persona_id,
        expires_at_ms: wish.days.map(|days| now_ms() + i64::from(days) * DAY_MS),
    };
    let kept = desk.store().insert_token(&token, wish).await?;
    desk.tell(Changed::System);
    Ok((StatusCode::CREATED, Json(TokenMade { kept, token })))
}

/// Ends a token
#[utoipa::path(delete, path = "/api/tokens/{id}", tag = "tokens", params(("id" = i64, Path)),
    responses((status = 204), (status = "default", body = ErrorBody)))]
async fn delete(
    _: OperatorInPerson,
    State(desk): State<Desk>,
    Path(id): Path<i64>,
) -> Result<StatusCode, ApiError> {
    desk.store().delete_token(id).await?;
    desk.feed().look_at_rights();
    desk.tell(Changed::System);
    Ok(StatusCode::NO_CONTENT)
}
