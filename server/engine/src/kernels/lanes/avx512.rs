//! Lanes as one AVX-512 register. Every function is one or two instructions, so that nothing here needs a thought
//! of its own: what the kernels do with them is tested through the other spellings.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one promise covers the whole file, see Lanes"
)]

use std::arch::x86_64::*;

use super::Lanes;
use super::avx2::{narrow8, sum8_of_4};

/// One register of sixteen lanes.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Avx512;

/// Lower and upper half.
///
/// # Safety
/// Needs AVX-512 F.
#[inline(always)]
unsafe fn halves(v: __m512) -> (__m256, __m256) {
    unsafe {
        let high = _mm512_extractf64x4_pd::<1>(_mm512_castps_pd(v));
        (_mm512_castps512_ps256(v), _mm256_castpd_ps(high))
    }
}

/// Upper half plus lower half.
///
/// # Safety
/// Needs AVX-512 F.
#[inline(always)]
unsafe fn fold(v: __m512) -> __m256 {
    unsafe {
        let (low, high) = halves(v);
        _mm256_add_ps(low, high)
    }
}

impl Lanes for Avx512 {
    type F = __m512;
    type I = __m512i;
    /// Weights plus 128: the instruction multiplies unsigned with signed bytes, and what that adds depends on the
    /// input alone, see `dot_start`.
    type W = __m512i;
    const WIDE: bool = true;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F {
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: Self::F) {
        unsafe { _mm512_storeu_ps(to, value) }
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn where_above(x: Self::F, limit: Self::F, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, limit), b, a) }
    }
    #[inline(always)]
    unsafe fn abs(a: Self::F) -> Self::F {
        unsafe { _mm512_abs_ps(a) }
    }
    #[inline(always)]
    unsafe fn copy_sign(a: Self::F, sign: Self::F) -> Self::F {
        unsafe {
            // Bitwise `mask ? sign : a`.
            let mask = _mm512_set1_epi32(i32::MIN);
            let (a, sign) = (_mm512_castps_si512(a), _mm512_castps_si512(sign));
            _mm512_castsi512_ps(_mm512_ternarylogic_epi32::<0xCA>(mask, sign, a))
        }
    }
    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    unsafe fn exp2_whole(n: Self::F) -> Self::F {
        unsafe {
            let exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent))
        }
    }
    #[inline(always)]
    unsafe fn sum4(v: [Self::F; 4]) -> [f32; 4] {
        unsafe { sum8_of_4([fold(v[0]), fold(v[1]), fold(v[2]), fold(v[3])]) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::F {
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
        }
    }
    #[inline(always)]
    unsafe fn load_pairs(from: *const u32) -> Self::I {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn first_of_pairs(pairs: Self::I) -> Self::F {
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)) }
    }
    #[inline(always)]
    unsafe fn second_of_pairs(pairs: Self::I) -> Self::F {
        unsafe {
            let mask = _mm512_set1_epi32(0xFFFF_0000_u32 as i32);
            _mm512_castsi512_ps(_mm512_and_si512(pairs, mask))
        }
    }

    #[inline(always)]
    unsafe fn narrow(low: Self::F, high: Self::F, to: *mut i8) -> i32 {
        unsafe {
            let [(a, b), (c, d)] = [halves(low), halves(high)];
            narrow8([a, b, c, d], to)
        }
    }
    #[inline(always)]
    unsafe fn load_weights(from: *const i8) -> Self::W {
        unsafe { _mm512_xor_si512(_mm512_loadu_si512(from.cast()), _mm512_set1_epi8(i8::MIN)) }
    }
    #[inline(always)]
    unsafe fn dot_start(input_sum: i32) -> Self::I {
        unsafe { _mm512_set1_epi32(-128 * input_sum) }
    }
    #[inline(always)]
    unsafe fn dot(sum: Self::I, weights: Self::W, input: *const i8) -> Self::I {
        unsafe {
            let input = _mm512_set1_epi32(input.cast::<i32>().read_unaligned());
            _mm512_dpbusd_epi32(sum, weights, input)
        }
    }
    #[inline(always)]
    unsafe fn to_float(a: Self::I) -> Self::F {
        unsafe { _mm512_cvtepi32_ps(a) }
    }
}
