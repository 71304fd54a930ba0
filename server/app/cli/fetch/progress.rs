//! How far along: a bar on a terminal, a plain line every few seconds elsewhere.
//!
//! Lives here: both forms. May not live here: what is counted.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::super::disk::bytes_text;
use super::super::note;

/// Time between two plain lines: often enough to see that it lives, rare enough for a log.
const LINE_GAP: Duration = Duration::from_secs(5);

/// Progress of one file.
pub struct Progress {
    count: Count,
    bar: Option<ProgressBar>,
    started: Instant,
    last_line: Instant,
}

/// What a line is made of.
struct Count {
    name: String,
    total_bytes: u64,
    done_bytes: u64,
    /// What was there before the clock started; it says nothing about the rate.
    here_bytes: u64,
}

impl Progress {
    /// Begins: a bar if the error stream is a terminal, else a first line.
    pub fn start(name: &str, total_bytes: u64) -> Self {
        let now = Instant::now();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total_bytes).with_message(name.to_owned());
            let template = "{msg} [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
            ProgressStyle::with_template(template)
                .map_or(bar.clone(), |style| bar.with_style(style))
        });
        if bar.is_none() {
            note(format_args!("{name}: {}", bytes_text(total_bytes)));
        }
        Self {
            count: Count {
                name: name.to_owned(),
                total_bytes,
                done_bytes: 0,
                here_bytes: 0,
            },
            bar,
            started: now,
            last_line: now,
        }
    }

    /// `bytes` more are done.
    pub fn add(&mut self, bytes: u64) {
        self.count.done_bytes += bytes;
        let now = Instant::now();
        match &self.bar {
            Some(bar) => bar.set_position(self.count.done_bytes),
            None if now - self.last_line >= LINE_GAP => {
                self.last_line = now;
                note(self.count.line(now - self.started));
            }
            None => {}
        }
    }

    /// What was counted so far was here already: rate and time left are about the rest.
    pub fn rest_begins(&mut self) {
        self.count.here_bytes = self.count.done_bytes;
        self.started = Instant::now();
        if self.count.here_bytes > 0 {
            self.say(&format!(
                "{} are here already",
                bytes_text(self.count.here_bytes)
            ));
        }
        if let Some(bar) = &self.bar {
            bar.reset_eta();
        }
    }

    /// What was done is void.
    pub fn start_over(&mut self) {
        (self.count.done_bytes, self.count.here_bytes) = (0, 0);
        self.started = Instant::now();
        if let Some(bar) = &self.bar {
            bar.reset();
        }
    }

    /// Something worth knowing on the way.
    pub fn say(&self, what: &str) {
        let line = format!("{}: {what}", self.count.name);
        match &self.bar {
            Some(bar) => bar.suspend(|| note(line)),
            None => note(line),
        }
    }

    /// The end, with a last line.
    pub fn finish(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        note(self.count.line(self.started.elapsed()));
    }
}

impl Count {
    fn line(&self, elapsed: Duration) -> String {
        let Self {
            name,
            total_bytes,
            done_bytes,
            here_bytes,
        } = self;
        let rate = (done_bytes - here_bytes) as f64 / elapsed.as_secs_f64().max(1e-3);
        let (done, total) = (bytes_text(*done_bytes), bytes_text(*total_bytes));
        let percent = (*done_bytes as f64 / (*total_bytes).max(1) as f64 * 100.0).floor();
        let left = match total_bytes.saturating_sub(*done_bytes) {
            0 => "done".to_owned(),
            left => format!("{} left", time_text(left as f64 / rate.max(1.0))),
        };
        format!(
            "{name}: {done} of {total} ({percent:.0}%), {}/s, {left}",
            bytes_text(rate as u64)
        )
    }
}

/// Seconds in words: `40 s`, `12 min`, `3.5 h`.
fn time_text(seconds: f64) -> String {
    match seconds {
        ..90.0 => format!("{seconds:.0} s"),
        ..5_400.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_bytes_rate_and_time_left() {
        let count = |done_bytes, total_bytes, here_bytes| Count {
            name: "f".to_owned(),
            total_bytes,
            done_bytes,
            here_bytes,
        };
        let cases = [
            (
                count(0, 1_000, 0),
                1,
                "f: 0 bytes of 1.0 KB (0%), 0 bytes/s, 17 min left",
            ),
            (
                count(250_000_000, 1_000_000_000, 0),
                10,
                "f: 250.0 MB of 1.0 GB (25%), 25.0 MB/s, 30 s left",
            ),
            (
                count(250_000_000, 1_000_000_000, 150_000_000),
                10,
                "f: 250.0 MB of 1.0 GB (25%), 10.0 MB/s, 75 s left",
            ),
            (
                count(999, 1_000, 0),
                1,
                "f: 999 bytes of 1.0 KB (99%), 999 bytes/s, 0 s left",
            ),
            (
                count(1_000, 1_000, 0),
                2,
                "f: 1.0 KB of 1.0 KB (100%), 500 bytes/s, done",
            ),
            (
                count(0, 0, 0),
                0,
                "f: 0 bytes of 0 bytes (0%), 0 bytes/s, done",
            ),
        ];
        for (count, seconds, line) in cases {
            assert_eq!(count.line(Duration::from_secs(seconds)), line);
        }
    }
}
