//! The live switchboard: events, hanging up, listening in, draining.

use utoipa_axum::router::OpenApiRouter;

use super::desk::Desk;

/// The routes of this resource.
pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
}
