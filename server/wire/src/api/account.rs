//! Who is asking, passwords, and API tokens.

use serde::{Deserialize, Serialize};

/// The shortest password, in characters.
pub const PASSWORD_CHARS_MIN: usize = 8;
/// The longest password, in bytes.
pub const PASSWORD_BYTES_MAX: usize = 256;

/// Who is asking, as far as the server can tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Account {
    /// What the asker may do.
    pub role: Role,
    /// Whether an operator password is set.
    pub password_set: bool,
    /// Whether this request came over TLS.
    pub secure: bool,
    /// An https address of this server, when it has one beside the one that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub https_url: Option<String>,
    /// Whether anybody may call without a link (`--open-calls`).
    pub open_calls: bool,
}

/// What an asker may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything: signed in, or on this machine while no password is set.
    Operator,
    /// Call one persona, by share link.
    Guest,
    /// Call, with a token or because calls are open.
    Caller,
    /// Nothing but signing in.
    Nobody,
}

/// Signing in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// The operator's.
    pub password: String,
}

/// Setting or changing the password. Every other operator session ends with it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PasswordChange {
    /// The present one; absent while none is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// 8 characters to 256 bytes.
    pub new: String,
}

/// What a token lets its bearer do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Open calls.
    Call,
    /// Read `/metrics`.
    Metrics,
    /// Everything an operator may do, but for password and tokens.
    Operate,
}

/// Wishes for an API token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// 1 to 80 characters; shown in the log.
    pub name: String,
    /// At least one.
    pub scopes: Vec<Scope>,
    /// Calls may use this persona only, and no own role text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persona_id: Option<i64>,
    /// Days until it ends, 1 to 3650; absent: until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
}

/// An API token. The token itself is shown once, at its making.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApiToken {
    /// For deleting it.
    pub id: i64,
    /// As wished.
    pub name: String,
    /// Sorted.
    pub scopes: Vec<Scope>,
    /// As wished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persona_id: Option<i64>,
    /// Unix milliseconds.
    pub created_at_ms: i64,
    /// Unix milliseconds; absent: it does not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<i64>,
    /// Unix milliseconds, to the minute; absent: never used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at_ms: Option<i64>,
}

/// A token right after its making.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenMade {
    /// What is kept of it.
    #[serde(flatten)]
    pub kept: ApiToken,
    /// For `Authorization: Bearer`, `?token=` or `?worker_auth_id=`. Shown this once.
    pub token: String,
}
