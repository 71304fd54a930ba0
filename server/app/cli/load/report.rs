//! What all calls got, as a table and as JSON.

use std::fmt;

use serde::Serialize;

use super::DEFICIT_FRAMES_MAX;
use super::caller::Session;
use super::measure::{Figures, Spread};

/// All calls of one run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Every session stayed within the deficit.
    pub ok: bool,
    url: String,
    frames_due: u32,
    deficit_frames_max: u64,
    refused: usize,
    sessions: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    session: usize,
    ok: bool,
    ready_ms: Option<f64>,
    /// Largest waiting place that was named.
    waited_at: Option<u32>,
    #[serde(flatten)]
    figures: Figures,
    /// Why it ended before its time.
    reason: Option<String>,
}

impl Report {
    /// Judges every session.
    pub fn new(url: String, frames_due: u32, sessions: Vec<Session>) -> Self {
        let lines = sessions
            .into_iter()
            .enumerate()
            .map(|(session, made)| Line {
                session,
                ok: made.ready_ms.is_some() && made.figures.deficit_frames <= DEFICIT_FRAMES_MAX,
                ready_ms: made.ready_ms,
                waited_at: made.waited_at,
                figures: made.figures,
                reason: made.reason,
            });
        let sessions: Vec<Line> = lines.collect();
        Self {
            ok: sessions.iter().all(|line| line.ok),
            refused: sessions
                .iter()
                .filter(|line| line.ready_ms.is_none())
                .count(),
            url,
            frames_due,
            deficit_frames_max: DEFICIT_FRAMES_MAX,
            sessions,
        }
    }

    /// The one line for a run that failed.
    pub fn complaint(&self) -> Option<String> {
        let bad: Vec<&Line> = self.sessions.iter().filter(|line| !line.ok).collect();
        let first = bad.first()?;
        let late = bad.len() - self.refused;
        let worst = bad
            .iter()
            .map(|line| line.figures.deficit_frames)
            .max()
            .unwrap_or_default();
        let why = first.reason.clone();
        let why = why.unwrap_or_else(|| format!("the largest deficit is {worst} frames"));
        Some(format!(
            "{} of {} sessions refused, {late} behind by more than {DEFICIT_FRAMES_MAX} frames: {why}",
            self.refused,
            self.sessions.len(),
        ))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, {} frames due per session; times in ms",
            self.url, self.frames_due
        )?;
        writeln!(
            f,
            "{:>7} {:>5} {:>8} {:>8} {:>7} {:>7}  {:>22} {:>9}  {:>22}",
            "session",
            "",
            "ready",
            "audio",
            "frames",
            "deficit",
            "gap p50/p99/max",
            "underruns",
            "sent late p50/p99/max"
        )?;
        for line in &self.sessions {
            let Figures {
                first_audio_ms,
                frames,
                deficit_frames,
                gap_ms,
                underruns,
                send_late_ms,
            } = &line.figures;
            let time = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
            let spread = |Spread { p50, p99, max }: &Spread| format!("{p50:.1}/{p99:.1}/{max:.1}");
            let verdict = match (line.ok, line.ready_ms) {
                (true, _) => "ok",
                (false, None) => "none",
                (false, Some(_)) => "LATE",
            };
            write!(
                f,
                "{:>7} {verdict:>5} {:>8} {:>8} {frames:>7} {deficit_frames:>7}  {:>22} {underruns:>9}  {:>22}",
                line.session,
                time(line.ready_ms),
                time(*first_audio_ms),
                spread(gap_ms),
                spread(send_late_ms),
            )?;
            match &line.reason {
                Some(reason) => writeln!(f, "  {reason}")?,
                None => writeln!(f)?,
            }
        }
        let good = self.sessions.iter().filter(|line| line.ok).count();
        write!(
            f,
            "{good} of {} sessions within {DEFICIT_FRAMES_MAX} frames",
            self.sessions.len()
        )
    }
}
