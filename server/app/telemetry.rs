//! What the process tells about itself: the format of its log, names of its metrics, their buckets.
//!
//! Lives here: starting the log; `/metrics` as text, written from the board and the counters of the sessions.
//! May not live here: counting. The tick writes atomics on its board; nothing here ever runs on its thread.
//! Why no metrics crate: every number already has one home, and a recorder would be a second one.

use std::fmt::{Display, Write};
use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use wire::notice::EndReason;

use crate::sessions::counters::SessionCounters;
use crate::stepper::board::{Board, Loss, SlotPhase, TICK_BUCKETS_US};
use crate::telemetry::tail::TailLayer;

mod tail;

pub use tail::log_tail;

/// The type of [`prometheus`]'s text.
pub const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is logged unless the variable [`LOG_VARIABLE`] says otherwise.
const LOG_DEFAULT: &str = "info";
/// Takes directives like `vivavoce=debug`.
pub const LOG_VARIABLE: &str = "VIVAVOCE_LOG";

/// Starts the log on standard error: JSON lines, or plain ones with colours only on a terminal. A second call changes
/// nothing.
pub fn start_log(json: bool) {
    let asked = std::env::var(LOG_VARIABLE).unwrap_or_default();
    let (filter, complaint) = match filter(&asked) {
        Ok(filter) => (filter, None),
        Err(complaint) => (EnvFilter::new(LOG_DEFAULT), Some(complaint)),
    };
    let log = tracing_subscriber::fmt::layer()
        // It would print to standard error that standard error cannot be written, and panic because it cannot.
        .log_internal_errors(false)
        .with_writer(stderr);
    let both = tracing_subscriber::registry().with(filter).with(TailLayer);
    let started = if json {
        both.with(log.json().flatten_event(true)).try_init()
    } else {
        let log = log.with_ansi(stderr().is_terminal()).with_target(false);
        both.with(log).try_init()
    };
    // In tests many servers share a process and the first one has started it.
    drop(started);
    if let Some(complaint) = complaint {
        tracing::warn!("{LOG_VARIABLE} is {asked:?}: {complaint}; logging as with {LOG_DEFAULT}");
    }
}

/// What `asked` lets through; nothing asked is the default.
///
/// # Errors
/// What is taken instead.
fn filter(asked: &str) -> Result<EnvFilter, String> {
    let directives = asked.split(',').map(str::trim);
    let directives: Vec<&str> = directives.filter(|text| !text.is_empty()).collect();
    if directives.is_empty() {
        return Ok(EnvFilter::new(LOG_DEFAULT));
    }
    // A lone word that is no level would be taken for the name of a module, and all others would fall silent.
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let is_odd = |word: &&&str| match word.contains(['=', '[']) {
        true => word.contains(char::is_whitespace) && !word.contains('['),
        false => !is_level(word),
    };
    if let Some(word) = directives.iter().find(is_odd) {
        return Err(format!(
            "{word:?} is no level; there are error, warn, info, debug, trace and off, and MODULE=LEVEL, joined by commas"
        ));
    }
    EnvFilter::try_new(directives.join(",")).map_err(|error| error.to_string())
}

/// All metrics as Prometheus text. `board` is missing while the model loads.
pub fn prometheus(board: Option<&Board>, sessions: &SessionCounters) -> String {
    let mut text = Text(String::with_capacity(8 * 1024));
    match board {
        Some(board) => of_board(&mut text, board),
        None => text.one(
            "vivavoce_loaded",
            "gauge",
            "Whether the model is loaded.",
            0,
        ),
    }
    of_sessions(&mut text, sessions);
    text.0
}

fn of_board(text: &mut Text, board: &Board) {
    text.one(
        "vivavoce_loaded",
        "gauge",
        "Whether the model is loaded.",
        1,
    );
    text.one(
        "vivavoce_slots",
        "gauge",
        "Rows of the engine.",
        board.capacity(),
    );
    text.head(
        "vivavoce_slots_by_phase",
        "gauge",
        "Rows by what they are doing.",
    );
    for phase in SlotPhase::ALL {
        text.labelled(
            "vivavoce_slots_by_phase",
            "phase",
            phase.code(),
            board.slots_in(phase),
        );
    }
    text.one(
        "vivavoce_waiting",
        "gauge",
        "Callers in the waiting places.",
        board.waiting(),
    );
    let admission = u8::from(board.in_service());
    text.one(
        "vivavoce_admission_open",
        "gauge",
        "Whether a new caller would be taken if a row were free.",
        admission,
    );
    text.head(
        "vivavoce_mic_wait_seconds",
        "gauge",
        "How long the newest frame of each live caller had waited when its tick took it.",
    );
    for (row, phase) in board.slot_phases().enumerate() {
        if phase == SlotPhase::Live {
            text.labelled(
                "vivavoce_mic_wait_seconds",
                "slot",
                &row.to_string(),
                board.slot_mic_wait_us(row) as f64 / 1e6,
            );
        }
    }
    tick_histogram(text, board);
    text.one(
        "vivavoce_ticks_total",
        "counter",
        "Ticks, idle ones included.",
        board.ticks(),
    );
    let age_s = board.last_tick_age_us() as f64 / 1e6;
    text.one(
        "vivavoce_last_tick_age_seconds",
        "gauge",
        "Time since the last tick began.",
        age_s,
    );
    text.head(
        "vivavoce_tick_recent_seconds",
        "gauge",
        "Length of a tick over the last 60 s.",
    );
    for (quantile, us) in [("0.5", board.tick_p50_us()), ("0.99", board.tick_p99_us())] {
        text.labelled(
            "vivavoce_tick_recent_seconds",
            "quantile",
            quantile,
            us as f64 / 1e6,
        );
    }
    text.one(
        "vivavoce_resyncs_total",
        "counter",
        "Times the schedule began anew after a stall of over 1 s.",
        board.resyncs(),
    );
    let losses = board.losses();
    text.one(
        "vivavoce_late_ticks_total",
        "counter",
        "Ticks that ended after the next one was due.",
        losses.get(Loss::LateTick),
    );
    text.one(
        "vivavoce_deficit_frames_total",
        "counter",
        "Frames due to callers that were never made.",
        losses.get(Loss::Deficit),
    );
    text.head(
        "vivavoce_mic_frames_lost_total",
        "counter",
        "Frames from callers that did not reach the model as sent, by cause.",
    );
    for loss in [
        Loss::MicFull,
        Loss::MicBacklog,
        Loss::MicQuiet,
        Loss::MicMissing,
        Loss::MicNotFinite,
    ] {
        text.labelled(
            "vivavoce_mic_frames_lost_total",
            "cause",
            loss.code(),
            losses.get(loss),
        );
    }
    text.one(
        "vivavoce_frames_sent_total",
        "counter",
        "Frames handed to listeners.",
        board.frames_sent(),
    );
    text.one(
        "vivavoce_joined_total",
        "counter",
        "Callers who got a row or a waiting place.",
        board.joined(),
    );
    text.one(
        "vivavoce_refused_total",
        "counter",
        "Callers who were refused.",
        board.refused(),
    );
    text.head(
        "vivavoce_seats_ended_total",
        "counter",
        "Seats given up, by the tick's reason.",
    );
    for (reason, n) in board.ended_by_code() {
        text.labelled("vivavoce_seats_ended_total", "reason", reason, n);
    }
    let engine = board.engine();
    text.one(
        "vivavoce_prompt_cache_hits_total",
        "counter",
        "Calls seated from a snapshot of their prompt.",
        engine.prompt_cache_hits,
    );
    text.one(
        "vivavoce_prompt_cache_misses_total",
        "counter",
        "Calls whose prompt had to be read.",
        engine.prompt_cache_misses,
    );
    text.one(
        "vivavoce_prompt_cache_bytes",
        "gauge",
        "Memory the snapshots take.",
        engine.prompt_cache_bytes,
    );
}

fn tick_histogram(text: &mut Text, board: &Board) {
    const NAME: &str = "vivavoce_tick_seconds";
    text.head(
        NAME,
        "histogram",
        "Length of ticks in which a row was stepped; 0.08 is real time.",
    );
    let mut so_far = 0;
    let counts = board.tick_buckets();
    for (bound_us, count) in TICK_BUCKETS_US.into_iter().zip(counts) {
        so_far += count;
        let bound_s = (bound_us as f64 / 1e6).to_string();
        text.labelled("vivavoce_tick_seconds_bucket", "le", &bound_s, so_far);
    }
    // Summed here, so that it can never be below the last bucket while the tick goes on counting.
    let all: u64 = counts.iter().sum();
    text.labelled("vivavoce_tick_seconds_bucket", "le", "+Inf", all);
    text.bare(
        "vivavoce_tick_seconds_sum",
        board.tick_sum_us() as f64 / 1e6,
    );
    text.bare("vivavoce_tick_seconds_count", all);
}

fn of_sessions(text: &mut Text, sessions: &SessionCounters) {
    let counters = [
        (
            "vivavoce_connections_total",
            "WebSocket connections taken, resumptions included.",
            &sessions.connections,
        ),
        (
            "vivavoce_resumed_total",
            "Connections that went on with a call whose connection was lost.",
            &sessions.resumed,
        ),
        (
            "vivavoce_frames_heard_total",
            "Frames from callers that were handed to the mic queues.",
            &sessions.frames_heard,
        ),
        (
            "vivavoce_burst_frames_dropped_total",
            "Frames that came in one burst and were dropped before the mic queue, the oldest first.",
            &sessions.burst_frames_dropped,
        ),
        (
            "vivavoce_ahead_messages_dropped_total",
            "Audio messages dropped because their sender runs far ahead of real time.",
            &sessions.ahead_messages_dropped,
        ),
        (
            "vivavoce_early_messages_total",
            "Audio messages that came before the caller was live.",
            &sessions.early_messages,
        ),
        (
            "vivavoce_damaged_packets_total",
            "Ogg pages and Opus packets from callers that could not be read.",
            &sessions.damaged_packets,
        ),
        (
            "vivavoce_parked_frames_dropped_total",
            "Frames made while a caller's connection was lost.",
            &sessions.parked_frames_dropped,
        ),
        (
            "vivavoce_cuts_moved_total",
            "Calls whose cut into frames was moved towards the tick, in silence and once.",
            &sessions.cuts_moved,
        ),
        (
            "vivavoce_cut_samples_dropped_total",
            "Quiet samples from callers that were left out by moving their cut.",
            &sessions.cut_samples_dropped,
        ),
    ];
    for (name, help, count) in counters {
        text.one(name, "counter", help, count.get());
    }
    text.one(
        "vivavoce_sessions",
        "gauge",
        "Callers connected now, or kept for a return.",
        sessions.open.get(),
    );
    text.head(
        "vivavoce_sessions_ended_total",
        "counter",
        "Sessions that ended, refused ones included, by reason.",
    );
    for reason in EndReason::ALL {
        text.labelled(
            "vivavoce_sessions_ended_total",
            "reason",
            reason.name(),
            sessions.ended(reason),
        );
    }
}

/// The text format. Writing into a `String` cannot fail.
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.bare(name, value);
    }

    fn bare(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn labelled(&mut self, name: &str, label: &str, of: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name}{{{label}=\"{of}\"}} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::filter;

    #[test]
    fn a_log_filter_that_means_nothing_is_refused() {
        for good in [
            "",
            " ,",
            "info",
            "WARN",
            "off",
            "vivavoce=debug",
            "info, sqlx=warn",
            "warn,vivavoce::sessions[call]=trace",
        ] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in [
            "loud",
            "info,loud",
            "vivavoce=loud",
            "info vivavoce=debug",
            "=,=",
        ] {
            assert!(filter(bad).is_err(), "{bad}");
        }
    }
}
