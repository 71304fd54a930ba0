//! The pages that are built into the binary.
//!
//! Lives here: which file answers which path, with which type, compressed how, cached for how long.
//! May not live here: the pages themselves (`ui`).

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use rust_embed::{EmbeddedFile, RustEmbed};
use sha2::{Digest, Sha256};

use super::error::ApiError;

/// What the bundler made. Development builds read the folder when they are asked.
#[derive(RustEmbed)]
#[folder = "$UI_FILES"]
#[allow_missing = true]
struct Files;

/// Where the page's address goes on from here: put in for each request, so that it also works below a proxy's path.
const ROOT: &str = "{{root}}";
/// First parts of addresses that the UI takes care of.
const PAGES: [&str; 8] = [
    "", "live", "personas", "voices", "sessions", "system", "talk", "sign-in",
];
/// Compressed forms, best first: what a browser says, and the ending of the file.
const PACKED: [(&str, &str); 2] = [("br", "br"), ("gzip", "gz")];
/// Without a UI.
const NO_UI: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>vivavoce</title><h1>vivavoce</h1>\
    <p>This development build has no pages. <code>cargo run -p ui-bundle</code> makes them; reload then.</p>";

/// Any path that no route took.
///
/// # Errors
/// [`ApiError::NotFound`], or [`ApiError::WrongMethod`] for a page that is there.
pub(super) async fn page(
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let path = uri.path().trim_start_matches('/');
    if let Some(name) = path.strip_prefix("assets/") {
        return asset(name, &headers).ok_or_else(|| not_found(&uri));
    }
    let first = path.split('/').next().unwrap_or_default();
    match (PAGES.contains(&first), method.is_safe()) {
        (true, true) => Ok(index(path, &headers)),
        (true, false) => Err(ApiError::WrongMethod),
        // Who typed an address sees a page that says so; programs, scripts among them, get the error body.
        (false, true) if wants_a_page(&headers) && !path.starts_with("api/") => {
            let mut response = index(path, &HeaderMap::new());
            *response.status_mut() = StatusCode::NOT_FOUND;
            Ok(response)
        }
        (false, _) => Err(not_found(&uri)),
    }
}

/// Browsers name the type when a person goes somewhere, and not for what a page needs.
fn wants_a_page(headers: &HeaderMap) -> bool {
    let accepted = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

/// The UI's one page, for a request of `path` (without its first slash). It names the files of this build, so a browser
/// asks each time whether it is still the one it has.
pub(super) fn index(path: &str, asked: &HeaderMap) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    let Some(file) = Files::get("index.html") else {
        return (headers, NO_UI).into_response();
    };
    let ups = path.matches('/').count();
    let root = match ups {
        0 => "./".to_owned(),
        ups => "../".repeat(ups),
    };
    let page = String::from_utf8_lossy(&file.data).replace(ROOT, &root);
    let tag = tag_of(&page);
    let known = asked.get(header::IF_NONE_MATCH);
    let known = known
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    // A proxy that compresses marks the tag as weak; the page is the same.
    let mut response = match known
        .split(',')
        .any(|one| one.trim().trim_start_matches("W/") == tag)
    {
        true => (StatusCode::NOT_MODIFIED, headers).into_response(),
        false => (headers, page).into_response(),
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// Another page, another tag.
fn tag_of(page: &str) -> String {
    let digest = Sha256::digest(page.as_bytes());
    let hex: String = digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("\"{hex}\"")
}

/// A file named by its content: good for ever.
fn asset(name: &str, asked: &HeaderMap) -> Option<Response> {
    let path = format!("assets/{name}");
    let plain = Files::get(&path)?;
    let accepted = asked.get(header::ACCEPT_ENCODING);
    let accepted = accepted
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let packed = PACKED
        .iter()
        .filter(|(coding, _)| accepts(accepted, coding))
        .find_map(|(coding, ending)| Some((*coding, Files::get(&format!("{path}.{ending}"))?)));
    let mut response = match packed {
        Some((coding, file)) => {
            let mut response = content(file);
            let coding = HeaderValue::from_static(coding);
            response
                .headers_mut()
                .insert(header::CONTENT_ENCODING, coding);
            response
        }
        None => content(plain),
    };
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(content_type(name)),
    );
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("public, max-age=31536000, immutable"),
    );
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    Some(response)
}

fn content(file: EmbeddedFile) -> Response {
    (StatusCode::OK, file.data.into_owned()).into_response()
}

/// Whether `header` names `coding` without refusing it (`;q=0`).
fn accepts(header: &str, coding: &str) -> bool {
    header.split(',').any(|part| {
        let mut words = part.split(';').map(str::trim);
        let named = words
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case(coding));
        named && !words.any(|word| matches!(word, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

fn not_found(uri: &Uri) -> ApiError {
    ApiError::NotFound {
        path: uri.path().to_owned(),
    }
}

/// The type a browser insists on: modules, worklets and WebAssembly fail with any other.
fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coding_is_accepted_when_it_is_named_and_not_refused() {
        let cases = [
            ("gzip, deflate, br", "br", true),
            ("gzip;q=1.0, BR ; q=0.5", "br", true),
            ("br;q=0, gzip", "br", false),
            ("brx", "br", false),
            ("", "gzip", false),
        ];
        for (header, coding, expected) in cases {
            assert_eq!(accepts(header, coding), expected, "{header}");
        }
    }
}
