//! The inner loops of attention: one head of one row.

#![allow(unsafe_code)]
#![allow(
    clippy::needless_range_loop,
    reason = "loops over registers go by number, several arrays at once"
)]

use std::ops::Range;

use super::attention::{Query, WriteOrder};
use super::functions::exp;
use super::lanes::{LANES, Lanes, kernel, prefetch, sum};
use super::ring::{KvDtype, Shape};
use super::rope::{Angles, turn};

/// Keys scored at once: as many sums as keep the multipliers busy.
const KEYS: usize = 4;
/// Cells whose values are added before the next dimensions are: they stay in the first-level cache.
const CELLS_AT_ONCE: usize = 32;

/// Bytes of keys or values on their way ahead of the sums: about what memory delivers in its latency.
const AHEAD_BYTES: usize = 4096;

/// What the tasks of one call share.
pub(super) struct HeadTask<'a> {
    pub(super) shape: Shape,
    pub(super) cells: usize,
    /// `[rows, heads, cells, stride]`
    pub(super) keys: *mut u8,
    /// `[rows, heads, cells, stride]`
    pub(super) values: *mut u8,
    pub(super) queries: &'a [Query],
    pub(super) order: WriteOrder,
    /// Slot `2i` turns query and key `i`, slot `2i + 1` the query for pinned keys.
    pub(super) angles: Option<&'a Angles>,
    pub(super) qkv: &'a [f32],
    /// `[queries, heads * head_dim]`
    pub(super) out: *mut f32,
}

// SAFETY: tasks read and write the cells of their own row and head, and its part of `out`.
unsafe impl Sync for HeadTask<'_> {}

/// Memory of one thread, kept between calls.
#[derive(Default)]
pub(super) struct Local {
    turned: Vec<f32>,
    /// The query for sliding and for pinned keys, in the order the keys are read.
    query: Vec<f32>,
    pinned_query: Vec<f32>,
    /// Scores, then weights, of the visible cells, filled up to whole registers.
    scores: Vec<f32>,
    sums: Vec<f32>,
}

kernel! {
    /// Writes and attends for all queries of `row`, head `head`.
    ///
    /// # Safety
    /// The task's sizes fit together, its queries fit the ring, the row and head exist, and no other thread has them.
    pub(super) fn run = run_lanes(task: &HeadTask<'_>, row: usize, head: usize, local: &mut Local)
}

/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn run_lanes<L: Lanes>(task: &HeadTask<'_>, row: usize, head: usize, local: &mut Local) {
    let stride = task.shape.stride();
    local.turned.resize(task.shape.head_dim, 0.0);
    for memory in [&mut local.query, &mut local.pinned_query, &mut local.sums] {
        memory.clear();
        memory.resize(stride, 0.0);
    }
    // SAFETY: the caller's promise.
    unsafe {
        let first_cell = (row * task.shape.heads + head) * task.cells * task.shape.cell_bytes();
        let (keys, values) = (task.keys.add(first_cell), task.values.add(first_cell));
        let own = task
            .queries
            .iter()
            .enumerate()
            .filter(|(_, query)| query.row == row);
        if task.order == WriteOrder::AllThenAttend {
            for (index, query) in own.clone() {
                write(task, query, index, head, keys, values, &mut local.turned);
            }
        }
        for (index, query) in own {
            if task.order == WriteOrder::EachThenAttend {
                write(task, query, index, head, keys, values, &mut local.turned);
            }
            attend::<L>(task, query, index, head, keys, values, local);
        }
    }
}

/// Puts key and value of query `index` into its cell.
///
/// # Safety
/// As for [`run`]; `keys` and `values` are the first cells of the head.
#[inline(always)]
unsafe fn write(
    task: &HeadTask<'_>,
    query: &Query,
    index: usize,
    head: usize,
    keys: *mut u8,
    values: *mut u8,
    turned: &mut [f32],
) {
    let dim = task.shape.head_dim;
    let width = task.shape.heads * dim;
    let at = index * 3 * width + head * dim;
    turn(
        &task.qkv[at + width..][..dim],
        task.angles.map(|angles| angles.get(2 * index)),
        turned,
    );
    let value = &task.qkv[at + 2 * width..][..dim];
    let cell = query.cell(query.position, task.cells) * task.shape.cell_bytes();
    // SAFETY: the cell lies in the ring and has room for `dim` elements.
    unsafe {
        store_elements(task.shape.dtype, turned, keys.add(cell));
        store_elements(task.shape.dtype, value, values.add(cell));
    }
}

/// # Safety
/// `to` is aligned and has room for the elements.
#[inline(always)]
unsafe fn store_elements(dtype: KvDtype, from: &[f32], to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            KvDtype::F32 => {
                std::slice::from_raw_parts_mut(to.cast::<f32>(), from.len()).copy_from_slice(from);
            }
            KvDtype::Bf16 => {
                let to = std::slice::from_raw_parts_mut(to.cast::<u16>(), from.len());
                for (to, from) in to.iter_mut().zip(from) {
                    *to = half::bf16::from_f32(*from).to_bits();
                }
            }
        }
    }
}

/// Attention of query `index`.
///
/// # Safety
/// As for [`write`].
#[inline(always)]
unsafe fn attend<L: Lanes>(
    task: &HeadTask<'_>,
    query: &Query,
    index: usize,
    head: usize,
    keys: *const u8,
    values: *const u8,
    local: &mut Local,
) {
    let (dim, dtype) = (task.shape.head_dim, task.shape.dtype);
    let width = task.shape.heads * dim;
    let raw = &task.qkv[index * 3 * width + head * dim..][..dim];
    let angles = |slot| task.angles.map(|angles| angles.get(slot));
    prepare(
        dtype,
        raw,
        angles(2 * index),
        &mut local.turned,
        &mut local.query,
    );
    let (pinned, start) = query.visible();
    if pinned > 0 {
        let turns = angles(2 * index + 1);
        prepare(
            dtype,
            raw,
            turns,
            &mut local.turned,
            &mut local.pinned_query,
        );
    }

    // Visible cells in the order of their positions: pinned ones, then the sliding part up to the ring's end, then
    // what has wrapped to its start.
    let sliding = query.visible_count() - pinned;
    let from = query.cell(start, task.cells);
    let straight = sliding.min(task.cells - from);
    let wrapped = query.pinned..query.pinned + (sliding - straight);
    let parts = [0..pinned, from..from + straight, wrapped];
    let count = pinned + sliding;
    if local.scores.len() < count.next_multiple_of(LANES) {
        local.scores.resize(count.next_multiple_of(LANES), 0.0);
    }
    let scores = &mut local.scores[..count.next_multiple_of(LANES)];
    local.sums.fill(0.0);

    // SAFETY: the parts lie in the ring, `scores` has room for all of them, the rest is the caller's promise.
    unsafe {
        let mut done = 0;
        for (part, cells) in parts.iter().enumerate() {
            let query = if part == 0 {
                &local.pinned_query
            } else {
                &local.query
            };
            let scores = &mut scores[done..][..cells.len()];
            match dtype {
                KvDtype::F32 => score::<L, false>(query, keys, cells, scores),
                KvDtype::Bf16 => score::<L, true>(query, keys, cells, scores),
            }
            done += cells.len();
        }
        let total = softmax::<L>(scores, count);
        done = 0;
        for cells in &parts {
            let weights = &scores[done..][..cells.len()];
            match dtype {
                KvDtype::F32 => add_values::<L, false>(weights, values, cells, &mut local.sums),
                KvDtype::Bf16 => add_values::<L, true>(weights, values, cells, &mut local.sums),
            }
            done += cells.len();
        }
        let out = std::slice::from_raw_parts_mut(task.out.add(index * width + head * dim), dim);
        for (d, out) in out.iter_mut().enumerate() {
            *out = local.sums[place(dtype, d)] / total;
        }
    }
}

/// Where dimension `d` lies among 16-lane registers: as it is in f32, pairs pulled apart in bf16.
#[inline(always)]
fn place(dtype: KvDtype, d: usize) -> usize {
    match dtype {
        KvDtype::F32 => d,
        KvDtype::Bf16 => d / (2 * LANES) * 2 * LANES + d % 2 * LANES + d % (2 * LANES) / 2,
    }
}

/// Turns and scales a query and puts it in the order in which keys are read.
#[inline(always)]
fn prepare(
    dtype: KvDtype,
    raw: &[f32],
    turns: Option<&[[f32; 2]]>,
    turned: &mut [f32],
    query: &mut [f32],
) {
    turn(raw, turns, turned);
    let scale = 1.0 / (raw.len() as f32).sqrt();
    for (d, value) in turned.iter().enumerate() {
        query[place(dtype, d)] = value * scale;
    }
}

/// Products of the query with the keys of `cells`.
///
/// # Safety
/// The cells lie in the ring, `query` is as long as one of them.
#[inline(always)]
unsafe fn score<L: Lanes, const BF16: bool>(
    query: &[f32],
    keys: *const u8,
    cells: &Range<usize>,
    scores: &mut [f32],
) {
    let bytes = query.len() * if BF16 { 2 } else { 4 };
    // Keys are taken from four places at once: memory delivers several streams faster than one.
    let quarter = scores.len() / KEYS;
    // SAFETY: the caller's promise.
    unsafe {
        let key = |index: usize| keys.add((cells.start + index) * bytes);
        for index in 0..quarter {
            let four = std::array::from_fn(|n| key(index + n * quarter));
            let sums = L::sum4(dots::<L, BF16, KEYS>(query, four));
            for n in 0..KEYS {
                scores[index + n * quarter] = sums[n];
            }
        }
        for index in KEYS * quarter..scores.len() {
            let [dot] = dots::<L, BF16, 1>(query, [key(index)]);
            scores[index] = sum::<L>(dot);
        }
    }
}

/// Products of the query with `N` keys, not yet summed over the lanes.
///
/// # Safety
/// As for [`score`]; `keys` are starts of cells.
#[inline(always)]
unsafe fn dots<L: Lanes, const BF16: bool, const N: usize>(
    query: &[f32],
    keys: [*const u8; N],
) -> [L::F; N] {
    let stride = query.len();
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [L::splat(0.0); N];
        let query = query.as_ptr();
        if BF16 {
            for chunk in 0..stride / (2 * LANES) {
                let first = L::load(query.add(chunk * 2 * LANES));
                let second = L::load(query.add(chunk * 2 * LANES + LANES));
                for n in 0..N {
                    let at = keys[n].cast::<u32>().add(chunk * LANES);
                    prefetch(at.wrapping_byte_add(AHEAD_BYTES / N));
                    let pairs = L::load_pairs(at);
                    sums[n] = L::fma(first, L::first_of_pairs(pairs), sums[n]);
                    sums[n] = L::fma(second, L::second_of_pairs(pairs), sums[n]);
                }
            }
        } else {
            for chunk in 0..stride / LANES {
                let query = L::load(query.add(chunk * LANES));
                for n in 0..N {
                    let at = keys[n].cast::<f32>().add(chunk * LANES);
                    prefetch(at.wrapping_byte_add(AHEAD_BYTES / N));
                    let values = L::load(at);
                    sums[n] = L::fma(query, values, sums[n]);
                }
            }
        }
        sums
    }
}

/// Turns the first `count` scores into weights that are not yet divided by their sum, and returns the sum.
///
/// # Safety
/// `scores` holds whole registers.
#[inline(always)]
unsafe fn softmax<L: Lanes>(scores: &mut [f32], count: usize) -> f32 {
    scores[count..].fill(f32::NEG_INFINITY);
    // SAFETY: every pointer has a whole register before it.
    unsafe {
        let mut largest = L::splat(f32::NEG_INFINITY);
        for chunk in scores.chunks_exact(LANES) {
            largest = L::max(L::load(chunk.as_ptr()), largest);
        }
        let mut lanes = [0.0f32; LANES];
        L::store(lanes.as_mut_ptr(), largest);
        let largest = L::splat(
            lanes
                .iter()
                .fold(lanes[0], |a, b| if *b > a { *b } else { a }),
        );
        let mut total = L::splat(0.0);
        for chunk in scores.chunks_exact_mut(LANES) {
            let weight = exp::<L>(L::sub(L::load(chunk.as_ptr()), largest));
            L::store(chunk.as_mut_ptr(), weight);
            total = L::add(total, weight);
        }
        sum::<L>(total)
    }
}

/// Adds the weighted values of `cells` to `sums`.
///
/// # Safety
/// The cells lie in the ring, `sums` is as long as one of them, `weights` as long as `cells`.
#[inline(always)]
unsafe fn add_values<L: Lanes, const BF16: bool>(
    weights: &[f32],
    values: *const u8,
    cells: &Range<usize>,
    sums: &mut [f32],
) {
    let stride = sums.len();
    let bytes = stride * if BF16 { 2 } else { 4 };
    // SAFETY: the caller's promise.
    unsafe {
        let mut value = values.add(cells.start * bytes);
        for weights in weights.chunks(CELLS_AT_ONCE) {
            let mut register = 0;
            while register < stride / LANES {
                let left = stride / LANES - register;
                macro_rules! call {
                    ($registers:literal) => {{
                        add_registers::<L, BF16, $registers>(weights, value, register, sums);
                        register += $registers;
                    }};
                }
                match left {
                    8.. if L::WIDE => call!(8),
                    4.. => call!(4),
                    2.. => call!(2),
                    _ => call!(1),
                }
            }
            value = value.add(weights.len() * bytes);
        }
    }
}

/// [`add_values`] for `N` registers of 16 lanes, from register `register` on. In bf16 `N` is even.
///
/// # Safety
/// As for [`add_values`]; `value` is the first cell.
#[inline(always)]
unsafe fn add_registers<L: Lanes, const BF16: bool, const N: usize>(
    weights: &[f32],
    value: *const u8,
    register: usize,
    sums: &mut [f32],
) {
    let stride = sums.len();
    // SAFETY: the caller's promise.
    unsafe {
        let to = sums.as_mut_ptr().add(register * LANES);
        let mut held = [L::splat(0.0); N];
        for n in 0..N {
            held[n] = L::load(to.add(n * LANES));
        }
        for (cell, weight) in weights.iter().enumerate() {
            let weight = L::splat(*weight);
            let at = cell * stride + register * LANES;
            if BF16 {
                let words = value.cast::<u32>().add(at / 2);
                for n in 0..N / 2 {
                    let at = words.add(n * LANES);
                    prefetch(at.wrapping_byte_add(AHEAD_BYTES));
                    let pairs = L::load_pairs(at);
                    held[2 * n] = L::fma(weight, L::first_of_pairs(pairs), held[2 * n]);
                    held[2 * n + 1] = L::fma(weight, L::second_of_pairs(pairs), held[2 * n + 1]);
                }
            } else {
                for n in 0..N {
                    let at = value.cast::<f32>().add(at + n * LANES);
                    prefetch(at.wrapping_byte_add(AHEAD_BYTES));
                    let values = L::load(at);
                    held[n] = L::fma(weight, values, held[n]);
                }
            }
        }
        for n in 0..N {
            L::store(to.add(n * LANES), held[n]);
        }
    }
}
