//! Attention of some queries over the ring: who sees what, and how the work is shared.
//!
//! One task is one head of one row, with all queries of that row in order, so tasks share nothing. What a query gets
//! depends on its sequence of visible cells only.

#![allow(unsafe_code)]

use std::cell::RefCell;

use super::attend_head::{self, HeadTask, Local};
use super::lanes::Level;
use super::pool::Pool;
use super::ring::KvRing;
use super::rope::{Angles, Rope};

/// Calls that touch fewer elements of the ring than this wake nobody (about 5 microseconds of work).
const SHARED_ELEMENTS_MIN: usize = 60_000;

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

impl Query {
    /// The cell of a position.
    pub(super) fn cell(&self, position: u64, cells: usize) -> usize {
        let (pinned, cells) = (self.pinned as u64, cells as u64);
        let cell = if position < pinned {
            position
        } else {
            pinned + (position - pinned) % (cells - pinned)
        };
        cell as usize
    }

    /// Number of visible pinned positions, and the first visible position of the sliding part.
    pub(super) fn visible(&self) -> (usize, u64) {
        let pinned = (self.pinned as u64).min(self.position + 1);
        (pinned as usize, self.first.max(self.pinned as u64))
    }

    /// Number of all visible positions.
    pub(super) fn visible_count(&self) -> usize {
        let (pinned, start) = self.visible();
        pinned + (self.position + 1).saturating_sub(start) as usize
    }

    fn check(&self, rows: usize, cells: usize) {
        assert!(self.row < rows, "no row {} in the ring", self.row);
        let sliding = self.visible_count() - self.visible().0;
        let fits = self.pinned < cells && sliding <= cells - self.pinned;
        assert!(fits, "{self:?} sees more than {cells} cells");
        assert!(self.visible_count() > 0, "{self:?} sees nothing");
    }
}

/// When keys and values enter the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOrder {
    /// Each query attends before the next one's key overwrites a cell: chunks of a prompt.
    EachThenAttend,
    /// All keys are written first: the codec's transformers, whose frames bring several positions. No query may see
    /// a position whose cell a later one of the call takes.
    AllThenAttend,
}

/// Memory of [`attend`] that is kept between calls. Use one for all layers of a network: they turn alike.
#[derive(Default)]
pub struct AttendScratch {
    rows: Vec<usize>,
    angles: Angles,
}

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
/// When sizes do not fit, a row does not exist, or a query sees nothing or more positions than there are cells.
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
    let level = Level::best();
    attend_at(level, pool, ring, rope, queries, order, qkv, out, scratch);
}

#[allow(clippy::too_many_arguments)]
pub(super) fn attend_at(
    level: Level,
    pool: &Pool,
    ring: &mut KvRing,
    rope: Option<&Rope>,
    queries: &[Query],
    order: WriteOrder,
    qkv: &[f32],
    out: &mut [f32],
    scratch: &mut AttendScratch,
) {
    thread_local! {
        static LOCAL: RefCell<Local> = RefCell::default();
    }
    let shape = ring.shape;
    let width = shape.heads * shape.head_dim;
    assert_eq!(qkv.len(), queries.len() * 3 * width, "qkv is not [n, 3d]");
    assert_eq!(out.len(), queries.len() * width, "out is not [n, d]");
    let mut elements = 0;
    for (index, query) in queries.iter().enumerate() {
        query.check(ring.rows, ring.cells);
        elements += query.visible_count() * width;
        if let Some(rope) = rope {
            let angles = &mut scratch.angles;
            angles.set(rope, 2 * index, query.position);
            if query.pinned > 0 {
                angles.set(rope, 2 * index + 1, query.pinned_rotation);
            }
        }
    }
    scratch.rows.clear();
    scratch.rows.extend(queries.iter().map(|query| query.row));
    scratch.rows.sort_unstable();
    scratch.rows.dedup();

    let task = HeadTask {
        shape,
        cells: ring.cells,
        keys: ring.keys.as_mut_ptr(),
        values: ring.values.as_mut_ptr(),
        queries,
        order,
        angles: rope.map(|_| &scratch.angles),
        qkv,
        out: out.as_mut_ptr(),
    };
    let rows = &scratch.rows;
    let run = |index: usize| {
        let (row, head) = (rows[index / shape.heads], index % shape.heads);
        LOCAL.with_borrow_mut(|local| {
            // SAFETY: sizes and queries were checked, and no other task has this row and head.
            unsafe { attend_head::run(level, &task, row, head, local) }
        });
    };
    let tasks = rows.len() * shape.heads;
    if elements < SHARED_ELEMENTS_MIN {
        (0..tasks).for_each(run);
    } else {
        pool.run(tasks, &run);
    }
}
