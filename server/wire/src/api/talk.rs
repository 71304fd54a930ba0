//! What the talk page needs to know before a call.

use serde::{Deserialize, Serialize};

/// What this asker can call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Talk {
    /// One for a guest; all that are not archived for an operator, the default first.
    pub personas: Vec<TalkPersona>,
    /// Whether the asker may choose voice, seed and own role text.
    pub may_choose: bool,
    /// Voices to choose from; empty unless `may_choose`.
    pub voices: Vec<String>,
    /// How much of a call the agent remembers, in seconds; absent while the model is loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_s: Option<u32>,
    /// Whether calls are recorded now: shown before the call.
    pub recorded: bool,
    /// Days until a recording is deleted.
    pub recording_days: u32,
    /// Whether what the agent says is kept.
    pub transcript_kept: bool,
}

/// A persona as callers see it: not its role text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TalkPersona {
    /// For `persona=` in the query of `/api/chat`.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its voice, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voice: Option<String>,
}
