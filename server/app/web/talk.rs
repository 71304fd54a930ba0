//! What a caller needs before and after a call.

use utoipa_axum::router::OpenApiRouter;

use super::desk::Desk;

/// The routes of this resource.
pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
}
