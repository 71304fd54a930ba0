//! What goes around every answer: headers that keep browsers from doing harm, a bound on bodies, lines for the log.
//!
//! May not live here: who is let in (`access`), answers.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request, header};
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::trace::{DefaultOnResponse, TraceLayer};
use tracing::{Level, Span};

/// The longest body of a request, in bytes: forms and JSON. A route that takes files sets its own.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// Headers of every answer that does not bring its own.
const HEADERS: [(HeaderName, &str); 3] = [
    // A type is what is said, never what a browser guesses.
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // A page may do only what this server itself serves, and stand in no frame of others.
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; media-src 'self' blob:; worker-src 'self'; form-action 'self'; \
         frame-ancestors 'none'; base-uri 'none'",
    ),
    // Addresses hold tokens.
    (header::REFERRER_POLICY, "no-referrer"),
];

/// `router` with all of it. Requests are logged at the level `debug`, without their query, which holds tokens and what
/// people wrote.
pub(super) fn around(router: Router) -> Router {
    let trace = TraceLayer::new_for_http()
        .make_span_with(span)
        .on_request(())
        .on_response(DefaultOnResponse::new().level(Level::DEBUG))
        // A server that is full or loads answers 503, which is no failure.
        .on_failure(());
    HEADERS
        .into_iter()
        .fold(
            router.layer(RequestBodyLimitLayer::new(BODY_BYTES_MAX)),
            |router, (name, value)| {
                let value = HeaderValue::from_static(value);
                router.layer(SetResponseHeaderLayer::if_not_present(name, value))
            },
        )
        .layer(trace)
}

fn span(request: &Request<Body>) -> Span {
    let (method, path) = (request.method(), request.uri().path());
    tracing::debug_span!("request", %method, path)
}
