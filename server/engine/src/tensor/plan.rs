//! What the queries of one step mean to a device: which cells they write, which they see, by how much they turn.
//!
//! Lives here: [`Plan`], made on the host once and shared by all layers of the step.
//! May not live here: keys, values, scores.

use std::ops::Range;

use candle_core::{Device, Result, Tensor};

use crate::backend::{Heads, Query, WriteOrder};

use super::ring::{NO_CELL, TensorRing};

/// One step's queries on the device. Row-major by row of the ring: `n = rows * t`.
pub(super) struct Plan {
    /// Rows of the ring that take part in the shapes.
    pub rows: Range<usize>,
    /// Queries of each row.
    pub t: usize,
    /// Whether every query attends to the ring as it was, and to the keys of this step up to its own.
    pub own_keys: bool,
    /// Turns queries and keys to their positions and leaves values alone.
    pub turn: Turn,
    /// Turns queries for pinned keys, and where those are, bytes `[rows, 1, t, seen]`; absent while it makes no
    /// difference.
    pub pinned: Option<(Turn, Tensor)>,
    /// Cell of each number written, `[rows * heads, t, dim]`.
    pub cells: Tensor,
    /// 0 for what is seen, minus infinity for the rest; `[rows, 1, t, seen]`, where `seen` is the ring's cells, then
    /// with `own_keys` the `t` new ones.
    pub bias: Tensor,
}

/// Cosines and sines by which pairs turn, `[n, parts, 1, dim]`: of the query, or of query, key and value. The sine of a
/// pair's first number is negated, and the query's carry the scale of the scores. Without a rotation there are no sines,
/// and one number for each part, `[1, parts, 1, 1]`.
pub(super) struct Turn {
    pub cos: Tensor,
    pub sin: Option<Tensor>,
}

/// What makes two plans the same.
#[derive(PartialEq)]
struct Key {
    queries: Vec<Query>,
    order: WriteOrder,
    rows: usize,
    cells: usize,
    heads: usize,
    dim: usize,
    /// Bits of the base of the angles.
    period: Option<u32>,
}

/// Plans of the last steps: all layers of a transformer share one, and the depformer's return every frame.
#[derive(Default)]
pub(super) struct Plans(Vec<(Key, Plan)>);

/// Steps of a depformer, two codec transformers and the temporal one, with room to spare.
const PLANS_MAX: usize = 40;

impl Plans {
    pub(super) fn get(
        &mut self,
        ring: &TensorRing,
        queries: &[Query],
        order: WriteOrder,
        device: &Device,
    ) -> Result<&Plan> {
        let known = |key: &Key| {
            key.order == order
                && key.rows == ring.rows
                && key.cells == ring.cells
                && key.heads == ring.heads.count
                && key.dim == ring.heads.dim
                && key.period == ring.heads.rope_max_period.map(f32::to_bits)
                && key.queries == queries
        };
        // The newest is last; the oldest makes room.
        match self.0.iter().rposition(|(key, _)| known(key)) {
            Some(at) => {
                let entry = self.0.remove(at);
                self.0.push(entry);
            }
            None => {
                let plan = Plan::new(ring, queries, order, device)?;
                if self.0.len() >= PLANS_MAX {
                    self.0.remove(0);
                }
                let key = Key {
                    queries: queries.to_vec(),
                    order,
                    rows: ring.rows,
                    cells: ring.cells,
                    heads: ring.heads.count,
                    dim: ring.heads.dim,
                    period: ring.heads.rope_max_period.map(f32::to_bits),
                };
                self.0.push((key, plan));
            }
        }
        Ok(&self.0.last().expect("one was just put last").1)
    }
}

impl Plan {
    fn new(
        ring: &TensorRing,
        queries: &[Query],
        order: WriteOrder,
        device: &Device,
    ) -> Result<Self> {
        let (rows, t) = layout(ring, queries, order)?;
        let own_keys = order == WriteOrder::EachThenAttend;
        let seen = ring.cells + if own_keys { t } else { 0 };
        // Before a chunk is written the ring ends here.
        let start = queries
            .iter()
            .filter(|query| query.active)
            .map(|query| query.position)
            .min();
        let mut bias = vec![f32::NEG_INFINITY; queries.len() * seen];
        let mut pinned = vec![0u8; queries.len() * seen];
        for (index, query) in queries.iter().enumerate() {
            let bias = &mut bias[index * seen..][..seen];
            if !query.active {
                // Its output is not used; seeing everything keeps it finite.
                bias.fill(0.0);
                continue;
            }
            let pinned = &mut pinned[index * seen..][..seen];
            for position in visible(query) {
                let at = match start {
                    Some(start) if own_keys && position >= start => {
                        ring.cells + (position - start) as usize
                    }
                    _ => cell(query, position, ring.cells),
                };
                bias[at] = 0.0;
                pinned[at] = (position < query.pinned as u64).into();
            }
        }
        let shape = (rows.len(), 1, t, seen);
        let differs = |query: &Query| {
            query.active && query.pinned > 0 && query.pinned_rotation != query.position
        };
        let pinned = if ring.heads.rope_max_period.is_some() && queries.iter().any(differs) {
            let far = queries.iter().map(|query| query.pinned_rotation);
            Some((
                Turn::new(ring.heads, 1, far, device)?,
                Tensor::from_vec(pinned, shape, device)?,
            ))
        } else {
            None
        };
        let near = queries.iter().map(|query| query.position);
        Ok(Self {
            turn: Turn::new(ring.heads, QKV, near, device)?,
            pinned,
            cells: written(ring, queries, &rows, t, device)?,
            bias: Tensor::from_vec(bias, shape, device)?,
            rows,
            t,
            own_keys,
        })
    }
}

/// Which rows of the ring the queries are about, and how many each has.
fn layout(
    ring: &TensorRing,
    queries: &[Query],
    order: WriteOrder,
) -> Result<(Range<usize>, usize)> {
    let Some(first) = queries.first() else {
        candle_core::bail!("no queries")
    };
    let t = queries
        .iter()
        .take_while(|query| query.row == first.row)
        .count();
    let rows = first.row..first.row + queries.len() / t;
    let orderly = queries.len().is_multiple_of(t)
        && rows.end <= ring.rows
        && queries
            .iter()
            .enumerate()
            .all(|(index, query)| query.row == rows.start + index / t);
    if queries.iter().any(|query| query.pinned >= ring.cells) {
        candle_core::bail!(
            "a pinned prompt must leave cells of the {} to slide",
            ring.cells
        );
    }
    if !orderly {
        candle_core::bail!(
            "queries must come row by row, the same number for each of neighbouring rows"
        );
    }
    if order == WriteOrder::EachThenAttend {
        let active = queries
            .iter()
            .filter(|query| query.active)
            .map(|query| query.position);
        let consecutive = active
            .clone()
            .zip(active.clone().skip(1))
            .all(|(a, b)| b == a + 1);
        let padded_at_end = queries
            .iter()
            .skip_while(|query| query.active)
            .all(|query| !query.active);
        if rows.len() != 1 || !consecutive || !padded_at_end {
            candle_core::bail!("a chunk is consecutive positions of one row, then padding");
        }
    }
    Ok((rows, t))
}

/// Positions a query sees.
fn visible(query: &Query) -> impl Iterator<Item = u64> {
    let pinned = query.pinned as u64;
    (0..pinned.min(query.position + 1)).chain(query.first.max(pinned)..query.position + 1)
}

/// The cell a position has in a ring whose first `pinned` cells are kept for good.
fn cell(query: &Query, position: u64, cells: usize) -> usize {
    let (pinned, cells) = (query.pinned as u64, cells as u64);
    let cell = if position < pinned {
        position
    } else {
        pinned + (position - pinned) % (cells - pinned)
    };
    cell as usize
}

/// Cells that the queries write, `[rows * heads, t, dim]`. Of two queries with one cell the later one writes.
fn written(
    ring: &TensorRing,
    queries: &[Query],
    rows: &Range<usize>,
    t: usize,
    device: &Device,
) -> Result<Tensor> {
    let mut cells: Vec<u32> = Vec::with_capacity(queries.len());
    for (index, query) in queries.iter().enumerate() {
        let own = if query.active {
            cell(query, query.position, ring.cells) as u32
        } else {
            NO_CELL
        };
        if own != NO_CELL {
            let earlier = &mut cells[index - index % t..];
            earlier
                .iter_mut()
                .filter(|cell| **cell == own)
                .for_each(|cell| *cell = NO_CELL);
        }
        cells.push(own);
    }
    let (heads, dim) = (ring.heads.count, ring.heads.dim);
    Tensor::from_vec(cells, (rows.len(), 1, t, 1), device)?
        .broadcast_as((rows.len(), heads, t, dim))?
        .contiguous()?
        .reshape((rows.len() * heads, t, dim))
}

/// Query, key and value.
const QKV: usize = 3;

impl Turn {
    /// Pair `i` turns by `exp(-ln(max_period) * 2i / dim)` per position; the angle is formed in f64, so that it is
    /// still right at position 1,000,000. `parts` is 1 for queries alone, or [`QKV`].
    fn new(
        heads: Heads,
        parts: usize,
        positions: impl Iterator<Item = u64>,
        device: &Device,
    ) -> Result<Self> {
        let dim = heads.dim;
        let scale = 1.0 / (dim as f64).sqrt();
        let Some(max_period) = heads.rope_max_period else {
            let scales: Vec<f32> = (0..parts)
                .map(|part| if part == 0 { scale as f32 } else { 1.0 })
                .collect();
            let cos = Tensor::from_vec(scales, (1, parts, 1, 1), device)?;
            return Ok(Self { cos, sin: None });
        };
        let step = -f64::from(max_period).ln() * 2.0 / dim as f64;
        let frequencies: Vec<f64> = (0..dim / 2)
            .map(|pair| (step * pair as f64).exp())
            .collect();
        let (mut cosines, mut sines) = (Vec::new(), Vec::new());
        for position in positions {
            let angles = frequencies
                .iter()
                .map(|frequency| (position as f64 * frequency).sin_cos());
            let pairs: Vec<(f64, f64)> = angles.collect();
            for part in 0..parts {
                for &(sin, cos) in &pairs {
                    let (sin, cos) = match part {
                        0 => (sin * scale, cos * scale),
                        1 => (sin, cos),
                        _ => (0.0, 1.0),
                    };
                    cosines.extend([cos as f32; 2]);
                    sines.extend([-sin as f32, sin as f32]);
                }
            }
        }
        let shape = (cosines.len() / (parts * dim), parts, 1, dim);
        let cos = Tensor::from_vec(cosines, shape, device)?;
        Ok(Self {
            cos,
            sin: Some(Tensor::from_vec(sines, shape, device)?),
        })
    }
}
