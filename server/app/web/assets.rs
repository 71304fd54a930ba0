//! The pages that are built into the binary.
//!
//! Lives here: which file answers which path, with which type.
//! May not live here: the pages themselves (`ui`).

use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use rust_embed::RustEmbed;

use super::error::ApiError;

#[derive(RustEmbed)]
#[folder = "ui"]
struct Pages;

/// Any path that no route took.
pub(super) async fn page(uri: Uri) -> Result<Response, ApiError> {
    let path = match uri.path().trim_start_matches('/') {
        "" => "index.html",
        path => path,
    };
    let Some(file) = Pages::get(path) else {
        return Err(ApiError::NotFound {
            path: uri.path().to_owned(),
        });
    };
    let headers = [
        (header::CONTENT_TYPE, content_type(path)),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, file.data.into_owned()).into_response())
}

/// The type a browser insists on: modules, worklets and WebAssembly fail with any other.
fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        _ => "application/octet-stream",
    }
}
