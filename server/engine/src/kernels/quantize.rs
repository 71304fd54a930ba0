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
        // SAFETY: both halves of `values` hold 16 floats, `bytes` has room for 32; the rest is the caller's promise.
        unsafe {
            let (low, high) = (
                L::load(values.as_ptr()),
                L::load(values.as_ptr().add(LANES)),
            );
            let mut magnitudes = [0.0f32; LANES];
            L::store(magnitudes.as_mut_ptr(), L::max(L::abs(low), L::abs(high)));
            let largest = largest(magnitudes);
            let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            // Zero times anything infinite or not a number spoils the scale, so that it is not hidden.
            let zero = L::splat(0.0);
            scales[block] = largest / 127.0 + sum::<L>(L::fma(low, zero, L::mul(high, zero)));
            let inverse = L::splat(inverse);
            let (low, high) = (L::mul(low, inverse), L::mul(high, inverse));
            let bytes = bytes.as_mut_ptr();
            sums[block] = L::narrow(limited::<L>(low), limited::<L>(high), bytes);
        }
    }
}

/// The nearest whole numbers from -127 to 127: -128 would be more than the product may take.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
pub(super) unsafe fn limited<L: Lanes>(values: L::F) -> L::F {
    // SAFETY: the caller's promise.
    unsafe { L::max(L::min(L::round(values), L::splat(127.0)), L::splat(-127.0)) }
}

/// The largest number.
#[inline(always)]
pub(super) fn largest(numbers: [f32; LANES]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let eight: [f32; 8] = std::array::from_fn(|i| larger(numbers[i], numbers[i + 8]));
    let four: [f32; 4] = std::array::from_fn(|i| larger(eight[i], eight[i + 4]));
    larger(larger(four[0], four[2]), larger(four[1], four[3]))
}
