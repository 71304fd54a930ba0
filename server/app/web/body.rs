//! JSON in and out, and versions in headers, with the project's own error body for whatever does not fit.
//!
//! May not live here: what the bodies mean.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::ApiError;

/// An answer with a JSON body.
pub type Asked<T> = Result<Json<T>, ApiError>;

/// The most items of one page.
pub const LIMIT_MAX: u32 = 200;
/// Items of a page when nothing is said.
const LIMIT_DEFAULT: u32 = 50;

/// How many items a page shall have.
///
/// # Errors
/// [`ApiError::BadValue`]: not from 1 to [`LIMIT_MAX`].
pub fn limit(asked: Option<u32>) -> Result<u32, ApiError> {
    match asked.unwrap_or(LIMIT_DEFAULT) {
        limit @ 1..=LIMIT_MAX => Ok(limit),
        limit => Err(ApiError::BadValue {
            what: format!("limit is {limit}, it must be from 1 to {LIMIT_MAX}"),
        }),
    }
}

/// Where a page begins.
///
/// # Errors
/// [`ApiError::BadValue`]: not what a page before gave.
pub fn cursor(asked: Option<&str>) -> Result<Option<i64>, ApiError> {
    let asked = asked.filter(|text| !text.is_empty());
    asked
        .map(|text| {
            text.parse().map_err(|_| ApiError::BadValue {
                what: "cursor must be the `next` of the page before".to_owned(),
            })
        })
        .transpose()
}

/// A JSON body that was understood.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(rejection) => Err(refused(rejection)),
        }
    }
}

fn refused(rejection: JsonRejection) -> ApiError {
    ApiError::BadBody {
        status: rejection.status(),
        what: rejection.body_text(),
    }
}

/// The version in `If-Match`, which every change of a versioned thing has to name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IfVersion(pub i64);

impl<S: Send + Sync> FromRequestParts<S> for IfVersion {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let value = parts
            .headers
            .get(header::IF_MATCH)
            .ok_or(ApiError::VersionNeeded)?;
        let text = value.to_str().unwrap_or_default().trim();
        // A proxy that compresses marks the tag as weak; the number is the same.
        let tag = text.strip_prefix("W/").unwrap_or(text);
        let number = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
        match number.and_then(|number| number.parse().ok()) {
            Some(version) => Ok(Self(version)),
            None => Err(ApiError::VersionNeeded),
        }
    }
}

/// A body with its version as `ETag`.
#[derive(Debug)]
pub struct Versioned<T> {
    /// 200 or 201.
    pub status: StatusCode,
    /// For `ETag`.
    pub version: i64,
    /// The body.
    pub body: T,
}

impl<T: Serialize> IntoResponse for Versioned<T> {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", self.version)) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        response
    }
}
