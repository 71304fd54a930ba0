//! Keys and values of one layer, for all rows of the batch.

use std::ops::Range;

/// How the elements of a [`KvRing`] are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum KvDtype {
    /// 32-bit floats.
    F32,
    /// The upper half of a 32-bit float, rounded to nearest even.
    Bf16,
}

/// Keys and values of one layer: per row, per head, `cells` cells of `head_dim` elements.
pub struct KvRing {
    pub(super) dtype: KvDtype,
    pub(super) rows: usize,
    pub(super) heads: usize,
    pub(super) head_dim: usize,
    pub(super) cells: usize,
    pub(super) keys: Vec<f32>,
    pub(super) values: Vec<f32>,
}

/// A bit-exact copy of some cells of one row.
#[derive(Clone)]
pub struct RingPart {
    cells: Range<usize>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl RingPart {
    /// The cells it holds.
    pub fn cells(&self) -> Range<usize> {
        self.cells.clone()
    }

    /// Bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        (self.keys.len() + self.values.len()) * 4
    }
}

impl KvRing {
    /// A ring of zeros.
    pub fn new(dtype: KvDtype, rows: usize, heads: usize, head_dim: usize, cells: usize) -> KvRing {
        let len = rows * heads * head_dim * cells;
        KvRing {
            dtype,
            rows,
            heads,
            head_dim,
            cells,
            keys: vec![0.0; len],
            values: vec![0.0; len],
        }
    }

    /// Bytes of memory the keys and values take.
    pub fn bytes(&self) -> usize {
        (self.keys.len() + self.values.len()) * 4
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
        assert!(row < self.rows && cells.end <= self.cells && cells.start <= cells.end);
        let mut part = RingPart {
            cells: cells.clone(),
            keys: Vec::new(),
            values: Vec::new(),
        };
        for head in 0..self.heads {
            let range = self.range(row, head, &cells);
            part.keys.extend_from_slice(&self.keys[range.clone()]);
            part.values.extend_from_slice(&self.values[range]);
        }
        part
    }

    /// Writes a saved part into `row`, at the cells it was taken from.
    ///
    /// # Panics
    /// When the part comes from a ring of another shape or storage.
    pub fn load(&mut self, row: usize, part: &RingPart) {
        assert!(row < self.rows && part.cells.end <= self.cells);
        let len = part.cells.len() * self.head_dim;
        assert_eq!(
            part.keys.len(),
            len * self.heads,
            "the part has another shape"
        );
        for head in 0..self.heads {
            let range = self.range(row, head, &part.cells);
            self.keys[range.clone()].copy_from_slice(&part.keys[head * len..][..len]);
            self.values[range].copy_from_slice(&part.values[head * len..][..len]);
        }
    }

    fn range(&self, row: usize, head: usize, cells: &Range<usize>) -> Range<usize> {
        let start = (row * self.heads + head) * self.cells;
        (start + cells.start) * self.head_dim..(start + cells.end) * self.head_dim
    }
}
