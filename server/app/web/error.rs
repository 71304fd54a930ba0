//! The one place where errors become statuses and the one error body.
//!
//! May not live here: texts of errors that other rooms own.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use slots::call::{PrepareError, SamplingError};
use wire::api::{ErrorBody, ErrorFacts};
use wire::query::{QUERY_BYTES_MAX, QueryError};

use super::access::AccessError;

/// When to ask again while the model loads, in seconds.
const RETRY_LOADING_S: u32 = 5;

/// An answer that is not a success.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// 403.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// 400, or 414 if it is only too long.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// 400.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// 400.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// 503 with `Retry-After`.
    #[error("the model is still being loaded")]
    Loading,
    /// 426: `/api/chat` without an upgrade.
    #[error("this address takes WebSockets only")]
    NotAnUpgrade,
    /// 404.
    #[error("there is nothing at {path}")]
    NotFound {
        /// What was asked for, without the query.
        path: String,
    },
    /// 500: a mistake of this program.
    #[error("{what}")]
    Internal {
        /// One line.
        what: String,
    },
}

impl ApiError {
    fn facts(&self) -> (StatusCode, &'static str, Option<String>) {
        let hint = |text: &str| Some(text.to_owned());
        match self {
            Self::Access(error) => (StatusCode::FORBIDDEN, error.code(), hint(error.hint())),
            Self::Query(error @ QueryError::TooLong { .. }) => (
                StatusCode::URI_TOO_LONG,
                error.code(),
                Some(format!(
                    "shorten text_prompt; the whole query may have {QUERY_BYTES_MAX} bytes"
                )),
            ),
            Self::Query(error) => (StatusCode::BAD_REQUEST, error.code(), None),
            Self::Sampling(_) => (StatusCode::BAD_REQUEST, "bad_value", None),
            Self::Prepare(error) => {
                let code = match error {
                    PrepareError::UnknownVoice { .. } => "unknown_voice",
                    PrepareError::PromptTooLong { .. } => "prompt_too_long",
                    PrepareError::Text { .. } => "bad_prompt",
                };
                (StatusCode::BAD_REQUEST, code, None)
            }
            Self::Loading => (
                StatusCode::SERVICE_UNAVAILABLE,
                "loading",
                hint("ask again in a few seconds; /readyz turns 200 when callers are taken"),
            ),
            Self::NotAnUpgrade => (
                StatusCode::UPGRADE_REQUIRED,
                "not_an_upgrade",
                hint(
                    "open it as ws:// or wss://; a proxy in between must pass Upgrade and Connection on",
                ),
            ),
            Self::NotFound { .. } => (StatusCode::NOT_FOUND, "not_found", None),
            Self::Internal { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "internal", None),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code, hint) = self.facts();
        if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
            tracing::error!(error = %self, "a request failed");
        }
        let body = ErrorBody {
            error: ErrorFacts {
                code: code.to_owned(),
                message: self.to_string(),
                hint,
            },
        };
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, RETRY_LOADING_S.into());
        }
        if status == StatusCode::UPGRADE_REQUIRED {
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        }
        response
    }
}
