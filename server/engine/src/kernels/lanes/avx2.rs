//! Lanes as two AVX2 registers, lower and upper half.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one promise covers the whole file, see Lanes"
)]

use std::arch::x86_64::*;

use super::Lanes;

/// Two registers of eight lanes.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Avx2;

/// Sums of the eight lanes of four registers, neighbours first.
///
/// # Safety
/// Needs AVX2.
#[inline(always)]
pub(super) unsafe fn sum8_of_4(t: [__m256; 4]) -> [f32; 4] {
    unsafe {
        let pairs = _mm256_hadd_ps(_mm256_hadd_ps(t[0], t[1]), _mm256_hadd_ps(t[2], t[3]));
        let sums = _mm_add_ps(
            _mm256_castps256_ps128(pairs),
            _mm256_extractf128_ps::<1>(pairs),
        );
        let mut out = [0.0; 4];
        _mm_storeu_ps(out.as_mut_ptr(), sums);
        out
    }
}

/// Eight bf16 as eight f32.
///
/// # Safety
/// Needs AVX2 and 16 readable bytes.
#[inline(always)]
unsafe fn widen8(from: *const u16) -> __m256 {
    unsafe {
        let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
    }
}

/// `sum` plus the products of 32 weights with 4 inputs, given four times eight times.
///
/// # Safety
/// Needs AVX2.
#[inline(always)]
unsafe fn dot8(sum: __m256i, magnitude: __m256i, weights: __m256i, input: __m256i) -> __m256i {
    unsafe {
        // Unsigned times signed is all there is, so the weight's sign moves to the input. Two products of at most
        // 127 * 127 fit 16 bits.
        let pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(input, weights));
        _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
    }
}

/// [`Lanes::narrow`] of four registers.
///
/// # Safety
/// As for that; needs AVX2.
#[inline(always)]
pub(super) unsafe fn narrow8(values: [__m256; 4], to: *mut i8) -> i32 {
    unsafe {
        let whole = values.map(|values| _mm256_cvtps_epi32(values));
        let low = _mm256_packs_epi32(whole[0], whole[1]);
        let high = _mm256_packs_epi32(whole[2], whole[3]);
        // Packing works in halves of a register, so groups of four are out of order in the end.
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
        _mm256_storeu_si256(to.cast(), bytes);
        let sums = _mm256_madd_epi16(_mm256_add_epi16(low, high), _mm256_set1_epi16(1));
        let sums = _mm_add_epi32(
            _mm256_castsi256_si128(sums),
            _mm256_extracti128_si256::<1>(sums),
        );
        let sums = _mm_hadd_epi32(sums, sums);
        _mm_cvtsi128_si32(_mm_hadd_epi32(sums, sums))
    }
}

impl Lanes for Avx2 {
    type F = (__m256, __m256);
    type I = (__m256i, __m256i);
    /// Magnitudes, then the weights themselves.
    type W = [(__m256i, __m256i); 2];
    const WIDE: bool = false;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F {
        unsafe { (_mm256_set1_ps(value), _mm256_set1_ps(value)) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        unsafe { (_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: Self::F) {
        unsafe {
            _mm256_storeu_ps(to, value.0);
            _mm256_storeu_ps(to.add(8), value.1);
        }
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        unsafe { (_mm256_add_ps(a.0, b.0), _mm256_add_ps(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        unsafe { (_mm256_sub_ps(a.0, b.0), _mm256_sub_ps(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        unsafe { (_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F {
        unsafe { (_mm256_div_ps(a.0, b.0), _mm256_div_ps(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        unsafe {
            (
                _mm256_fmadd_ps(a.0, b.0, c.0),
                _mm256_fmadd_ps(a.1, b.1, c.1),
            )
        }
    }
    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        unsafe { (_mm256_max_ps(a.0, b.0), _mm256_max_ps(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F {
        unsafe { (_mm256_min_ps(a.0, b.0), _mm256_min_ps(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn where_above(x: Self::F, limit: Self::F, a: Self::F, b: Self::F) -> Self::F {
        unsafe {
            (
                _mm256_blendv_ps(b.0, a.0, _mm256_cmp_ps::<_CMP_GT_OQ>(x.0, limit.0)),
                _mm256_blendv_ps(b.1, a.1, _mm256_cmp_ps::<_CMP_GT_OQ>(x.1, limit.1)),
            )
        }
    }
    #[inline(always)]
    unsafe fn abs(a: Self::F) -> Self::F {
        unsafe {
            let sign = _mm256_set1_ps(-0.0);
            (_mm256_andnot_ps(sign, a.0), _mm256_andnot_ps(sign, a.1))
        }
    }
    #[inline(always)]
    unsafe fn copy_sign(a: Self::F, sign: Self::F) -> Self::F {
        unsafe {
            let mask = _mm256_set1_ps(-0.0);
            (
                _mm256_or_ps(_mm256_andnot_ps(mask, a.0), _mm256_and_ps(mask, sign.0)),
                _mm256_or_ps(_mm256_andnot_ps(mask, a.1), _mm256_and_ps(mask, sign.1)),
            )
        }
    }
    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        unsafe {
            const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
            (
                _mm256_round_ps::<NEAREST>(a.0),
                _mm256_round_ps::<NEAREST>(a.1),
            )
        }
    }
    #[inline(always)]
    unsafe fn exp2_whole(n: Self::F) -> Self::F {
        unsafe {
            let bias = _mm256_set1_epi32(127);
            let low = _mm256_add_epi32(_mm256_cvtps_epi32(n.0), bias);
            let high = _mm256_add_epi32(_mm256_cvtps_epi32(n.1), bias);
            (
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(low)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(high)),
            )
        }
    }
    #[inline(always)]
    unsafe fn sum4(v: [Self::F; 4]) -> [f32; 4] {
        unsafe {
            sum8_of_4([
                _mm256_add_ps(v[0].0, v[0].1),
                _mm256_add_ps(v[1].0, v[1].1),
                _mm256_add_ps(v[2].0, v[2].1),
                _mm256_add_ps(v[3].0, v[3].1),
            ])
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::F {
        unsafe { (widen8(from), widen8(from.add(8))) }
    }
    #[inline(always)]
    unsafe fn load_pairs(from: *const u32) -> Self::I {
        unsafe {
            (
                _mm256_loadu_si256(from.cast()),
                _mm256_loadu_si256(from.add(8).cast()),
            )
        }
    }
    #[inline(always)]
    unsafe fn first_of_pairs(pairs: Self::I) -> Self::F {
        unsafe {
            (
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs.0)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs.1)),
            )
        }
    }
    #[inline(always)]
    unsafe fn second_of_pairs(pairs: Self::I) -> Self::F {
        unsafe {
            let mask = _mm256_set1_epi32(0xFFFF_0000_u32 as i32);
            (
                _mm256_castsi256_ps(_mm256_and_si256(pairs.0, mask)),
                _mm256_castsi256_ps(_mm256_and_si256(pairs.1, mask)),
            )
        }
    }

    #[inline(always)]
    unsafe fn narrow(low: Self::F, high: Self::F, to: *mut i8) -> i32 {
        unsafe { narrow8([low.0, low.1, high.0, high.1], to) }
    }
    #[inline(always)]
    unsafe fn load_weights(from: *const i8) -> Self::W {
        unsafe {
            let low = _mm256_loadu_si256(from.cast());
            let high = _mm256_loadu_si256(from.add(32).cast());
            [(_mm256_abs_epi8(low), low), (_mm256_abs_epi8(high), high)]
        }
    }
    #[inline(always)]
    unsafe fn dot_start(_input_sum: i32) -> Self::I {
        unsafe { (_mm256_setzero_si256(), _mm256_setzero_si256()) }
    }
    #[inline(always)]
    unsafe fn dot(sum: Self::I, weights: Self::W, input: *const i8) -> Self::I {
        unsafe {
            let input = _mm256_set1_epi32(input.cast::<i32>().read_unaligned());
            (
                dot8(sum.0, weights[0].0, weights[0].1, input),
                dot8(sum.1, weights[1].0, weights[1].1, input),
            )
        }
    }
    #[inline(always)]
    unsafe fn to_float(a: Self::I) -> Self::F {
        unsafe { (_mm256_cvtepi32_ps(a.0), _mm256_cvtepi32_ps(a.1)) }
    }
}
