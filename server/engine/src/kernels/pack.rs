//! How 16 rows of a weight become a panel, in the layouts of [`super::matrix`].

#![allow(unsafe_code)]

use std::ops::Range;

use super::lanes::{LANES, Lanes, Level, kernel};
use super::matrix::{BLOCK, GROUP};
use super::quantize::{largest, limited};

/// The rows of one panel.
pub(super) struct PanelRows {
    /// `[16, stride]`; what is missing is zero.
    values: Vec<f32>,
    cols: usize,
    stride: usize,
}

impl PanelRows {
    /// At most 16 `rows`; `fetch(row, out)` writes one of `cols` values.
    pub(super) fn fetch(
        rows: Range<usize>,
        cols: usize,
        fetch: &dyn Fn(usize, &mut [f32]),
    ) -> PanelRows {
        // A block of zeros after each row, which also keeps the rows from lying a power of two apart: then they
        // would push each other out of the cache.
        let stride = cols.next_multiple_of(BLOCK) + BLOCK;
        let mut values = vec![0.0; LANES * stride];
        for (row, out) in rows.zip(values.chunks_exact_mut(stride)) {
            fetch(row, &mut out[..cols]);
        }
        PanelRows {
            values,
            cols,
            stride,
        }
    }

    pub(super) fn pack_f32(&self, panel: &mut [u8]) {
        for (column, words) in panel.chunks_exact_mut(4 * LANES).enumerate() {
            for (lane, word) in words.chunks_exact_mut(4).enumerate() {
                word.copy_from_slice(&self.values[lane * self.stride + column].to_ne_bytes());
            }
        }
    }

    pub(super) fn pack_bf16(&self, panel: &mut [u8]) {
        let bits: Vec<u16> = self.values.iter().map(|value| bf16_bits(*value)).collect();
        for (pair, words) in panel.chunks_exact_mut(4 * LANES).enumerate() {
            for (lane, word) in words.chunks_exact_mut(4).enumerate() {
                let at = lane * self.stride + 2 * pair;
                let both = u32::from(bits[at]) | u32::from(bits[at + 1]) << 16;
                word.copy_from_slice(&both.to_ne_bytes());
            }
        }
    }

    pub(super) fn pack_q8(&self, level: Level, panel: &mut [u8], scales: &mut [u8]) {
        for (lane, row) in self.values.chunks_exact(self.stride).enumerate() {
            let row = &row[..self.cols.next_multiple_of(BLOCK)];
            // SAFETY: the level is available; the kernel demands nothing else.
            unsafe { pack_q8_row(level, row, lane, panel, scales) }
        }
    }
}

/// Rounded to nearest even; what is not a number stays so. Without a branch, so that many are done at once.
#[inline(always)]
fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16;
    let not_a_number = bits >> 16 | 0x40;
    (if value.is_nan() {
        not_a_number
    } else {
        rounded
    }) as u16
}

kernel! {
    /// One row of whole blocks into its lane.
    fn pack_q8_row = pack_q8_lanes(row: &[f32], lane: usize, panel: &mut [u8], scales: &mut [u8])
}

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn pack_q8_lanes<L: Lanes>(row: &[f32], lane: usize, panel: &mut [u8], scales: &mut [u8]) {
    let blocks = panel.chunks_exact_mut(BLOCK * LANES);
    let scales = scales.chunks_exact_mut(2 * LANES);
    for ((values, block), scales) in row.chunks_exact(BLOCK).zip(blocks).zip(scales) {
        let mut bytes = [0i8; BLOCK];
        // SAFETY: both halves of `values` hold 16 floats, `bytes` has room for 32; the rest is the caller's promise.
        let bits = unsafe {
            let low = L::load(values.as_ptr());
            let high = L::load(values.as_ptr().add(LANES));
            let mut magnitudes = [0.0f32; LANES];
            L::store(magnitudes.as_mut_ptr(), L::max(L::abs(low), L::abs(high)));
            let (scale, bits) = q8_scale(largest(magnitudes));
            if scale > 0.0 {
                let scale = L::splat(scale);
                let (low, high) = (L::div(low, scale), L::div(high, scale));
                L::narrow(limited::<L>(low), limited::<L>(high), bytes.as_mut_ptr());
            }
            bits
        };
        scales[2 * lane..][..2].copy_from_slice(&bits.to_ne_bytes());
        let groups = block.chunks_exact_mut(GROUP * LANES);
        for (group, bytes) in groups.zip(bytes.as_chunks::<GROUP>().0) {
            group[lane * GROUP..][..GROUP].copy_from_slice(&bytes.map(|byte| byte as u8));
        }
    }
}

/// The smallest bf16 by which all values up to `largest` divide to at most 127, and its bits.
fn q8_scale(largest: f32) -> (f32, u16) {
    let exact = largest / 127.0;
    let mut bits = (exact.to_bits() >> 16) as u16;
    if f32::from_bits(u32::from(bits) << 16) < exact {
        bits += 1;
    }
    (f32::from_bits(u32::from(bits) << 16), bits)
}

#[cfg(test)]
mod tests {
    use super::super::matmul_tests::noise;
    use super::super::matrix::{Dtype, Matrix};
    use super::super::pool::Pool;
    use super::*;

    #[test]
    fn eight_bits_are_the_nearest_ones_on_every_level() {
        let cols = 3 * BLOCK;
        let mut row = noise(cols, 1);
        row[BLOCK..2 * BLOCK].fill(0.0);
        for level in Level::available() {
            let mut panel = vec![0u8; cols * LANES];
            let mut scales = vec![0u8; 3 * 2 * LANES];
            // SAFETY: the level is available.
            unsafe { pack_q8_row(level, &row, 5, &mut panel, &mut scales) }
            for (block, values) in row.chunks(BLOCK).enumerate() {
                let largest = values.iter().fold(0.0f32, |most, v| most.max(v.abs()));
                let (scale, bits) = q8_scale(largest);
                let held = &scales[(block * LANES + 5) * 2..][..2];
                assert_eq!(held, bits.to_ne_bytes(), "{level:?}");
                for (column, value) in values.iter().enumerate() {
                    let group = block * BLOCK / GROUP + column / GROUP;
                    let byte = panel[(group * LANES + 5) * GROUP + column % GROUP] as i8;
                    let nearest = match scale {
                        0.0 => 0.0,
                        scale => (value / scale).round_ties_even(),
                    };
                    assert_eq!(f32::from(byte), nearest, "{level:?} {block} {column}");
                }
            }
            let others = (0..panel.len()).filter(|at| at / GROUP % LANES != 5);
            assert!(others.into_iter().all(|at| panel[at] == 0), "{level:?}");
        }
    }

    #[test]
    fn bf16_is_rounded_as_the_library_rounds_it() {
        let special = [
            0.0,
            -0.0,
            f32::NAN,
            f32::INFINITY,
            f32::MAX,
            f32::MIN,
            1e-40,
            1.0 + 1.0 / 256.0,
        ];
        for value in noise(100_000, 3).into_iter().chain(special) {
            assert_eq!(
                bf16_bits(value),
                half::bf16::from_f32(value).to_bits(),
                "{value}"
            );
        }
    }

    #[test]
    fn threads_pack_what_one_packs() {
        let (rows, cols) = (83, 75);
        let values = noise(rows * cols, 1);
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::Q8_0] {
            let one = Matrix::from_f32(dtype, rows, cols, &values);
            let many = Matrix::from_f32_on(&Pool::new(3), dtype, rows, cols, &values);
            assert_eq!(one.data.bytes(), many.data.bytes(), "{dtype}");
            assert_eq!(one.scales.bytes(), many.scales.bytes(), "{dtype}");
        }
    }
}
