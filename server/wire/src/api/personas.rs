//! Personas, their versions, what a prompt costs, and share links.

use serde::{Deserialize, Serialize};

/// The longest name of a persona, in characters.
pub const NAME_CHARS_MAX: usize = 80;
/// The longest role text, in bytes of UTF-8. What a live call takes is counted in tokens, see [`PromptCost`].
pub const ROLE_TEXT_BYTES_MAX: usize = 16 * 1024;

/// What an operator writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PersonaDraft {
    /// 1 to 80 characters, no control characters, unique among personas that are not archived (without regard to case).
    pub name: String,
    /// What the model reads: who it is and what it knows. May be empty: then the model talks without a role.
    pub role_text: String,
    /// Name of the voice; absent: the server's default voice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voice: Option<String>,
    /// How tokens are chosen.
    #[serde(default)]
    pub sampling: SamplingWish,
    /// Who is heard first.
    #[serde(default)]
    pub greeting: Greeting,
}

/// Sampling values; absent ones are the model's recommendation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct SamplingWish {
    /// 0 (greedy) to 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_temperature: Option<f32>,
    /// 1 to 1048576.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_top_k: Option<u32>,
    /// 0 (greedy) to 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio_temperature: Option<f32>,
    /// 1 to 1048576.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio_top_k: Option<u32>,
    /// 1 (off) to 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repetition_penalty: Option<f32>,
    /// 0 to 500 text tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repetition_penalty_context: Option<u32>,
    /// The same seed gives the same call to the same caller. A decimal string of 64 bits, since JavaScript numbers end
    /// at 2^53; absent: drawn for each call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<String>,
}

/// Who is heard first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Greeting {
    /// The agent speaks when it likes, also first.
    #[default]
    AgentFirst,
    /// The agent is not heard, and its words are not shown, until the caller has spoken once (10 s at most).
    CallerFirst,
}

/// One persona as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Persona {
    /// Never used again, also after an end.
    pub id: i64,
    /// What an operator wrote.
    #[serde(flatten)]
    pub draft: PersonaDraft,
    /// 1 for the first; grows with each change. The `ETag` of the persona is this number in quotes, and `If-Match` has to
    /// carry it when changing.
    pub version: i64,
    /// Callers that name no persona get this one. Exactly one persona has it.
    pub is_default: bool,
    /// Shipped with the program.
    pub is_preset: bool,
    /// Out of the way, not lost: no new calls, and its name may be used again.
    pub archived: bool,
    /// Unix milliseconds.
    pub created_at_ms: i64,
    /// Unix milliseconds, of the newest version.
    pub changed_at_ms: i64,
    /// Who made the newest version: `operator`, `token NAME`, `vivavoce` for presets.
    pub changed_by: String,
    /// Calls that were made with any version of it.
    pub calls: i64,
}

/// One version of a persona.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PersonaVersion {
    /// 1 for the first.
    pub version: i64,
    /// As it was.
    #[serde(flatten)]
    pub draft: PersonaDraft,
    /// Unix milliseconds.
    pub changed_at_ms: i64,
    /// As in [`Persona::changed_by`].
    pub changed_by: String,
}

/// Asks what a prompt costs before it is saved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PromptQuestion {
    /// The role text.
    pub role_text: String,
    /// Name of the voice; absent: the default voice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voice: Option<String>,
}

/// What a prompt costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PromptCost {
    /// Tokens of the role text.
    pub text_tokens: u32,
    /// The most tokens that fit beside this voice.
    pub text_tokens_max: u32,
    /// Positions of voice, role text and silences together.
    pub positions: u32,
    /// The most a live call may use.
    pub positions_max: u32,
    /// About how long reading it takes the first time, in milliseconds; absent before the first prompt was measured.
    /// After that a caller is live within one tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_ms: Option<u32>,
}

/// What `export` gives and `import` takes: personas without ids, versions and times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PersonaFile {
    /// `vivavoce-personas/1`.
    pub schema: String,
    /// In the order of their names.
    pub personas: Vec<PersonaDraft>,
}

/// The only value of [`PersonaFile::schema`] so far.
pub const PERSONA_FILE_SCHEMA: &str = "vivavoce-personas/1";
/// The most personas in one file.
pub const PERSONA_FILE_MAX: usize = 1_000;

/// What became of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Imported {
    /// Made anew.
    pub created: Vec<String>,
    /// There under this name and equal: nothing done.
    pub unchanged: Vec<String>,
    /// There under this name and different: made under another name, each as (wished, given).
    pub renamed: Vec<(String, String)>,
}

/// Wishes for a share link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewShare {
    /// For the operator's memory, up to 80 characters; shown as the caller's name in the log.
    #[serde(default)]
    pub label: String,
    /// Days until it ends, 1 to 365; absent: until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
}

/// A share link. Its token is shown once, at its making.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Share {
    /// For deleting it.
    pub id: i64,
    /// The persona it leads to, always in its newest version.
    pub persona_id: i64,
    /// For the operator's memory.
    pub label: String,
    /// Unix milliseconds.
    pub created_at_ms: i64,
    /// Unix milliseconds; absent: it does not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<i64>,
    /// Unix milliseconds of the last call; absent: never used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at_ms: Option<i64>,
}

/// A share link right after its making.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShareMade {
    /// The link.
    #[serde(flatten)]
    pub share: Share,
    /// `talk/TOKEN`, relative to where the UI is served. Shown this once.
    pub path: String,
}
