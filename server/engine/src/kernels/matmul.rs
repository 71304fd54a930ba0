//! Products of a weight matrix with some vectors.

use super::matrix::Matrix;
use super::pool::Pool;

/// Input vectors, each `cols` contiguous floats of `data`.
///
/// Vector `(o, i)` starts at `o * outer_stride + i * inner_stride`; there are `outer * inner` of them, `i` counting
/// fastest. They may overlap: a convolution over time-major data `[time, channels]` with kernel width `k` and stride
/// `s` is a product with windows of `k * channels` floats at a distance of `s * channels`.
pub struct Vectors<'a> {
    /// What all vectors lie in.
    pub data: &'a [f32],
    /// Number of groups, often rows of the batch.
    pub outer: usize,
    /// Floats from one group to the next.
    pub outer_stride: usize,
    /// Vectors in a group.
    pub inner: usize,
    /// Floats from one vector of a group to the next.
    pub inner_stride: usize,
}

/// What is done with a product before it is stored: `y = (add ? y : 0) + scale * (W x + bias)`.
pub struct Epilogue<'a> {
    /// `[rows]`, added to each product.
    pub bias: Option<&'a [f32]>,
    /// `[rows]`, multiplied to each product after the bias.
    pub scale: Option<&'a [f32]>,
    /// Whether the result is added to what `y` holds.
    pub add: bool,
}

/// Multiplies `w` with every vector of `x` into `y`, `[outer * inner, rows]` row-major.
///
/// # Panics
/// When a vector reaches past `x.data`, or when `y`, the bias or the scale has the wrong size.
pub fn matmul(pool: &Pool, w: &Matrix, x: Vectors<'_>, y: &mut [f32], e: Epilogue<'_>) {
    let _ = pool;
    let (rows, cols) = (w.rows, w.cols);
    assert_eq!(
        y.len(),
        x.outer * x.inner * rows,
        "y must be [vectors, rows]"
    );
    for o in 0..x.outer {
        for i in 0..x.inner {
            let v = &x.data[o * x.outer_stride + i * x.inner_stride..][..cols];
            let out = &mut y[(o * x.inner + i) * rows..][..rows];
            for (r, out) in out.iter_mut().enumerate() {
                let mut sum: f32 = w.data[r * cols..][..cols]
                    .iter()
                    .zip(v)
                    .map(|(a, b)| a * b)
                    .sum();
                if let Some(bias) = e.bias {
                    sum += bias[r];
                }
                if let Some(scale) = e.scale {
                    sum *= scale[r];
                }
                *out = if e.add { *out + sum } else { sum };
            }
        }
    }
}
