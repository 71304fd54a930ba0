//! Lanes as plain arrays: what the other spellings are tested against, and what runs on other processors.
//!
//! Fused multiply-adds are exact here too; a processor without the instruction pays for a library call each.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one promise covers the whole file, see Lanes"
)]

use super::{LANES, Lanes, sum_order};

/// Plain arrays.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Portable;

#[inline(always)]
fn each<T: Copy, U>(a: [T; LANES], f: impl Fn(T) -> U) -> [U; LANES] {
    std::array::from_fn(|i| f(a[i]))
}

#[inline(always)]
fn both<T: Copy, U>(a: [T; LANES], b: [T; LANES], f: impl Fn(T, T) -> U) -> [U; LANES] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

/// What the VNNI instruction does to one lane: four unsigned bytes times four signed ones, onto 32 bits.
#[inline(always)]
pub(in crate::kernels) fn dot_unsigned(sum: i32, a: [u8; 4], b: [i8; 4]) -> i32 {
    (0..4).fold(sum, |sum, i| {
        sum.wrapping_add(i32::from(a[i]) * i32::from(b[i]))
    })
}

impl Lanes for Portable {
    type F = [f32; LANES];
    type I = [i32; LANES];
    /// Weights plus 128, as the VNNI instruction wants them.
    type W = [[u8; 4]; LANES];
    const WIDE: bool = false;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F {
        [value; LANES]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        unsafe { from.cast::<Self::F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: Self::F) {
        unsafe { to.cast::<Self::F>().write_unaligned(value) }
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| a / b)
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    unsafe fn where_above(x: Self::F, limit: Self::F, a: Self::F, b: Self::F) -> Self::F {
        std::array::from_fn(|i| if x[i] > limit[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn abs(a: Self::F) -> Self::F {
        each(a, f32::abs)
    }
    #[inline(always)]
    unsafe fn copy_sign(a: Self::F, sign: Self::F) -> Self::F {
        both(a, sign, f32::copysign)
    }
    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        each(a, f32::round_ties_even)
    }
    #[inline(always)]
    unsafe fn exp2_whole(n: Self::F) -> Self::F {
        each(n, |n| {
            f32::from_bits(((n as i32).wrapping_add(127) as u32) << 23)
        })
    }
    #[inline(always)]
    unsafe fn sum4(values: [Self::F; 4]) -> [f32; 4] {
        values.map(sum_order)
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::F {
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        each(bits, |bits| f32::from_bits(u32::from(bits) << 16))
    }
    #[inline(always)]
    unsafe fn load_pairs(from: *const u32) -> Self::I {
        unsafe { from.cast::<Self::I>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn first_of_pairs(pairs: Self::I) -> Self::F {
        each(pairs, |pair| f32::from_bits((pair as u32) << 16))
    }
    #[inline(always)]
    unsafe fn second_of_pairs(pairs: Self::I) -> Self::F {
        each(pairs, |pair| f32::from_bits(pair as u32 & 0xFFFF_0000))
    }

    #[inline(always)]
    unsafe fn narrow(low: Self::F, high: Self::F, to: *mut i8) -> i32 {
        let bytes = [low, high].map(|half| each(half, |value| value as i8));
        unsafe { to.cast::<[[i8; LANES]; 2]>().write_unaligned(bytes) }
        bytes.as_flattened().iter().copied().map(i32::from).sum()
    }
    #[inline(always)]
    unsafe fn load_weights(from: *const i8) -> Self::W {
        let bytes = unsafe { from.cast::<[[u8; 4]; LANES]>().read_unaligned() };
        each(bytes, |group| group.map(|byte| byte ^ 0x80))
    }
    #[inline(always)]
    unsafe fn dot_start(input_sum: i32) -> Self::I {
        [-128 * input_sum; LANES]
    }
    #[inline(always)]
    unsafe fn dot(sum: Self::I, weights: Self::W, input: *const i8) -> Self::I {
        let input = unsafe { input.cast::<[i8; 4]>().read_unaligned() };
        std::array::from_fn(|i| dot_unsigned(sum[i], weights[i], input))
    }
    #[inline(always)]
    unsafe fn to_float(a: Self::I) -> Self::F {
        each(a, |a| a as f32)
    }
}
