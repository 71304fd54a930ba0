//! What the sessions count, for `/metrics`. Atomics that only grow, but for two gauges.
//!
//! May not live here: names of metrics (`telemetry`).

use std::array;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wire::notice::EndReason;

/// Counts of all sessions together.
#[derive(Debug)]
pub struct SessionCounters {
    ended: [AtomicU64; EndReason::ALL.len()],
    /// Connections that were taken, resumptions included.
    pub connections: Count,
    /// Sessions that exist now.
    pub open: Count,
    /// Connections that went on with a call whose connection was lost.
    pub resumed: Count,
    /// Frames from callers that were handed to the mic queue.
    pub frames_heard: Count,
    /// Frames decoded in one burst and dropped before the mic queue, the oldest first.
    pub burst_frames_dropped: Count,
    /// Audio messages dropped undecoded, since their sender runs far ahead of real time.
    pub ahead_messages_dropped: Count,
    /// Audio messages that came before the caller was live; parsed and dropped.
    pub early_messages: Count,
    /// Pages with a wrong checksum and packets that could not be decoded.
    pub damaged_packets: Count,
    /// Frames made for a caller whose connection was lost at that moment.
    pub parked_frames_dropped: Count,
    /// Calls whose cut into frames was moved towards the tick.
    pub cuts_moved: Count,
    /// Quiet samples that were left out by it.
    pub cut_samples_dropped: Count,
}

/// One number anybody may add to.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub(super) fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Relaxed);
    }
}

impl Default for SessionCounters {
    fn default() -> Self {
        Self {
            ended: array::from_fn(|_| AtomicU64::new(0)),
            connections: Count::default(),
            open: Count::default(),
            resumed: Count::default(),
            frames_heard: Count::default(),
            burst_frames_dropped: Count::default(),
            ahead_messages_dropped: Count::default(),
            early_messages: Count::default(),
            damaged_packets: Count::default(),
            parked_frames_dropped: Count::default(),
            cuts_moved: Count::default(),
            cut_samples_dropped: Count::default(),
        }
    }
}

impl SessionCounters {
    /// Sessions that ended for `reason`, refused ones included.
    pub fn ended(&self, reason: EndReason) -> u64 {
        self.ended[reason.index()].load(Relaxed)
    }

    pub(super) fn count_end(&self, reason: EndReason) {
        self.ended[reason.index()].fetch_add(1, Relaxed);
    }
}
