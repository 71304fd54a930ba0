//! One session as the stepping thread keeps it, from its request to its end.
//!
//! Lives here: [`Party`], and how a row takes its frame from the mic queue by the rules of `slots::backlog`.
//! May not live here: which row it holds (`slots::table`), the queues themselves (`queues`).

use slots::backlog::{Backlog, STANDING_FRAMES, missing_frame};
use slots::slot::{CloseReason, Peer};
use slots::table::Ask;

use super::board::{Board, Loss};
use super::handle::JoinRequest;
use super::queues::{SeatEnds, SeatState};

/// A session. Made by the caller's task and freed by the doorbell thread, so that the tick only moves its box.
pub(super) struct Party<C> {
    pub(super) ask: Ask,
    /// What the engine is to be told; taken when the row is seated.
    pub(super) call: Option<C>,
    pub(super) ends: SeatEnds,
    backlog: Backlog,
    /// Something is new in the seat's queue or cell and its task has not been woken.
    pub(super) unrung: bool,
}

impl<C> Party<C> {
    pub(super) fn new(request: JoinRequest<C>, ends: SeatEnds) -> Self {
        Self {
            ask: Ask {
                session: request.session,
                generation: request.generation,
                may_wait: request.may_wait,
            },
            call: Some(request.call),
            ends,
            backlog: Backlog::at_start(),
            unrung: false,
        }
    }

    /// What the caller showed since the last look.
    pub(super) fn peer(&self) -> Peer {
        if self.ends.hung_up() {
            Peer::HungUp
        } else if self.ends.take_life() {
            Peer::Life
        } else {
            Peer::Nothing
        }
    }

    pub(super) fn tell(&mut self, state: SeatState) {
        self.ends.set_state(state);
        self.unrung = true;
    }

    pub(super) fn end(&mut self, reason: CloseReason) {
        self.ends.end(reason);
        self.unrung = true;
    }

    /// Before a row is live, only the newest end of what its caller says is kept.
    pub(super) fn keep_newest(&mut self, board: &Board) {
        let excess = self.ends.mic_queued().saturating_sub(STANDING_FRAMES);
        self.drop_front(excess, board);
    }

    /// The tick lost `ticks` frames that were due to this live row.
    pub(super) fn after_stall(&mut self, ticks: u64, board: &Board) {
        self.backlog.after_stall();
        self.count(Loss::Deficit, ticks, board);
    }

    /// Fills `row` with the frame this tick hears.
    pub(super) fn hear(&mut self, row: &mut [f32], now_us: u64, board: &Board) {
        let cut = self.backlog.cut(self.ends.mic_queued());
        self.drop_front(cut, board);
        while let Some(power) = self.ends.mic_front_power() {
            self.backlog.heard(power);
            if !self.backlog.skip(self.ends.mic_queued(), power) {
                break;
            }
            self.ends.drop_mic();
            self.count(Loss::MicQuiet, 1, board);
        }
        if !self.ends.take_mic(row, now_us) {
            missing_frame(row);
            self.count(Loss::MicMissing, 1, board);
        }
    }

    fn drop_front(&mut self, frames: usize, board: &Board) {
        for _ in 0..frames {
            self.ends.drop_mic();
        }
        self.count(Loss::MicBacklog, frames as u64, board);
    }

    pub(super) fn count(&self, loss: Loss, n: u64, board: &Board) {
        self.ends.count(loss, n);
        board.losses.add(loss, n);
    }
}
