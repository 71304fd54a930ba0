//! Keys and values of one layer, for all rows of the batch.
//!
//! A cell of a head is contiguous, and so are the cells of a head: attention walks through memory in one direction.
//! Cells are filled up with zeros to whole registers.

use std::ops::Range;

use super::buffer::Buffer;
use super::lanes::LANES;

/// How the elements of a [`KvRing`] are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum KvDtype {
    /// 32-bit floats.
    F32,
    /// The upper half of a 32-bit float, rounded to nearest even.
    Bf16,
}

/// In the words of the command line.
impl std::fmt::Display for KvDtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            KvDtype::F32 => "f32",
            KvDtype::Bf16 => "bf16",
        })
    }
}

impl KvDtype {
    pub(super) fn bytes(self) -> usize {
        match self {
            KvDtype::F32 => 4,
            KvDtype::Bf16 => 2,
        }
    }

    /// Elements that are loaded together.
    fn step(self) -> usize {
        match self {
            KvDtype::F32 => LANES,
            KvDtype::Bf16 => 2 * LANES,
        }
    }
}

/// What a ring and a part of it must agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) dtype: KvDtype,
    pub(super) heads: usize,
    pub(super) head_dim: usize,
}

impl Shape {
    /// Elements from one cell to the next.
    pub(super) fn stride(&self) -> usize {
        self.head_dim.next_multiple_of(self.dtype.step())
    }

    pub(super) fn cell_bytes(&self) -> usize {
        self.stride() * self.dtype.bytes()
    }
}

/// Keys and values of one layer: per row, per head, `cells` cells of `head_dim` elements.
pub struct KvRing {
    pub(super) shape: Shape,
    pub(super) rows: usize,
    pub(super) cells: usize,
    /// `[rows, heads, cells, stride]`
    pub(super) keys: Buffer,
    /// `[rows, heads, cells, stride]`
    pub(super) values: Buffer,
}

/// A bit-exact copy of some cells of one row.
#[derive(Clone)]
pub struct RingPart {
    shape: Shape,
    cells: Range<usize>,
    /// `[heads, cells, stride]`
    keys: Vec<u8>,
    /// `[heads, cells, stride]`
    values: Vec<u8>,
}

impl RingPart {
    /// The cells it holds.
    pub fn cells(&self) -> Range<usize> {
        self.cells.clone()
    }

    /// Bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.values.len()
    }
}

impl KvRing {
    /// A ring of zeros.
    pub fn new(dtype: KvDtype, rows: usize, heads: usize, head_dim: usize, cells: usize) -> KvRing {
        let shape = Shape {
            dtype,
            heads,
            head_dim,
        };
        let bytes = rows * heads * cells * shape.cell_bytes();
        KvRing {
            shape,
            rows,
            cells,
            keys: Buffer::zeroed(bytes),
            values: Buffer::zeroed(bytes),
        }
    }

    /// Bytes of memory the keys and values take.
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.values.len()
    }

    /// Cells of a row.
    pub fn cells(&self) -> usize {
        self.cells
    }

    /// Copies `cells` of `row`.
    ///
    /// # Panics
    /// When the row or the cells do not exist.
    pub fn save(&self, row: usize, cells: Range<usize>) -> RingPart {
        let mut part = RingPart {
            shape: self.shape,
            cells: cells.clone(),
            keys: Vec::new(),
            values: Vec::new(),
        };
        for head in 0..self.shape.heads {
            let range = self.range(row, head, &cells);
            part.keys
                .extend_from_slice(&self.keys.bytes()[range.clone()]);
            part.values.extend_from_slice(&self.values.bytes()[range]);
        }
        part
    }

    /// Writes a saved part into `row`, at the cells it was taken from.
    ///
    /// # Panics
    /// When the row or the cells do not exist, or the part comes from a ring of another shape or storage.
    pub fn load(&mut self, row: usize, part: &RingPart) {
        assert_eq!(
            part.shape, self.shape,
            "the part is of another kind of ring"
        );
        let len = part.cells.len() * self.shape.cell_bytes();
        for head in 0..self.shape.heads {
            let range = self.range(row, head, &part.cells);
            let saved = head * len..(head + 1) * len;
            self.keys.bytes_mut()[range.clone()].copy_from_slice(&part.keys[saved.clone()]);
            self.values.bytes_mut()[range].copy_from_slice(&part.values[saved]);
        }
    }

    /// Bytes of some cells of a head.
    fn range(&self, row: usize, head: usize, cells: &Range<usize>) -> Range<usize> {
        let known = row < self.rows && cells.start <= cells.end && cells.end <= self.cells;
        assert!(known, "no cells {cells:?} of row {row}");
        let first = (row * self.shape.heads + head) * self.cells;
        let bytes = self.shape.cell_bytes();
        (first + cells.start) * bytes..(first + cells.end) * bytes
    }
}
