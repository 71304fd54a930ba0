//! A weight matrix, packed once in the order the products read it.
//!
//! Rows are taken in panels of 16, one per lane; the last panel is filled up with zeros. Inside a panel the columns
//! follow each other, so that a product walks through memory in one direction:
//!
//! - f32: per column 16 floats;
//! - bf16: per pair of columns 16 words, the first column in the lower half, which one shift or mask widens;
//! - 8-bit: per block of 32 columns 8 groups of 16 times 4 bytes, and apart from them 16 scales as bf16.

use super::buffer::Buffer;
use super::lanes::LANES;

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
        let size = "a matrix needs rows * cols elements";
        assert_eq!(data.len(), rows * cols, "{size}");
        Matrix::pack(dtype, rows, cols, |row, out| {
            out.copy_from_slice(&data[row * cols..][..cols]);
        })
    }

    /// Packs bf16 bit patterns, row-major `[rows, cols]`. Exact for [`Dtype::F32`] and [`Dtype::Bf16`].
    ///
    /// # Panics
    /// When `bits` has not `rows * cols` elements.
    pub fn from_bf16_bits(dtype: Dtype, rows: usize, cols: usize, bits: &[u16]) -> Matrix {
        let size = "a matrix needs rows * cols elements";
        assert_eq!(bits.len(), rows * cols, "{size}");
        Matrix::pack(dtype, rows, cols, |row, out| {
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
    fn pack(dtype: Dtype, rows: usize, cols: usize, fetch: impl Fn(usize, &mut [f32])) -> Matrix {
        let panels = rows.div_ceil(LANES);
        let bytes = panel_bytes(dtype, cols);
        let scale_bytes = match dtype {
            Dtype::Q8_0 => cols.div_ceil(BLOCK) * LANES * 2,
            Dtype::F32 | Dtype::Bf16 => 0,
        };
        let mut data = Buffer::zeroed(panels * bytes);
        let mut scales = Buffer::zeroed(panels * scale_bytes);
        let mut row_values = vec![0.0f32; cols];
        for row in 0..rows {
            fetch(row, &mut row_values);
            let (panel, lane) = (row / LANES, row % LANES);
            let out = &mut data.bytes_mut()[panel * bytes..][..bytes];
            match dtype {
                Dtype::F32 => pack_f32(&row_values, lane, out),
                Dtype::Bf16 => pack_bf16(&row_values, lane, out),
                Dtype::Q8_0 => {
                    let scales = &mut scales.bytes_mut()[panel * scale_bytes..][..scale_bytes];
                    pack_q8(&row_values, lane, out, scales);
                }
            }
        }
        Matrix {
            dtype,
            rows,
            cols,
            data,
            scales,
        }
    }
}

fn panel_bytes(dtype: Dtype, cols: usize) -> usize {
    match dtype {
        Dtype::F32 => cols * LANES * 4,
        Dtype::Bf16 => cols.div_ceil(2) * LANES * 4,
        Dtype::Q8_0 => cols.div_ceil(BLOCK) * BLOCK * LANES,
    }
}

fn pack_f32(row: &[f32], lane: usize, panel: &mut [u8]) {
    for (value, column) in row.iter().zip(panel.chunks_exact_mut(4 * LANES)) {
        column[4 * lane..][..4].copy_from_slice(&value.to_ne_bytes());
    }
}

fn pack_bf16(row: &[f32], lane: usize, panel: &mut [u8]) {
    for (pair, columns) in row.chunks(2).zip(panel.chunks_exact_mut(4 * LANES)) {
        let bits = |value: f32| u32::from(half::bf16::from_f32(value).to_bits());
        let word = bits(pair[0]) | bits(pair.get(1).copied().unwrap_or(0.0)) << 16;
        columns[4 * lane..][..4].copy_from_slice(&word.to_ne_bytes());
    }
}

fn pack_q8(row: &[f32], lane: usize, panel: &mut [u8], scales: &mut [u8]) {
    let blocks = panel.chunks_exact_mut(BLOCK * LANES);
    let scales = scales.chunks_exact_mut(2 * LANES);
    for ((values, bytes), scales) in row.chunks(BLOCK).zip(blocks).zip(scales) {
        let (scale, bits) = q8_scale(values);
        scales[2 * lane..][..2].copy_from_slice(&bits.to_ne_bytes());
        for (column, value) in values.iter().enumerate() {
            let quantised = if scale > 0.0 {
                (value / scale).round_ties_even().clamp(-127.0, 127.0) as i8
            } else {
                0
            };
            let at = (column / GROUP * LANES + lane) * GROUP + column % GROUP;
            bytes[at] = quantised as u8;
        }
    }
}

/// The smallest bf16 by which all values divide to at most 127, and its bits.
fn q8_scale(values: &[f32]) -> (f32, u16) {
    let largest = values
        .iter()
        .fold(0.0f32, |largest, v| largest.max(v.abs()));
    let exact = largest / 127.0;
    let mut bits = (exact.to_bits() >> 16) as u16;
    if f32::from_bits(u32::from(bits) << 16) < exact {
        bits += 1;
    }
    (f32::from_bits(u32::from(bits) << 16), bits)
}
