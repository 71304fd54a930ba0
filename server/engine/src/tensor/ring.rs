//! Keys and values of one layer for all rows: two tensors that are written in place and never move.

use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor};

use crate::backend::Heads;

/// Keys and values of one layer, `[rows, heads, cells, dim]` each.
pub struct TensorRing {
    pub(super) keys: Tensor,
    pub(super) values: Tensor,
    pub(super) heads: Heads,
    pub(super) rows: usize,
    pub(super) cells: usize,
    /// Swaps the two numbers of a pair, `[dim]`; absent without a rotation.
    pub(super) swap: Option<Tensor>,
}

/// Cells of one row, saved; cloning shares them.
#[derive(Clone)]
pub struct TensorRingPart {
    /// `[1, heads, cells, dim]`.
    keys: Tensor,
    values: Tensor,
    start: usize,
}

impl TensorRing {
    pub(super) fn new(
        rows: usize,
        heads: Heads,
        cells: usize,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let shape = (rows, heads.count, cells, heads.dim);
        let pairs = |index: u32| index ^ 1;
        let swap = match heads.rope_max_period {
            Some(_) => {
                let order: Vec<u32> = (0..heads.dim as u32).map(pairs).collect();
                Some(Tensor::from_vec(order, heads.dim, device)?)
            }
            None => None,
        };
        Ok(Self {
            keys: Tensor::zeros(shape, dtype, device)?,
            values: Tensor::zeros(shape, dtype, device)?,
            heads,
            rows,
            cells,
            swap,
        })
    }

    pub(super) fn dtype(&self) -> DType {
        self.keys.dtype()
    }

    pub(super) fn save(&self, row: usize, cells: Range<usize>) -> Result<TensorRingPart> {
        // A narrowed view may be contiguous, and would then share the ring's memory: it is copied in any case.
        let part = |all: &Tensor| {
            all.narrow(0, row, 1)?
                .narrow(2, cells.start, cells.len())?
                .force_contiguous()
        };
        Ok(TensorRingPart {
            keys: part(&self.keys)?,
            values: part(&self.values)?,
            start: cells.start,
        })
    }

    pub(super) fn load(&mut self, row: usize, part: &TensorRingPart) -> Result<()> {
        self.keys
            .narrow(0, row, 1)?
            .slice_set(&part.keys, 2, part.start)?;
        self.values
            .narrow(0, row, 1)?
            .slice_set(&part.values, 2, part.start)
    }

    /// Writes `keys` and `values`, `[rows * heads, t, dim]`, into the rows `rows`. `cells` has the same shape and names
    /// each number's cell; [`NO_CELL`] leaves it out.
    pub(super) fn write(
        &self,
        rows: &Range<usize>,
        cells: &Tensor,
        keys: &Tensor,
        values: &Tensor,
    ) -> Result<()> {
        let shape = (rows.len() * self.heads.count, self.cells, self.heads.dim);
        for (all, new) in [(&self.keys, keys), (&self.values, values)] {
            all.narrow(0, rows.start, rows.len())?
                .reshape(shape)?
                .scatter_set(cells, new, 1)?;
        }
        Ok(())
    }
}

impl TensorRingPart {
    pub(super) fn bytes(&self) -> usize {
        [&self.keys, &self.values]
            .iter()
            .map(|part| part.elem_count() * part.dtype().size_in_bytes())
            .sum()
    }
}

/// An index that a scatter passes over, on every device.
pub(super) const NO_CELL: u32 = u32::MAX;
