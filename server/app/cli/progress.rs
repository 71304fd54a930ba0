//! How far along counted work is: a bar on a terminal, a plain line every few seconds elsewhere.
//!
//! Lives here: progress of work without bytes. `fetch/progress.rs` has that of downloads, with rates.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two plain lines: often enough to see that it lives, rare enough for a log.
const LINE_GAP: Duration = Duration::from_secs(5);

/// Progress towards a known number of steps.
pub struct Progress {
    what: String,
    total: u64,
    done: Cell<u64>,
    last_line: Cell<Instant>,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Begins to count `what` up to `total`.
    pub fn new(total: u64, what: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total).with_message(what.to_owned());
            let style = ProgressStyle::with_template("{msg} [{wide_bar}] {pos}/{len} {eta}");
            style.map_or(bar.clone(), |style| bar.with_style(style))
        });
        let (done, last_line) = (Cell::new(0), Cell::new(Instant::now()));
        Self {
            what: what.to_owned(),
            total,
            done,
            last_line,
            bar,
        }
    }

    /// `steps` more are done.
    pub fn add(&self, steps: u64) {
        self.done.set(self.done.get() + steps);
        match &self.bar {
            Some(bar) => bar.inc(steps),
            None if self.last_line.get().elapsed() >= LINE_GAP => {
                self.last_line.set(Instant::now());
                let (what, done, total) = (&self.what, self.done.get(), self.total);
                super::note(format_args!("{what}: {done} of {total}"));
            }
            None => {}
        }
    }

    /// Takes the bar away.
    pub fn done(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
