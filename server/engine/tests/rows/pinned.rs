//! A prompt that stays in the window for good.

use engine::backend::KvDtype;
use engine::backend::{Backend, Heads, WriteOrder};
use engine::kernels::Dtype;
use engine::model::{RingRule, Window};
use engine::native::Native;
use engine::voice_model::CallTrace;
use slots::engine::FrameKind;

use crate::callers::{CALLERS, CONTEXT, Caller, FIXTURE};
use crate::switchboard::{Call, Machine, Switchboard, assert_same, traced_call};

const FRAMES: usize = 3 * CONTEXT;

/// A call with or without pinning, and its hidden vectors by position, as bits.
fn hear(guest: &Caller, pin_prompt: bool, ring: RingRule) -> (Call, Vec<Vec<u32>>) {
    let board = Switchboard::with(&FIXTURE, Machine::f32(1), 1, |options| {
        options.pin_prompt = pin_prompt;
        options.ring = ring;
    });
    let (call, traces) = traced_call(board, guest, FRAMES);
    let bits = |trace: &CallTrace| trace.hidden.iter().map(|v| v.to_bits()).collect();
    (call, traces.iter().map(bits).collect())
}

#[test]
fn pinning_changes_no_bit_before_the_ring_wraps_and_does_from_then_on() {
    let guest = &CALLERS[2];
    assert!(
        guest.prompt.positions() <= CONTEXT / 2,
        "short enough to pin"
    );
    for (rule, wraps_at) in [(RingRule::Full, CONTEXT), (RingRule::Short, CONTEXT - 1)] {
        let (pinned, pinned_hidden) = hear(guest, true, rule);
        let (plain, plain_hidden) = hear(guest, false, rule);
        assert_eq!(pinned_hidden.len(), plain_hidden.len());
        let differs = pinned_hidden
            .iter()
            .zip(&plain_hidden)
            .position(|(a, b)| a != b);
        assert_eq!(differs, Some(wraps_at), "{rule:?}");
        assert!(pinned != plain);
        assert!(pinned.iter().all(|heard| heard.kind == FrameKind::Live));
    }
}

#[test]
fn a_prompt_of_more_than_half_the_window_is_not_pinned() {
    for guest in CALLERS
        .iter()
        .filter(|guest| guest.prompt.positions() > CONTEXT / 2)
    {
        let (pinned, plain) = (
            hear(guest, true, RingRule::Full),
            hear(guest, false, RingRule::Full),
        );
        assert_same(&pinned.0, &plain.0, guest.name);
    }
}

#[test]
fn a_pinned_row_is_the_same_recycled_restored_and_in_company() {
    let guest = &CALLERS[2];
    let (expected, _) = hear(guest, true, RingRule::Full);
    let mut board = Switchboard::with(&FIXTURE, Machine::f32(2), 3, |options| {
        options.pin_prompt = true;
    });
    board.whole_call(1, &CALLERS[0], FRAMES);
    // Row 1 reads the prompt over what an unpinned call left, row 2 restores it.
    board.join(0, &CALLERS[1]);
    board.join(1, guest);
    board.join(2, guest);
    (0..FRAMES).for_each(|_| board.tick(&[0, 1, 2]));
    for row in [1, 2] {
        assert_same(&board.leave(row), &expected, &format!("row {row}"));
    }
    // An unpinned call after a pinned one.
    let (plain, _) = hear(&CALLERS[3], true, RingRule::Full);
    assert_same(
        &board.whole_call(1, &CALLERS[3], FRAMES),
        &plain,
        "after a pinned call",
    );
}

/// Attention over keys that are all kept, in f64: what a query at `position` should get from one head.
struct Kept {
    /// q, k and v of every position, not turned.
    qkv: Vec<[Vec<f64>; 3]>,
    pinned: usize,
    context: usize,
    period: f64,
}

impl Kept {
    fn turned(&self, vector: &[f64], position: u64) -> Vec<f64> {
        let dim = vector.len() as f64;
        let pair = |(at, pair): (usize, &[f64])| {
            let angle = position as f64 * self.period.powf(-(2.0 * at as f64) / dim);
            let (sin, cos) = angle.sin_cos();
            [pair[0] * cos - pair[1] * sin, pair[0] * sin + pair[1] * cos]
        };
        vector.chunks_exact(2).enumerate().flat_map(pair).collect()
    }

    fn answer(&self, position: usize) -> Vec<f64> {
        let query = &self.qkv[position][0];
        let sliding = self.context - self.pinned.min(position + 1);
        let oldest = (position + 1).saturating_sub(sliding).max(self.pinned);
        let prompt = 0..self.pinned.min(position + 1);
        // A pinned key is never further away than the window is long.
        let near = (position as u64).min(self.context as u64 - 1);
        let seen = prompt
            .map(|key| (key, near))
            .chain((oldest..=position).map(|key| (key, position as u64)));
        let mut weights = 0.0;
        let mut sum = vec![0.0; query.len()];
        for (key, query_position) in seen {
            let (q, k) = (
                self.turned(query, query_position),
                self.turned(&self.qkv[key][1], key as u64),
            );
            let score: f64 = q.iter().zip(&k).map(|(q, k)| q * k).sum();
            let weight = (score / (query.len() as f64).sqrt()).exp();
            weights += weight;
            sum.iter_mut()
                .zip(&self.qkv[key][2])
                .for_each(|(sum, value)| *sum += weight * value);
        }
        sum.iter().map(|sum| sum / weights).collect()
    }
}

#[test]
fn long_after_the_ring_has_wrapped_the_prompts_keys_are_still_seen() {
    /// f32 arithmetic against f64, values of about 1.
    const TOLERANCE: f64 = 2e-5;
    let (dim, context, period) = (16, 24, 10_000.0_f32);
    for pinned in [1, 5, 12] {
        let mut noise = 7_u32;
        let mut random = || {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from((noise >> 8) as f32 / (1 << 22) as f32 - 2.0)
        };
        let mut vector = || (0..dim).map(|_| random()).collect::<Vec<f64>>();
        let kept = Kept {
            qkv: (0..200).map(|_| [vector(), vector(), vector()]).collect(),
            pinned,
            context,
            period: period.into(),
        };
        let mut backend = Native::new(Dtype::F32, KvDtype::F32, 1);
        let heads = Heads {
            count: 1,
            dim,
            rope_max_period: Some(period),
        };
        let mut ring = backend.ring(2, heads, context, false).unwrap();
        let window = Window {
            context,
            rule: RingRule::Full,
        };
        for position in 0..kept.qkv.len() {
            let flat: Vec<f32> = kept.qkv[position]
                .iter()
                .flatten()
                .map(|&v| v as f32)
                .collect();
            let (mut qkv, mut out) = (Vec::new(), Vec::new());
            backend.upload(&flat, 3 * dim, &mut qkv).unwrap();
            let query = window.pinned_query(1, position as u64, pinned);
            let order = WriteOrder::AllThenAttend;
            backend
                .attend(&mut ring, &[query], order, &qkv, &mut out)
                .unwrap();
            for (found, expected) in out.iter().zip(kept.answer(position)) {
                let off = (f64::from(*found) - expected).abs();
                assert!(
                    off < TOLERANCE,
                    "{pinned} pinned, position {position}: off by {off}"
                );
            }
        }
    }
}
