//! What the System page shows and sets.

use serde::{Deserialize, Serialize};

/// The program, its model, and the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct System {
    /// Of the program.
    pub version: String,
    /// What answers: name, sizes, number format.
    pub model: String,
    /// Whose it is and what that allows, one line each.
    pub licences: Vec<String>,
    /// What `vivavoce doctor` says.
    pub checks: Vec<Check>,
    /// Every setting, secrets as stars.
    pub settings: Vec<Setting>,
    /// Limits with numbers: (what, how much).
    pub limits: Vec<(String, String)>,
    /// State of TLS.
    pub tls: Tls,
}

/// One line of `doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// How it is.
    pub state: CheckState,
    /// What was found, and what to do about it.
    pub text: String,
}

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// Works.
    Good,
    /// Works, with something to know.
    Note,
    /// Does not work.
    Bad,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Setting {
    /// The flag without its dashes.
    pub name: String,
    /// Secrets as stars.
    pub value: String,
    /// `flag`, `environment`, `file`, `default`.
    pub source: String,
}

/// State of TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Tls {
    /// Plain http. Browsers give a microphone to pages of this machine only.
    Off,
    /// A certificate that the server made itself; browsers warn once.
    SelfSigned {
        /// SHA-256 of the certificate, as browsers show it.
        fingerprint: String,
        /// Unix milliseconds.
        expires_at_ms: i64,
    },
    /// A certificate from files, read again when they change.
    Files {
        /// SHA-256 of the certificate.
        fingerprint: String,
        /// Unix milliseconds.
        expires_at_ms: i64,
        /// The last reading failed, and the older certificate is still used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
}

/// What is kept of calls, and for how long. Changing it needs the version in `If-Match`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Policy {
    /// Grows with each change; the `ETag`.
    pub version: i64,
    /// What is kept.
    #[serde(flatten)]
    pub draft: PolicyDraft,
}

/// What is kept of calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PolicyDraft {
    /// Record audio of new calls. Callers are told before they call.
    pub record_audio: bool,
    /// Days until a recording is deleted, 1 to 3650.
    pub recording_days: u32,
    /// Keep what the agent said.
    pub keep_transcripts: bool,
    /// Days until a session is deleted with all that belongs to it, 1 to 3650.
    pub session_days: u32,
}

impl Default for PolicyDraft {
    fn default() -> Self {
        Self {
            record_audio: false,
            recording_days: 30,
            keep_transcripts: true,
            session_days: 365,
        }
    }
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogLine {
    /// Grows by one with each line; hand the last one back as `after=`.
    pub number: u64,
    /// Unix milliseconds.
    pub at_ms: i64,
    /// `error`, `warn`, `info`.
    pub level: String,
    /// Message and fields.
    pub text: String,
}
