//! A weight matrix, packed once in the order the products read it.
//!
//! Rows are taken in panels of 16, one per lane; the last panel is filled up with zeros. Inside a panel the columns
//! follow each other, so that a product walks through memory in one direction:
//!
//! - f32: per column 16 floats;
//! - bf16: per pair of columns 16 words, the first column in the lower half, which one shift or mask widens;
//! - 8-bit: per block of 32 columns 8 groups of 16 times 4 bytes, and apart from them 16 scales as bf16.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::buffer::Buffer;
use super::lanes::{LANES, Level};
use super::pack::PanelRows;
use super::pool::Pool;

/// Columns that share a scale in [`Dtype::Q8_0`].
pub(super) const BLOCK: usize = 32;
/// Neighbouring columns of one row in a 32-bit lane of [`Dtype::Q8_0`].
pub(super) const GROUP: usize = 4;

/// How the elements of a [`Matrix`] are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Dtype {
    /// 32-bit floats.
    F32,
    /// The upper half of a 32-bit float, rounded to nearest even.
    Bf16,
    /// Blocks of 32 signed bytes along the columns with one bf16 scale, 8.5 bits a weight. A weight is off by at most
    /// 0.4 % of the largest in its block; inputs are quantised alike for the product, with an f32 scale.
    Q8_0,
}

/// In the words of the command line.
impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Dtype::F32 => "f32",
            Dtype::Bf16 => "bf16",
            Dtype::Q8_0 => "q8_0",
        })
    }
}

/// A weight `[rows, cols]`: `rows` outputs from `cols` inputs.
pub struct Matrix {
    dtype: Dtype,
    rows: usize,
    cols: usize,
    /// The elements, panel after panel.
    pub(super) data: Buffer,
    /// Scales of 8-bit blocks, `[panels, blocks, 16]` bf16; else empty.
    pub(super) scales: Buffer,
}

impl Matrix {
    /// Packs `data`, row-major `[rows, cols]`.
    ///
    /// # Panics
    /// When `data` has not `rows * cols` elements.
    pub fn from_f32(dtype: Dtype, rows: usize, cols: usize, data: &[f32]) -> Matrix {
        Matrix::from_f32_on(&Pool::new(1), dtype, rows, cols, data)
    }

    /// [`Matrix::from_f32`], shared out among the threads of `pool`.
    ///
    /// # Panics
    /// As for that.
    pub fn from_f32_on(
        pool: &Pool,
        dtype: Dtype,
        rows: usize,
        cols: usize,
        data: &[f32],
    ) -> Matrix {
        let size = "a matrix needs rows * cols elements";
        assert_eq!(data.len(), rows * cols, "{size}");
        Matrix::pack(pool, dtype, rows, cols, &|row, out| {
            out.copy_from_slice(&data[row * cols..][..cols]);
        })
    }

    /// Packs bf16 bit patterns, row-major `[rows, cols]`. Exact for [`Dtype::F32`] and [`Dtype::Bf16`].
    ///
    /// # Panics
    /// When `bits` has not `rows * cols` elements.
    pub fn from_bf16_bits(dtype: Dtype, rows: usize, cols: usize, bits: &[u16]) -> Matrix {
        Matrix::from_bf16_bits_on(&Pool::new(1), dtype, rows, cols, bits)
    }

    /// [`Matrix::from_bf16_bits`], shared out among the threads of `pool`.
    ///
    /// # Panics
    /// As for that.
    pub fn from_bf16_bits_on(
        pool: &Pool,
        dtype: Dtype,
        rows: usize,
        cols: usize,
        bits: &[u16],
    ) -> Matrix {
        let size = "a matrix needs rows * cols elements";
        assert_eq!(bits.len(), rows * cols, "{size}");
        Matrix::pack(pool, dtype, rows, cols, &|row, out| {
            for (out, bits) in out.iter_mut().zip(&bits[row * cols..][..cols]) {
                *out = f32::from_bits(u32::from(*bits) << 16);
            }
        })
    }

    /// Number of outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes of memory the packed elements take.
    pub fn bytes(&self) -> usize {
        self.data.len() + self.scales.len()
    }

    /// How the elements are stored.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    pub(super) fn panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Bytes of one panel.
    pub(super) fn panel_bytes(&self) -> usize {
        panel_bytes(self.dtype, self.cols)
    }

    /// `fetch(row, out)` writes one row.
    fn pack(
        pool: &Pool,
        dtype: Dtype,
        rows: usize,
        cols: usize,
        fetch: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) -> Matrix {
        let panels = rows.div_ceil(LANES);
        let mut data = Buffer::zeroed(panels * panel_bytes(dtype, cols));
        let mut scales = Buffer::zeroed(panels * scale_bytes(dtype, cols));
        let mut rest = (data.bytes_mut(), scales.bytes_mut());
        let mut parts = Vec::with_capacity(panels);
        for _ in 0..panels {
            let (part, data) = rest.0.split_at_mut(panel_bytes(dtype, cols));
            let (part_scales, scales) = rest.1.split_at_mut(scale_bytes(dtype, cols));
            parts.push(Mutex::new((part, part_scales)));
            rest = (data, scales);
        }
        let level = Level::best();
        pool.run(panels, &|panel| {
            let mut part = lock(&parts[panel]);
            let (data, scales) = &mut *part;
            let own = panel * LANES..rows.min((panel + 1) * LANES);
            let panel = PanelRows::fetch(own, cols, fetch);
            match dtype {
                Dtype::F32 => panel.pack_f32(data),
                Dtype::Bf16 => panel.pack_bf16(data),
                Dtype::Q8_0 => panel.pack_q8(level, data, scales),
            }
        });
        drop(parts);
        Matrix {
            dtype,
            rows,
            cols,
            data,
            scales,
        }
    }
}

/// Each part is taken once, so a panic elsewhere leaves nothing half done in it.
fn lock<T>(part: &Mutex<T>) -> MutexGuard<'_, T> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

fn panel_bytes(dtype: Dtype, cols: usize) -> usize {
    match dtype {
        Dtype::F32 => cols * LANES * 4,
        Dtype::Bf16 => cols.div_ceil(2) * LANES * 4,
        Dtype::Q8_0 => cols.div_ceil(BLOCK) * BLOCK * LANES,
    }
}

fn scale_bytes(dtype: Dtype, cols: usize) -> usize {
    match dtype {
        Dtype::Q8_0 => cols.div_ceil(BLOCK) * LANES * 2,
        Dtype::F32 | Dtype::Bf16 => 0,
    }
}
