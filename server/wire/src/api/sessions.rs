//! The log of sessions.

use serde::{Deserialize, Serialize};

/// One session in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionSummary {
    /// Grows with time.
    pub id: i64,
    /// Who called: `operator`, `link LABEL`, `token NAME`, `local`.
    pub caller: String,
    /// Absent when the caller brought a role text of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persona_id: Option<i64>,
    /// Its name then; `own text` for role texts of callers.
    pub persona: String,
    /// Its version then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persona_version: Option<i64>,
    /// Name of the voice then.
    pub voice: String,
    /// A string, since JavaScript numbers end at 2^53.
    pub seed: String,
    /// Unix milliseconds of the upgrade.
    pub began_at_ms: i64,
    /// Unix milliseconds of the ready byte; absent if it never came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_at_ms: Option<i64>,
    /// Unix milliseconds; absent while it runs. For a session that was cut off: the last sign of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at_ms: Option<i64>,
    /// A name of [`crate::notice::EndReason`], or `cut_off` when the server died under it; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<String>,
    /// Words of the agent.
    pub words: i64,
    /// Whether a recording is kept.
    pub recorded: bool,
    /// What went wrong and how much.
    pub counters: SessionCounts,
}

/// Counters of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionCounts {
    /// Frames delivered.
    pub frames: i64,
    /// Frames due and not delivered.
    pub deficit: i64,
    /// Frames of the caller that were dropped, by any queue.
    pub drops: i64,
    /// Ticks that ended after the next one was due, while it was live.
    pub late_ticks: i64,
    /// Frames for which nothing had come from the caller.
    pub missing: i64,
    /// Times the connection was lost and taken up again.
    pub resumed: i64,
    /// Mean tick while it was live, in microseconds.
    pub tick_mean_us: i64,
}

/// One session with everything but transcript and audio.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionDetail {
    /// As in the list.
    #[serde(flatten)]
    pub summary: SessionSummary,
    /// The role text as the model read it.
    pub role_text: String,
    /// What happened, in order.
    pub timeline: Vec<SessionEvent>,
    /// Loudness of both sides over the call.
    pub levels: Levels,
    /// Seconds of the recording; absent when none is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording_seconds: Option<u32>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionEvent {
    /// Unix milliseconds.
    pub at_ms: i64,
    /// `began`, `waiting`, `prefill`, `live`, `connection_lost`, `resumed`, `ended`.
    pub what: String,
    /// For people, may be empty.
    pub detail: String,
}

/// Loudness over time: 0 silence to 255 full scale.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Levels {
    /// Length of one step, in milliseconds; at most 2,000 steps are given.
    pub step_ms: u32,
    /// The caller, from the ready byte on.
    pub caller: Vec<u8>,
    /// The agent.
    pub agent: Vec<u8>,
}

/// A piece of what the agent said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TranscriptPiece {
    /// Frame of the call, 80 ms each, from the ready byte on.
    pub frame: i64,
    /// As the model wrote it, with its spaces.
    pub text: String,
}

/// Everything about one session in one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionFile {
    /// `vivavoce-session/1`.
    pub schema: String,
    /// The session.
    pub session: SessionDetail,
    /// What the agent said.
    pub transcript: Vec<TranscriptPiece>,
}

/// The only value of [`SessionFile::schema`] so far.
pub const SESSION_FILE_SCHEMA: &str = "vivavoce-session/1";
