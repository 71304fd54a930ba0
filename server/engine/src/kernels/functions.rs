//! Exponential and error function on lanes.
//!
//! The coefficients are minimax fits made for this project: least squares on Chebyshev nodes, reweighted until the
//! error is level. Errors are checked against double precision in the tests.

#![allow(unsafe_code)]

use super::lanes::Lanes;

/// `ln 2` in two parts, the first with so few bits that its products with small integers are exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Below this the exponential is not a normal number any more; it is taken as 0.
const EXP_LOW: f32 = -87.33;
/// Above this it would overflow; the exponential stays at its largest value.
const EXP_HIGH: f32 = 88.37;
/// `(exp(r) - 1 - r) / r^2` for `|r| <= ln 2 / 2`.
const EXP: [f32; 5] = [
    0.5,
    0.166_665_18,
    0.041_666_204,
    0.008_368_954,
    0.001_395_06,
];
/// `erf(x) / x - 1` as a polynomial in `x^2` for `|x| <= 1`.
const ERF: [f32; 7] = [
    0.128_379_17,
    -0.376_126_38,
    0.112_836_93,
    -0.026_857_825,
    0.005_195_391,
    -0.000_806_896_8,
    8.040_191e-5,
];
/// `ln(1 - erf(x)) / x` for `0.9 <= x <= 4`.
const ERFC: [f32; 8] = [
    -1.128_544_9,
    -0.635_656_5,
    -0.105_202_91,
    0.022_612_01,
    -0.002_892_300_8,
    3.606_475_7e-5,
    4.820_223e-5,
    -5.150_880_5e-6,
];
/// From here on the error function is 1 in f32.
const ERF_HIGH: f32 = 4.0;

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn polynomial<L: Lanes, const N: usize>(x: L::F, coefficients: [f32; N]) -> L::F {
    // SAFETY: the caller's promise.
    unsafe {
        let mut value = L::splat(coefficients[N - 1]);
        for coefficient in coefficients[..N - 1].iter().rev() {
            value = L::fma(value, x, L::splat(*coefficient));
        }
        value
    }
}

/// `x = n ln 2 + r`: gives `2^n` and `exp(r) - 1`.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn exp_parts<L: Lanes>(x: L::F) -> (L::F, L::F) {
    // SAFETY: the caller's promise.
    unsafe {
        // In this order a lane that is not a number stays one.
        let x = L::min(L::splat(EXP_HIGH), L::max(L::splat(EXP_LOW), x));
        let n = L::round(L::mul(x, L::splat(std::f32::consts::LOG2_E)));
        let r = L::fma(n, L::splat(-LN2_HIGH), x);
        let r = L::fma(n, L::splat(-LN2_LOW), r);
        let rest = L::fma(L::mul(r, r), polynomial::<L, 5>(r, EXP), r);
        (L::exp2_whole(n), rest)
    }
}

/// `exp(x)`, within 2 units in the last place; 0 below -87.33.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
pub(super) unsafe fn exp<L: Lanes>(x: L::F) -> L::F {
    // SAFETY: the caller's promise.
    unsafe {
        let (power, rest) = exp_parts::<L>(x);
        let value = L::fma(power, rest, power);
        L::where_above(L::splat(EXP_LOW), x, L::splat(0.0), value)
    }
}

/// `exp(x) - 1`, accurate near 0 too.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
pub(super) unsafe fn exp_m1<L: Lanes>(x: L::F) -> L::F {
    // SAFETY: the caller's promise.
    unsafe {
        let (power, rest) = exp_parts::<L>(x);
        L::fma(power, rest, L::sub(power, L::splat(1.0)))
    }
}

/// The error function, within 2e-7.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
pub(super) unsafe fn erf<L: Lanes>(x: L::F) -> L::F {
    // SAFETY: the caller's promise.
    unsafe {
        let one = L::splat(1.0);
        let small = L::fma(polynomial::<L, 7>(L::mul(x, x), ERF), x, x);
        let size = L::min(L::splat(ERF_HIGH), L::abs(x));
        let log = L::mul(polynomial::<L, 8>(size, ERFC), size);
        let large = L::copy_sign(L::sub(one, exp::<L>(log)), x);
        L::where_above(L::abs(x), one, large, small)
    }
}
