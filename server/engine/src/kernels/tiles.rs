//! The inner loops of the products: some vectors times some panels at once, all sums in registers.

#![allow(unsafe_code)]
#![allow(
    clippy::needless_range_loop,
    reason = "loops over registers go by number, several arrays at once"
)]

use std::ops::Range;

use super::lanes::{LANES, Lanes, kernel, prefetch};
use super::matmul::Vectors;
use super::matrix::{BLOCK, Dtype, GROUP, Matrix};
use super::quantize::Quantized;

/// Where finished sums go, and what is done with them first.
pub(super) struct Finish<'a> {
    /// `[vectors, rows]`
    pub(super) y: *mut f32,
    pub(super) rows: usize,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) scale: Option<&'a [f32]>,
    pub(super) add: bool,
}

// SAFETY: tasks that share it write disjoint parts of `y`.
unsafe impl Sync for Finish<'_> {}

kernel! {
    /// Outputs of `panels` for `vectors`, from f32 or bf16 weights.
    ///
    /// # Safety
    /// The ranges lie inside `w` and `x`, every vector of `x` inside its data, `finish.y` is `[vectors, rows]`, its
    /// bias and scale have `rows` elements, and nobody else touches the outputs in question.
    pub(super) fn float = float_lanes(
        w: &Matrix, x: &Vectors<'_>, panels: Range<usize>, vectors: Range<usize>, finish: &Finish<'_>,
    )
}

kernel! {
    /// Outputs of `panels` for `vectors`, from 8-bit weights.
    ///
    /// # Safety
    /// As for [`float`], with `x` filled from vectors of the width of `w`.
    pub(super) fn q8 = q8_lanes(
        w: &Matrix, x: &Quantized, panels: Range<usize>, vectors: Range<usize>, finish: &Finish<'_>,
    )
}

/// Bytes of weights on their way ahead of the product, over all its panels: about what memory delivers in its latency.
const AHEAD_BYTES: usize = 4096;
/// Bytes that come from memory together; sixteen lanes of 32 bits.
const LINE_BYTES: usize = 64;
/// Most vectors in a tile of float weights.
const FLOAT_VECTORS_MAX: usize = 6;

/// Which weights a tile asks for on its way: `line` bytes further on for every line that it reads.
#[derive(Clone, Copy)]
struct Ahead {
    offset: usize,
    line: usize,
}

impl Ahead {
    /// For tile `tile` of `tiles` over the same `panels` of `bytes` each.
    ///
    /// The first tile finds its weights in memory and asks a little ahead. The others find them in the cache; they
    /// ask for the panels that come next, each for its part, so that these are there when their first tile starts.
    fn new(tile: usize, tiles: usize, panels: usize, bytes: usize) -> Ahead {
        match (tile, tiles - 1) {
            (0, _) => Ahead {
                offset: AHEAD_BYTES / panels,
                line: LINE_BYTES,
            },
            (_, others) => Ahead {
                offset: panels * bytes + (tile - 1) * bytes / others,
                line: LINE_BYTES / others,
            },
        }
    }

    /// Asks, when line `index` of a panel is read.
    #[inline(always)]
    fn ask<T>(self, panel: *const T, index: usize) {
        prefetch(panel.wrapping_byte_add(self.offset + index * self.line));
    }
}

/// Cuts `vectors` into the fewest tiles of at most `max`, of nearly equal size: index to range.
struct Cut {
    vectors: Range<usize>,
    tiles: usize,
}

impl Cut {
    fn new(vectors: Range<usize>, max: usize) -> Cut {
        let tiles = vectors.len().div_ceil(max);
        Cut { vectors, tiles }
    }

    /// Vectors of the largest tile.
    fn largest(&self) -> usize {
        self.vectors.len().div_ceil(self.tiles)
    }

    fn tile(&self, index: usize) -> Range<usize> {
        let len = self.vectors.len();
        let at = |index| self.vectors.start + index * len / self.tiles;
        at(index)..at(index + 1)
    }
}

/// # Safety
/// As for [`float`].
#[inline(always)]
unsafe fn float_lanes<L: Lanes>(
    w: &Matrix,
    x: &Vectors<'_>,
    panels: Range<usize>,
    vectors: Range<usize>,
    finish: &Finish<'_>,
) {
    if vectors.is_empty() {
        return;
    }
    let cut = Cut::new(vectors, FLOAT_VECTORS_MAX);
    // As many sums as keep both multipliers busy and fit the registers.
    let together = match cut.largest() {
        1 => 4,
        2 if !L::WIDE => 2,
        _ if L::WIDE => 4,
        _ => 1,
    };
    let mut panel = panels.start;
    // Panels outside, so that their elements are in the cache when further vectors come.
    while panel < panels.end {
        let taken = if panels.end - panel >= together {
            together
        } else {
            1
        };
        for index in 0..cut.tiles {
            let tile = cut.tile(index);
            let ahead = Ahead::new(index, cut.tiles, taken, w.panel_bytes());
            macro_rules! call {
                ($vectors:literal, $panels:literal) => {
                    match w.dtype() {
                        Dtype::F32 => {
                            f32_tile::<L, $vectors, $panels>(w, x, panel, tile.start, ahead, finish)
                        }
                        _ => bf16_tile::<L, $vectors, $panels>(
                            w, x, panel, tile.start, ahead, finish,
                        ),
                    }
                };
            }
            // SAFETY: the caller's promise; `taken` panels and `tile.len()` vectors lie inside the ranges.
            unsafe {
                match (tile.len(), taken) {
                    (1, 4) => call!(1, 4),
                    (2, 4) if L::WIDE => call!(2, 4),
                    (3, 4) if L::WIDE => call!(3, 4),
                    (4, 4) if L::WIDE => call!(4, 4),
                    (5, 4) if L::WIDE => call!(5, 4),
                    (6, 4) if L::WIDE => call!(6, 4),
                    (2, 2) if !L::WIDE => call!(2, 2),
                    (1, 1) => call!(1, 1),
                    (2, 1) => call!(2, 1),
                    (3, 1) => call!(3, 1),
                    (4, 1) => call!(4, 1),
                    (5, 1) => call!(5, 1),
                    (6, 1) => call!(6, 1),
                    (vectors, panels) => {
                        unreachable!("no tile of {vectors} vectors and {panels} panels")
                    }
                }
            }
        }
        panel += taken;
    }
}

/// # Safety
/// As for [`float`], for `NP` panels from `panel` and `NV` vectors from `vector`.
#[inline(always)]
unsafe fn f32_tile<L: Lanes, const NV: usize, const NP: usize>(
    w: &Matrix,
    x: &Vectors<'_>,
    panel: usize,
    vector: usize,
    ahead: Ahead,
    finish: &Finish<'_>,
) {
    // SAFETY: the caller's promise; a panel holds `cols * 16` floats, a vector `cols`.
    unsafe {
        let weights: [*const f32; NP] = panel_starts(w, panel);
        let inputs: [*const f32; NV] = vector_starts(x, vector);
        let mut sums = [[L::splat(0.0); NP]; NV];
        for column in 0..w.cols() {
            let mut columns = [L::splat(0.0); NP];
            for p in 0..NP {
                ahead.ask(weights[p], column);
                columns[p] = L::load(weights[p].add(column * LANES));
            }
            for v in 0..NV {
                let input = L::splat(*inputs[v].add(column));
                for p in 0..NP {
                    sums[v][p] = L::fma(input, columns[p], sums[v][p]);
                }
            }
        }
        store::<L, NV, NP>(sums, panel, vector, finish);
    }
}

/// # Safety
/// As for [`f32_tile`].
#[inline(always)]
unsafe fn bf16_tile<L: Lanes, const NV: usize, const NP: usize>(
    w: &Matrix,
    x: &Vectors<'_>,
    panel: usize,
    vector: usize,
    ahead: Ahead,
    finish: &Finish<'_>,
) {
    // SAFETY: the caller's promise; a panel holds 16 words for each pair of columns, a vector `cols` floats.
    unsafe {
        let weights: [*const u32; NP] = panel_starts(w, panel);
        let inputs: [*const f32; NV] = vector_starts(x, vector);
        let mut sums = [[L::splat(0.0); NP]; NV];
        let pairs = w.cols() / 2;
        for pair in 0..pairs {
            let words: [L::I; NP] = load_words::<L, NP>(weights, pair, ahead);
            let mut columns = [L::splat(0.0); NP];
            for p in 0..NP {
                columns[p] = L::first_of_pairs(words[p]);
            }
            for v in 0..NV {
                let input = L::splat(*inputs[v].add(2 * pair));
                for p in 0..NP {
                    sums[v][p] = L::fma(input, columns[p], sums[v][p]);
                }
            }
            for p in 0..NP {
                columns[p] = L::second_of_pairs(words[p]);
            }
            for v in 0..NV {
                let input = L::splat(*inputs[v].add(2 * pair + 1));
                for p in 0..NP {
                    sums[v][p] = L::fma(input, columns[p], sums[v][p]);
                }
            }
        }
        if w.cols() % 2 == 1 {
            for p in 0..NP {
                let column = L::first_of_pairs(L::load_pairs(weights[p].add(pairs * LANES)));
                for v in 0..NV {
                    let input = L::splat(*inputs[v].add(2 * pairs));
                    sums[v][p] = L::fma(input, column, sums[v][p]);
                }
            }
        }
        store::<L, NV, NP>(sums, panel, vector, finish);
    }
}

/// # Safety
/// The words of `pair` lie in every panel.
#[inline(always)]
unsafe fn load_words<L: Lanes, const NP: usize>(
    weights: [*const u32; NP],
    pair: usize,
    ahead: Ahead,
) -> [L::I; NP] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut words = [L::dot_start(0); NP];
        for p in 0..NP {
            ahead.ask(weights[p], pair);
            words[p] = L::load_pairs(weights[p].add(pair * LANES));
        }
        words
    }
}

/// # Safety
/// As for [`q8`].
#[inline(always)]
unsafe fn q8_lanes<L: Lanes>(
    w: &Matrix,
    x: &Quantized,
    panels: Range<usize>,
    vectors: Range<usize>,
    finish: &Finish<'_>,
) {
    if vectors.is_empty() {
        return;
    }
    let cut = Cut::new(vectors, if L::WIDE { 8 } else { 4 });
    let together = match cut.largest() {
        1 if L::WIDE => 4,
        1 => 2,
        2..=6 if L::WIDE => 2,
        _ => 1,
    };
    let mut panel = panels.start;
    while panel < panels.end {
        let taken = if panels.end - panel >= together {
            together
        } else {
            1
        };
        for index in 0..cut.tiles {
            let tile = cut.tile(index);
            let ahead = Ahead::new(index, cut.tiles, taken, w.panel_bytes());
            macro_rules! call {
                ($vectors:literal, $panels:literal) => {
                    q8_tile::<L, $vectors, $panels>(w, x, panel, tile.start, ahead, finish)
                };
            }
            // SAFETY: the caller's promise; `taken` panels and `tile.len()` vectors lie inside the ranges.
            unsafe {
                match (tile.len(), taken) {
                    (1, 4) if L::WIDE => call!(1, 4),
                    (1, 2) => call!(1, 2),
                    (2, 2) if L::WIDE => call!(2, 2),
                    (3, 2) if L::WIDE => call!(3, 2),
                    (4, 2) if L::WIDE => call!(4, 2),
                    (5, 2) if L::WIDE => call!(5, 2),
                    (6, 2) if L::WIDE => call!(6, 2),
                    (1, 1) => call!(1, 1),
                    (2, 1) => call!(2, 1),
                    (3, 1) => call!(3, 1),
                    (4, 1) => call!(4, 1),
                    (5, 1) if L::WIDE => call!(5, 1),
                    (6, 1) if L::WIDE => call!(6, 1),
                    (7, 1) if L::WIDE => call!(7, 1),
                    (8, 1) if L::WIDE => call!(8, 1),
                    (vectors, panels) => {
                        unreachable!("no tile of {vectors} vectors and {panels} panels")
                    }
                }
            }
        }
        panel += taken;
    }
}

/// # Safety
/// As for [`q8`], for `NP` panels from `panel` and `NV` vectors from `vector`.
#[inline(always)]
unsafe fn q8_tile<L: Lanes, const NV: usize, const NP: usize>(
    w: &Matrix,
    x: &Quantized,
    panel: usize,
    vector: usize,
    ahead: Ahead,
    finish: &Finish<'_>,
) {
    const BLOCK_BYTES: usize = BLOCK * LANES;
    let blocks = x.blocks;
    // SAFETY: the caller's promise; a panel holds `blocks` blocks and as many times 16 scales, a vector `blocks`
    // blocks of bytes, scales and sums.
    unsafe {
        let weights: [*const i8; NP] = panel_starts(w, panel);
        let scales = w.scales.as_ptr().cast::<u16>();
        let inputs: [*const i8; NV] =
            std::array::from_fn(|v| x.bytes.as_ptr().add((vector + v) * blocks * BLOCK));
        let mut sums = [[L::splat(0.0); NP]; NV];
        for block in 0..blocks {
            let mut dots = [[L::dot_start(0); NP]; NV];
            for v in 0..NV {
                let start = L::dot_start(*x.sums.get_unchecked((vector + v) * blocks + block));
                dots[v] = [start; NP];
            }
            for group in 0..BLOCK / GROUP {
                for p in 0..NP {
                    let at = weights[p].add(block * BLOCK_BYTES + group * GROUP * LANES);
                    ahead.ask(weights[p], block * (BLOCK / GROUP) + group);
                    let bytes = L::load_weights(at);
                    for v in 0..NV {
                        let input = inputs[v].add(block * BLOCK + group * GROUP);
                        dots[v][p] = L::dot(dots[v][p], bytes, input);
                    }
                }
            }
            for p in 0..NP {
                let scale = L::load_bf16(scales.add(((panel + p) * blocks + block) * LANES));
                for v in 0..NV {
                    let input = L::splat(*x.scales.get_unchecked((vector + v) * blocks + block));
                    let dot = L::to_float(dots[v][p]);
                    sums[v][p] = L::fma(dot, L::mul(scale, input), sums[v][p]);
                }
            }
        }
        store::<L, NV, NP>(sums, panel, vector, finish);
    }
}

/// # Safety
/// `NP` panels from `panel` lie inside `w`.
#[inline(always)]
unsafe fn panel_starts<T, const NP: usize>(w: &Matrix, panel: usize) -> [*const T; NP] {
    let bytes = w.panel_bytes();
    // SAFETY: the caller's promise.
    std::array::from_fn(|p| unsafe { w.data.as_ptr().add((panel + p) * bytes).cast() })
}

/// # Safety
/// `NV` vectors from `vector` lie inside `x`.
#[inline(always)]
unsafe fn vector_starts<const NV: usize>(x: &Vectors<'_>, vector: usize) -> [*const f32; NV] {
    // SAFETY: the caller's promise.
    std::array::from_fn(|v| unsafe { x.data.as_ptr().add(x.start(vector + v)) })
}

/// # Safety
/// As for [`float`], for `NP` panels from `panel` and `NV` vectors from `vector`.
#[inline(always)]
unsafe fn store<L: Lanes, const NV: usize, const NP: usize>(
    sums: [[L::F; NP]; NV],
    panel: usize,
    vector: usize,
    finish: &Finish<'_>,
) {
    for p in 0..NP {
        let row = (panel + p) * LANES;
        let lanes = LANES.min(finish.rows - row);
        // Bias and scale of the last panel are shorter than 16, so they are copied; it costs little elsewhere.
        let (mut bias, mut scale) = ([0.0f32; LANES], [1.0f32; LANES]);
        if let Some(all) = finish.bias {
            bias[..lanes].copy_from_slice(&all[row..][..lanes]);
        }
        if let Some(all) = finish.scale {
            scale[..lanes].copy_from_slice(&all[row..][..lanes]);
        }
        for v in 0..NV {
            // SAFETY: `lanes` outputs from this one on belong to the caller.
            unsafe {
                let to = finish.y.add((vector + v) * finish.rows + row);
                let mut value = sums[v][p];
                if finish.bias.is_some() {
                    value = L::add(value, L::load(bias.as_ptr()));
                }
                if finish.scale.is_some() {
                    value = L::mul(value, L::load(scale.as_ptr()));
                }
                if lanes == LANES {
                    if finish.add {
                        value = L::add(L::load(to), value);
                    }
                    L::store(to, value);
                } else {
                    let mut out = [0.0f32; LANES];
                    L::store(out.as_mut_ptr(), value);
                    let y = std::slice::from_raw_parts_mut(to, lanes);
                    for (y, value) in y.iter_mut().zip(out) {
                        *y = if finish.add { *y + value } else { value };
                    }
                }
            }
        }
    }
}
