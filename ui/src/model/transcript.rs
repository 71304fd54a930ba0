//! What the agent said, as lines: a pause begins a new one.

/// Milliseconds without a word after which a new line begins.
const PAUSE_MS: f64 = 1_200.0;

#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Since the ready byte, in milliseconds.
    pub at_ms: f64,
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    pub lines: Vec<Line>,
    last_ms: f64,
}

impl Transcript {
    /// A piece, as the model wrote it.
    pub fn say(&mut self, at_ms: f64, piece: &str) {
        let pause = at_ms - self.last_ms > PAUSE_MS;
        self.last_ms = at_ms;
        match self.lines.last_mut().filter(|_| !pause) {
            Some(line) => line.text.push_str(piece),
            None => self.lines.push(Line {
                at_ms,
                text: piece.trim_start().to_owned(),
            }),
        }
    }

    /// As a file.
    pub fn text(&self) -> String {
        let line = |line: &Line| format!("[{}] {}\n", super::text::clock(line.at_ms), line.text);
        self.lines.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_become_lines_at_pauses() {
        let mut transcript = Transcript::default();
        for (at_ms, piece) in [
            (1_000.0, " Hel"),
            (1_080.0, "lo."),
            (65_000.0, " Bye"),
            (65_500.0, "!"),
        ] {
            transcript.say(at_ms, piece);
        }
        assert_eq!(transcript.text(), "[0:01] Hello.\n[1:05] Bye!\n");
    }
}
