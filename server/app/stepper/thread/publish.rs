//! What a tick tells: its length and lateness, the board's numbers, notes for the log.
//!
//! May not live here: names of metrics (`telemetry`).

use std::sync::atomic::Ordering::Relaxed;

use slots::engine::Engine;
use slots::slot::Slot;

use super::{Parts, Stepper};
use crate::stepper::board::{Loss, SlotPhase, TICK_BUCKETS_US};
use crate::stepper::doorbell::Note;

/// Ticks between two updates of the percentiles on the board (about 1 s).
const PERCENTILE_TICKS: u64 = 12;

impl<E: Engine> Stepper<E> {
    /// A tick with a step is over: how long it took, and whether the next one is late by it.
    pub(super) fn note_time(&mut self, begun_us: u64) {
        let now_us = self.parts.clock.now_us();
        let Parts { bell, board, .. } = &mut self.parts;
        let took_us = now_us.saturating_sub(begun_us);
        self.times.push(Some(took_us));
        board.steps.fetch_add(1, Relaxed);
        board.tick_sum_us.fetch_add(took_us, Relaxed);
        board.tick_max_us.fetch_max(took_us, Relaxed);
        let bucket = TICK_BUCKETS_US.partition_point(|&bound_us| bound_us < took_us);
        board.tick_buckets[bucket].fetch_add(1, Relaxed);
        let late = self.pace.is_late(now_us);
        if late {
            board.losses.add(Loss::LateTick, 1);
            for &slot in &self.plan.live {
                if let Some((_, _, party)) = self.table.live_mut(slot) {
                    party.ends.count(Loss::LateTick, 1);
                }
            }
            if !self.was_late {
                bell.note(Note::Late {
                    tick: board.ticks() - 1,
                    took_us,
                    rows: self.plan.live.len(),
                });
            }
        }
        self.was_late = late;
    }

    /// What the board shows of the table and the engine.
    pub(super) fn publish(&mut self) {
        let open = !self.parts.admission || self.times.admission_open();
        let Parts { bell, board, .. } = &mut self.parts;
        for ((_, slot), cell) in self.table.slots().zip(&board.slots) {
            let (phase, frames) = match slot {
                Slot::Free => (SlotPhase::Free, 0),
                Slot::Queued { .. } => (SlotPhase::Queued, 0),
                Slot::Prefill { .. } => (SlotPhase::Prefill, 0),
                Slot::Live { frame, .. } => (SlotPhase::Live, frame),
                Slot::Closing { .. } => (SlotPhase::Closing, 0),
            };
            cell.phase.store(phase as u8, Relaxed);
            cell.frames.store(frames, Relaxed);
            if frames == 0 {
                cell.mic_wait_us.store(0, Relaxed);
            }
        }
        for &slot in &self.plan.live {
            if let Some((_, _, party)) = self.table.live_mut(slot) {
                let wait_us = party.ends.counters().mic_wait_us();
                board.slots[slot.row()].mic_wait_us.store(wait_us, Relaxed);
            }
        }
        board.waiting.store(self.table.waiting() as u64, Relaxed);
        let counters = self.engine.counters();
        board.cache_hits.store(counters.prompt_cache_hits, Relaxed);
        board
            .cache_misses
            .store(counters.prompt_cache_misses, Relaxed);
        board
            .cache_bytes
            .store(counters.prompt_cache_bytes, Relaxed);
        let changed = board.admission_open.swap(open, Relaxed) != open;
        if changed || board.ticks().is_multiple_of(PERCENTILE_TICKS) {
            let p99_us = self.times.percentile_us(99);
            board
                .tick_p50_us
                .store(self.times.percentile_us(50), Relaxed);
            board.tick_p99_us.store(p99_us, Relaxed);
            if changed {
                bell.note(Note::Admission { open, p99_us });
            }
        }
        bell.ring();
    }
}
