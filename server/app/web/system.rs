//! The System page: what doctor says, settings, log, policy.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::api::live::Changed;
use wire::api::personas::ROLE_TEXT_BYTES_MAX;
use wire::api::system::{LogLine, Policy, PolicyDraft, System, Tls};
use wire::api::voices::{RECORDING_SECONDS_MAX, UPLOAD_BYTES_MAX};
use wire::api::{ErrorBody, Page};
use wire::query::QUERY_BYTES_MAX;
use wire::socket::MESSAGE_BYTES_MAX;

use super::body::{Asked, Body, IfVersion, Versioned};
use super::desk::Desk;
use super::error::ApiError;
use super::identity::Operator;
use super::layers::BODY_BYTES_MAX;
use crate::telemetry;

/// The longest anything is kept.
const DAYS_MAX: u32 = 3_650;

/// The routes of this resource.
pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(system))
        .routes(routes!(logs))
        .routes(routes!(policy, set_policy))
}

/// The program, its model, and the machine
#[utoipa::path(get, path = "/api/system", tag = "system",
    responses((status = 200, body = System), (status = "default", body = ErrorBody)))]
async fn system(_: Operator, State(desk): State<Desk>) -> Asked<System> {
    let facts = desk.facts();
    let look = facts.look.clone();
    let checks = tokio::task::spawn_blocking(move || (look.0)())
        .await
        .map_err(|error| ApiError::Internal {
            what: error.to_string(),
        })?;
    Ok(Json(System {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        model: facts.model.clone(),
        licences: facts.licences.clone(),
        checks,
        settings: facts.settings.clone(),
        limits: limits(),
        tls: facts
            .certificates
            .as_ref()
            .map_or(Tls::Off, |certificates| certificates.state()),
    }))
}

fn limits() -> Vec<(String, String)> {
    let kib = |bytes: usize| format!("{} KiB", bytes / 1_024);
    [
        ("role text", kib(ROLE_TEXT_BYTES_MAX)),
        ("query of /api/chat", kib(QUERY_BYTES_MAX)),
        ("message on a socket", kib(MESSAGE_BYTES_MAX)),
        ("JSON body", kib(BODY_BYTES_MAX)),
        ("voice file", kib(UPLOAD_BYTES_MAX)),
        ("voice recording", format!("{RECORDING_SECONDS_MAX} s")),
        ("waiting places", slots::table::WAITING_MAX.to_string()),
        (
            "sign-in tries",
            "5 at once, then one every 12 s, for each address".to_owned(),
        ),
    ]
    .map(|(what, how_much)| (what.to_owned(), how_much))
    .into()
}

/// Where to go on in the log.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LogQuery {
    /// Number of the last line that is known.
    after: Option<u64>,
}

/// The newest lines of the log, oldest first
#[utoipa::path(get, path = "/api/logs", tag = "system", params(LogQuery),
    responses((status = 200, body = Page<LogLine>), (status = "default", body = ErrorBody)))]
async fn logs(_: Operator, Query(asked): Query<LogQuery>) -> Asked<Page<LogLine>> {
    let items = telemetry::log_tail(asked.after.unwrap_or(0));
    Ok(Json(Page { items, next: None }))
}

/// What is kept of calls
#[utoipa::path(get, path = "/api/policy", tag = "system",
    responses((status = 200, body = Policy), (status = "default", body = ErrorBody)))]
async fn policy(_: Operator, State(desk): State<Desk>) -> Result<Versioned<Policy>, ApiError> {
    Ok(versioned(desk.store().policy().await?))
}

/// Changes what is kept of calls from now on; `If-Match` names the present version
#[utoipa::path(put, path = "/api/policy", tag = "system", request_body = PolicyDraft,
    params(("If-Match" = String, Header)),
    responses((status = 200, body = Policy), (status = "default", body = ErrorBody)))]
async fn set_policy(
    _: Operator,
    State(desk): State<Desk>,
    IfVersion(version): IfVersion,
    Body(draft): Body<PolicyDraft>,
) -> Result<Versioned<Policy>, ApiError> {
    for (name, days) in [
        ("recording_days", draft.recording_days),
        ("session_days", draft.session_days),
    ] {
        if !(1..=DAYS_MAX).contains(&days) {
            return Err(ApiError::BadValue {
                what: format!("{name} is {days}, it must be from 1 to {DAYS_MAX}"),
            });
        }
    }
    let policy = desk.store().set_policy(&draft, version).await?;
    desk.tell(Changed::System);
    Ok(versioned(policy))
}

fn versioned(policy: Policy) -> Versioned<Policy> {
    Versioned {
        status: StatusCode::OK,
        version: policy.version,
        body: policy,
    }
}
