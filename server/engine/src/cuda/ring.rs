//! Keys and values of one layer for all rows, saving and loading a row's cells, and attention over them.

use std::ops::Range;
use std::sync::Arc;

use slots::engine::EngineError;

use crate::backend::{Done, Heads, KvDtype, Query, WriteOrder};

use super::args::{Address, AttendArgs, Kernel};
use super::buffers::{Buf, run, zeros};
use super::machine::{Machine, Pieces};
use super::queries::Queries;
use super::tape::Tape;

/// Cells of a tile of keys; numbers of a head go by eights; cells of one block. Source: `attention.cu`.
const TILE: usize = 32;
const OCTET: usize = 8;
const SPLIT: usize = 256;
/// The largest head that a block has room for. Source: `attention.cu`.
const DIM_MAX: usize = 256;

/// Keys and values of one layer.
pub struct Ring<M: Machine> {
    pub(super) heads: Heads,
    pub(super) rows: usize,
    pub(super) cells: usize,
    kept: KvDtype,
    /// Whether what is attended to goes into a product of the transformers.
    pub(super) feeds_half: bool,
    cells_padded: usize,
    dim_padded: usize,
    keys: M::Memory,
    values: M::Memory,
    /// With FP8, `[rows, heads, cells]` each.
    scales: Option<[M::Memory; 2]>,
}

/// Cells of one row, saved; cloning shares them.
pub struct RingPart<M: Machine> {
    memory: Arc<M::Memory>,
    cells: Range<usize>,
    bytes: usize,
}

impl<M: Machine> Clone for RingPart<M> {
    fn clone(&self) -> Self {
        Self {
            memory: Arc::clone(&self.memory),
            cells: self.cells.clone(),
            bytes: self.bytes,
        }
    }
}

/// One of the memories of a ring: where a row's part of it lies.
struct Plane {
    address: Address,
    /// Bytes of one cell.
    cell_bytes: usize,
}

impl<M: Machine> Ring<M> {
    pub(super) fn new(
        machine: &mut M,
        rows: usize,
        heads: Heads,
        cells: usize,
        (kept, feeds_half): (KvDtype, bool),
    ) -> Result<Self, EngineError> {
        if heads.dim > DIM_MAX {
            return Err(EngineError {
                what: format!(
                    "heads of {} numbers are too wide for these kernels, the most is {DIM_MAX}",
                    heads.dim
                ),
            });
        }
        let (cells_padded, dim_padded) = (
            cells.next_multiple_of(TILE),
            heads.dim.next_multiple_of(OCTET),
        );
        let count = rows * heads.count * cells_padded;
        let bytes = count * dim_padded * number_bytes(kept);
        let scales = match kept {
            KvDtype::Fp8 => Some([zeros(machine, 4 * count)?, zeros(machine, 4 * count)?]),
            _ => None,
        };
        Ok(Self {
            heads,
            rows,
            cells,
            kept,
            feeds_half,
            cells_padded,
            dim_padded,
            keys: zeros(machine, bytes)?,
            values: zeros(machine, bytes)?,
            scales,
        })
    }

    fn planes(&self) -> Vec<Plane> {
        let numbers = self.dim_padded * number_bytes(self.kept);
        let plane = |memory: &M::Memory, cell_bytes| Plane {
            address: M::address(memory),
            cell_bytes,
        };
        let mut planes = vec![plane(&self.keys, numbers), plane(&self.values, numbers)];
        if let Some(scales) = &self.scales {
            planes.extend(scales.iter().map(|scales| plane(scales, 4)));
        }
        planes
    }

    /// Whole tiles that hold `cells`. What is saved beside them is out of every query's sight.
    fn tiles(&self, cells: &Range<usize>) -> Result<Range<usize>, EngineError> {
        if cells.start > cells.end || cells.end > self.cells {
            return Err(EngineError {
                what: format!("there are no cells {cells:?} in a ring of {}", self.cells),
            });
        }
        Ok(cells.start / TILE * TILE..cells.end.next_multiple_of(TILE))
    }

    /// Copies whole tiles of a row between the ring and a memory with one head after the other.
    fn exchange(
        &self,
        machine: &mut M,
        row: usize,
        tiles: &Range<usize>,
        saved: Address,
        save: bool,
    ) -> Done {
        let mut saved = saved;
        for plane in self.planes() {
            let bytes = tiles.len() * plane.cell_bytes;
            let first =
                (row * self.heads.count * self.cells_padded + tiles.start) * plane.cell_bytes;
            let ring = (
                plane.address + first as Address,
                self.cells_padded * plane.cell_bytes,
            );
            let (from, to) = match save {
                true => (ring, (saved, bytes)),
                false => ((saved, bytes), ring),
            };
            machine.copy(Pieces {
                from: from.0,
                from_stride: from.1,
                to: to.0,
                to_stride: to.1,
                bytes,
                count: self.heads.count,
            })?;
            saved += (bytes * self.heads.count) as Address;
        }
        Ok(())
    }

    pub(super) fn save(
        &self,
        machine: &mut M,
        row: usize,
        cells: Range<usize>,
    ) -> Result<RingPart<M>, EngineError> {
        let tiles = self.tiles(&cells)?;
        let cell_bytes: usize = self.planes().iter().map(|plane| plane.cell_bytes).sum();
        let bytes = tiles.len() * self.heads.count * cell_bytes;
        let memory = machine.allocate(bytes)?;
        self.exchange(machine, row, &tiles, M::address(&memory), true)?;
        Ok(RingPart {
            memory: Arc::new(memory),
            cells,
            bytes,
        })
    }

    pub(super) fn load(&mut self, machine: &mut M, row: usize, part: &RingPart<M>) -> Done {
        let tiles = self.tiles(&part.cells)?;
        self.exchange(machine, row, &tiles, M::address(&part.memory), false)
    }
}

#[cfg(test)]
impl<M: Machine> Ring<M> {
    /// Every byte that is kept of a row.
    pub(super) fn row_bytes(&self, machine: &mut M, row: usize) -> Result<Vec<u8>, EngineError> {
        let mut all = Vec::new();
        for plane in self.planes() {
            let bytes = self.heads.count * self.cells_padded * plane.cell_bytes;
            let begin = all.len();
            all.resize(begin + bytes, 0);
            machine.read(plane.address + (row * bytes) as Address, &mut all[begin..])?;
        }
        Ok(all)
    }
}

impl<M: Machine> RingPart<M> {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn number_bytes(kept: KvDtype) -> usize {
    match kept {
        KvDtype::F32 => 4,
        KvDtype::Bf16 => 2,
        KvDtype::Fp8 => 1,
    }
}

/// Results of splits, before they are put together.
pub(super) struct Splits<M: Machine> {
    peaks: Buf<M>,
    totals: Buf<M>,
    mixed: Buf<M>,
}

impl<M: Machine> Default for Splits<M> {
    fn default() -> Self {
        Self {
            peaks: Buf::default(),
            totals: Buf::default(),
            mixed: Buf::default(),
        }
    }
}

/// Rotates, writes and attends.
#[allow(clippy::too_many_arguments)]
pub(super) fn attend<M: Machine>(
    machine: &mut Tape<M>,
    plans: &mut Queries<M>,
    splits: &mut Splits<Tape<M>>,
    ring: &mut Ring<Tape<M>>,
    queries: &[Query],
    order: WriteOrder,
    qkv: &Buf<Tape<M>>,
    (out, half): (&mut Buf<Tape<M>>, bool),
) -> Done {
    let Heads { count, dim, .. } = ring.heads;
    let n = queries.len();
    if qkv.len() != n * 3 * count * dim {
        return Err(EngineError {
            what: format!("{n} queries came with {} numbers", qkv.len()),
        });
    }
    let plan = plans.get(machine, ring, queries)?;
    let split_count = ring.cells_padded.div_ceil(SPLIT);
    let parts = n * count * split_count;
    splits.peaks.resize(machine, parts)?;
    splits.totals.resize(machine, parts)?;
    splits.mixed.resize(machine, parts * dim)?;
    let half = out.resize_twice(machine, n * count * dim, half)?;
    let scales = |which: usize| {
        let scales = ring.scales.as_ref();
        scales.map_or(0, |scales| M::address(&scales[which]))
    };
    let args = AttendArgs {
        qkv: qkv.address(),
        queries: plan.queries,
        turns: plan.turns,
        keys: M::address(&ring.keys),
        values: M::address(&ring.values),
        key_scales: scales(0),
        value_scales: scales(1),
        peaks: splits.peaks.address(),
        totals: splits.totals.address(),
        mixed: splits.mixed.address(),
        out: out.address(),
        half,
        heads: count as i32,
        dim: dim as i32,
        dim_padded: ring.dim_padded as i32,
        cells: ring.cells as i32,
        cells_padded: ring.cells_padded as i32,
        splits: split_count as i32,
        begin: 0,
        pad: 0,
    };
    let (write, over) = match ring.kept {
        KvDtype::F32 => (Kernel::WriteF32, Kernel::AttendF32),
        KvDtype::Bf16 => (Kernel::WriteBf16, Kernel::AttendBf16),
        KvDtype::Fp8 => (Kernel::WriteFp8, Kernel::AttendFp8),
    };
    // A chunk goes query by query: each sees the ring as the ones before it left it.
    let at_once = match order {
        WriteOrder::AllThenAttend => n,
        WriteOrder::EachThenAttend => 1,
    };
    for begin in (0..n).step_by(at_once.max(1)) {
        let args = AttendArgs {
            begin: begin as i32,
            ..args
        };
        let (heads, now) = (count as u32, at_once as u32);
        run(machine, write, [heads, now], &args)?;
        run(machine, over, [heads * split_count as u32, now], &args)?;
        run(machine, Kernel::AttendJoin, [heads, now], &args)?;
    }
    Ok(())
}
