//! Input vectors as signed bytes with one scale for every 32, for products with 8-bit weights.

#![allow(unsafe_code)]

use super::lanes::{LANES, Lanes, Level, kernel, sum};
use super::matrix::BLOCK;

/// Quantised vectors. Kept by a thread between calls, so that it stops growing.
#[derive(Default)]
pub(super) struct Quantized {
    /// `[vectors, blocks, 32]`
    pub(super) bytes: Vec<i8>,
    /// `[vectors, blocks]`
    pub(super) scales: Vec<f32>,
    /// `[vectors, blocks]`: sums of the bytes.
    pub(super) sums: Vec<i32>,
    /// Blocks of a vector; the last one is filled up with zeros.
    pub(super) blocks: usize,
}

impl Quantized {
    /// Replaces what is held by `count` vectors of `cols` floats; `vector(i)` gives the `i`th.
    pub(super) fn fill<'x>(
        &mut self,
        level: Level,
        count: usize,
        cols: usize,
        vector: impl Fn(usize) -> &'x [f32],
    ) {
        self.blocks = cols.div_ceil(BLOCK);
        let total = count * self.blocks;
        if self.scales.len() < total {
            self.bytes.resize(total * BLOCK, 0);
            self.scales.resize(total, 0.0);
            self.sums.resize(total, 0);
        }
        for index in 0..count {
            let at = index * self.blocks;
            let values = vector(index);
            let bytes = &mut self.bytes[at * BLOCK..][..self.blocks * BLOCK];
            let scales = &mut self.scales[at..][..self.blocks];
            let sums = &mut self.sums[at..][..self.blocks];
            // SAFETY: the level is available; the kernel demands nothing else.
            unsafe { quantize(level, values, bytes, scales, sums) }
        }
    }
}

kernel! {
    fn quantize = quantize_lanes(
        values: &[f32], bytes: &mut [i8], scales: &mut [f32], sums: &mut [i32],
    )
}

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn quantize_lanes<L: Lanes>(
    values: &[f32],
    bytes: &mut [i8],
    scales: &mut [f32],
    sums: &mut [i32],
) {
    for (block, bytes) in bytes.chunks_exact_mut(BLOCK).enumerate() {
        let rest = &values[block * BLOCK..];
        let mut padded = [0.0f32; BLOCK];
        let values = match rest.first_chunk::<BLOCK>() {
            Some(full) => full,
            None => {
                padded[..rest.len()].copy_from_slice(rest);
                &padded
            }
        };
        let mut rounded = [0.0f32; BLOCK];
        // SAFETY: both halves of `values` and `rounded` hold 16 floats; the rest is the caller's promise.
        unsafe {
            let (low, high) = (
                L::load(values.as_ptr()),
                L::load(values.as_ptr().add(LANES)),
            );
            let mut magnitudes = [0.0f32; LANES];
            L::store(magnitudes.as_mut_ptr(), L::max(L::abs(low), L::abs(high)));
            let largest = magnitudes
                .iter()
                .fold(0.0f32, |a, b| if *b > a { *b } else { a });
            let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            // Zero times anything infinite or not a number spoils the scale, so that it is not hidden.
            let zero = L::splat(0.0);
            scales[block] = largest / 127.0 + sum::<L>(L::fma(low, zero, L::mul(high, zero)));
            let inverse = L::splat(inverse);
            L::store(rounded.as_mut_ptr(), L::round(L::mul(low, inverse)));
            let high = L::round(L::mul(high, inverse));
            L::store(rounded.as_mut_ptr().add(LANES), high);
        }
        let mut total = 0;
        for (byte, value) in bytes.iter_mut().zip(&rounded) {
            // The conversion saturates; -128 would be more than the product may take.
            *byte = (*value as i8).max(-127);
            total += i32::from(*byte);
        }
        sums[block] = total;
    }
}
