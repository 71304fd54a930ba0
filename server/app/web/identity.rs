//! Who is asking: found out once for each request, then only looked at.
//!
//! Lives here: [`Asker`], and extractors that let only some askers through.
//! May not live here: how an asker is recognised (`access`).

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use wire::api::account::Role;

use super::error::ApiError;

/// Who is asking. Put into the request's extensions by the guard around all routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// What they may do.
    pub role: Role,
    /// For the log: `operator`, `link LABEL`, `token NAME`, `local`.
    pub label: String,
    /// They may call this persona only.
    pub persona: Option<i64>,
    /// Recognised by an API token, which may not touch password and tokens.
    pub by_token: bool,
}

impl Asker {
    /// Anybody on this machine while no password is set.
    pub fn local() -> Self {
        Self {
            role: Role::Operator,
            label: "local".to_owned(),
            persona: None,
            by_token: false,
        }
    }

    /// Somebody unknown.
    pub fn nobody() -> Self {
        Self {
            role: Role::Nobody,
            label: "nobody".to_owned(),
            persona: None,
            by_token: false,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Asker {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let asker = parts.extensions.get::<Self>();
        Ok(asker.cloned().unwrap_or_else(Self::nobody))
    }
}

/// An asker who may do everything an operator may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator(pub Asker);

impl<S: Send + Sync> FromRequestParts<S> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let asker = Asker::from_request_parts(parts, state).await?;
        match asker.role {
            Role::Operator => Ok(Self(asker)),
            Role::Guest | Role::Caller => Err(ApiError::NotAllowed),
            Role::Nobody => Err(ApiError::SignInNeeded),
        }
    }
}

/// A secret to hand out: 256 random bits as hexadecimal digits.
///
/// # Errors
/// The system's source of randomness failed.
pub fn new_secret() -> Result<String, ApiError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| ApiError::Internal {
        what: format!("no randomness: {error}"),
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
