//! The HTTP API: all resources put together, and their description.
//!
//! May not live here: handlers.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use super::desk::Desk;
use super::error::ApiError;
use super::{account, live, personas, sessions, system, talk, tokens, voices};

/// What the description says beside the routes.
#[derive(OpenApi)]
#[openapi(info(
    title = "vivavoce",
    description = "Personas, voices, sessions and the live switchboard. Errors have one body everywhere: \
                   {\"error\":{\"code\",\"message\",\"hint\"}}."
))]
struct Description;

/// Everything under `/api` but `/api/chat`, and the description of it.
pub(super) fn described() -> (Router<Desk>, utoipa::openapi::OpenApi) {
    OpenApiRouter::with_openapi(Description::openapi())
        .merge(account::routes())
        .merge(tokens::routes())
        .merge(personas::routes())
        .merge(voices::routes())
        .merge(sessions::routes())
        .merge(live::routes())
        .merge(system::routes())
        .merge(talk::routes())
        .split_for_parts()
}

/// The routes, with the description at `/api/openapi.json`.
pub(super) fn routes() -> Router<Desk> {
    let (router, description) = described();
    let json = description.to_json().unwrap_or_default();
    router.method_not_allowed_fallback(wrong_method).route(
        "/api/openapi.json",
        get(move || async move { description_response(json) }),
    )
}

fn description_response(json: String) -> Response {
    ([("content-type", "application/json")], json).into_response()
}

/// A route that is there, asked with a method it does not have.
async fn wrong_method() -> ApiError {
    ApiError::WrongMethod
}
