//! What attention promises, on every level of this machine.

use proptest::prelude::*;

use super::attention::{AttendScratch, Query, WriteOrder, attend_at};
use super::lanes::Level;
use super::matmul_tests::noise;
use super::pool::Pool;
use super::ring::{KvDtype, KvRing};
use super::rope::Rope;

const DTYPES: [KvDtype; 2] = [KvDtype::F32, KvDtype::Bf16];
/// f32 sums and a softmax against double precision, for values in -1..1.
const TOLERANCE: f64 = 1e-5;

#[derive(Clone, Copy, Debug)]
struct Setup {
    dtype: KvDtype,
    heads: usize,
    head_dim: usize,
    cells: usize,
    pinned: usize,
    turns: bool,
    order: WriteOrder,
}

impl Setup {
    fn width(&self) -> usize {
        self.heads * self.head_dim
    }

    fn ring(&self, rows: usize) -> KvRing {
        KvRing::new(self.dtype, rows, self.heads, self.head_dim, self.cells)
    }

    fn query(&self, row: usize, position: u64, last: u64) -> Query {
        let sliding = (self.cells - self.pinned) as u64;
        let newest = if self.order == WriteOrder::AllThenAttend {
            last
        } else {
            position
        };
        Query {
            row,
            position,
            first: (newest + 1).saturating_sub(sliding),
            pinned: self.pinned,
            pinned_rotation: position.min(self.cells as u64 - 1),
        }
    }

    /// q, k and v of one position of one caller.
    fn qkv(&self, caller: usize, position: u64) -> Vec<f32> {
        noise(3 * self.width(), 1 + caller as u64 * 1_000_003 + position)
    }
}

/// One row, kept in double precision, all keys and values it ever had.
struct Reference {
    setup: Setup,
    keys: Vec<Vec<f64>>,
    values: Vec<Vec<f64>>,
}

impl Reference {
    fn turned(&self, vector: &[f64], position: u64) -> Vec<f64> {
        let dim = self.setup.head_dim;
        let mut out = vector.to_vec();
        if self.setup.turns {
            for at in (0..out.len()).step_by(2) {
                let period = 10_000.0f64.powf((at % dim) as f64 / dim as f64);
                let (sin, cos) = (position as f64 / period).sin_cos();
                out[at] = vector[at] * cos - vector[at + 1] * sin;
                out[at + 1] = vector[at] * sin + vector[at + 1] * cos;
            }
        }
        out
    }

    fn rounded(&self, vector: Vec<f64>) -> Vec<f64> {
        match self.setup.dtype {
            KvDtype::F32 => vector,
            // By way of f32, as the kernel does it.
            KvDtype::Bf16 => vector
                .iter()
                .map(|v| f64::from(half::bf16::from_f32(*v as f32).to_f32()))
                .collect(),
        }
    }

    fn write(&mut self, position: u64, qkv: &[f64]) {
        let width = self.setup.width();
        let key = self.turned(&qkv[width..2 * width], position);
        let key = self.rounded(key);
        self.keys.push(key);
        self.values.push(self.rounded(qkv[2 * width..].to_vec()));
    }

    fn attend(&self, query: &Query, qkv: &[f64]) -> Vec<f64> {
        let (dim, width) = (self.setup.head_dim, self.setup.width());
        let near = self.turned(&qkv[..width], query.position);
        let far = self.turned(&qkv[..width], query.pinned_rotation);
        let mut out = vec![0.0; width];
        for head in 0..self.setup.heads {
            let range = head * dim..(head + 1) * dim;
            let pinned = query.pinned as u64;
            let weights: Vec<(usize, f64)> = (0..=query.position)
                .filter(|p| *p < pinned || *p >= query.first)
                .map(|p| {
                    let q = if p < pinned { &far } else { &near };
                    let key = &self.keys[p as usize][range.clone()];
                    let dot: f64 = q[range.clone()].iter().zip(key).map(|(a, b)| a * b).sum();
                    (p as usize, (dot / (dim as f64).sqrt()).exp())
                })
                .collect();
            let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
            for (position, weight) in weights {
                for d in range.clone() {
                    out[d] += weight / total * self.values[position][d];
                }
            }
        }
        out
    }
}

/// Runs positions `from..to` of `rows` in steps of `step` positions and returns each row's outputs. A row is a row of
/// the ring and the caller whose inputs it gets.
#[allow(clippy::too_many_arguments)]
fn run(
    level: Level,
    threads: usize,
    setup: &Setup,
    rows: &[(usize, usize)],
    from: u64,
    to: u64,
    step: u64,
    ring: &mut KvRing,
) -> Vec<Vec<f32>> {
    let (pool, rope) = (Pool::new(threads), Rope::new(setup.head_dim, 10_000.0));
    let mut scratch = AttendScratch::new();
    let mut outputs = vec![Vec::new(); rows.len()];
    let mut position = from;
    while position < to {
        let end = to.min(position + step);
        let mut queries = Vec::new();
        let mut qkv = Vec::new();
        for (row, caller) in rows {
            for position in position..end {
                queries.push(setup.query(*row, position, end - 1));
                qkv.extend(setup.qkv(*caller, position));
            }
        }
        let mut out = vec![f32::NAN; queries.len() * setup.width()];
        let rope = setup.turns.then_some(&rope);
        attend_at(
            level,
            &pool,
            ring,
            rope,
            &queries,
            setup.order,
            &qkv,
            &mut out,
            &mut scratch,
        );
        let per_row = (end - position) as usize * setup.width();
        for (output, out) in outputs.iter_mut().zip(out.chunks(per_row)) {
            output.extend_from_slice(out);
        }
        position = end;
    }
    outputs
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn setups() -> impl Strategy<Value = Setup> {
    let dims = prop::sample::select(vec![2usize, 8, 16, 32, 48, 64, 128]);
    (
        0usize..2,
        1usize..4,
        dims,
        3usize..40,
        0usize..4,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(dtype, heads, head_dim, cells, pinned, turns, all)| Setup {
                dtype: DTYPES[dtype],
                heads,
                head_dim,
                cells,
                pinned: pinned.min(cells / 2),
                turns,
                order: if all {
                    WriteOrder::AllThenAttend
                } else {
                    WriteOrder::EachThenAttend
                },
            },
        )
}

#[test]
fn attention_agrees_with_double_precision_past_the_end_of_the_ring() {
    for dtype in DTYPES {
        for (pinned, order, step) in [
            (0, WriteOrder::EachThenAttend, 1),
            (0, WriteOrder::EachThenAttend, 5),
            (0, WriteOrder::AllThenAttend, 2),
            (4, WriteOrder::EachThenAttend, 3),
            (4, WriteOrder::AllThenAttend, 2),
        ] {
            for head_dim in [6, 32, 128] {
                let setup = Setup {
                    dtype,
                    heads: 2,
                    head_dim,
                    cells: 13,
                    pinned,
                    turns: true,
                    order,
                };
                let mut reference = Reference {
                    setup,
                    keys: Vec::new(),
                    values: Vec::new(),
                };
                let wide = |position| -> Vec<f64> {
                    setup
                        .qkv(1, position)
                        .iter()
                        .map(|v| f64::from(*v))
                        .collect()
                };
                for position in 0..60 {
                    reference.write(position, &wide(position));
                }
                for level in Level::available() {
                    let mut ring = setup.ring(2);
                    let out = &run(level, 2, &setup, &[(1, 1)], 0, 60, step, &mut ring)[0];
                    for (position, out) in out.chunks(setup.width()).enumerate() {
                        let position = position as u64;
                        let last = (position / step * step + step - 1).min(59);
                        let query = setup.query(1, position, last);
                        let exact = reference.attend(&query, &wide(position));
                        for (out, exact) in out.iter().zip(exact) {
                            let error = (f64::from(*out) - exact).abs();
                            // A key that lies near the middle of two bf16 may round the other way than in double
                            // precision.
                            let tolerance = if dtype == KvDtype::F32 {
                                TOLERANCE
                            } else {
                                1e-3
                            };
                            assert!(
                                error <= tolerance,
                                "{level:?} {setup:?} position {position}: {out}, not {exact}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_long_window_keeps_its_accuracy() {
    let setup = Setup {
        dtype: KvDtype::F32,
        heads: 1,
        head_dim: 64,
        cells: 3000,
        pinned: 0,
        turns: true,
        order: WriteOrder::EachThenAttend,
    };
    let mut reference = Reference {
        setup,
        keys: Vec::new(),
        values: Vec::new(),
    };
    let mut ring = setup.ring(1);
    let out = &run(Level::best(), 2, &setup, &[(0, 0)], 0, 3000, 1, &mut ring)[0];
    let mut qkv = Vec::new();
    for position in 0..3000 {
        qkv = setup
            .qkv(0, position)
            .iter()
            .map(|v| f64::from(*v))
            .collect();
        reference.write(position, &qkv);
    }
    let exact = reference.attend(&setup.query(0, 2999, 2999), &qkv);
    for (out, exact) in out[2999 * 64..].iter().zip(exact) {
        assert!(
            (f64::from(*out) - exact).abs() <= TOLERANCE,
            "{out}, not {exact}"
        );
    }
}

#[test]
fn pinning_changes_no_bit_before_the_ring_wraps() {
    let plain = Setup {
        dtype: KvDtype::Bf16,
        heads: 2,
        head_dim: 32,
        cells: 40,
        pinned: 0,
        turns: true,
        order: WriteOrder::EachThenAttend,
    };
    let pinned = Setup { pinned: 7, ..plain };
    for level in Level::available() {
        let one = run(level, 1, &plain, &[(0, 0)], 0, 40, 3, &mut plain.ring(1));
        let other = run(level, 1, &pinned, &[(0, 0)], 0, 40, 3, &mut pinned.ring(1));
        assert_eq!(bits(&one[0]), bits(&other[0]), "{level:?}");
    }
}

#[test]
#[should_panic(expected = "sees more than 5 cells")]
fn a_query_that_sees_more_than_the_ring_holds_is_refused() {
    let setup = Setup {
        dtype: KvDtype::F32,
        heads: 1,
        head_dim: 4,
        cells: 5,
        pinned: 0,
        turns: false,
        order: WriteOrder::EachThenAttend,
    };
    let query = Query {
        first: 0,
        ..setup.query(0, 7, 7)
    };
    attend_at(
        Level::best(),
        &Pool::new(1),
        &mut setup.ring(1),
        None,
        &[query],
        setup.order,
        &[0.0; 12],
        &mut [0.0; 4],
        &mut AttendScratch::new(),
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_bits_of_a_row_depend_on_nothing_but_itself(
        setup in setups(), rows in 1usize..9, threads in 1usize..4, step in 1u64..4,
    ) {
        let step = step.min((setup.cells - setup.pinned) as u64);
        let to = 2 * setup.cells as u64 + 3;
        let all: Vec<(usize, usize)> = (0..rows).rev().map(|row| (row, row)).collect();
        let mut first_level: Option<Vec<u32>> = None;
        for level in Level::available() {
            let together = run(level, threads, &setup, &all, 0, to, step, &mut setup.ring(rows));
            let row = rows / 2;
            let alone = run(level, 1, &setup, &[(row, row)], 0, to, step, &mut setup.ring(rows));
            let index = all.iter().position(|(r, _)| *r == row).unwrap();
            let alone = bits(&alone[0]);
            prop_assert_eq!(bits(&together[index]), alone.clone(), "{:?}", level);
            prop_assert_eq!(first_level.get_or_insert(alone.clone()), &alone, "{:?}", level);
        }
    }

    #[test]
    fn steps_of_any_length_give_the_same_bits_when_each_attends_in_turn(
        setup in setups(), step in 1u64..9,
    ) {
        let setup = Setup { order: WriteOrder::EachThenAttend, ..setup };
        let to = 2 * setup.cells as u64 + 3;
        let level = Level::best();
        let one = run(level, 1, &setup, &[(0, 0)], 0, to, 1, &mut setup.ring(1));
        let other = run(level, 2, &setup, &[(0, 0)], 0, to, step, &mut setup.ring(1));
        prop_assert_eq!(bits(&one[0]), bits(&other[0]));
    }

    #[test]
    fn a_part_that_is_saved_and_loaded_into_another_row_goes_on_with_the_same_bits(
        setup in setups(), until in 1u64..40,
    ) {
        let setup = Setup { order: WriteOrder::EachThenAttend, ..setup };
        let level = Level::best();
        let to = until + 2 * setup.cells as u64;
        let mut ring = setup.ring(3);
        run(level, 1, &setup, &[(1, 7)], 0, until, 1, &mut ring);
        let part = ring.save(1, 0..setup.cells.min(until as usize));
        let straight = run(level, 1, &setup, &[(1, 7)], until, to, 1, &mut ring);
        let mut other = setup.ring(3);
        run(level, 1, &setup, &[(2, 9)], 0, to, 1, &mut other);
        other.load(2, &part);
        let restored = run(level, 1, &setup, &[(2, 7)], until, to, 1, &mut other);
        prop_assert_eq!(bits(&straight[0]), bits(&restored[0]));
    }
}
