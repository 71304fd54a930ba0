//! Front ends on other sites: which are let in, and how their browsers are told. By default none is.
//!
//! Their requests carry no cookie, so they ask with a token.

use std::fmt;
use std::str::FromStr;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::config::values::{ValueError, expected};

/// Origins of other sites, as browsers write them: `https://desk.example`, `http://box:3000`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(Vec<HeaderValue>);

impl FromStr for Origins {
    type Err = ValueError;

    /// Joined by commas; `none` or nothing is none.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        if matches!(text.trim(), "" | "none") {
            return Ok(Self::default());
        }
        let origins = text.split(',').map(|one| {
            let one = one.trim().to_ascii_lowercase();
            let host = one
                .strip_prefix("https://")
                .or_else(|| one.strip_prefix("http://"));
            let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-.:[]".contains(&b);
            let is_origin = host.is_some_and(|host| !host.is_empty() && host.bytes().all(is_plain));
            HeaderValue::from_str(&one).ok().filter(|_| is_origin)
        });
        match origins.collect::<Option<Vec<_>>>() {
            Some(origins) => Ok(Self(origins)),
            None => expected(
                "none, or origins joined by commas, such as https://desk.example or http://localhost:3000, without a \
                 path",
            ),
        }
    }
}

impl fmt::Display for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let origins = self.0.iter().filter_map(|origin| origin.to_str().ok());
        f.write_str(&origins.collect::<Vec<_>>().join(","))
    }
}

impl Origins {
    /// Whether pages of `origin` are let in.
    pub fn contains(&self, origin: &str) -> bool {
        self.0.iter().any(|one| one == origin)
    }

    /// The one origin that a request names, if it is let in.
    pub(super) fn allowed_in(&self, headers: &HeaderMap) -> Option<&HeaderValue> {
        let mut named = headers.get_all(header::ORIGIN).iter();
        let (origin, None) = (named.next()?, named.next()) else {
            return None;
        };
        self.0.iter().find(|one| *one == origin)
    }

    /// Tells the browser that the page of `origin` may read this answer, and caches that others may not.
    pub(super) fn mark(&self, response: &mut Response, origin: Option<HeaderValue>) {
        if self.0.is_empty() {
            return;
        }
        let headers = response.headers_mut();
        headers.append(header::VARY, HeaderValue::from_static("origin"));
        if let Some(origin) = origin {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(
                header::ACCESS_CONTROL_EXPOSE_HEADERS,
                HeaderValue::from_static("etag, retry-after, content-disposition"),
            );
            // The page may show what it is allowed to read.
            headers.insert(
                "cross-origin-resource-policy",
                HeaderValue::from_static("cross-origin"),
            );
        }
    }
}

/// Whether a browser asks what a page may ask.
pub(super) fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to that: every method and header of the API.
pub(super) fn preflight() -> Response {
    let headers = [
        (
            header::ACCESS_CONTROL_ALLOW_METHODS,
            "GET, POST, PUT, PATCH, DELETE",
        ),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-type, if-match, last-event-id, range",
        ),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_read_as_browsers_write_them() {
        let cases = [
            ("", Some("none")),
            ("none", Some("none")),
            ("https://Desk.Example", Some("https://desk.example")),
            (
                "https://a.example, http://localhost:3000",
                Some("https://a.example,http://localhost:3000"),
            ),
            ("*", None),
            ("desk.example", None),
            ("https://", None),
            ("https://desk.example/", None),
            ("https://a.example https://b.example", None),
            ("null", None),
        ];
        for (text, shown) in cases {
            let origins = text.parse::<Origins>();
            assert_eq!(
                origins.ok().map(|origins| origins.to_string()).as_deref(),
                shown,
                "{text}"
            );
        }
    }
}
