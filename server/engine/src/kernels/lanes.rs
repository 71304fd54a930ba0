//! Sixteen lanes of f32, in three spellings: plain arrays, AVX2 and AVX-512.
//!
//! Kernels are written once against [`Lanes`]; every spelling does the same operations in the same order with the
//! same rounding, so all of them give the same bits, and what is tested on one machine holds on the other.
//! A kernel is an `inline(always)` function generic over `Lanes`; [`kernel!`] compiles it once per spelling with the
//! right instructions switched on and picks one at run time.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
pub(super) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(super) use avx512::Avx512;
pub(super) use portable::Portable;

/// Number of lanes.
pub(super) const LANES: usize = 16;

/// Which spelling runs. On another architecture than x86-64 only `Portable` ever occurs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(super) enum Level {
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, VL and VNNI.
    Avx512,
}

impl Level {
    /// The best level of this machine, found out once.
    pub(super) fn best() -> Level {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| {
            *Level::available()
                .last()
                .expect("the portable level is always there")
        })
    }

    /// All levels of this machine, the best one last.
    pub(super) fn available() -> Vec<Level> {
        #[allow(unused_mut)]
        let mut levels = vec![Level::Portable];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            levels.push(Level::Avx2);
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
            {
                levels.push(Level::Avx512);
            }
        }
        levels
    }
}

/// Sixteen f32 lanes and what is done with them.
///
/// # Safety
/// Every function needs the instructions of its level, and pointers that are valid for what it reads or writes:
/// 16 elements where nothing else is said. No alignment is needed.
pub(super) trait Lanes: Copy {
    /// Sixteen f32.
    type F: Copy;
    /// Sixteen i32, or as many 32-bit patterns.
    type I: Copy;
    /// Sixteen groups of 4 signed bytes, ready to be multiplied.
    type W: Copy;
    /// Whether there are 32 registers that hold all lanes each, in place of 16 that hold half of them.
    const WIDE: bool;

    unsafe fn splat(value: f32) -> Self::F;
    unsafe fn load(from: *const f32) -> Self::F;
    unsafe fn store(to: *mut f32, value: Self::F);
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a > b ? a : b`, so `b` where one is not a number.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// `a < b ? a : b`, so `b` where one is not a number.
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    /// `x > limit ? a : b`.
    unsafe fn where_above(x: Self::F, limit: Self::F, a: Self::F, b: Self::F) -> Self::F;
    unsafe fn abs(a: Self::F) -> Self::F;
    /// `a` with the sign of `sign`.
    unsafe fn copy_sign(a: Self::F, sign: Self::F) -> Self::F;
    /// To the nearest integer, ties to even.
    unsafe fn round(a: Self::F) -> Self::F;
    /// `2^n` for whole `n` in -126..=127.
    unsafe fn exp2_whole(n: Self::F) -> Self::F;
    /// The sums over the lanes of four values, in the order of [`sum_order`].
    unsafe fn sum4(values: [Self::F; 4]) -> [f32; 4];

    /// Widens 16 bf16.
    unsafe fn load_bf16(from: *const u16) -> Self::F;
    /// Loads 16 pairs of bf16.
    unsafe fn load_pairs(from: *const u32) -> Self::I;
    /// The first of each pair, the one in the low half.
    unsafe fn first_of_pairs(pairs: Self::I) -> Self::F;
    /// The second of each pair.
    unsafe fn second_of_pairs(pairs: Self::I) -> Self::F;

    /// Narrows 32 whole numbers from -127 to 127 to bytes at `to` and returns their sum.
    unsafe fn narrow(low: Self::F, high: Self::F, to: *mut i8) -> i32;
    /// Loads 64 signed bytes, none of them -128.
    unsafe fn load_weights(from: *const i8) -> Self::W;
    /// What a dot product over a block starts from, given the sum of the block's inputs.
    unsafe fn dot_start(input_sum: i32) -> Self::I;
    /// Adds to each lane the products of its 4 weights with the 4 bytes at `input`, none of them -128.
    unsafe fn dot(sum: Self::I, weights: Self::W, input: *const i8) -> Self::I;
    unsafe fn to_float(a: Self::I) -> Self::F;
}

/// The one order in which lanes are summed: upper half onto lower, then neighbours, three times over.
#[inline(always)]
pub(super) fn sum_order(v: [f32; LANES]) -> f32 {
    let t: [f32; 8] = std::array::from_fn(|i| v[i] + v[i + 8]);
    ((t[0] + t[1]) + (t[2] + t[3])) + ((t[4] + t[5]) + (t[6] + t[7]))
}

/// Sum over the lanes.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
pub(super) unsafe fn sum<L: Lanes>(value: L::F) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let mut lanes = [0.0; LANES];
        L::store(lanes.as_mut_ptr(), value);
        sum_order(lanes)
    }
}

/// Asks for the cache line at `from`, which may lie anywhere: nothing is read.
///
/// Processors follow a stream by themselves, but stop at page ends and start late; few streams of weights, each read
/// once, are all the products and attention do.
#[inline(always)]
pub(super) fn prefetch<T>(from: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on the cache; SSE is part of the architecture.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(from.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = from;
}

/// Makes `fn name(level, arguments)` out of a generic kernel.
///
/// The function is unsafe for what the kernel demands of its arguments; the level must be one of
/// [`Level::available`].
macro_rules! kernel {
    ($(#[$meta:meta])* $vis:vis fn $name:ident = $generic:ident $(::<$($extra:ty),*>)? ($($arg:ident: $type:ty),* $(,)?)) => {
        $(#[$meta])*
        $vis unsafe fn $name(level: $crate::kernels::lanes::Level, $($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2($($arg: $type),*) {
                // SAFETY: the features are on; the rest is the caller's promise.
                unsafe { $generic::<$crate::kernels::lanes::Avx2 $($(, $extra)*)?>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
            unsafe fn avx512($($arg: $type),*) {
                // SAFETY: the features are on; the rest is the caller's promise.
                unsafe { $generic::<$crate::kernels::lanes::Avx512 $($(, $extra)*)?>($($arg),*) }
            }
            // SAFETY: the level is available on this machine, the rest is the caller's promise.
            unsafe {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    $crate::kernels::lanes::Level::Avx512 => avx512($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::kernels::lanes::Level::Avx2 => avx2($($arg),*),
                    _ => $generic::<$crate::kernels::lanes::Portable $($(, $extra)*)?>($($arg),*),
                }
            }
        }
    };
}
pub(super) use kernel;
