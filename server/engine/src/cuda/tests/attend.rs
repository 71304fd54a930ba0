//! Attention: live steps, chunks, pinned prompts, wrapped rings, and who may touch whose cells.

use super::{HALF, Numbers, SAME, assert_close, bits, down, gpu, half_gpu, native, small_gpu, up};
use crate::backend::KvDtype;
use crate::backend::{Backend, Heads, Query, WriteOrder};
use crate::cuda::ring::Ring;
use crate::cuda::tape::Tape;
use crate::cuda::{Cuda, Host};
use crate::kernels::Dtype;
use crate::model::{RingRule, Window};
use crate::native::Native;
use WriteOrder::{AllThenAttend, EachThenAttend};

const ROWS: usize = 3;
const CELLS: usize = 10;
const HEADS: Heads = Heads {
    count: 2,
    dim: 8,
    rope_max_period: Some(10_000.0),
};
const WIDTH: usize = 16;

struct Step {
    order: WriteOrder,
    queries: Vec<Query>,
    /// `[queries, 3 * WIDTH]`.
    qkv: Vec<f32>,
}

/// Outputs of the active queries, step by step. A backend that does not pad gets those alone.
fn run<B: Backend>(b: &mut B, heads: Heads, steps: &[Step]) -> Vec<Vec<f32>> {
    let mut ring = b.ring(ROWS, heads, CELLS, false).expect("ring");
    steps
        .iter()
        .map(|step| attend(b, &mut ring, step))
        .collect()
}

fn attend<B: Backend>(b: &mut B, ring: &mut B::Ring, step: &Step) -> Vec<f32> {
    let active: Vec<bool> = step.queries.iter().map(|query| query.active).collect();
    let padded = b.padded();
    let takes_part = |at: &usize| padded || active[*at];
    let lanes: Vec<usize> = (0..active.len()).filter(takes_part).collect();
    let queries: Vec<Query> = lanes.iter().map(|&at| step.queries[at]).collect();
    let qkv: Vec<f32> = lanes
        .iter()
        .flat_map(|&at| step.qkv[at * 3 * WIDTH..][..3 * WIDTH].to_vec())
        .collect();
    let qkv = up(b, &qkv, 3 * WIDTH);
    let mut out = B::Buf::default();
    b.attend(ring, &queries, step.order, &qkv, &mut out)
        .expect("attend");
    let out = down(b, &out);
    let kept = lanes
        .iter()
        .zip(out.chunks_exact(WIDTH))
        .filter(|(at, _)| active[**at]);
    kept.flat_map(|(_, out)| out.to_vec()).collect()
}

/// Rows at their own positions; `pinned[row]` of the first positions stay for good.
struct Rows {
    window: Window,
    positions: [u64; ROWS],
    pinned: [usize; ROWS],
    numbers: Numbers,
}

impl Rows {
    fn new(rule: RingRule, positions: [u64; ROWS]) -> Self {
        let window = Window {
            context: CELLS,
            rule,
        };
        Self {
            window,
            positions,
            pinned: [0; ROWS],
            numbers: Numbers(17),
        }
    }

    /// `t` positions of each row in `live`; the other rows are idle and bring nonsense.
    fn live(&mut self, live: &[usize], t: u64) -> Step {
        let (mut queries, mut qkv) = (Vec::new(), Vec::new());
        for row in 0..ROWS {
            let active = live.contains(&row);
            let start = self.positions[row];
            for position in start..start + t {
                let query = match self.pinned[row] {
                    0 => self.window.query(row, position, start + t - 1),
                    pinned => self.window.pinned_query(row, position, pinned),
                };
                queries.push(Query { active, ..query });
                let numbers = self.numbers.take(3 * WIDTH);
                qkv.extend(if active {
                    numbers
                } else {
                    vec![f32::NAN; 3 * WIDTH]
                });
            }
            if active {
                self.positions[row] += t;
            }
        }
        Step {
            order: AllThenAttend,
            queries,
            qkv,
        }
    }

    /// A chunk of `row` with `padding` unused places at the end.
    fn chunk(&mut self, row: usize, n: u64, padding: u64) -> Step {
        let start = self.positions[row];
        let query = |position| Query {
            active: position < start + n,
            ..self.window.pinned_query(row, position, self.pinned[row])
        };
        let queries: Vec<Query> = (start..start + n + padding).map(query).collect();
        self.positions[row] += n;
        let qkv = self.numbers.take(queries.len() * 3 * WIDTH);
        Step {
            order: EachThenAttend,
            queries,
            qkv,
        }
    }

    /// Some rows live at every step, by chance.
    fn some_live(&mut self, steps: usize, t: u64) -> Vec<Step> {
        (0..steps)
            .map(|_| {
                let chance = self.numbers.below(7) + 1;
                let live: Vec<usize> = (0..ROWS).filter(|row| chance >> row & 1 == 1).collect();
                self.live(&live, t)
            })
            .collect()
    }
}

#[track_caller]
fn assert_same(heads: Heads, steps: &[Step], what: &str) {
    let expected = run(&mut native(), heads, steps);
    for (step, (found, expected)) in run(&mut gpu(), heads, steps)
        .iter()
        .zip(&expected)
        .enumerate()
    {
        assert_close(found, expected, SAME, &format!("{what}, step {step}"));
    }
}

#[test]
fn rows_that_step_and_pause_past_a_full_ring_get_the_cpu_kernels_numbers() {
    for rule in [RingRule::Full, RingRule::Short] {
        for start in [[0; ROWS], [0, 7, 999_995]] {
            let steps = Rows::new(rule, start).some_live(40, 1);
            // A row that starts late sees cells it never wrote, in both backends zeros.
            assert_same(HEADS, &steps, &format!("{rule:?} from {start:?}"));
        }
    }
}

#[test]
fn two_positions_of_a_row_are_written_together() {
    for rule in [RingRule::Full, RingRule::Short] {
        assert_same(
            HEADS,
            &Rows::new(rule, [0; ROWS]).some_live(30, 2),
            &format!("{rule:?}"),
        );
    }
}

#[test]
fn without_a_rotation_nothing_turns() {
    let heads = Heads {
        rope_max_period: None,
        ..HEADS
    };
    assert_same(
        heads,
        &Rows::new(RingRule::Full, [0; ROWS]).some_live(20, 1),
        "no rotation",
    );
}

#[test]
fn a_chunk_sees_what_single_steps_would_see_also_where_the_ring_wraps_inside_it() {
    // Lengths of the chunks before the live steps: short of a full ring, exactly full, over it, larger than it.
    for chunks in [
        &[1][..],
        &[4, 4],
        &[9],
        &[10],
        &[4, 4, 4, 4],
        &[10, 1, 9],
        &[16],
        &[7, 23],
    ] {
        let mut rows = Rows::new(RingRule::Full, [0; ROWS]);
        let mut steps: Vec<Step> = chunks.iter().map(|&n| rows.chunk(1, n, 3)).collect();
        steps.extend(rows.some_live(14, 1));
        assert_same(HEADS, &steps, &format!("chunks {chunks:?}"));
    }
}

#[test]
fn a_pinned_prompt_stays_in_sight_while_the_rest_slides() {
    for chunks in [&[4][..], &[3, 1], &[5], &[8, 8]] {
        let mut rows = Rows::new(RingRule::Full, [0; ROWS]);
        rows.pinned = [0, 4, 2];
        let mut steps: Vec<Step> = chunks.iter().map(|&n| rows.chunk(1, n, 2)).collect();
        steps.extend(rows.some_live(45, 1));
        steps.push(rows.chunk(2, 3, 0));
        assert_same(HEADS, &steps, &format!("chunks {chunks:?}"));
    }
}

#[test]
fn half_precision_keys_stay_close_to_full_ones() {
    let mut rows = Rows::new(RingRule::Full, [0; ROWS]);
    let mut steps = vec![rows.chunk(0, 12, 0)];
    steps.extend(rows.some_live(25, 1));
    let expected = run(
        &mut Native::new(Dtype::F32, KvDtype::Bf16, 1),
        HEADS,
        &steps,
    );
    for (found, expected) in run(&mut half_gpu(), HEADS, &steps).iter().zip(&expected) {
        assert_close(found, expected, HALF, "bf16 keys and values");
    }
    // Three bits of mantissa, 2^-4, on keys, values and their sums.
    let mut fp8 = small_gpu();
    for (found, expected) in run(&mut fp8, HEADS, &steps).iter().zip(&expected) {
        assert_close(found, expected, 0.12, "fp8 keys and values");
    }
}

#[test]
fn a_window_of_several_blocks_is_seen_whole_at_every_length() {
    const WIDE: usize = 700;
    for pinned in [0, 5] {
        for rule in [RingRule::Full, RingRule::Short] {
            let window = Window {
                context: WIDE,
                rule,
            };
            let (mut gpu, mut native) = (gpu(), native());
            let mut gpu_ring = gpu.ring(1, HEADS, WIDE, false).expect("ring");
            let mut native_ring = native.ring(1, HEADS, WIDE, false).expect("ring");
            let mut numbers = Numbers(pinned as u64 + 1);
            for position in 0..2 * WIDE as u64 + 40 {
                let queries = [window.pinned_query(0, position, pinned)];
                let qkv = numbers.take(3 * WIDTH);
                let step = Step {
                    queries: queries.into(),
                    order: AllThenAttend,
                    qkv,
                };
                let found = attend(&mut gpu, &mut gpu_ring, &step);
                let expected = attend(&mut native, &mut native_ring, &step);
                let what = format!("position {position}, {pinned} pinned, {rule:?}");
                assert_close(&found, &expected, SAME, &what);
            }
        }
    }
}

/// Everything a ring holds of one row.
fn row_bits(b: &mut Cuda<Host>, ring: &Ring<Tape<Host>>, row: usize) -> Vec<u8> {
    ring.row_bytes(&mut b.machine, row)
        .expect("a row of the ring")
}

#[test]
fn an_idle_row_keeps_every_bit_of_its_ring() {
    let mut b = gpu();
    let mut ring = b.ring(ROWS, HEADS, CELLS, false).expect("ring");
    let mut rows = Rows::new(RingRule::Full, [0; ROWS]);
    for step in rows.some_live(15, 1) {
        attend(&mut b, &mut ring, &step);
    }
    let before = row_bits(&mut b, &ring, 1);
    for _ in 0..4 {
        let step = rows.live(&[0, 2], 2);
        attend(&mut b, &mut ring, &step);
        let step = rows.chunk(0, 3, 2);
        attend(&mut b, &mut ring, &step);
        let step = rows.live(&[], 1);
        attend(&mut b, &mut ring, &step);
        assert_eq!(row_bits(&mut b, &ring, 1), before);
    }
}

#[test]
fn what_a_row_gets_does_not_depend_on_the_others_to_the_bit() {
    let mine = |others: bool, pinned: usize| {
        let mut b = gpu();
        let mut ring = b.ring(ROWS, HEADS, CELLS, false).expect("ring");
        let mut rows = Rows::new(RingRule::Full, [0; ROWS]);
        rows.pinned = [pinned, 3, 0];
        let mut my_numbers = Numbers(99);
        let mut outputs = Vec::new();
        for tick in 0..40 {
            if others && tick % 5 == 0 {
                let step = rows.chunk(2, 4, 1);
                attend(&mut b, &mut ring, &step);
            }
            let live: &[usize] = if others && tick % 3 > 0 {
                &[0, 1, 2]
            } else {
                &[1]
            };
            let mut step = rows.live(live, 1);
            step.qkv[3 * WIDTH..6 * WIDTH].copy_from_slice(&my_numbers.take(3 * WIDTH));
            let out = attend(&mut b, &mut ring, &step);
            let lane = live.iter().position(|&row| row == 1).expect("mine is live");
            outputs.extend_from_slice(&out[lane * WIDTH..][..WIDTH]);
        }
        bits(&outputs)
    };
    let alone = mine(false, 0);
    assert_eq!(mine(true, 0), alone);
    assert_eq!(mine(true, 2), alone, "a neighbour's pinned prompt");
}

#[test]
fn a_neighbour_whose_window_turns_its_prompt_changes_no_bit_of_a_plain_row() {
    let mine = |pinned: usize| {
        let mut b = gpu();
        let mut ring = b.ring(ROWS, HEADS, CELLS, false).expect("ring");
        let mut rows = Rows::new(RingRule::Full, [0; ROWS]);
        rows.pinned = [pinned, 0, 0];
        let steps: Vec<Step> = (0..30).map(|_| rows.live(&[0, 1], 1)).collect();
        let outputs: Vec<f32> = steps
            .iter()
            .flat_map(|step| attend(&mut b, &mut ring, step)[WIDTH..].to_vec())
            .collect();
        bits(&outputs)
    };
    assert_eq!(mine(3), mine(0));
}

#[test]
fn a_row_that_failed_leaves_nothing_behind_for_its_next_holder() {
    let second_call = |failed: bool| {
        let mut b = gpu();
        let mut ring = b.ring(ROWS, HEADS, CELLS, false).expect("ring");
        if failed {
            let mut rows = Rows::new(RingRule::Full, [0; ROWS]);
            for value in [f32::NAN, f32::INFINITY, 3.3e38] {
                let mut step = rows.live(&[0], 1);
                step.qkv[WIDTH..3 * WIDTH].fill(value);
                attend(&mut b, &mut ring, &step);
                let mut step = rows.chunk(0, 2, 0);
                step.qkv.fill(value);
                attend(&mut b, &mut ring, &step);
            }
        }
        let mut rows = Rows::new(RingRule::Full, [0; ROWS]);
        let steps = rows.some_live(14, 1);
        let outputs: Vec<f32> = steps
            .iter()
            .flat_map(|step| attend(&mut b, &mut ring, step))
            .collect();
        assert!(outputs.iter().all(|value| value.is_finite()));
        bits(&outputs)
    };
    assert_eq!(second_call(true), second_call(false));
}

#[test]
fn saved_cells_go_back_into_any_row_bit_for_bit() {
    for mut b in [gpu(), half_gpu(), small_gpu()] {
        for codec in [false, true] {
            let mut ring = b.ring(ROWS, HEADS, CELLS, codec).expect("ring");
            let mut rows = Rows::new(RingRule::Full, [0; ROWS]);
            let step = rows.chunk(0, 6, 0);
            attend(&mut b, &mut ring, &step);
            let part = b.ring_save(&ring, 0, 0..6).expect("save");
            let again = b.ring_save(&ring, 0, 0..6).expect("save");
            // The part is a copy: what the row does later does not reach it.
            let step = rows.chunk(0, 9, 0);
            attend(&mut b, &mut ring, &step);
            for row in [2, 0] {
                b.ring_load(&mut ring, row, &part).expect("load");
                rows.positions[row] = 6;
            }
            let mut step = rows.live(&[0, 2], 1);
            step.qkv.copy_within(..3 * WIDTH, 6 * WIDTH);
            let out = bits(&attend(&mut b, &mut ring, &step));
            assert_eq!(out[..WIDTH], out[WIDTH..]);
            b.ring_load(&mut ring, 1, &part).expect("load");
            let first = row_bits(&mut b, &ring, 1);
            b.ring_load(&mut ring, 1, &again).expect("load");
            assert_eq!(row_bits(&mut b, &ring, 1), first);
        }
    }
}

#[test]
fn queries_that_do_not_fit_the_ring_are_refused() {
    let mut b = gpu();
    let mut ring = b.ring(ROWS, HEADS, CELLS, false).expect("ring");
    let window = Window {
        context: CELLS,
        rule: RingRule::Full,
    };
    let at = |row, position| window.query(row, position, position);
    let cases = [
        (
            "a row past the end",
            AllThenAttend,
            vec![at(2, 0), at(3, 0)],
        ),
        (
            "more than the ring holds",
            EachThenAttend,
            vec![Query {
                first: 0,
                ..at(0, CELLS as u64)
            }],
        ),
        ("nothing", AllThenAttend, vec![]),
        (
            "a pinned ring",
            AllThenAttend,
            vec![Query {
                pinned: CELLS,
                ..at(0, 20)
            }],
        ),
    ];
    for (what, order, queries) in cases {
        let qkv = up(
            &mut b,
            &vec![0.0; queries.len().max(1) * 3 * WIDTH],
            3 * WIDTH,
        );
        assert!(
            b.attend(&mut ring, &queries, order, &qkv, &mut Default::default())
                .is_err(),
            "{what}"
        );
    }
}
