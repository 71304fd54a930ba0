//! Signing in and out, the password.
//!
//! Passwords are kept as Argon2id (19 MiB, 2 passes). At most two are checked at the same time, and tries are limited:
//! 5 at once and one every 12 s for each address, 30 at once and one a second for all together.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use tokio::sync::Semaphore;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::api::ErrorBody;
use wire::api::account::{
    Account, PASSWORD_BYTES_MAX, PASSWORD_CHARS_MIN, PasswordChange, Role, SignIn,
};
use wire::api::live::Changed;

use super::body::{Asked, Body};
use super::connections::Peer;
use super::desk::Desk;
use super::error::ApiError;
use super::identity::{Asker, OPERATOR_COOKIE, OperatorInPerson, cookie, new_secret};
use crate::sessions::rate::Bucket;
use crate::store::Store;

/// Seconds a browser keeps the cookie; the server forgets it after 30 days without a request.
const COOKIE_SECONDS: u32 = 365 * 24 * 60 * 60;
/// Tries for each address.
const TRIES: (u32, f64) = (5, 1.0 / 12.0);
/// Tries of all addresses together.
const TRIES_OF_ALL: (u32, f64) = (30, 1.0);
/// Addresses that are remembered; beyond it all are forgotten, and the limit of all holds.
const ADDRESSES_MAX: usize = 4_096;
/// Passwords that are checked at the same time: each takes 19 MiB and some 20 ms of a core.
static CHECKS: Semaphore = Semaphore::const_new(2);

/// How often somebody may try to sign in.
#[derive(Debug)]
pub struct Tries {
    // Locked by handlers for one look.
    state: Mutex<(Bucket, HashMap<IpAddr, Bucket>)>,
}

impl Default for Tries {
    fn default() -> Self {
        let all = Bucket::new(TRIES_OF_ALL.0, TRIES_OF_ALL.1, Instant::now());
        Self {
            state: Mutex::new((all, HashMap::new())),
        }
    }
}

impl Tries {
    fn take(&self, address: Option<IpAddr>, now: Instant) -> Result<(), ApiError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, each) = &mut *state;
        if each.len() >= ADDRESSES_MAX {
            each.clear();
        }
        let own = address.map(|address| {
            each.entry(address)
                .or_insert_with(|| Bucket::new(TRIES.0, TRIES.1, now))
        });
        if own.is_some_and(|own| !own.take(now)) {
            return Err(ApiError::TooOften {
                retry_s: (1.0 / TRIES.1) as u32,
            });
        }
        match all.take(now) {
            true => Ok(()),
            false => Err(ApiError::TooOften { retry_s: 2 }),
        }
    }
}

/// The routes of this resource.
pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(read))
        .routes(routes!(sign_in))
        .routes(routes!(sign_out))
        .routes(routes!(change_password))
}

/// Who is asking
#[utoipa::path(get, path = "/api/account", tag = "account",
    responses((status = 200, body = Account), (status = "default", body = ErrorBody)))]
async fn read(
    asker: Asker,
    State(desk): State<Desk>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Asked<Account> {
    let secure = secure(peer.as_deref(), &headers);
    Ok(Json(account(&desk, asker.role, secure).await?))
}

/// Signs an operator in
#[utoipa::path(post, path = "/api/account/sign-in", tag = "account", request_body = SignIn,
    responses((status = 200, body = Account), (status = "default", body = ErrorBody)))]
async fn sign_in(
    State(desk): State<Desk>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    Body(body): Body<SignIn>,
) -> Result<Response, ApiError> {
    let peer = peer.as_deref();
    desk.tries()
        .take(peer.map(|peer| peer.address.ip()), Instant::now())?;
    let known = match desk.store().password_hash().await? {
        Some(hash) => matches(body.password, hash).await?,
        None => false,
    };
    match known {
        true => signed_in(&desk, secure(peer, &headers)).await,
        false => Err(ApiError::WrongPassword),
    }
}

/// Signs this browser out
#[utoipa::path(post, path = "/api/account/sign-out", tag = "account",
    responses((status = 204), (status = "default", body = ErrorBody)))]
async fn sign_out(State(desk): State<Desk>, headers: HeaderMap) -> Result<Response, ApiError> {
    if let Some(token) = cookie(&headers, OPERATOR_COOKIE) {
        desk.store().delete_operator_session(token).await?;
        desk.feed().look_at_rights();
    }
    let path = desk.facts().base.for_cookies();
    let gone = format!("{OPERATOR_COOKIE}=; Path={path}; Max-Age=0; HttpOnly; SameSite=Strict");
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, gone)]).into_response())
}

/// Sets or changes the password; every other browser is signed out
#[utoipa::path(put, path = "/api/account/password", tag = "account", request_body = PasswordChange,
    responses((status = 200, body = Account), (status = "default", body = ErrorBody)))]
async fn change_password(
    _: OperatorInPerson,
    State(desk): State<Desk>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    Body(change): Body<PasswordChange>,
) -> Result<Response, ApiError> {
    let peer = peer.as_deref();
    if let Some(hash) = desk.store().password_hash().await? {
        desk.tries()
            .take(peer.map(|peer| peer.address.ip()), Instant::now())?;
        if !matches(change.current.unwrap_or_default(), hash).await? {
            return Err(ApiError::WrongPassword);
        }
    }
    set_password(desk.store(), change.new).await?;
    desk.feed().look_at_rights();
    desk.tell(Changed::System);
    signed_in(&desk, secure(peer, &headers)).await
}

/// Why a password is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the password has {chars} characters; at least {least} and at most {most} bytes are taken",
    least = PASSWORD_CHARS_MIN,
    most = PASSWORD_BYTES_MAX
)]
pub(crate) struct PasswordError {
    chars: usize,
}

/// Whether a password has a length that is taken.
///
/// # Errors
/// [`PasswordError`]: too short or too long.
pub(crate) fn check_password(password: &str) -> Result<(), PasswordError> {
    let chars = password.chars().count();
    match chars < PASSWORD_CHARS_MIN || password.len() > PASSWORD_BYTES_MAX {
        true => Err(PasswordError { chars }),
        false => Ok(()),
    }
}

/// Keeps the hash of `password`; every browser is signed out.
///
/// # Errors
/// [`ApiError::BadValue`]: too short or too long.
pub(crate) async fn set_password(store: &Store, password: String) -> Result<(), ApiError> {
    check_password(&password).map_err(|error| ApiError::BadValue {
        what: error.to_string(),
    })?;
    let hash = blocking(move || {
        let hash = Argon2::default().hash_password(password.as_bytes());
        hash.map(|hash| hash.to_string())
            .map_err(|error| error.to_string())
    })
    .await?;
    let hash = hash.map_err(|what| ApiError::Internal { what })?;
    Ok(store.set_password_hash(&hash).await?)
}

/// As [`set_password`], but where it is set already nobody is signed out.
///
/// # Errors
/// [`ApiError::BadValue`]: too short or too long.
pub(crate) async fn password_shall_be(store: &Store, password: String) -> Result<(), ApiError> {
    if let Some(hash) = store.password_hash().await?
        && matches(password.clone(), hash).await?
    {
        return Ok(());
    }
    set_password(store, password).await
}

async fn matches(password: String, hash: String) -> Result<bool, ApiError> {
    if password.len() > PASSWORD_BYTES_MAX {
        return Ok(false);
    }
    blocking(move || {
        let verifier: &dyn PasswordVerifier<str> = &Argon2::default();
        verifier.verify_password(password.as_bytes(), &hash).is_ok()
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let internal = |what: String| ApiError::Internal { what };
    let _turn = CHECKS
        .acquire()
        .await
        .map_err(|error| internal(error.to_string()))?;
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| internal(error.to_string()))
}

async fn signed_in(desk: &Desk, secure: bool) -> Result<Response, ApiError> {
    let token = new_secret()?;
    desk.store().insert_operator_session(&token).await?;
    let body = account(desk, Role::Operator, secure).await?;
    let cookie = cookie_line(desk, OPERATOR_COOKIE, &token, secure);
    let value = HeaderValue::from_str(&cookie).map_err(|error| ApiError::Internal {
        what: error.to_string(),
    })?;
    Ok(([(header::SET_COOKIE, value)], Json(body)).into_response())
}

/// A cookie that no script reads and no other site sends.
pub(super) fn cookie_line(desk: &Desk, name: &str, value: &str, secure: bool) -> String {
    let secure = if secure { "; Secure" } else { "" };
    let path = desk.facts().base.for_cookies();
    format!(
        "{name}={value}; Path={path}; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Strict{secure}"
    )
}

/// Whether the browser came by https, here or to the proxy before this server. Whoever lies about it harms themselves:
/// their browser sends the cookie over https only.
pub(super) fn secure(peer: Option<&Peer>, headers: &HeaderMap) -> bool {
    let said = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // Each proxy adds its own words; the first are those of the one that the browser spoke to.
    let first = |value: &str| {
        value
            .split(',')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase()
    };
    let scheme_is_https = said("x-forwarded-proto").is_some_and(|value| first(value) == "https");
    // Source: RFC 7239.
    let mut forwarded = said("forwarded").map(first).into_iter();
    let pair_is_https = forwarded.any(|one| {
        let mut pairs = one
            .split(';')
            .filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(name, value)| name == "proto" && value.trim_matches('"') == "https")
    });
    peer.is_some_and(|peer| peer.secure) || scheme_is_https || pair_is_https
}

async fn account(desk: &Desk, role: Role, secure: bool) -> Result<Account, ApiError> {
    Ok(Account {
        role,
        password_set: desk.password_set().await?,
        secure,
        https_url: desk.https_url().map(str::to_owned),
        open_calls: desk.open_calls(),
    })
}
