//! Norms over the last dimension, in f32 throughout.

#![allow(unsafe_code)]

use super::lanes::{LANES, Lanes, Level, kernel, sum};

/// Sums kept apart, so that one addition need not wait for the one before it.
const CHAINS: usize = 4;

/// `y = x * (alpha / sqrt(eps + mean(x^2)))` for each of the vectors of `alpha.len()` elements in `x`.
///
/// # Panics
/// When `x` is not a whole number of vectors or `y` has another size.
pub fn rms_norm(x: &[f32], alpha: &[f32], eps: f32, y: &mut [f32]) {
    rms_norm_at(Level::best(), x, alpha, eps, y);
}

/// `y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias` for each of the vectors of `weight.len()` elements in `x`.
///
/// # Panics
/// When `x` is not a whole number of vectors, or `y` or the bias has another size.
pub fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, y: &mut [f32]) {
    layer_norm_at(Level::best(), x, weight, bias, eps, y);
}

fn rms_norm_at(level: Level, x: &[f32], alpha: &[f32], eps: f32, y: &mut [f32]) {
    let dim = alpha.len();
    assert!(
        x.len() == y.len() && x.len().is_multiple_of(dim.max(1)),
        "x and y must be [n, dim]"
    );
    for (x, y) in x
        .chunks_exact(dim.max(1))
        .zip(y.chunks_exact_mut(dim.max(1)))
    {
        let mut total = 0.0;
        // SAFETY: the level is available.
        unsafe { sum_of_squares(level, x, 0.0, &mut total) }
        let factor = 1.0 / (eps + total / dim as f32).sqrt();
        for ((y, x), alpha) in y.iter_mut().zip(x).zip(alpha) {
            *y = x * (alpha * factor);
        }
    }
}

fn layer_norm_at(level: Level, x: &[f32], weight: &[f32], bias: &[f32], eps: f32, y: &mut [f32]) {
    let dim = weight.len();
    assert!(
        x.len() == y.len() && x.len().is_multiple_of(dim.max(1)),
        "x and y must be [n, dim]"
    );
    assert_eq!(bias.len(), dim, "the bias must be [dim]");
    for (x, y) in x
        .chunks_exact(dim.max(1))
        .zip(y.chunks_exact_mut(dim.max(1)))
    {
        let (mut total, mut squares) = (0.0, 0.0);
        // SAFETY: the level is available.
        unsafe { sum_of_all(level, x, &mut total) }
        let mean = total / dim as f32;
        // SAFETY: the level is available.
        unsafe { sum_of_squares(level, x, mean, &mut squares) }
        let factor = 1.0 / (squares / dim as f32 + eps).sqrt();
        for ((y, x), (weight, bias)) in y.iter_mut().zip(x).zip(weight.iter().zip(bias)) {
            *y = (x - mean) * factor * weight + bias;
        }
    }
}

kernel! { fn sum_of_squares = square_sum_lanes(x: &[f32], around: f32, total: &mut f32) }
kernel! { fn sum_of_all = plain_sum_lanes(x: &[f32], total: &mut f32) }

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn plain_sum_lanes<L: Lanes>(x: &[f32], total: &mut f32) {
    // SAFETY: the caller's promise.
    unsafe { sum_lanes::<L, false>(x, 0.0, total) }
}

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn square_sum_lanes<L: Lanes>(x: &[f32], around: f32, total: &mut f32) {
    // SAFETY: the caller's promise.
    unsafe { sum_lanes::<L, true>(x, around, total) }
}

/// Sum of `x - around`, or of its squares.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn sum_lanes<L: Lanes, const SQUARE: bool>(x: &[f32], around: f32, total: &mut f32) {
    // SAFETY: every pointer has a whole register behind it; the rest is the caller's promise.
    unsafe {
        let center = L::splat(around);
        let mut sums = [L::splat(0.0); CHAINS];
        let mut groups = x.chunks_exact(CHAINS * LANES);
        for group in &mut groups {
            for (chain, held) in sums.iter_mut().enumerate() {
                let value = L::sub(L::load(group.as_ptr().add(chain * LANES)), center);
                *held = accumulate::<L, SQUARE>(value, *held);
            }
        }
        for (chain, rest) in groups.remainder().chunks(LANES).enumerate() {
            // What is missing adds nothing.
            let mut padded = [around; LANES];
            padded[..rest.len()].copy_from_slice(rest);
            let value = L::sub(L::load(padded.as_ptr()), center);
            sums[chain] = accumulate::<L, SQUARE>(value, sums[chain]);
        }
        *total = sum::<L>(L::add(L::add(sums[0], sums[1]), L::add(sums[2], sums[3])));
    }
}

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn accumulate<L: Lanes, const SQUARE: bool>(value: L::F, held: L::F) -> L::F {
    // SAFETY: the caller's promise.
    unsafe {
        if SQUARE {
            L::fma(value, value, held)
        } else {
            L::add(value, held)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::matmul_tests::noise;

    const TOLERANCE: f64 = 2e-6;

    fn assert_near(y: &[f32], exact: &[f64], what: &str) {
        for (y, exact) in y.iter().zip(exact) {
            let error = (f64::from(*y) - exact).abs();
            assert!(
                error <= TOLERANCE * (1.0 + exact.abs()),
                "{what}: {y}, not {exact}"
            );
        }
    }

    #[test]
    fn norms_agree_with_double_precision_and_do_not_depend_on_the_number_of_vectors() {
        for dim in [1, 5, 16, 24, 64, 100, 512, 4096] {
            let (alpha, beta) = (noise(dim, 1), noise(dim, 2));
            let x: Vec<f32> = noise(3 * dim, 3).iter().map(|v| v * 3.0 + 0.5).collect();
            let mut bits: Option<Vec<u32>> = None;
            for level in Level::available() {
                let (mut rms, mut layer) = (vec![0.0; 3 * dim], vec![0.0; 3 * dim]);
                rms_norm_at(level, &x, &alpha, 1e-8, &mut rms);
                layer_norm_at(level, &x, &alpha, &beta, 1e-5, &mut layer);
                let both: Vec<u32> = rms.iter().chain(&layer).map(|y| y.to_bits()).collect();
                assert_eq!(bits.get_or_insert(both.clone()), &both, "{level:?} {dim}");
                for n in 0..3 {
                    let range = n * dim..(n + 1) * dim;
                    let x = &x[range.clone()];
                    let mut alone = vec![0.0; dim];
                    rms_norm_at(level, x, &alpha, 1e-8, &mut alone);
                    assert_eq!(alone, rms[range.clone()]);
                    let x: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
                    let size = x.len() as f64;
                    let mean = x.iter().sum::<f64>() / size;
                    let square = x.iter().map(|v| v * v).sum::<f64>() / size;
                    let var = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / size;
                    let exact_rms: Vec<f64> = (0..dim)
                        .map(|d| x[d] * f64::from(alpha[d]) / (square + 1e-8).sqrt())
                        .collect();
                    assert_near(&rms[range.clone()], &exact_rms, &format!("rms {dim}"));
                    let exact_layer: Vec<f64> = (0..dim)
                        .map(|d| {
                            (x[d] - mean) / (var + 1e-5).sqrt() * f64::from(alpha[d])
                                + f64::from(beta[d])
                        })
                        .collect();
                    assert_near(&layer[range], &exact_layer, &format!("layer {dim}"));
                }
            }
        }
    }
}
