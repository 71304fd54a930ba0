//! JSON bodies of the HTTP API, and the one error body.
//!
//! Lives here: what crosses the network as JSON, one file for each resource; times are Unix milliseconds (`_at_ms`),
//! levels go from 0 (silence) to 255 (full scale) on a scale of decibels.
//! May not live here: statuses and headers, which `web/error.rs` decides.

pub mod account;
pub mod live;
pub mod personas;
pub mod sessions;
pub mod system;
pub mod talk;
pub mod voices;

use serde::{Deserialize, Serialize};

/// The body of every answer that is not a success: `{"error":{"code","message","hint"}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// The only field.
    pub error: ErrorFacts,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorFacts {
    /// For programs: lower case with underscores, never changes.
    pub code: String,
    /// For people: one line, may change.
    pub message: String,
    /// What to do about it, when there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// In the list's order.
    pub items: Vec<T>,
    /// Hand this back as `cursor=` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The body of `/readyz` and `/health`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// One word that sums the rest up.
    pub state: HealthState,
    /// Time since the last tick ended, in milliseconds; absent before the first.
    pub last_tick_age_ms: Option<u64>,
    /// Rows of the engine; 0 while it loads.
    pub slots: u32,
    /// Rows that a caller holds.
    pub slots_taken: u32,
    /// Callers that wait for a row.
    pub waiting: u32,
}

/// The switchboard in one word. In order of precedence: the first that applies is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    /// The device failed, or the tick hangs: the process is about to end.
    Failed,
    /// The model is not loaded yet.
    Loading,
    /// No new callers; running calls finish.
    Draining,
    /// Ticks take too long; no new callers until that is over.
    Late,
    /// Every row is taken.
    Full,
    /// A caller can join.
    Ready,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_a_hint_has_no_hint_field() {
        let body = ErrorBody {
            error: ErrorFacts {
                code: "bad_seed".to_owned(),
                message: "m".to_owned(),
                hint: None,
            },
        };
        let json = r#"{"error":{"code":"bad_seed","message":"m"}}"#;
        assert_eq!(serde_json::to_string(&body).unwrap(), json);
        assert_eq!(serde_json::from_str::<ErrorBody>(json).unwrap(), body);
    }
}
