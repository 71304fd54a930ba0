//! The table of routes.
//!
//! May not live here: handlers, beyond naming them.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use slots::call::PrepareCall;

use super::state::AppState;
use super::{access, api, assets, base, chat, health, layers, talk};

/// Everything this server answers. Works at once; what needs the engine says that it is loading until
/// [`AppState::set_loaded`].
pub fn router<P: PrepareCall>(app: AppState<P>) -> Router {
    let settings = app.settings();
    let base = settings.facts.base.clone();
    let door = access::Door {
        access: settings.access,
        open_calls: settings.open_calls,
        origins: settings.origins.clone(),
        desk: app.desk().clone(),
    };
    let router = Router::new()
        .route("/api/chat", get(chat::chat::<P>))
        .route("/livez", get(health::livez::<P>))
        .route("/readyz", get(health::readyz::<P>))
        .route("/health", get(health::health::<P>))
        .route("/metrics", get(health::metrics::<P>))
        .merge(
            Router::new()
                .route("/talk/{token}", get(talk::door))
                .with_state(app.desk().clone()),
        )
        .merge(api::routes().with_state(app.desk().clone()))
        .fallback(assets::page)
        .layer(from_fn_with_state(door, access::guard))
        .with_state(app);
    layers::around(base::below(base, router))
}
