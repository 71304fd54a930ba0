//! What the queries of one step mean to the kernels, put into the machine once and shared by all layers.

use slots::engine::EngineError;

use crate::backend::Query;

use super::args::{Address, Kernel, QueryArgs, TurnsArgs};
use super::buffers::{Buf, blocks, run, stored};
use super::machine::{Machine, Pieces};
use super::ring::Ring;
use super::tape::Tape;

/// The queries of the last steps: all layers of a transformer share one entry, and the depformer's return every frame.
///
/// Within a tick there is an entry for each step instead, in their order, so that a step's queries always lie in the
/// same place.
pub(super) struct Queries<M: Machine> {
    known: Vec<Known<Tape<M>>>,
    /// Steps of the tick, and how many of them have come.
    steps: Vec<Known<Tape<M>>>,
    step: Option<usize>,
    frequencies: Vec<((usize, u32), M::Memory)>,
}

struct Known<M: Machine> {
    queries: Vec<Query>,
    cells: usize,
    dim: usize,
    /// Bits of the base of the angles.
    period: Option<u32>,
    placed: Buf<M>,
    turns: Buf<M>,
}

impl<M: Machine> Default for Known<M> {
    fn default() -> Self {
        Self {
            queries: Vec::new(),
            cells: 0,
            dim: 0,
            period: None,
            placed: Buf::default(),
            turns: Buf::default(),
        }
    }
}

impl<M: Machine> Known<M> {
    fn is_at(&self) -> Placed {
        Placed {
            queries: self.placed.address(),
            turns: self.period.map_or(0, |_| self.turns.address()),
        }
    }
}

/// Where they are.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    pub queries: Address,
    /// 0: nothing is turned.
    pub turns: Address,
}

/// Steps of a depformer, two codec transformers and the temporal one, with room to spare.
const KNOWN_MAX: usize = 40;

impl<M: Machine> Queries<M> {
    pub(super) fn new() -> Self {
        Self {
            known: Vec::new(),
            steps: Vec::new(),
            step: None,
            frequencies: Vec::new(),
        }
    }

    pub(super) fn begin_tick(&mut self) {
        self.step = Some(0);
    }

    pub(super) fn end_tick(&mut self) {
        self.step = None;
    }

    pub(super) fn get(
        &mut self,
        machine: &mut Tape<M>,
        ring: &Ring<Tape<M>>,
        queries: &[Query],
    ) -> Result<Placed, EngineError> {
        let period = ring.heads.rope_max_period.map(f32::to_bits);
        let dim = ring.heads.dim;
        let fits = |known: &Known<Tape<M>>| {
            known.cells == ring.cells
                && known.dim == dim
                && known.period == period
                && known.queries == queries
        };
        if let Some(step) = self.step {
            // Layers of one transformer follow each other; another step is another place, even with the same queries.
            if let Some(last) = step.checked_sub(1)
                && fits(&self.steps[last])
            {
                return Ok(self.steps[last].is_at());
            }
            check(queries, ring.rows, ring.cells)?;
            let old = match step < self.steps.len() {
                true => self.steps.remove(step),
                false => Known::default(),
            };
            let mut entry = Known {
                queries: queries.to_vec(),
                cells: ring.cells,
                dim,
                period,
                ..old
            };
            self.place(machine, &mut entry, ring.heads.rope_max_period)?;
            let placed = entry.is_at();
            self.steps.insert(step, entry);
            self.step = Some(step + 1);
            return Ok(placed);
        }
        // The newest is last; the oldest makes room, and lends its memory.
        let entry = match self.known.iter().rposition(fits) {
            Some(at) => self.known.remove(at),
            None => {
                check(queries, ring.rows, ring.cells)?;
                let old = match self.known.len() < KNOWN_MAX {
                    true => Known::default(),
                    false => self.known.remove(0),
                };
                let mut entry = Known {
                    queries: queries.to_vec(),
                    cells: ring.cells,
                    dim,
                    period,
                    ..old
                };
                self.place(machine, &mut entry, ring.heads.rope_max_period)?;
                entry
            }
        };
        let placed = entry.is_at();
        self.known.push(entry);
        Ok(placed)
    }

    fn place(
        &mut self,
        machine: &mut Tape<M>,
        entry: &mut Known<Tape<M>>,
        period: Option<f32>,
    ) -> Result<(), EngineError> {
        let args: Vec<QueryArgs> = entry
            .queries
            .iter()
            .map(|query| QueryArgs {
                row: query.row as i32,
                active: query.active.into(),
                pinned: query.pinned as i32,
                pad: 0,
                position: query.position as i64,
                first: query.first as i64,
                pinned_rotation: query.pinned_rotation as i64,
            })
            .collect();
        let bytes: &[u8] = bytemuck::cast_slice(&args);
        entry.placed.resize(machine, bytes.len() / 4)?;
        let from = machine.control(bytes)?;
        machine.copy(Pieces {
            from,
            from_stride: bytes.len(),
            to: entry.placed.address(),
            to_stride: bytes.len(),
            bytes: bytes.len(),
            count: 1,
        })?;
        let Some(period) = period else {
            return Ok(());
        };
        let (n, pairs) = (args.len(), entry.dim / 2);
        entry.turns.resize(machine, n * 2 * entry.dim)?;
        let frequencies = self.frequencies(machine, entry.dim, period)?;
        let turns = TurnsArgs {
            turns: entry.turns.address(),
            queries: entry.placed.address(),
            frequencies,
            pairs: pairs as i32,
            count: n as i32,
        };
        run(machine, Kernel::Turns, [blocks(n * 2 * pairs), 1], &turns)
    }

    /// Pair `i` turns by `exp(-ln(max_period) * 2i / dim)` per position, in f64, so that late positions are right.
    fn frequencies(
        &mut self,
        machine: &mut Tape<M>,
        dim: usize,
        period: f32,
    ) -> Result<Address, EngineError> {
        let key = (dim, period.to_bits());
        if let Some((_, memory)) = self.frequencies.iter().find(|(known, _)| *known == key) {
            return Ok(M::address(memory));
        }
        let step = -f64::from(period).ln() * 2.0 / dim as f64;
        let frequencies: Vec<f64> = (0..dim / 2)
            .map(|pair| (step * pair as f64).exp())
            .collect();
        let memory = stored(machine, bytemuck::cast_slice(&frequencies))?;
        let address = M::address(&memory);
        self.frequencies.push((key, memory));
        Ok(address)
    }
}

/// Refuses what the kernels would read beyond memory for.
fn check(queries: &[Query], rows: usize, cells: usize) -> Result<(), EngineError> {
    let wrong = queries.iter().find(|query| {
        let sliding = (query.position + 1).saturating_sub(query.first.max(query.pinned as u64));
        query.row >= rows
            || query.pinned >= cells
            || query.active && sliding > (cells - query.pinned) as u64
    });
    match wrong {
        None => Ok(()),
        Some(query) => Err(EngineError {
            what: format!("{query:?} does not fit a ring of {rows} rows of {cells} cells"),
        }),
    }
}
