//! Who is asking: found out once for each request, then only looked at.
//!
//! Lives here: [`Asker`], and extractors that let only some askers through.
//! May not live here: how an asker is recognised (`access`).

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri, header};
use wire::api::account::{Role, Scope};
use wire::query::ChatQuery;

use super::desk::Desk;
use super::error::ApiError;

/// Cookie of a browser whose operator signed in.
pub const OPERATOR_COOKIE: &str = "vivavoce";
/// Cookie of a browser that opened a share link: its token.
pub const LINK_COOKIE: &str = "vivavoce_link";

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
    /// They may read `/metrics`.
    pub may_measure: bool,
    /// The link they came by.
    pub share: Option<i64>,
}

impl Asker {
    /// Anybody on this machine while no password is set.
    pub fn local() -> Self {
        Self {
            role: Role::Operator,
            label: "local".to_owned(),
            persona: None,
            by_token: false,
            may_measure: true,
            share: None,
        }
    }

    /// Somebody unknown.
    pub fn nobody() -> Self {
        Self {
            role: Role::Nobody,
            label: "nobody".to_owned(),
            persona: None,
            by_token: false,
            may_measure: false,
            share: None,
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

/// An operator in person, not by a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorInPerson(pub Asker);

impl<S: Send + Sync> FromRequestParts<S> for OperatorInPerson {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Operator(asker) = Operator::from_request_parts(parts, state).await?;
        match asker.by_token {
            true => Err(ApiError::NotAllowed),
            false => Ok(Self(asker)),
        }
    }
}

/// Who sent this request: the first of cookie, token and link that is known.
///
/// # Errors
/// The store's.
pub(super) async fn recognise(
    desk: &Desk,
    open_calls: bool,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Asker, ApiError> {
    let store = desk.store();
    if let Some(cookie) = cookie(headers, OPERATOR_COOKIE)
        && store.operator_session_is_known(cookie).await?
    {
        return Ok(Asker {
            label: "operator".to_owned(),
            ..Asker::local()
        });
    }
    if let Some(token) = token(uri, headers)
        && let Some(known) = store.token(&token).await?
    {
        let has = |scope| known.scopes.contains(&scope);
        let role = match (has(Scope::Operate), has(Scope::Call)) {
            (true, _) => Role::Operator,
            (false, true) => Role::Caller,
            (false, false) => Role::Nobody,
        };
        return Ok(Asker {
            role,
            label: format!("token {}", known.name),
            persona: known.persona_id,
            by_token: true,
            may_measure: has(Scope::Metrics) || has(Scope::Operate),
            share: None,
        });
    }
    if let Some(token) = cookie(headers, LINK_COOKIE)
        && let Some(known) = store.share_by_token(token).await?
    {
        return Ok(Asker {
            role: Role::Guest,
            label: format!("link {}", known.label).trim_end().to_owned(),
            persona: Some(known.persona_id),
            share: Some(known.id),
            ..Asker::nobody()
        });
    }
    match open_calls {
        true => Ok(Asker {
            role: Role::Caller,
            label: "anybody".to_owned(),
            ..Asker::nobody()
        }),
        false => Ok(Asker::nobody()),
    }
}

/// Whether what let an operator in at first still does.
///
/// # Errors
/// The store's.
pub(super) async fn still_operates(
    desk: &Desk,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<bool, ApiError> {
    // Without a password they were let in as a program on this machine. One that is set is never taken away.
    if !desk.password_set().await? {
        return Ok(true);
    }
    let asker = recognise(desk, false, uri, headers).await?;
    Ok(asker.role == Role::Operator)
}

/// The value of a cookie.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(key, value)| (key == name).then_some(value))
}

/// A token from the header, or from the query, where browsers and stock clients can put it.
fn token(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then(|| token.trim().to_owned())
    });
    bearer.or_else(|| {
        let query = ChatQuery::token_of(uri.query().unwrap_or_default())?;
        Some(query.reveal().to_owned())
    })
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
