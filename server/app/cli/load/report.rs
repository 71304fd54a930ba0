//! What all calls got, as a table and as JSON.

use std::fmt;

use serde::Serialize;

use super::DEFICIT_FRAMES_MAX;
use super::caller::{End, Session};
use super::measure::{Figures, Spread};

/// All calls of one run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Every session stayed within the deficit.
    pub ok: bool,
    url: String,
    frames_due: u32,
    deficit_frames_max: u64,
    /// Sessions that the server did not take.
    refused: usize,
    /// Sessions that did not come about: no connection, no answer.
    failed: usize,
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
    #[serde(skip)]
    verdict: Verdict,
}

/// A session in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    /// Further behind than [`DEFICIT_FRAMES_MAX`].
    Late,
    /// It never began, since the server did not take it.
    Refused,
    /// It never began, and nobody said why.
    Failed,
}

impl Verdict {
    fn of(session: &Session) -> Self {
        match (&session.end, session.ready_ms) {
            (Some(End::Told(_)), None) => Self::Refused,
            (_, None) => Self::Failed,
            (_, Some(_)) if session.figures.deficit_frames <= DEFICIT_FRAMES_MAX => Self::Good,
            (_, Some(_)) => Self::Late,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Good => "ok",
            Self::Late => "LATE",
            Self::Refused => "refused",
            Self::Failed => "failed",
        })
    }
}

impl Report {
    /// Judges every session.
    pub fn new(url: String, frames_due: u32, sessions: Vec<Session>) -> Self {
        let lines = sessions.into_iter().enumerate().map(|(session, made)| {
            let verdict = Verdict::of(&made);
            Line {
                session,
                ok: verdict == Verdict::Good,
                ready_ms: made.ready_ms,
                waited_at: made.waited_at,
                figures: made.figures,
                reason: made.end.map(|end| end.reason().to_owned()),
                verdict,
            }
        });
        let sessions: Vec<Line> = lines.collect();
        let count = |verdict| sessions.iter().filter(|l| l.verdict == verdict).count();
        Self {
            ok: sessions.iter().all(|line| line.ok),
            refused: count(Verdict::Refused),
            failed: count(Verdict::Failed),
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
        let late = bad.len() - self.refused - self.failed;
        let worst = bad
            .iter()
            .map(|line| line.figures.deficit_frames)
            .max()
            .unwrap_or_default();
        let counts = [
            (self.refused, "refused".to_owned()),
            (self.failed, "failed".to_owned()),
            (
                late,
                format!("behind by more than {DEFICIT_FRAMES_MAX} frames"),
            ),
        ];
        let all = self.sessions.len();
        let counted = counts.iter().filter(|(count, _)| *count > 0);
        let counted: Vec<_> = counted
            .map(|(count, what)| format!("{count} of {all} sessions {what}"))
            .collect();
        let why = first.reason.clone();
        let why = why.unwrap_or_else(|| format!("the largest deficit is {worst} frames"));
        Some(format!("{}: {why}", counted.join(", ")))
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
            "{:>7} {:>7} {:>8} {:>8} {:>7} {:>7}  {:>22} {:>9}  {:>22}",
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
            // A call that never began has nothing to measure.
            let measured = |text: String| match line.ready_ms {
                Some(_) => text,
                None => "-".to_owned(),
            };
            write!(
                f,
                "{:>7} {:>7} {:>8} {:>8} {:>7} {:>7}  {:>22} {:>9}  {:>22}",
                line.session,
                line.verdict,
                time(line.ready_ms),
                time(*first_audio_ms),
                measured(frames.to_string()),
                measured(deficit_frames.to_string()),
                measured(spread(gap_ms)),
                measured(underruns.to_string()),
                measured(spread(send_late_ms)),
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
