//! The stepping thread's work: one tick after another.
//!
//! Lives here: [`Stepper`], which owns the engine and the table. No lock guards either, because nobody else can reach
//! them, and its buffers are its own for life.
//! May not live here: what is done in the time a tick leaves (`slack`), what the board is told (`publish`), who sits
//! where (`slots::table`), when a tick is due (`slots::pace`), starting and ending (`start`).
//! Start reading at [`Stepper::tick`].

mod publish;
mod slack;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use slots::engine::{Engine, EngineError, FrameKind, FrameOutput, TickPlan};
use slots::pace::{Pace, WorkTime};
use slots::slot::CloseReason;
use slots::table::{Gate, Joined, Refusal, SlotTable};
use slots::times::TickTimes;
use slots::units::FRAME_SAMPLES;

use super::board::{Board, Phase};
use super::clock::Clock;
use super::doorbell::{Bell, Note};
use super::handle::{JoinError, Wishes};
use super::party::Party;
use super::queues::SeatState;

/// The slots, each with whoever sits there.
type Table<C> = SlotTable<Box<Party<C>>>;

/// Whether there is to be another tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Yes.
    Tick,
    /// No: somebody asked for the end, or draining is done.
    Stop,
}

/// What a stepper is made of besides its engine.
pub(super) struct Parts<C> {
    pub(super) requests: rtrb::Consumer<Box<Party<C>>>,
    pub(super) bell: Bell<C>,
    pub(super) wishes: Arc<Wishes>,
    pub(super) board: Arc<Board>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) admission: bool,
    pub(super) drain_limit_us: u64,
}

/// Owns the engine, the table and the buffers between the queues and the engine.
pub(super) struct Stepper<E: Engine> {
    engine: E,
    table: Table<E::Call>,
    parts: Parts<E::Call>,
    pace: Pace,
    times: TickTimes,
    seat_time: WorkTime,
    chunk_time: WorkTime,
    gate: Gate,
    drain_until_us: Option<u64>,
    was_late: bool,
    /// `[capacity, FRAME_SAMPLES]`
    mic: Box<[f32]>,
    out: Box<[FrameOutput]>,
    plan: TickPlan,
}

impl<E: Engine> Stepper<E> {
    pub(super) fn new(engine: E, parts: Parts<E::Call>) -> Self {
        let slots = engine.capacity();
        let pace = Pace::start(parts.clock.now_us());
        Self {
            table: SlotTable::new(slots),
            pace,
            times: TickTimes::default(),
            seat_time: WorkTime::default(),
            chunk_time: WorkTime::default(),
            gate: Gate::Open,
            drain_until_us: None,
            was_late: false,
            mic: vec![0.0; slots * FRAME_SAMPLES].into(),
            out: (0..slots).map(|_| FrameOutput::idle()).collect(),
            plan: TickPlan {
                live: Vec::with_capacity(slots),
            },
            engine,
            parts,
        }
    }

    /// Ticks until told to stop.
    ///
    /// # Errors
    /// [`EngineError`]: the device failed, and nobody has been told.
    pub(super) fn run(&mut self) -> Result<(), EngineError> {
        while self.tick()? == Next::Tick {
            self.rest()?;
        }
        Ok(())
    }

    /// One tick, without the sleep that follows it.
    pub(super) fn tick(&mut self) -> Result<Next, EngineError> {
        let begun_us = self.begin();
        if self.heed_wishes(begun_us) == Next::Stop {
            return Ok(Next::Stop);
        }
        self.look_after_peers();
        self.take_requests(|_| true);
        self.ring();
        self.table.plan(&mut self.plan);
        if self.plan.live.is_empty() {
            self.times.push(None);
        } else {
            self.hear(begun_us);
            self.engine.step(&self.plan, &self.mic, &mut self.out)?;
            self.deliver();
            self.ring();
            self.note_time(begun_us);
        }
        self.use_slack(true)?;
        self.publish();
        Ok(Next::Tick)
    }

    /// Sleeps until the next tick is due. Who asks for a seat meanwhile is answered, and seated if the time is there.
    /// With every row taken the answer waits for the tick: it looks first who has hung up, so that nobody is refused a
    /// row that its last caller has left.
    pub(super) fn rest(&mut self) -> Result<(), EngineError> {
        while self.parts.clock.now_us() < self.pace.due_us() {
            self.parts.clock.sleep_until_us(self.pace.due_us());
            let in_time = self.parts.clock.now_us() < self.pace.due_us();
            if self.parts.wishes.stop.load(SeqCst) {
                return Ok(());
            }
            if in_time && !self.parts.requests.is_empty() && self.table.has_free_row() {
                self.take_requests(SlotTable::has_free_row);
                self.ring();
                self.use_slack(false)?;
                self.publish();
            }
        }
        Ok(())
    }

    /// Ends every session with `reason` and answers whoever still asks. Nothing ticks afterwards.
    pub(super) fn finish(&mut self, reason: CloseReason) {
        let Parts {
            bell,
            board,
            wishes,
            requests,
            ..
        } = &mut self.parts;
        board.set_phase(match reason {
            CloseReason::EngineFault => Phase::Failed,
            _ => Phase::Stopped,
        });
        wishes.closed.store(true, SeqCst);
        self.table.close_all(reason, |mut party| {
            board.ended[reason.index()].fetch_add(1, Relaxed);
            party.end(reason);
            bell.bury(party);
        });
        while let Ok(party) = requests.pop() {
            party.ends.refuse(JoinError::EngineStopped);
            bell.bury(party);
        }
        bell.ring();
    }

    /// The engine, when nothing ticks any more. Everything else is freed, and the doorbell thread ends by it.
    pub(super) fn into_engine(self) -> E {
        self.engine
    }

    fn begin(&mut self) -> u64 {
        let board = &self.parts.board;
        let now_us = self.parts.clock.now_us();
        let begun = self.pace.begin(now_us);
        let tick = board.ticks.fetch_add(1, Relaxed);
        board.last_tick_us.store(now_us, Relaxed);
        board.next_tick_us.store(self.pace.due_us(), Relaxed);
        if begun.ticks_lost > 0 {
            board.resyncs.store(self.pace.resyncs(), Relaxed);
            self.table.plan(&mut self.plan);
            for &slot in &self.plan.live {
                if let Some((_, _, party)) = self.table.live_mut(slot) {
                    party.after_stall(begun.ticks_lost, board);
                }
            }
            self.parts.bell.note(Note::Resynchronised {
                tick,
                late_us: begun.late_us,
            });
        }
        now_us
    }

    fn heed_wishes(&mut self, now_us: u64) -> Next {
        let wishes = &self.parts.wishes;
        if wishes.stop.load(SeqCst) {
            return Next::Stop;
        }
        if wishes.drain.load(SeqCst) && self.drain_until_us.is_none() {
            self.drain_until_us = Some(now_us.saturating_add(self.parts.drain_limit_us));
            self.parts.board.set_phase(Phase::Draining);
            let Parts { bell, board, .. } = &mut self.parts;
            self.table
                .close_waiting(|party| end(party, CloseReason::ServerStopping, board, bell));
        }
        self.gate = if self.drain_until_us.is_some() {
            Gate::Draining
        } else if self.parts.admission && !self.times.admission_open() {
            Gate::TooSlow
        } else {
            Gate::Open
        };
        match self.drain_until_us {
            Some(until_us) if now_us >= until_us || self.table.is_empty() => Next::Stop,
            _ => Next::Tick,
        }
    }

    fn look_after_peers(&mut self) {
        let Parts { bell, board, .. } = &mut self.parts;
        let waiting = self.table.waiting();
        self.table.tick_peers(
            |party| party.peer(),
            |party, reason| end(party, reason, board, bell),
        );
        self.table.sweep(|slot| self.engine.vacate(slot));
        self.table.promote(self.gate, |lease, party| {
            party.ends.take_row(lease.slot);
            party.tell(SeatState::Queued);
        });
        if self.table.waiting() != waiting {
            for (place, party) in self.table.waiters_mut() {
                party.tell(SeatState::Waiting { place });
            }
        }
        for party in self.table.not_live_mut() {
            party.keep_newest(board);
        }
    }

    /// Answers those who ask, while `goes_on`.
    fn take_requests(&mut self, goes_on: fn(&Table<E::Call>) -> bool) {
        // As many as there are now: whoever keeps asking meanwhile is heard next time.
        for _ in 0..self.parts.requests.slots() {
            if !goes_on(&self.table) {
                return;
            }
            let Ok(party) = self.parts.requests.pop() else {
                return;
            };
            self.take_request(party);
        }
    }

    fn take_request(&mut self, party: Box<Party<E::Call>>) {
        let Parts { bell, board, .. } = &mut self.parts;
        let ask = party.ask;
        let replaced = match self.table.join(ask, party, self.gate) {
            Joined::Seated {
                lease,
                replaced,
                vacate,
            } => {
                if vacate {
                    self.engine.vacate(lease.slot);
                }
                if let Some(party) = self.table.holder_mut(lease) {
                    party.ends.take_row(lease.slot);
                    party.tell(SeatState::Queued);
                }
                replaced
            }
            Joined::Waiting { place, replaced } => {
                if let Some((_, party)) = self.table.waiters_mut().nth(place as usize - 1) {
                    party.tell(SeatState::Waiting { place });
                }
                replaced
            }
            Joined::Refused { holder, refusal } => {
                board.refused.fetch_add(1, Relaxed);
                holder.ends.refuse(match refusal {
                    Refusal::Full => JoinError::Full {
                        slots: self.table.capacity(),
                        waiting: self.table.waiting(),
                    },
                    Refusal::Gate(Gate::Draining) => JoinError::Draining,
                    Refusal::Gate(Gate::TooSlow | Gate::Open) => JoinError::AdmissionStopped {
                        p99_us: self.times.percentile_us(99),
                    },
                    Refusal::Stale { newest } => JoinError::Stale {
                        generation: ask.generation,
                        newest,
                    },
                });
                bell.bury(holder);
                return;
            }
        };
        board.joined.fetch_add(1, Relaxed);
        if let Some(party) = replaced {
            end(party, CloseReason::Replaced, board, bell);
        }
    }

    /// Fills the rows of `mic` that the plan names.
    fn hear(&mut self, now_us: u64) {
        for &slot in &self.plan.live {
            let row = &mut self.mic[slot.row() * FRAME_SAMPLES..][..FRAME_SAMPLES];
            if let Some((_, _, party)) = self.table.live_mut(slot) {
                party.hear(row, now_us, &self.parts.board);
            }
        }
    }

    /// Hands each row's output to its listener. The plan was made in this tick and nobody joined since, so a row that
    /// is live still belongs to whom it was stepped for.
    fn deliver(&mut self) {
        let Parts { bell, board, .. } = &mut self.parts;
        for &slot in &self.plan.live {
            let output = &mut self.out[slot.row()];
            let Some((lease, frame, party)) = self.table.live_mut(slot) else {
                continue;
            };
            let over = match output.kind {
                FrameKind::Live => {
                    let pushed = party.ends.push_frame(frame, &mut output.pcm, output.text);
                    party.unrung = true;
                    pushed.err().map(|_| CloseReason::ListenerTooSlow)
                }
                FrameKind::WarmingUp | FrameKind::Idle => None,
                FrameKind::Fault(fault) => Some(CloseReason::RowFault(fault)),
            };
            match over {
                None => {
                    let sent = output.kind == FrameKind::Live;
                    board.frames_sent.fetch_add(sent.into(), Relaxed);
                    self.table.stepped(lease);
                }
                Some(reason) => {
                    if let Some(party) = self.table.close(lease, reason) {
                        end(party, reason, board, bell);
                    }
                }
            }
        }
    }

    /// Has the tasks woken whose seats have news.
    fn ring(&mut self) {
        let bell = &mut self.parts.bell;
        for party in self.table.holders_mut() {
            if party.unrung {
                party.unrung = !bell.wake(party.ends.line());
            }
        }
        bell.ring();
    }
}

/// Tells a session that it is over and leaves what it held to the doorbell thread.
fn end<C>(mut party: Box<Party<C>>, reason: CloseReason, board: &Board, bell: &mut Bell<C>) {
    board.ended[reason.index()].fetch_add(1, Relaxed);
    party.end(reason);
    bell.bury(party);
}
