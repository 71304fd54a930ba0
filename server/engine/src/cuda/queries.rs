//! What the queries of one step mean to the kernels, put into the machine once and shared by all layers.

use slots::engine::EngineError;

use crate::backend::Query;

use super::args::{Address, Kernel, QueryArgs, TurnsArgs};
use super::buffers::{Buf, blocks, run, stored};
use super::machine::Machine;
use super::ring::Ring;

/// The queries of the last steps: all layers of a transformer share one entry, and the depformer's return every frame.
pub(super) struct Queries<M: Machine> {
    known: Vec<Known<M>>,
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
            frequencies: Vec::new(),
        }
    }

    pub(super) fn get(
        &mut self,
        machine: &mut M,
        ring: &Ring<M>,
        queries: &[Query],
    ) -> Result<Placed, EngineError> {
        let period = ring.heads.rope_max_period.map(f32::to_bits);
        let dim = ring.heads.dim;
        let fits = |known: &Known<M>| {
            known.cells == ring.cells
                && known.dim == dim
                && known.period == period
                && known.queries == queries
        };
        // The newest is last; the oldest makes room, and lends its memory.
        let entry = match self.known.iter().rposition(fits) {
            Some(at) => self.known.remove(at),
            None => {
                check(queries, ring.rows, ring.cells)?;
                let (placed, turns) = match self.known.len() < KNOWN_MAX {
                    true => (Buf::default(), Buf::default()),
                    false => {
                        let old = self.known.remove(0);
                        (old.placed, old.turns)
                    }
                };
                let mut entry = Known {
                    queries: queries.to_vec(),
                    cells: ring.cells,
                    dim,
                    period,
                    placed,
                    turns,
                };
                self.place(machine, &mut entry, ring.heads.rope_max_period)?;
                entry
            }
        };
        let placed = Placed {
            queries: entry.placed.address(),
            turns: period.map_or(0, |_| entry.turns.address()),
        };
        self.known.push(entry);
        Ok(placed)
    }

    fn place(
        &mut self,
        machine: &mut M,
        entry: &mut Known<M>,
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
        entry.placed.put(machine, bytemuck::cast_slice(&args))?;
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
        machine: &mut M,
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
