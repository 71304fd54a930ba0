//! Voices.

use serde::{Deserialize, Serialize};

/// The longest recording a voice is made from, in seconds; longer ones are refused before they are decoded further.
pub const RECORDING_SECONDS_MAX: u32 = 60;
/// The shortest one, after trimming.
pub const RECORDING_SECONDS_MIN: u32 = 3;
/// The largest file that is taken, in bytes.
pub const UPLOAD_BYTES_MAX: usize = 48 * 1024 * 1024;
/// The longest consent statement, in characters.
pub const CONSENT_CHARS_MAX: usize = 500;

/// One voice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Voice {
    /// Unique without regard to case; 1 to 64 of letters, digits, `_`, `-` and `.`, not beginning with a dot.
    pub name: String,
    /// Where it came from.
    pub origin: VoiceOrigin,
    /// How long its prompt is, in frames of 80 ms; it takes as many positions of a call's window.
    pub frames: u32,
    /// Out of the way: no new calls with it.
    pub archived: bool,
    /// Callers that name no voice, with a persona that names none, get this one.
    pub is_default: bool,
    /// Who is heard, and that they agreed; only for recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consent: Option<String>,
    /// Unix milliseconds; absent for voices of the model folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at_ms: Option<i64>,
    /// Names of personas that use it and are not archived.
    pub personas: Vec<String>,
    /// Whether a preview lies ready; else asking for it renders it, if a slot is free.
    pub preview_ready: bool,
}

/// Where a voice came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum VoiceOrigin {
    /// The model's own folder. Can be archived, not renamed or deleted.
    Model,
    /// A bundle that an operator uploaded.
    Bundle,
    /// A recording that an operator uploaded.
    Recording,
}

/// Changes to a voice; absent fields stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct VoiceChange {
    /// A new name; personas that use the voice follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Into the archive, or back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived: Option<bool>,
}

/// A voice right after its making, and what was done to the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VoiceMade {
    /// The voice.
    pub voice: Voice,
    /// For people: "mixed to mono", "4.2 s of silence trimmed at the end", "raised by 8 dB". Empty for bundles.
    pub notes: Vec<String>,
}
