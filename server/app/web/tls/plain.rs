//! What is said to who speaks plain http to a port with TLS: the https address of what was asked for.
//!
//! Health is answered all the same: whoever watches over a container asks from inside it, and learns nothing secret.

use axum::Router;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Redirect, Response};

use crate::web::error::ApiError;
use crate::web::health;

/// Of `router`, which is for TLS, only what may go over plain http.
pub(in crate::web) fn router(router: Router) -> Router {
    router.layer(from_fn(health_only))
}

async fn health_only(request: Request, next: Next) -> Response {
    match health::PATHS.contains(&request.uri().path()) {
        true => next.run(request).await,
        false => elsewhere(&request),
    }
}

fn elsewhere(request: &Request) -> Response {
    let headers = request.headers();
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    // What else stands in that header could make another address of it.
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-.:[]".contains(&b);
    let host = host.filter(|host| !host.is_empty() && host.bytes().all(is_plain));
    let target = request.uri().path_and_query().map(|target| target.as_str());
    let is_page = request.method().is_safe() && !headers.contains_key(header::UPGRADE);
    match (host, target) {
        // Not for ever: TLS may be switched off again.
        (Some(host), Some(target)) if is_page && target.starts_with('/') => {
            Redirect::temporary(&format!("https://{host}{target}")).into_response()
        }
        _ => ApiError::TlsNeeded.into_response(),
    }
}
