//! The System page: what doctor says, settings, log, policy.

use utoipa_axum::router::OpenApiRouter;

use super::desk::Desk;

/// The routes of this resource.
pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
}
