//! `GET /api/chat`: everything that can be said before the upgrade.
//!
//! May not live here: what happens after it (`sessions`).

use axum::extract::ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection};
use axum::extract::{RawQuery, State};
use axum::response::Response;
use slots::call::PrepareCall;
use wire::query::ChatQuery;

use super::error::ApiError;
use super::state::AppState;
use crate::sessions::host::{Wish, limited};
use crate::sessions::spec::call_spec;

/// Checks the query, prepares the call, upgrades. Whether there is a slot is said on the socket, where browsers can
/// hear it.
pub(super) async fn chat<P: PrepareCall>(
    State(app): State<AppState<P>>,
    RawQuery(query): RawQuery,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let query = ChatQuery::parse(query.as_deref().unwrap_or_default())?;
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
    let spec = call_spec(&query, drawn_seed()?)?;
    let seed = spec.sampling.seed;
    let prepare = loaded.prepare.clone();
    // Tokenizing a long prompt takes milliseconds, and a voice may have to be read.
    let prepared = tokio::task::spawn_blocking(move || prepare.prepare(&spec)).await;
    let call = prepared.map_err(|error| ApiError::Internal {
        what: format!("preparing a call failed: {error}"),
    })??;
    let wish = Wish {
        call,
        seed,
        ext: query.ext,
    };
    let upgrade = upgrade.map_err(|_| ApiError::NotAnUpgrade)?;
    Ok(limited(upgrade).on_upgrade(async move |socket| host.run(socket, wish).await))
}

/// A seed for a call that asked for none.
fn drawn_seed() -> Result<u64, ApiError> {
    getrandom::u64().map_err(|error| ApiError::Internal {
        what: format!("no randomness: {error}"),
    })
}
