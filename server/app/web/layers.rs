//! What goes around every answer: headers that keep browsers from doing harm, a bound on bodies, lines for the log.
//!
//! May not live here: who is let in (`access`), answers.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::trace::{DefaultOnResponse, TraceLayer};
use tracing::{Level, Span};
use wire::api::voices::UPLOAD_BYTES_MAX;

use super::error::ApiError;

/// The longest body of a request, in bytes: forms and JSON. A route that takes files sets its own limit.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// What no request may exceed, whatever its route says: a file and the form around it.
const ANY_BODY_BYTES_MAX: usize = UPLOAD_BYTES_MAX + BODY_BYTES_MAX;
/// Longer words of a library are cut.
const WORDS_BYTES_MAX: usize = 4 * 1024;

/// Headers of every answer that does not bring its own.
const HEADERS: [(HeaderName, &str); 6] = [
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
    // Of what a browser could be asked for, pages use the microphone and where sound comes out.
    (
        HeaderName::from_static("permissions-policy"),
        "microphone=(self), speaker-selection=(self), camera=(), geolocation=(), display-capture=(), usb=(), serial=(), \
         payment=()",
    ),
    // Pages of other sites hold no reference to a window of ours, and show none of what is answered.
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
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
    let router = router
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(RequestBodyLimitLayer::new(ANY_BODY_BYTES_MAX))
        .layer(map_response(in_one_form));
    HEADERS
        .into_iter()
        .fold(router, |router, (name, value)| {
            let value = HeaderValue::from_static(value);
            router.layer(SetResponseHeaderLayer::if_not_present(name, value))
        })
        .layer(trace)
}

/// An error that a library answered in its own words gets the body that all errors have.
async fn in_one_form(response: Response) -> Response {
    let status = response.status();
    // Libraries answer in plain text.
    let is_ours = |value: &HeaderValue| {
        let kinds: [&[u8]; 2] = [b"application/json", b"text/html"];
        kinds.iter().any(|kind| value.as_bytes().starts_with(kind))
    };
    let content_type = response.headers().get(header::CONTENT_TYPE);
    if !(status.is_client_error() || status.is_server_error()) || content_type.is_some_and(is_ours)
    {
        return response;
    }
    let (parts, body) = response.into_parts();
    let words = to_bytes(body, WORDS_BYTES_MAX).await.unwrap_or_default();
    let words = String::from_utf8_lossy(&words);
    let what = match words.trim() {
        // The library names no number; only the outermost limit gets here.
        _ if status == StatusCode::PAYLOAD_TOO_LARGE => {
            &format!("no request may have more than {ANY_BODY_BYTES_MAX} bytes")
        }
        "" => status.canonical_reason().unwrap_or("refused"),
        words => words,
    };
    let what = what.replace('\n', " ");
    let mut answer = ApiError::Refused { status, what }.into_response();
    for (name, value) in &parts.headers {
        // `Allow` of a wrong method, say.
        if !answer.headers().contains_key(name) && name != header::CONTENT_LENGTH {
            answer.headers_mut().insert(name, value.clone());
        }
    }
    answer
}

fn span(request: &Request<Body>) -> Span {
    let (method, path) = (request.method(), request.uri().path());
    tracing::debug_span!("request", %method, path)
}
