//! `/livez`, `/readyz`, `/health`, `/metrics`.
//!
//! | endpoint | 200 when | else |
//! |---|---|---|
//! | `/livez` | the process answers, and the last tick is younger than the watchdog's limit | 503 |
//! | `/readyz` | loaded, in time, not full, not draining | 503 with `Retry-After` |
//! | `/health` | as `/readyz`, and when full | 503 with `Retry-After` |
//!
//! While the model loads there are no ticks: alive, not ready. The body is the same for all three.
//! May not live here: names of metrics (`telemetry`).

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use slots::call::PrepareCall;
use wire::api::account::Role;
use wire::api::{Health, HealthState};

use super::error::ApiError;
use super::identity::Asker;
use super::state::AppState;
use crate::stepper::board::{Board, Phase, SlotPhase};
use crate::telemetry;

/// What is answered to everybody, also over plain http beside TLS.
pub(super) const PATHS: [&str; 3] = ["/livez", "/readyz", "/health"];
/// When to ask again, in seconds.
const RETRY_AFTER: &str = "5";

pub(super) async fn livez<P: PrepareCall>(State(app): State<AppState<P>>) -> Response {
    answer(&app, |state| state != HealthState::Failed)
}

pub(super) async fn readyz<P: PrepareCall>(State(app): State<AppState<P>>) -> Response {
    answer(&app, |state| state == HealthState::Ready)
}

pub(super) async fn health<P: PrepareCall>(State(app): State<AppState<P>>) -> Response {
    answer(&app, |state| {
        matches!(state, HealthState::Ready | HealthState::Full)
    })
}

pub(super) async fn metrics<P: PrepareCall>(
    asker: Asker,
    State(app): State<AppState<P>>,
) -> Result<Response, ApiError> {
    if !asker.may_measure {
        return Err(match asker.role {
            Role::Nobody => ApiError::SignInNeeded,
            _ => ApiError::NotAllowed,
        });
    }
    let board = app
        .loaded()
        .map(|loaded| loaded.host.stepper().board().as_ref());
    let text = telemetry::prometheus(board, app.counters());
    let content_type = (header::CONTENT_TYPE, telemetry::PROMETHEUS_CONTENT_TYPE);
    Ok(([content_type], text).into_response())
}

fn answer<P: PrepareCall>(app: &AppState<P>, is_good: impl Fn(HealthState) -> bool) -> Response {
    let watchdog_us = app.settings().watchdog.as_micros() as u64;
    let health = match app.loaded() {
        Some(loaded) => of_board(loaded.host.stepper().board(), watchdog_us),
        None => loading(),
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if is_good(health.state) {
        return (StatusCode::OK, headers, Json(health)).into_response();
    }
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
    (StatusCode::SERVICE_UNAVAILABLE, headers, Json(health)).into_response()
}

fn loading() -> Health {
    Health {
        state: HealthState::Loading,
        last_tick_age_ms: None,
        slots: 0,
        slots_taken: 0,
        waiting: 0,
    }
}

fn of_board(board: &Board, watchdog_us: u64) -> Health {
    let free = board.slots_in(SlotPhase::Free);
    let age_us = board.last_tick_age_us();
    let state = state_within(board, watchdog_us);
    Health {
        state,
        last_tick_age_ms: (board.ticks() > 0).then_some(age_us / 1_000),
        slots: board.capacity() as u32,
        slots_taken: (board.capacity() - free) as u32,
        waiting: board.waiting() as u32,
    }
}

fn state_within(board: &Board, watchdog_us: u64) -> HealthState {
    let free = board.slots_in(SlotPhase::Free);
    let age_us = board.last_tick_age_us();
    match board.phase() {
        Phase::Loading => HealthState::Loading,
        Phase::Failed | Phase::Stopped => HealthState::Failed,
        Phase::Ready | Phase::Draining if age_us > watchdog_us => HealthState::Failed,
        Phase::Draining => HealthState::Draining,
        Phase::Ready if !board.admission_open() => HealthState::Late,
        Phase::Ready if free == 0 => HealthState::Full,
        Phase::Ready => HealthState::Ready,
    }
}

/// The switchboard in one word, for pages, which see the age of the last tick by themselves.
pub(super) fn state_of(board: &Board) -> HealthState {
    state_within(board, u64::MAX)
}
