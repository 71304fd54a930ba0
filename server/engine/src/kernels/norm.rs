//! Norms over the last dimension, in f32 throughout.

/// `y = x * (alpha / sqrt(eps + mean(x^2)))` for each of the vectors of `alpha.len()` elements in `x`.
///
/// # Panics
/// When `x` is not a whole number of vectors or `y` has another size.
pub fn rms_norm(x: &[f32], alpha: &[f32], eps: f32, y: &mut [f32]) {
    let dim = alpha.len();
    assert!(x.len() == y.len() && x.len().is_multiple_of(dim));
    for (x, y) in x.chunks_exact(dim).zip(y.chunks_exact_mut(dim)) {
        let mean = x.iter().map(|v| v * v).sum::<f32>() / dim as f32;
        let factor = 1.0 / (eps + mean).sqrt();
        for ((y, x), alpha) in y.iter_mut().zip(x).zip(alpha) {
            *y = x * (alpha * factor);
        }
    }
}

/// `y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias` for each of the vectors of `weight.len()` elements in `x`.
///
/// # Panics
/// When `x` is not a whole number of vectors, or `y` or the bias has another size.
pub fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, y: &mut [f32]) {
    let dim = weight.len();
    assert!(x.len() == y.len() && x.len().is_multiple_of(dim) && bias.len() == dim);
    for (x, y) in x.chunks_exact(dim).zip(y.chunks_exact_mut(dim)) {
        let mean = x.iter().sum::<f32>() / dim as f32;
        let var = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>() / dim as f32;
        let factor = 1.0 / (var + eps).sqrt();
        for (d, y) in y.iter_mut().enumerate() {
            *y = (x[d] - mean) * factor * weight[d] + bias[d];
        }
    }
}
