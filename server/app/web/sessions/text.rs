//! A session as text for people.

use std::fmt::Write;

use slots::units::FRAME_MS;
use wire::api::sessions::{SessionDetail, TranscriptPiece};

/// Frames without a word after which what follows is a new line (1.2 s).
const PAUSE_FRAMES: i64 = 15;

/// Head, and a line for each thing the agent said, with its time.
pub(super) fn of(session: &SessionDetail, transcript: &[TranscriptPiece]) -> String {
    let summary = &session.summary;
    let began = jiff::Timestamp::from_millisecond(summary.began_at_ms)
        .map_or_else(|_| String::new(), |at| at.to_string());
    let mut text = format!(
        "Session {}\nBegan    {began}\nCaller   {}\nPersona  {}\nVoice    {}\nSeed     {}\nEnded    {}\n",
        summary.id,
        summary.caller,
        summary.persona,
        summary.voice,
        summary.seed,
        summary.end_reason.as_deref().unwrap_or("still running"),
    );
    let mut last_frame = None;
    for piece in transcript {
        let pause = last_frame.is_none_or(|last| piece.frame - last > PAUSE_FRAMES);
        if pause {
            let seconds = piece.frame * i64::from(FRAME_MS) / 1_000;
            // Writing to a string does not fail.
            let _ = write!(text, "\n[{:02}:{:02}] ", seconds / 60, seconds % 60);
            text.push_str(piece.text.trim_start());
        } else {
            text.push_str(&piece.text);
        }
        last_frame = Some(piece.frame);
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_begins_a_new_line_with_its_time() {
        let piece = |frame, text: &str| TranscriptPiece {
            frame,
            text: text.to_owned(),
        };
        let session: SessionDetail = serde_json::from_value(serde_json::json!({
            "id": 7, "caller": "local", "persona": "Ada", "voice": "NATF0", "seed": "1", "began_at_ms": 0,
            "words": 3, "recorded": false, "counters": {"frames": 0, "deficit": 0, "drops": 0, "late_ticks": 0,
            "missing": 0, "resumed": 0, "tick_mean_us": 0}, "role_text": "", "timeline": [],
            "levels": {"step_ms": 80, "caller": [], "agent": []}
        }))
        .unwrap();
        let text = of(
            &session,
            &[piece(5, " Hel"), piece(6, "lo"), piece(800, " there")],
        );
        assert!(text.ends_with("\n[00:00] Hello\n[01:04] there\n"), "{text}");
    }
}
