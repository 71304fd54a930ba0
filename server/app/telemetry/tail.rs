//! The newest lines of the log, kept in memory for the System page.

use std::collections::VecDeque;
use std::fmt::{Debug, Write};
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use wire::api::system::LogLine;

use crate::store::now_ms;

/// Lines that are kept.
const LINES_MAX: usize = 500;
/// Characters of a line that are kept.
const CHARS_MAX: usize = 1_000;

// Locked for one push or one copy. The tick logs through the doorbell thread, so it never waits here.
static TAIL: Mutex<Tail> = Mutex::new(Tail {
    lines: VecDeque::new(),
    last: 0,
});

struct Tail {
    lines: VecDeque<LogLine>,
    last: u64,
}

/// Lines after number `after`, oldest first.
pub fn log_tail(after: u64) -> Vec<LogLine> {
    let tail = TAIL.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = tail.lines.iter().filter(|line| line.number > after);
    fresh.cloned().collect()
}

/// Keeps what is worth knowing: info, warnings, errors.
pub(super) struct TailLayer;

impl<S: Subscriber> Layer<S> for TailLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            _ => return,
        };
        let mut text = Words::default();
        event.record(&mut text);
        let mut text = text.message + &text.fields;
        if let Some((end, _)) = text.char_indices().nth(CHARS_MAX) {
            text.truncate(end);
        }
        let mut tail = TAIL.lock().unwrap_or_else(PoisonError::into_inner);
        tail.last += 1;
        let line = LogLine {
            number: tail.last,
            at_ms: now_ms(),
            level: level.to_owned(),
            text,
        };
        if tail.lines.len() == LINES_MAX {
            tail.lines.pop_front();
        }
        tail.lines.push_back(line);
    }
}

#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn lines_are_numbered_and_only_fresh_ones_are_given() {
        let subscriber = tracing_subscriber::registry().with(TailLayer);
        let before = log_tail(0).last().map_or(0, |line| line.number);
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(slots = 4, "tail test one");
            tracing::debug!("tail test unseen");
            tracing::warn!("tail test two");
        });
        let lines = log_tail(before);
        let lines: Vec<_> = lines
            .iter()
            .filter(|line| line.text.starts_with("tail test"))
            .collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (lines[0].text.as_str(), lines[1].level.as_str()),
            ("tail test one slots=4", "warn")
        );
        assert!(
            log_tail(lines[1].number)
                .iter()
                .all(|line| line.number > lines[1].number)
        );
    }
}
