//! The path below which a proxy shows this server, for proxies that leave it in what they pass on.
//!
//! Pages find their way by relative addresses, so a proxy that takes the path off needs none of this but the cookies.
//! Lives here: [`BasePath`], and taking it off requests. May not live here: addresses inside pages (`assets`).

use std::fmt;
use std::str::FromStr;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tower_layer::Layer;

use crate::config::values::{ValueError, expected};

/// The longest path that is taken, in bytes.
const BYTES_MAX: usize = 200;

/// Such as `/voice`; without anything before it the server is at `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BasePath(
    /// Empty, or with a slash at its beginning and none at its end.
    String,
);

impl FromStr for BasePath {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let path = text.strip_suffix('/').unwrap_or(text);
        if path.is_empty() {
            return Ok(Self::default());
        }
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(is_plain);
        match path.strip_prefix('/') {
            Some(rest) if path.len() <= BYTES_MAX && rest.split('/').all(is_part) => {
                Ok(Self(path.to_owned()))
            }
            _ => expected(format!(
                "a path such as /voice: letters, digits and -._~ between slashes, {BYTES_MAX} bytes at most"
            )),
        }
    }
}

impl fmt::Display for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.for_cookies())
    }
}

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
enum Way<'a> {
    /// To the base without its slash: from there a page's relative addresses would lead elsewhere.
    Door,
    /// To this path below the base.
    Below(&'a str),
    /// Without the base: a proxy took it off, or somebody asks past the proxy, for health say.
    Without,
}

impl BasePath {
    /// What a cookie says about where it is sent.
    pub fn for_cookies(&self) -> &str {
        match self.0.is_empty() {
            true => "/",
            false => &self.0,
        }
    }

    fn way<'a>(&self, path: &'a str) -> Way<'a> {
        match path.strip_prefix(&self.0) {
            Some("") => Way::Door,
            Some(rest) if rest.starts_with('/') => Way::Below(rest),
            _ => Way::Without,
        }
    }
}

/// `router`, reached with and without the base.
pub(super) fn below(base: BasePath, router: Router) -> Router {
    if base == BasePath::default() {
        return router;
    }
    // Around the whole router and not inside it: what comes here decides which route is taken.
    Router::new().fallback_service(from_fn_with_state(base, take_off).layer(router))
}

async fn take_off(State(base): State<BasePath>, mut request: Request, next: Next) -> Response {
    let query = request.uri().query();
    let with_query = |path: &str| match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    match base.way(request.uri().path()) {
        Way::Door if request.method().is_safe() => {
            let page = with_query(&format!("{}/", base.0));
            // Not for ever: the base may change.
            return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, page)]).into_response();
        }
        Way::Below(path) => {
            let mut parts = request.uri().clone().into_parts();
            // A part of an address that was read is one.
            if let Ok(rest) = PathAndQuery::try_from(with_query(path)) {
                parts.path_and_query = Some(rest);
            }
            if let Ok(uri) = Uri::from_parts(parts) {
                *request.uri_mut() = uri;
            }
        }
        Way::Door | Way::Without => {}
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_a_plain_path() {
        let cases = [
            ("", Some("/")),
            ("/", Some("/")),
            ("/voice", Some("/voice")),
            ("/voice/", Some("/voice")),
            ("/a/b-1._~", Some("/a/b-1._~")),
            ("voice", None),
            ("/a//b", None),
            ("/voice//", None),
            ("/..", None),
            ("/a/./b", None),
            ("/a b", None),
            ("/a?b", None),
            ("/a%2fb", None),
            ("https://box/voice", None),
        ];
        for (text, shown) in cases {
            let base = text.parse::<BasePath>().ok().map(|base| base.to_string());
            assert_eq!(base.as_deref(), shown, "{text:?}");
        }
        assert!(
            format!("/{}", "x".repeat(BYTES_MAX))
                .parse::<BasePath>()
                .is_err()
        );
    }

    #[test]
    fn a_base_is_taken_off_whole_parts_only() {
        let base: BasePath = "/voice".parse().unwrap();
        let cases = [
            ("/voice", Way::Door),
            ("/voice/", Way::Below("/")),
            ("/voice/api/chat", Way::Below("/api/chat")),
            ("/voices", Way::Without),
            ("/livez", Way::Without),
            ("/", Way::Without),
        ];
        for (path, way) in cases {
            assert_eq!(base.way(path), way, "{path}");
        }
    }
}
