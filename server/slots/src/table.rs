//! The slot table: who sits in which row, who waits, and which rows the next tick steps.
//!
//! Lives here: joining, leaving, the waiting places, the plan of one tick.
//! May not live here: tensors, queues, clocks, randomness. What a holder is (its queues, say) is a parameter that the
//! table only keeps and gives back: each one that goes in comes out exactly once.
//! Start reading at [`SlotTable::join`]; within a tick the order is [`tick_peers`](SlotTable::tick_peers),
//! [`sweep`](SlotTable::sweep), [`promote`](SlotTable::promote), joins, [`plan`](SlotTable::plan).

use arrayvec::ArrayVec;

use crate::engine::{Readiness, TickPlan};
use crate::slot::{CloseReason, Peer, PeerGap, Slot, SlotEvent};
use crate::units::{Epoch, Lease, SLOTS_MAX, SessionKey, SlotId};

/// Callers who may wait for a row; whoever comes then is refused.
pub const WAITING_MAX: usize = 32;

/// Who asks for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The session.
    pub session: SessionKey,
    /// Grows with each reconnect of the session.
    pub generation: u32,
    /// Whether a waiting place will do.
    pub may_wait: bool,
}

/// Whether strangers are let in. A session that already holds a row or a place may always come back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// As long as there is room.
    Open,
    /// The measured tick is too slow for one more.
    TooSlow,
    /// The server is stopping.
    Draining,
}

/// The answer to [`SlotTable::join`].
#[derive(Debug, PartialEq, Eq)]
pub enum Joined<T> {
    /// A row is held from now on.
    Seated {
        /// The right to it.
        lease: Lease,
        /// The older connection of the same session whose row this was.
        replaced: Option<T>,
        /// Whether the engine still holds the older connection's state, so that the row must be vacated.
        vacate: bool,
    },
    /// A waiting place is held.
    Waiting {
        /// 1 is next.
        place: u32,
        /// The older connection of the same session whose place this was.
        replaced: Option<T>,
    },
    /// Nothing changed; the holder comes back.
    Refused {
        /// What was handed in.
        holder: T,
        /// Why.
        refusal: Refusal,
    },
}

/// Why nobody was seated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No row, and no waiting place or no wish for one.
    Full,
    /// As [`Gate`] says.
    Gate(Gate),
    /// The session's connection of this generation holds a seat, and it is no older.
    Stale {
        /// Of the connection that stays.
        newest: u32,
    },
}

#[derive(Debug)]
struct Holder<T> {
    session: SessionKey,
    generation: u32,
    payload: T,
}

#[derive(Debug)]
struct Row<T> {
    slot: Slot,
    epoch: Epoch,
    /// Present while the slot is queued, in prefill or live.
    holder: Option<Holder<T>>,
}

#[derive(Debug)]
struct Waiter<T> {
    holder: Holder<T>,
    gap: PeerGap,
}

/// Who sits where. `T` is what the owner of the table keeps for each seat.
#[derive(Debug)]
pub struct SlotTable<T> {
    rows: Box<[Row<T>]>,
    waiting: ArrayVec<Waiter<T>, WAITING_MAX>,
    /// Row at which the search for the next prompt to read begins, so that prompts take turns.
    read_from: usize,
}

impl<T> SlotTable<T> {
    /// A table of `capacity` free slots, at most [`SLOTS_MAX`].
    pub fn new(capacity: usize) -> Self {
        let row = |_| Row {
            slot: Slot::Free,
            epoch: Epoch(0),
            holder: None,
        };
        Self {
            rows: (0..capacity.min(SLOTS_MAX)).map(row).collect(),
            waiting: ArrayVec::new(),
            read_from: 0,
        }
    }

    /// Number of rows.
    pub fn capacity(&self) -> usize {
        self.rows.len()
    }

    /// Number of callers who wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no row and no place is held. Rows that are still to be cleared do not count.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.rows.iter().all(|row| row.holder.is_none())
    }

    /// Every slot, by row.
    pub fn slots(&self) -> impl Iterator<Item = (SlotId, Slot)> + '_ {
        self.rows
            .iter()
            .enumerate()
            .filter_map(|(row, entry)| Some((SlotId::new(row)?, entry.slot)))
    }

    /// Gives `holder` a row or a waiting place, or gives it back.
    ///
    /// A newer connection of a session takes over the row or the place of an older one; an older or equally old one
    /// is refused, whatever the order in which they come.
    pub fn join(&mut self, ask: Ask, holder: T, gate: Gate) -> Joined<T> {
        let holder = Holder {
            session: ask.session,
            generation: ask.generation,
            payload: holder,
        };
        if let Some(index) = self.row_of(ask.session) {
            return self.take_over_row(index, holder);
        }
        if let Some(index) = self.place_of(ask.session) {
            return self.take_over_place(index, holder);
        }
        let refuse = |holder: Holder<T>, refusal| Joined::Refused {
            holder: holder.payload,
            refusal,
        };
        if gate != Gate::Open {
            return refuse(holder, Refusal::Gate(gate));
        }
        if self.waiting.is_empty()
            && let Some(index) = self.free_row()
        {
            let lease = self.give(index, holder);
            return Joined::Seated {
                lease,
                replaced: None,
                vacate: false,
            };
        }
        if !ask.may_wait || self.waiting.is_full() {
            return refuse(holder, Refusal::Full);
        }
        self.waiting.push(Waiter {
            holder,
            gap: PeerGap(0),
        });
        Joined::Waiting {
            place: self.waiting.len() as u32,
            replaced: None,
        }
    }

    fn take_over_row(&mut self, index: usize, holder: Holder<T>) -> Joined<T> {
        let newest = self.rows[index].holder.as_ref().map(|old| old.generation);
        if let Some(newest) = newest.filter(|&newest| newest >= holder.generation) {
            return Joined::Refused {
                holder: holder.payload,
                refusal: Refusal::Stale { newest },
            };
        }
        let vacate = self.rows[index].slot.seated();
        let replaced = self.rows[index].holder.take().map(|old| old.payload);
        let lease = self.give(index, holder);
        Joined::Seated {
            lease,
            replaced,
            vacate,
        }
    }

    fn take_over_place(&mut self, index: usize, holder: Holder<T>) -> Joined<T> {
        let waiter = &mut self.waiting[index];
        let newest = waiter.holder.generation;
        if newest >= holder.generation {
            return Joined::Refused {
                holder: holder.payload,
                refusal: Refusal::Stale { newest },
            };
        }
        waiter.gap = PeerGap(0);
        let old = std::mem::replace(&mut waiter.holder, holder);
        Joined::Waiting {
            place: index as u32 + 1,
            replaced: Some(old.payload),
        }
    }

    /// Puts `holder` into row `index`, which is free or held by an older connection of the same session.
    fn give(&mut self, index: usize, holder: Holder<T>) -> Lease {
        let row = &mut self.rows[index];
        row.epoch = Epoch(row.epoch.0.wrapping_add(1));
        let lease = Lease {
            // The table was made with at most SLOTS_MAX rows, so every index is a slot.
            slot: SlotId::new(index).unwrap_or_else(|| unreachable!("row {index} has no slot id")),
            epoch: row.epoch,
        };
        row.slot = row.slot.after(SlotEvent::Given(lease));
        row.holder = Some(holder);
        lease
    }

    fn row_of(&self, session: SessionKey) -> Option<usize> {
        self.rows.iter().position(|row| {
            row.holder
                .as_ref()
                .is_some_and(|held| held.session == session)
        })
    }

    fn place_of(&self, session: SessionKey) -> Option<usize> {
        self.waiting
            .iter()
            .position(|waiter| waiter.holder.session == session)
    }

    /// Whether a row could be given away right now. Rows that are still to be cleared are not free.
    pub fn has_free_row(&self) -> bool {
        self.free_row().is_some()
    }

    fn free_row(&self) -> Option<usize> {
        self.rows.iter().position(|row| row.slot == Slot::Free)
    }

    /// Looks after every peer once a tick: `observe` says what it showed, `gone` gets the holders that end by it.
    pub fn tick_peers(
        &mut self,
        mut observe: impl FnMut(&T) -> Peer,
        mut gone: impl FnMut(T, CloseReason),
    ) {
        for row in &mut self.rows {
            let Some(holder) = &row.holder else { continue };
            row.slot = row.slot.after(SlotEvent::Tick(observe(&holder.payload)));
            if let Slot::Closing { reason, .. } = row.slot
                && let Some(holder) = row.holder.take()
            {
                gone(holder.payload, reason);
            }
        }
        let mut index = 0;
        while index < self.waiting.len() {
            let waiter = &mut self.waiting[index];
            match waiter.gap.after(observe(&waiter.holder.payload)) {
                Ok(gap) => {
                    waiter.gap = gap;
                    index += 1;
                }
                Err(reason) => gone(self.waiting.remove(index).holder.payload, reason),
            }
        }
    }

    /// Frees every closing row; `vacate` is called for those that the engine had seated.
    pub fn sweep(&mut self, mut vacate: impl FnMut(SlotId)) {
        for row in &mut self.rows {
            if let Slot::Closing { lease, seated, .. } = row.slot {
                if seated {
                    vacate(lease.slot);
                }
                row.slot = row.slot.after(SlotEvent::Cleared);
            }
        }
    }

    /// Gives free rows to those who wait, first come first served, while the gate is open. True if anybody moved.
    pub fn promote(&mut self, gate: Gate, mut seated: impl FnMut(Lease, &mut T)) -> bool {
        let mut moved = false;
        while gate == Gate::Open
            && !self.waiting.is_empty()
            && let Some(index) = self.free_row()
        {
            let waiter = self.waiting.remove(0);
            let lease = self.give(index, waiter.holder);
            if let Some(holder) = &mut self.rows[index].holder {
                seated(lease, &mut holder.payload);
            }
            moved = true;
        }
        moved
    }

    /// Those who wait, with their places; 1 is next.
    pub fn waiters_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> + '_ {
        let waiting = self.waiting.iter_mut();
        (1..).zip(waiting.map(|waiter| &mut waiter.holder.payload))
    }

    /// What is kept for the seats that take no part in the next step.
    pub fn not_live_mut(&mut self) -> impl Iterator<Item = &mut T> + '_ {
        let rows = self.rows.iter_mut();
        let seated = rows
            .filter(|row| !matches!(row.slot, Slot::Live { .. }))
            .filter_map(|row| row.holder.as_mut());
        let waiting = self.waiting.iter_mut().map(|waiter| &mut waiter.holder);
        seated.chain(waiting).map(|holder| &mut holder.payload)
    }

    /// Whether the next tick makes a step.
    pub fn any_live(&self) -> bool {
        let mut rows = self.rows.iter();
        rows.any(|row| matches!(row.slot, Slot::Live { .. }))
    }

    /// What is kept for every seat, those who wait included.
    pub fn holders_mut(&mut self) -> impl Iterator<Item = &mut T> + '_ {
        let seated = self.rows.iter_mut().filter_map(|row| row.holder.as_mut());
        let waiting = self.waiting.iter_mut().map(|waiter| &mut waiter.holder);
        seated.chain(waiting).map(|holder| &mut holder.payload)
    }

    /// Writes the rows of the next step into `plan`, ascending.
    pub fn plan(&self, plan: &mut TickPlan) {
        plan.live.clear();
        for row in &self.rows {
            if let Slot::Live { lease, .. } = row.slot {
                plan.live.push(lease.slot);
            }
        }
    }

    /// What is kept for the holder of `slot`, with its lease and the caller frame that the next step takes.
    pub fn live_mut(&mut self, slot: SlotId) -> Option<(Lease, u64, &mut T)> {
        let row = self.rows.get_mut(slot.row())?;
        match (row.slot, &mut row.holder) {
            (Slot::Live { lease, frame, .. }, Some(holder)) => {
                Some((lease, frame, &mut holder.payload))
            }
            _ => None,
        }
    }

    /// What is kept for the holder of `lease`; `None` if it no longer holds.
    pub fn holder_mut(&mut self, lease: Lease) -> Option<&mut T> {
        let row = self.rows.get_mut(lease.slot.row())?;
        let holds = row.slot.lease() == Some(lease);
        row.holder
            .as_mut()
            .filter(|_| holds)
            .map(|holder| &mut holder.payload)
    }

    /// The next row that wants its prompt read; `None` when there is none. [`SlotTable::read`] passes the turn on.
    pub fn next_to_read(&self) -> Option<(Lease, Slot)> {
        let (before, from) = self.rows.split_at(self.read_from.min(self.rows.len()));
        from.iter().chain(before).find_map(|row| match row.slot {
            Slot::Queued { lease, .. } | Slot::Prefill { lease, .. } => Some((lease, row.slot)),
            Slot::Free | Slot::Live { .. } | Slot::Closing { .. } => None,
        })
    }

    /// The engine seated the row of `lease`, or read a chunk for it. Ignored if the lease no longer holds.
    pub fn read(&mut self, lease: Lease, readiness: Readiness) {
        self.read_from = lease.slot.row() + 1;
        self.apply(lease, SlotEvent::Read(readiness));
    }

    /// The engine made a step with the row of `lease`. Ignored if the lease no longer holds.
    pub fn stepped(&mut self, lease: Lease) {
        self.apply(lease, SlotEvent::Stepped);
    }

    fn apply(&mut self, lease: Lease, event: SlotEvent) {
        if let Some(row) = self.rows.get_mut(lease.slot.row())
            && row.slot.lease() == Some(lease)
        {
            row.slot = row.slot.after(event);
        }
    }

    /// Ends the session that holds `lease` and gives its holder back; `None` if the lease no longer holds.
    /// No other row is touched.
    pub fn close(&mut self, lease: Lease, reason: CloseReason) -> Option<T> {
        self.holder_mut(lease)?;
        let row = &mut self.rows[lease.slot.row()];
        row.slot = row.slot.after(SlotEvent::Close(reason));
        row.holder.take().map(|holder| holder.payload)
    }

    /// The engine took nothing of a queued row (it refused the call): ends the session and frees the row at once.
    pub fn close_unseated(&mut self, lease: Lease, reason: CloseReason) -> Option<T> {
        let holder = self.close(lease, reason)?;
        let row = &mut self.rows[lease.slot.row()];
        if !row.slot.seated() {
            row.slot = row.slot.after(SlotEvent::Cleared);
        }
        Some(holder)
    }

    /// Sends everybody home who waits.
    pub fn close_waiting(&mut self, mut gone: impl FnMut(T)) {
        for waiter in self.waiting.drain(..) {
            gone(waiter.holder.payload);
        }
    }

    /// Ends every session and sends everybody home.
    pub fn close_all(&mut self, reason: CloseReason, mut gone: impl FnMut(T)) {
        self.close_waiting(&mut gone);
        for row in &mut self.rows {
            row.slot = row.slot.after(SlotEvent::Close(reason));
            if let Some(holder) = row.holder.take() {
                gone(holder.payload);
            }
        }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
