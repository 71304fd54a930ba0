//! The time a tick leaves: callers are seated and their prompts read, a piece at a time.
//!
//! May not live here: who is next (`slots::table`), what fits (`slots::pace`).

use slots::engine::{Engine, EngineError, Readiness, SeatError};
use slots::slot::CloseReason;
use slots::units::Lease;

use super::{Parts, Stepper, end};
use crate::stepper::queues::SeatState;

impl<E: Engine> Stepper<E> {
    /// Seats callers and reads their prompts in the time that is left, in turns. With `at_least_one`, one piece is done
    /// even if there is no time, so that nobody starves.
    pub(super) fn use_slack(&mut self, at_least_one: bool) -> Result<(), EngineError> {
        let mut unconditional = at_least_one;
        while let Some((lease, slot)) = self.table.next_to_read() {
            let begun_us = self.parts.clock.now_us();
            let seated = slot.seated();
            let expected_us = match seated {
                true => self.chunk_time.expected_us(),
                false => self.seat_time.expected_us(),
            };
            // With nobody live there is no tick to be in time for.
            let fits = match self.table.any_live() {
                true => self.pace.fits(begun_us, expected_us),
                false => begun_us < self.pace.due_us(),
            };
            if !fits && !unconditional {
                break;
            }
            unconditional = false;
            if seated {
                let readiness = self.engine.prefill(lease.slot)?;
                self.read(lease, readiness);
            } else {
                self.seat(lease);
            }
            let took_us = self.parts.clock.now_us().saturating_sub(begun_us);
            match seated {
                true => self.chunk_time.measured(took_us),
                false => self.seat_time.measured(took_us),
            }
            self.ring();
        }
        Ok(())
    }

    fn seat(&mut self, lease: Lease) {
        let call = self
            .table
            .holder_mut(lease)
            .and_then(|party| party.call.take());
        let seated = call.map(|call| self.engine.seat(lease.slot, call));
        let reason = match seated {
            Some(Ok(readiness)) => return self.read(lease, readiness),
            Some(Err(SeatError::PromptTooLong {
                positions,
                positions_max,
            })) => CloseReason::PromptTooLong {
                positions: u32::try_from(positions).unwrap_or(u32::MAX),
                positions_max: u32::try_from(positions_max).unwrap_or(u32::MAX),
            },
            // A queued row has its call by the way it is made; should that ever break, this session alone ends.
            None => CloseReason::EngineFault,
        };
        let Parts { bell, board, .. } = &mut self.parts;
        if let Some(party) = self.table.close_unseated(lease, reason) {
            end(party, reason, board, bell);
        }
    }

    fn read(&mut self, lease: Lease, readiness: Readiness) {
        self.table.read(lease, readiness);
        if let Some(party) = self.table.holder_mut(lease) {
            party.tell(match readiness {
                Readiness::Live => SeatState::Live,
                Readiness::Prefill { chunks_left } => SeatState::Prefill { chunks_left },
            });
        }
    }
}
