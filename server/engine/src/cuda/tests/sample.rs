//! The draw of a GPU against the CPU's, token by token.

use slots::call::Sampling;

use super::{Numbers, gpu, up};
use crate::backend::{Backend, Board, Draw, on_board};
use crate::sampling::{RowSampler, Scratch};

const SLOT: usize = 3;

/// What every lane chose: token that goes on, choice, fault.
fn drawn(draws: &[Draw<'_>], logits: &[f32]) -> Vec<(i32, i32, bool)> {
    let mut b = gpu();
    let logits = up(&mut b, logits, logits.len() / draws.len());
    b.choose_to(draws, &logits, SLOT).expect("a draw");
    let mut board = Board::default();
    b.read_board(&mut board).expect("the board");
    (0..draws.len())
        .map(|lane| {
            (
                board.token(SLOT, lane),
                board.chosen(SLOT, lane),
                board.is_fault(SLOT, lane),
            )
        })
        .collect()
}

fn plain(sampling: &Sampling, position: u64) -> Draw<'_> {
    Draw {
        active: true,
        seed: sampling.seed,
        position,
        stream: 0,
        temperature: sampling.text_temperature,
        top_k: sampling.text_top_k,
        penalty: 1.0,
        recent: &[],
        forced: None,
    }
}

#[test]
fn the_same_logits_give_the_same_token_as_on_the_cpu() {
    let mut numbers = Numbers(17);
    let mut scratch = Scratch::default();
    for (count, top_k, temperature) in [
        (5, 3, 0.7),
        (48, 25, 0.7),
        (300, 300, 1.3),
        (2_048, 250, 0.8),
        (32_000, 25, 0.7),
        (32_000, 1, 0.7),
        (400, 100, 0.0),
        (400, 4_000, 5.0),
        (400, 25, 1e-40),
    ] {
        for round in 0..12u64 {
            // Few different values, so that many tie at the k-th.
            let mut logits: Vec<f32> = numbers.take(count);
            for logit in &mut logits {
                *logit = match round % 3 {
                    0 => *logit * 9.0,
                    1 => (*logit * 4.0).round(),
                    _ if *logit < -0.5 => f32::NEG_INFINITY,
                    _ => (*logit * 20.0).round() / 4.0,
                };
            }
            let sampling = Sampling {
                text_temperature: temperature,
                text_top_k: top_k,
                seed: numbers.next() << 20 ^ round,
                repetition_penalty: if round % 2 == 0 { 1.0 } else { 1.7 },
                repetition_penalty_context: 8,
                ..Sampling::default()
            };
            let mut row = RowSampler::new(sampling);
            for _ in 0..round {
                row.said(numbers.below(count) as u32);
            }
            let position = (round << 33) + 7;
            let expected = row.text(position, &logits, &mut scratch);
            let draw = Draw {
                penalty: sampling.repetition_penalty,
                recent: row.recent(),
                ..plain(&sampling, position)
            };
            let found = drawn(&[draw], &logits)[0];
            let what = format!("{count} logits, top {top_k}, {temperature}, round {round}");
            match expected {
                Ok(token) => assert_eq!(found, (token as i32, token as i32, false), "{what}"),
                Err(_) => assert!(found.2, "{what}"),
            }
        }
    }
}

#[test]
fn logits_that_are_no_numbers_to_choose_from_are_a_fault_of_their_lane_alone() {
    let sampling = Sampling::default();
    let good = [0.0, 1.0, 2.0];
    for bad in [
        [0.0, f32::NAN, 1.0],
        [f32::INFINITY, 0.0, 1.0],
        [f32::NEG_INFINITY; 3],
    ] {
        let draws = [
            plain(&sampling, 1),
            plain(&sampling, 1),
            plain(&sampling, 1),
        ];
        let logits = [good, bad, good].concat();
        let found = drawn(&draws, &logits);
        assert!(found[1].2, "{bad:?}");
        assert_eq!(found[0], found[2]);
        assert!(!found[0].2);
    }
}

#[test]
fn what_is_forced_goes_on_and_the_choice_is_kept_beside_it() {
    let sampling = Sampling::greedy();
    let forced = Draw {
        forced: Some(2),
        ..plain(&sampling, 0)
    };
    let idle = Draw {
        active: false,
        ..forced
    };
    let logits = [1.0, 3.0, 2.0, f32::NAN, 3.0, 2.0];
    assert_eq!(
        drawn(&[forced, idle], &logits),
        [(2, 1, false), (0, 0, false)]
    );

    // Also what another slot of the board holds.
    let mut b = gpu();
    let first = up(&mut b, &[0.0, 0.0, 9.0], 3);
    b.choose_to(&[plain(&sampling, 0)], &first, 0)
        .expect("a draw");
    let chained = Draw {
        forced: Some(on_board(0)),
        ..plain(&sampling, 0)
    };
    let second = up(&mut b, &[9.0, 0.0, 0.0], 3);
    b.choose_to(&[chained], &second, 1).expect("a draw");
    let mut board = Board::default();
    b.read_board(&mut board).expect("the board");
    assert_eq!((board.token(1, 0), board.chosen(1, 0)), (2, 0));
}
