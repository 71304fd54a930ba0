//! The board: numbers about the tick that anybody may read at any time without holding anybody up.
//!
//! Lives here: [`Board`] and what it counts; atomics only, each written with relaxed ordering and read the same way.
//! May not live here: names of metrics, JSON, decisions.

use std::array;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

use slots::engine::EngineCounters;
use slots::slot::{CLOSE_REASONS, CloseReason};

use super::clock::Clock;

/// Upper bounds of the tick histogram, in microseconds; they crowd around 80 ms, where it matters.
/// One more bucket takes everything above.
pub const TICK_BUCKETS_US: [u64; 16] = [
    1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000, 66_000, 72_000, 76_000,
    80_000, 88_000, 120_000, 240_000,
];

/// Where the process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The engine is being loaded; nobody can join yet.
    Loading = 0,
    /// Ticking.
    Ready = 1,
    /// Ticking, but no new callers are taken.
    Draining = 2,
    /// Stopped as asked.
    Stopped = 3,
    /// The engine could not be started, or failed.
    Failed = 4,
}

/// What one slot is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum SlotPhase {
    /// Nobody holds it.
    #[default]
    Free = 0,
    /// Held; the prompt is not begun.
    Queued = 1,
    /// The prompt is being read.
    Prefill = 2,
    /// Full duplex.
    Live = 3,
    /// Over; it becomes free with the next tick.
    Closing = 4,
}

/// How many kinds of [`SlotPhase`] there are.
pub const SLOT_PHASES: usize = 5;

impl SlotPhase {
    /// Every phase, in order.
    pub const ALL: [Self; SLOT_PHASES] = [
        Self::Free,
        Self::Queued,
        Self::Prefill,
        Self::Live,
        Self::Closing,
    ];

    /// A stable word for metrics and clients.
    pub fn code(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Queued => "queued",
            Self::Prefill => "prefill",
            Self::Live => "live",
            Self::Closing => "closing",
        }
    }
}

/// What goes wrong with frames, each with its own counter that names the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Frames from the caller that found the mic queue full; the newest was dropped.
    MicFull = 0,
    /// Frames dropped from the front of the mic queue by the tick, because it was too long.
    MicBacklog = 1,
    /// Quiet frames skipped by the tick to get back to a short mic queue.
    MicQuiet = 2,
    /// Ticks of a live row that found no frame of the caller and ran on silence.
    MicMissing = 3,
    /// Frames due to the caller that were never made, because the tick was over 1 s late.
    Deficit = 4,
    /// Ticks that ended after the next one was due.
    LateTick = 5,
    /// Frames from the caller that held something other than finite numbers, and were taken as silence.
    MicNotFinite = 6,
}

/// How many kinds of [`Loss`] there are.
pub const LOSSES: usize = 7;

impl Loss {
    /// Every kind, in order.
    pub const ALL: [Self; LOSSES] = [
        Self::MicFull,
        Self::MicBacklog,
        Self::MicQuiet,
        Self::MicMissing,
        Self::Deficit,
        Self::LateTick,
        Self::MicNotFinite,
    ];

    /// A stable word for metrics.
    pub fn code(self) -> &'static str {
        match self {
            Self::MicFull => "mic_full",
            Self::MicBacklog => "mic_backlog",
            Self::MicQuiet => "mic_quiet",
            Self::MicMissing => "mic_missing",
            Self::Deficit => "deficit",
            Self::LateTick => "late_tick",
            Self::MicNotFinite => "mic_not_finite",
        }
    }
}

/// One counter for each [`Loss`]; they only grow.
#[derive(Debug, Default)]
pub struct Losses([AtomicU64; LOSSES]);

impl Losses {
    /// How many of `loss` there were.
    pub fn get(&self, loss: Loss) -> u64 {
        self.0[loss as usize].load(Relaxed)
    }

    /// Counts `n` more of `loss`.
    pub(super) fn add(&self, loss: Loss, n: u64) {
        if n > 0 {
            self.0[loss as usize].fetch_add(n, Relaxed);
        }
    }
}

/// Numbers about the tick, for metrics, readiness and the UI. One for the whole process.
pub struct Board {
    clock: Arc<dyn Clock>,
    pub(super) phase: AtomicU8,
    pub(super) admission_open: AtomicBool,
    pub(super) ticks: AtomicU64,
    pub(super) steps: AtomicU64,
    pub(super) last_tick_us: AtomicU64,
    pub(super) next_tick_us: AtomicU64,
    pub(super) resyncs: AtomicU64,
    pub(super) tick_p50_us: AtomicU64,
    pub(super) tick_p99_us: AtomicU64,
    pub(super) tick_sum_us: AtomicU64,
    pub(super) tick_max_us: AtomicU64,
    pub(super) tick_buckets: [AtomicU64; TICK_BUCKETS_US.len() + 1],
    pub(super) waiting: AtomicU64,
    pub(super) joined: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) frames_sent: AtomicU64,
    pub(super) losses: Losses,
    pub(super) ended: [AtomicU64; CLOSE_REASONS],
    /// How many of `slots` the engine has.
    pub(super) open: AtomicUsize,
    pub(super) slots: Box<[SlotCell]>,
    pub(super) cache_hits: AtomicU64,
    pub(super) cache_misses: AtomicU64,
    pub(super) cache_bytes: AtomicU64,
}

/// What the board shows of one slot.
#[derive(Debug, Default)]
pub(super) struct SlotCell {
    pub(super) phase: AtomicU8,
    pub(super) frames: AtomicU64,
    pub(super) mic_wait_us: AtomicU64,
}

impl Board {
    pub(super) fn new(slots: usize, clock: Arc<dyn Clock>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            clock,
            phase: AtomicU8::new(Phase::Loading as u8),
            admission_open: AtomicBool::new(true),
            ticks: zero(),
            steps: zero(),
            last_tick_us: zero(),
            next_tick_us: zero(),
            resyncs: zero(),
            tick_p50_us: zero(),
            tick_p99_us: zero(),
            tick_sum_us: zero(),
            tick_max_us: zero(),
            tick_buckets: array::from_fn(|_| zero()),
            waiting: zero(),
            joined: zero(),
            refused: zero(),
            frames_sent: zero(),
            losses: Losses::default(),
            ended: array::from_fn(|_| zero()),
            open: AtomicUsize::new(slots),
            slots: (0..slots).map(|_| SlotCell::default()).collect(),
            cache_hits: zero(),
            cache_misses: zero(),
            cache_bytes: zero(),
        }
    }

    /// Where the process stands.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Loading,
            1 => Phase::Ready,
            2 => Phase::Draining,
            3 => Phase::Stopped,
            _ => Phase::Failed,
        }
    }

    /// Microseconds since the stepping thread last began a tick; 0 while the engine is being loaded.
    pub fn last_tick_age_us(&self) -> u64 {
        match self.phase() {
            Phase::Loading => 0,
            _ => self
                .clock
                .now_us()
                .saturating_sub(self.last_tick_us.load(Relaxed)),
        }
    }

    /// Microseconds until the next tick takes its frames; 0 when it is due or late.
    pub fn next_tick_in_us(&self) -> u64 {
        let due_us = self.next_tick_us.load(Relaxed);
        due_us.saturating_sub(self.clock.now_us())
    }

    /// Whether new callers are taken: closed while the measured p99 tick of the last 60 s is above 72 ms.
    pub fn admission_open(&self) -> bool {
        self.admission_open.load(Relaxed)
    }

    /// Whether a caller who asks now would get a row or would be told to wait only for lack of rows:
    /// loaded, not draining, in time.
    pub fn in_service(&self) -> bool {
        self.phase() == Phase::Ready && self.admission_open()
    }

    /// Number of slots; while the engine is being loaded, the most it may come with.
    pub fn capacity(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// What each slot is doing, by row.
    pub fn slot_phases(&self) -> impl Iterator<Item = SlotPhase> + '_ {
        self.slots[..self.capacity()]
            .iter()
            .map(|cell| SlotPhase::ALL[usize::from(cell.phase.load(Relaxed)) % SLOT_PHASES])
    }

    /// How many slots are in `phase`.
    pub fn slots_in(&self, phase: SlotPhase) -> usize {
        self.slot_phases().filter(|&other| other == phase).count()
    }

    /// Frames stepped for the present holder of row `row`; 0 out of range.
    pub fn slot_frames(&self, row: usize) -> u64 {
        self.slots
            .get(row)
            .map_or(0, |cell| cell.frames.load(Relaxed))
    }

    /// How long the newest frame of the present holder of row `row` had waited when its tick took it, in microseconds;
    /// 0 out of range or before the first one.
    pub fn slot_mic_wait_us(&self, row: usize) -> u64 {
        self.slots
            .get(row)
            .map_or(0, |cell| cell.mic_wait_us.load(Relaxed))
    }

    /// Callers in the waiting places.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }

    /// Ticks since the start, also those in which no row was stepped.
    pub fn ticks(&self) -> u64 {
        self.ticks.load(Relaxed)
    }

    /// Ticks in which at least one row was stepped; the histogram and the percentiles count these.
    pub fn steps(&self) -> u64 {
        self.steps.load(Relaxed)
    }

    /// Times the schedule was given up and begun anew, because a tick was over 1 s late.
    pub fn resyncs(&self) -> u64 {
        self.resyncs.load(Relaxed)
    }

    /// Median tick of the last 60 s, in microseconds.
    pub fn tick_p50_us(&self) -> u64 {
        self.tick_p50_us.load(Relaxed)
    }

    /// 99th percentile of the ticks of the last 60 s, in microseconds.
    pub fn tick_p99_us(&self) -> u64 {
        self.tick_p99_us.load(Relaxed)
    }

    /// All ticks with a step together, in microseconds.
    pub fn tick_sum_us(&self) -> u64 {
        self.tick_sum_us.load(Relaxed)
    }

    /// The longest tick with a step since the last call of this, in microseconds; 0 without any. For one reader.
    pub fn take_tick_max_us(&self) -> u64 {
        self.tick_max_us.swap(0, Relaxed)
    }

    /// Ticks with a step by length: one count for each bound of [`TICK_BUCKETS_US`] (not cumulative), and one above.
    pub fn tick_buckets(&self) -> [u64; TICK_BUCKETS_US.len() + 1] {
        array::from_fn(|index| self.tick_buckets[index].load(Relaxed))
    }

    /// Callers who got a row or a waiting place.
    pub fn joined(&self) -> u64 {
        self.joined.load(Relaxed)
    }

    /// Callers who were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Frames handed to listeners.
    pub fn frames_sent(&self) -> u64 {
        self.frames_sent.load(Relaxed)
    }

    /// What was lost, in total.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Sessions that ended for reasons of this kind.
    pub fn ended(&self, reason: CloseReason) -> u64 {
        self.ended[reason.index()].load(Relaxed)
    }

    /// Sessions that ended, by kind, in the order of [`CloseReason::CODES`].
    pub fn ended_by_code(&self) -> [(&'static str, u64); CLOSE_REASONS] {
        array::from_fn(|index| (CloseReason::CODES[index], self.ended[index].load(Relaxed)))
    }

    /// What the engine counts.
    pub fn engine(&self) -> EngineCounters {
        EngineCounters {
            prompt_cache_hits: self.cache_hits.load(Relaxed),
            prompt_cache_misses: self.cache_misses.load(Relaxed),
            prompt_cache_bytes: self.cache_bytes.load(Relaxed),
        }
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board")
            .field("phase", &self.phase())
            .field("ticks", &self.ticks())
            .finish_non_exhaustive()
    }
}
