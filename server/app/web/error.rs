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
use crate::store::StoreError;

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
    /// From the store: 404, 409, 412, or 500.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// 401.
    #[error("this needs the operator to be signed in, or a token")]
    SignInNeeded,
    /// 401: tried to sign in.
    #[error("this is not the password")]
    WrongPassword,
    /// 403: known, and not allowed.
    #[error("this is not among the things that your link or token allows")]
    NotAllowed,
    /// 400, 413, 415 or 422, as axum found.
    #[error("{what}")]
    BadBody {
        /// What kind of wrong.
        status: StatusCode,
        /// One line.
        what: String,
    },
    /// 400: understood, and out of range.
    #[error("{what}")]
    BadValue {
        /// One line that names the field and what is taken.
        what: String,
    },
    /// 404: one thing that is not there.
    #[error("there is no {what}")]
    Missing {
        /// `persona 7`, `voice "BASS9"`.
        what: String,
    },
    /// 405.
    #[error("this address does not take that method; the header Allow names those it takes")]
    WrongMethod,
    /// 409.
    #[error("{what}")]
    Conflict {
        /// For programs.
        code: &'static str,
        /// One line.
        what: String,
    },
    /// 428.
    #[error("this change has to name the version it is made to")]
    VersionNeeded,
    /// 429 with `Retry-After`.
    #[error("too many tries; the next one is taken in {retry_s} s")]
    TooOften {
        /// Seconds.
        retry_s: u32,
    },
    /// 503 with `Retry-After`.
    #[error("{what}")]
    NotNow {
        /// One line.
        what: String,
    },
    /// An answer that a library gave in words of its own.
    #[error("{what}")]
    Refused {
        /// From 400.
        status: StatusCode,
        /// One line.
        what: String,
    },
    /// 426: `/api/chat` without an upgrade.
    #[error("this address takes WebSockets only")]
    NotAnUpgrade,
    /// 400: plain http at a port with TLS.
    #[error("this port speaks https")]
    TlsNeeded,
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
            Self::Store(error) => match error {
                StoreError::NameTaken { .. } => (StatusCode::CONFLICT, "name_taken", None),
                StoreError::ChangedMeanwhile { .. } => (
                    StatusCode::PRECONDITION_FAILED,
                    "changed_meanwhile",
                    hint("read it again, and make the change to what is there now"),
                ),
                StoreError::Missing { .. } => (StatusCode::NOT_FOUND, "not_found", None),
                StoreError::IsDefault { .. } => (StatusCode::CONFLICT, "is_default", None),
                StoreError::Running { .. } => (
                    StatusCode::CONFLICT,
                    "still_running",
                    hint("hang up first, or wait for its end"),
                ),
                StoreError::Locked | StoreError::DiskFull => {
                    (StatusCode::SERVICE_UNAVAILABLE, "store_busy", None)
                }
                _ => (StatusCode::INTERNAL_SERVER_ERROR, "store_failed", None),
            },
            Self::SignInNeeded => (
                StatusCode::UNAUTHORIZED,
                "sign_in_needed",
                hint(
                    "sign in at /sign-in, or send a token as `Authorization: Bearer TOKEN`, `?token=` or `?worker_auth_id=`",
                ),
            ),
            Self::WrongPassword => (
                StatusCode::UNAUTHORIZED,
                "wrong_password",
                hint(
                    "a forgotten one is set anew with `vivavoce password` on the server's machine, while the server is stopped",
                ),
            ),
            Self::NotAllowed => (StatusCode::FORBIDDEN, "not_allowed", None),
            Self::BadBody { status, .. } => (*status, "bad_body", None),
            Self::BadValue { .. } => (StatusCode::BAD_REQUEST, "bad_value", None),
            Self::Missing { .. } => (StatusCode::NOT_FOUND, "not_found", None),
            Self::WrongMethod => (StatusCode::METHOD_NOT_ALLOWED, "wrong_method", None),
            Self::Conflict { code, .. } => (StatusCode::CONFLICT, code, None),
            Self::VersionNeeded => (
                StatusCode::PRECONDITION_REQUIRED,
                "precondition_required",
                hint("send the ETag that came with it as `If-Match`"),
            ),
            Self::TooOften { .. } => (StatusCode::TOO_MANY_REQUESTS, "too_often", None),
            Self::NotNow { .. } => (StatusCode::SERVICE_UNAVAILABLE, "not_now", None),
            Self::Refused { status, .. } => {
                let code = match *status {
                    StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => "bad_value",
                    StatusCode::NOT_FOUND => "not_found",
                    StatusCode::METHOD_NOT_ALLOWED => "wrong_method",
                    StatusCode::PAYLOAD_TOO_LARGE => "too_big",
                    StatusCode::INTERNAL_SERVER_ERROR => "internal",
                    _ => "refused",
                };
                (*status, code, None)
            }
            Self::NotAnUpgrade => (
                StatusCode::UPGRADE_REQUIRED,
                "not_an_upgrade",
                hint(
                    "open it as ws:// or wss://; a proxy in between must pass Upgrade and Connection on",
                ),
            ),
            Self::TlsNeeded => (
                StatusCode::BAD_REQUEST,
                "tls_needed",
                hint("ask again with https:// or wss:// before the same address"),
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
        if let Self::TooOften { retry_s } = self {
            headers.insert(header::RETRY_AFTER, retry_s.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, RETRY_LOADING_S.into());
        }
        if status == StatusCode::UPGRADE_REQUIRED {
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        }
        response
    }
}
