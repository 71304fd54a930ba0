//! Products of a weight matrix with some vectors.
//!
//! Every output is one chain of fused multiply-adds over the columns (8-bit weights: over the blocks), whatever the
//! tile it is computed in: that is what makes a vector's result independent of its neighbours.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ops::Range;

use super::lanes::{LANES, Level};
use super::matrix::{Dtype, Matrix};
use super::pool::Pool;
use super::quantize::Quantized;
use super::tiles::{self, Finish};

/// Products with fewer multiply-adds than this are not worth waking anybody (about 5 microseconds of work).
const SHARED_WORK_MIN: usize = 100_000;
/// Tasks per thread, so that a thread that is held up does not hold up the others.
const TASKS_PER_THREAD: usize = 6;
/// Vectors from which on they are shared out, in place of panels of the weight.
const MANY_VECTORS: usize = 96;
/// Vectors of a task are a multiple of this, which whole tiles divide.
const VECTOR_STEP: usize = 12;
/// Panels of a task are a multiple of this, for the same reason.
const PANEL_STEP: usize = 4;

/// Input vectors, each `cols` contiguous floats of `data`.
///
/// Vector `(o, i)` starts at `o * outer_stride + i * inner_stride`; there are `outer * inner` of them, `i` counting
/// fastest. They may overlap: a convolution over time-major data `[time, channels]` with kernel width `k` and stride
/// `s` is a product with windows of `k * channels` floats at a distance of `s * channels`.
#[derive(Clone, Copy)]
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

impl Vectors<'_> {
    pub(super) fn count(&self) -> usize {
        self.outer * self.inner
    }

    /// Where vector `index` starts.
    #[inline(always)]
    pub(super) fn start(&self, index: usize) -> usize {
        index / self.inner * self.outer_stride + index % self.inner * self.inner_stride
    }
}

/// What is done with a product before it is stored: `y = (add ? y : 0) + scale * (W x + bias)`.
#[derive(Clone, Copy, Default)]
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
    matmul_at(Level::best(), pool, w, x, y, e);
}

pub(super) fn matmul_at(
    level: Level,
    pool: &Pool,
    w: &Matrix,
    x: Vectors<'_>,
    y: &mut [f32],
    e: Epilogue<'_>,
) {
    thread_local! {
        static QUANTIZED: RefCell<Quantized> = RefCell::default();
    }
    let (rows, count) = (w.rows(), x.count());
    check(w, &x, y, &e);
    if count == 0 || rows == 0 {
        return;
    }
    let finish = Finish {
        y: y.as_mut_ptr(),
        rows,
        bias: e.bias,
        scale: e.scale,
        add: e.add,
    };
    if w.dtype() == Dtype::Q8_0 {
        QUANTIZED.with_borrow_mut(|quantized| {
            quantized.fill(level, count, w.cols(), |i| {
                &x.data[x.start(i)..][..w.cols()]
            });
            let quantized = &*quantized;
            share(pool, w, count, &|panels, vectors| {
                // SAFETY: sizes were checked; tasks get disjoint parts of `y`.
                unsafe { tiles::q8(level, w, quantized, panels, vectors, &finish) }
            });
        });
    } else {
        share(pool, w, count, &|panels, vectors| {
            // SAFETY: sizes were checked; tasks get disjoint parts of `y`.
            unsafe { tiles::float(level, w, &x, panels, vectors, &finish) }
        });
    }
}

fn check(w: &Matrix, x: &Vectors<'_>, y: &[f32], e: &Epilogue<'_>) {
    let (rows, count) = (w.rows(), x.count());
    assert_eq!(y.len(), count * rows, "y must be [vectors, rows]");
    for vector in [e.bias, e.scale].into_iter().flatten() {
        assert_eq!(vector.len(), rows, "bias and scale must be [rows]");
    }
    if count > 0 {
        let end = (x.outer - 1)
            .checked_mul(x.outer_stride)
            .zip((x.inner - 1).checked_mul(x.inner_stride))
            .and_then(|(outer, inner)| outer.checked_add(inner)?.checked_add(w.cols()));
        let inside = end.is_some_and(|end| end <= x.data.len());
        assert!(inside, "a vector reaches past the data");
    }
}

/// Cuts the outputs into tasks of whole tiles and runs them.
fn share(
    pool: &Pool,
    w: &Matrix,
    count: usize,
    task: &(dyn Fn(Range<usize>, Range<usize>) + Sync),
) {
    let panels = w.panels();
    let tasks_wanted = pool.threads() * TASKS_PER_THREAD;
    if pool.threads() == 1 || panels * LANES * w.cols() * count < SHARED_WORK_MIN {
        return task(0..panels, 0..count);
    }
    let (total, step) = if count >= MANY_VECTORS {
        (count, VECTOR_STEP)
    } else {
        (panels, PANEL_STEP.min(panels.div_ceil(pool.threads())))
    };
    let chunk = total.div_ceil(tasks_wanted).next_multiple_of(step);
    pool.run(total.div_ceil(chunk), &|index| {
        let range = index * chunk..total.min((index + 1) * chunk);
        if count >= MANY_VECTORS {
            task(0..panels, range);
        } else {
            task(range, 0..count);
        }
    });
}
