//! Attention of some queries over the ring, one row and head at a time.

use super::pool::Pool;
use super::ring::{KvDtype, KvRing};
use super::rope::{Rope, rotate};

/// One position of one row that is written and attends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query {
    /// Row of the ring.
    pub row: usize,
    /// Positions run since the row started; also the angle of the key, and of the query for keys that are not pinned.
    pub position: u64,
    /// Oldest visible position of the sliding part.
    pub first: u64,
    /// Number of prompt positions kept in the ring for good, 0 for none.
    pub pinned: usize,
    /// Angle of the query when pinned keys are scored.
    pub pinned_rotation: u64,
}

/// When keys and values enter the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOrder {
    /// Each query attends before the next one's key overwrites a cell: chunks of a prompt.
    EachThenAttend,
    /// All keys are written first: the codec's transformers, whose frames bring several positions.
    AllThenAttend,
}

/// Memory of [`attend`] that is kept between calls.
#[derive(Default)]
pub struct AttendScratch {}

impl AttendScratch {
    /// Empty; it grows with the first calls and then stays.
    pub fn new() -> AttendScratch {
        AttendScratch::default()
    }
}

/// Writes the keys and values of `queries` and lets each query attend.
///
/// `qkv` is `[queries, 3 * heads * head_dim]`: q, k and v blocks, head-major inside. `out` is
/// `[queries, heads * head_dim]`. The key of a position goes to the cell `position % cells`, or with `n` pinned
/// positions to `position` if that is below `n`, else to `n + (position - n) % (cells - n)`. Visible are the pinned
/// positions that are not after the query's, and `max(first, pinned)..=position`. The scale is `1 / sqrt(head_dim)`.
/// Without `rope` nothing is turned.
///
/// # Panics
/// When sizes do not fit, a row does not exist, or a query sees more positions than there are cells.
#[allow(clippy::too_many_arguments)]
pub fn attend(
    pool: &Pool,
    ring: &mut KvRing,
    rope: Option<&Rope>,
    queries: &[Query],
    order: WriteOrder,
    qkv: &[f32],
    out: &mut [f32],
    scratch: &mut AttendScratch,
) {
    let _ = (pool, scratch);
    let (heads, dim) = (ring.heads, ring.head_dim);
    let width = heads * dim;
    assert_eq!(qkv.len(), queries.len() * 3 * width);
    assert_eq!(out.len(), queries.len() * width);
    if order == WriteOrder::AllThenAttend {
        for (i, query) in queries.iter().enumerate() {
            write(ring, rope, query, &qkv[i * 3 * width..][..3 * width]);
        }
    }
    for (i, query) in queries.iter().enumerate() {
        let qkv = &qkv[i * 3 * width..][..3 * width];
        if order == WriteOrder::EachThenAttend {
            write(ring, rope, query, qkv);
        }
        for head in 0..heads {
            let q = &qkv[head * dim..][..dim];
            one(
                ring,
                rope,
                query,
                head,
                q,
                &mut out[i * width + head * dim..][..dim],
            );
        }
    }
}

fn cell(query: &Query, position: u64, cells: usize) -> usize {
    let n = query.pinned as u64;
    let cells = cells as u64;
    (if position < n {
        position
    } else {
        n + (position - n) % (cells - n)
    }) as usize
}

fn write(ring: &mut KvRing, rope: Option<&Rope>, query: &Query, qkv: &[f32]) {
    let (heads, dim) = (ring.heads, ring.head_dim);
    let width = heads * dim;
    let mut table = Vec::new();
    if let Some(rope) = rope {
        rope.table(query.position, &mut table);
    }
    let round = |v: f32| match ring.dtype {
        KvDtype::F32 => v,
        KvDtype::Bf16 => half::bf16::from_f32(v).to_f32(),
    };
    for head in 0..heads {
        let at = ((query.row * heads + head) * ring.cells
            + cell(query, query.position, ring.cells))
            * dim;
        let mut key = qkv[width + head * dim..][..dim].to_vec();
        rotate(&mut key, &table);
        for (d, value) in key.iter().enumerate() {
            ring.keys[at + d] = round(*value);
            ring.values[at + d] = round(qkv[2 * width + head * dim + d]);
        }
    }
}

fn one(ring: &KvRing, rope: Option<&Rope>, query: &Query, head: usize, q: &[f32], out: &mut [f32]) {
    let dim = ring.head_dim;
    let (mut near, mut far) = (q.to_vec(), q.to_vec());
    let mut table = Vec::new();
    if let Some(rope) = rope {
        rope.table(query.position, &mut table);
        rotate(&mut near, &table);
        rope.table(query.pinned_rotation, &mut table);
        rotate(&mut far, &table);
    }
    let pinned = query.pinned as u64;
    let base = (query.row * ring.heads + head) * ring.cells;
    let mut scores = Vec::new();
    for position in
        (0..pinned.min(query.position + 1)).chain(query.first.max(pinned)..query.position + 1)
    {
        let at = base + cell(query, position, ring.cells);
        let q = if position < pinned { &far } else { &near };
        let dot: f32 = q
            .iter()
            .zip(&ring.keys[at * dim..])
            .map(|(a, b)| a * b)
            .sum();
        scores.push((at, dot / (dim as f32).sqrt()));
    }
    let max = scores.iter().map(|s| s.1).fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    out.fill(0.0);
    for (at, score) in scores {
        let weight = (score - max).exp();
        sum += weight;
        for (o, v) in out.iter_mut().zip(&ring.values[at * dim..]) {
            *o += weight * v;
        }
    }
    out.iter_mut().for_each(|o| *o /= sum);
}
