//! One session as a file: JSON for programs, text for people.

use std::fmt::Write;

use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use slots::units::FRAME_MS;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::api::ErrorBody;
use wire::api::sessions::{SESSION_FILE_SCHEMA, SessionFile, TranscriptPiece};

use super::detail;
use crate::web::desk::Desk;
use crate::web::error::ApiError;
use crate::web::identity::Operator;

/// Frames without a word after which a new line begins (2 s).
const PAUSE_FRAMES: i64 = 25;

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(export))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ExportQuery {
    /// Which kind of file.
    #[serde(default)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Format {
    #[default]
    Json,
    Text,
}

/// One session with its transcript, as a file
#[utoipa::path(get, path = "/api/sessions/{id}/export", tag = "sessions",
    params(("id" = i64, Path), ExportQuery),
    responses((status = 200, body = SessionFile), (status = "default", body = ErrorBody)))]
async fn export(
    _: Operator,
    State(desk): State<Desk>,
    Path(id): Path<i64>,
    Query(asked): Query<ExportQuery>,
) -> Result<Response, ApiError> {
    let file = SessionFile {
        schema: SESSION_FILE_SCHEMA.to_owned(),
        session: detail(desk.store(), id).await?,
        transcript: desk.store().transcript(id).await?,
    };
    let (content_type, ending, body) = match asked.format {
        Format::Json => {
            let json = serde_json::to_string_pretty(&file).map_err(|error| ApiError::Internal {
                what: format!("session {id} could not be written as JSON: {error}"),
            })?;
            ("application/json", "json", json)
        }
        Format::Text => ("text/plain; charset=utf-8", "txt", text(&file)),
    };
    // A number makes the name, so that nothing a caller wrote can get into it.
    let name = format!("attachment; filename=\"vivavoce-session-{id}.{ending}\"");
    let headers = [
        (header::CONTENT_TYPE, content_type.to_owned()),
        (header::CONTENT_DISPOSITION, name),
    ];
    Ok((headers, body).into_response())
}

/// The session for people.
fn text(file: &SessionFile) -> String {
    let session = &file.session.summary;
    let at = |ms: i64| match jiff::Timestamp::from_millisecond(ms) {
        Ok(at) => at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => format!("{ms} ms"),
    };
    let mut text = format!("Session {}\n", session.id);
    let version = session.persona_version.map(|n| format!(" (version {n})"));
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name}: {value}");
    };
    line("Began", &at(session.began_at_ms));
    match (session.ended_at_ms, &session.end_reason) {
        (Some(ended), Some(reason)) => line("Ended", &format!("{} ({reason})", at(ended))),
        _ => line("Ended", "still running"),
    }
    line("Caller", &session.caller);
    let persona = format!("{}{}", session.persona, version.unwrap_or_default());
    line("Persona", &persona);
    line("Voice", &session.voice);
    line("Seed", &session.seed);
    text.push('\n');
    for (frame, said) in lines(&file.transcript) {
        let s = frame * i64::from(FRAME_MS) / 1_000;
        let _ = writeln!(
            text,
            "[{:02}:{:02}:{:02}] {said}",
            s / 3_600,
            s / 60 % 60,
            s % 60
        );
    }
    text
}

/// The transcript in lines, each with its first frame: a pause begins a new one.
fn lines(pieces: &[TranscriptPiece]) -> Vec<(i64, String)> {
    let mut lines: Vec<(i64, String)> = Vec::new();
    let mut last = i64::MIN;
    for piece in pieces {
        match lines.last_mut() {
            Some((_, line)) if piece.frame.saturating_sub(last) < PAUSE_FRAMES => {
                line.push_str(&piece.text);
            }
            _ => lines.push((piece.frame, piece.text.trim_start().to_owned())),
        }
        last = piece.frame;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_begins_a_new_line() {
        let piece = |frame, text: &str| TranscriptPiece {
            frame,
            text: text.to_owned(),
        };
        let pieces = [
            piece(3, " Good"),
            piece(5, " day."),
            piece(80, " You"),
            piece(81, "?"),
        ];
        let expected = [(3, "Good day.".to_owned()), (80, "You?".to_owned())];
        assert_eq!(lines(&pieces), expected);
        assert!(lines(&[]).is_empty());
    }
}
