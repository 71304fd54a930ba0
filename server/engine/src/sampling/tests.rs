//! Draws against their distribution, ties, temperatures, penalties, and numbers that must be refused.

use super::*;

const VOCABULARY: usize = 300;

/// Logits with a spread of a few units, the same for the same `name`.
fn logits(name: u32) -> Vec<f32> {
    let value = |index: u32| 6.0 * uniform(philox([index, name, 0, 0], [1, 2])[0]) - 3.0;
    (0..VOCABULARY as u32).map(value).collect()
}

fn sampler(sampling: Sampling) -> RowSampler {
    RowSampler::new(sampling.check().expect("in range"))
}

#[test]
fn draws_follow_the_distribution_that_temperature_and_top_k_leave() {
    // Chi-square of 60,000 draws. The bound is 6 standard deviations above the mean of the statistic, for any seed.
    const DRAWS: u64 = 60_000;
    let mut scratch = Scratch::default();
    for (seed, temperature, top_k) in [
        (1, 0.7, 25),
        (2, 0.8, 250),
        (3, 1.3, VOCABULARY as u32),
        (4, 0.3, 5),
        (u64::MAX, 5.0, 100),
    ] {
        let row = sampler(Sampling {
            audio_temperature: temperature,
            audio_top_k: top_k,
            seed,
            ..Sampling::default()
        });
        let logits = logits(seed as u32);
        let expected = probabilities(&logits, temperature, top_k).unwrap();
        let mut counts = vec![0_u32; VOCABULARY];
        for position in 0..DRAWS {
            let step = (position % 8) as usize;
            let token = row.audio(position, step, &logits, &mut scratch).unwrap();
            counts[token as usize] += 1;
        }
        // Rare tokens are one class, since the statistic needs a few of each.
        let (mut rare_count, mut rare_expected) = (0.0, 0.0);
        let (mut statistic, mut classes) = (0.0, 0.0);
        let mut add = |count: f64, expected: f64| {
            statistic += (count - expected).powi(2) / expected;
            classes += 1.0;
        };
        for (&count, &probability) in counts.iter().zip(&expected) {
            let expected = f64::from(probability) * DRAWS as f64;
            if expected == 0.0 {
                assert_eq!(count, 0, "only the {top_k} most probable are drawn");
            } else if expected < 10.0 {
                rare_count += f64::from(count);
                rare_expected += expected;
            } else {
                add(count.into(), expected);
            }
        }
        if rare_expected >= 10.0 {
            add(rare_count, rare_expected);
        }
        let freedom: f64 = classes - 1.0;
        let bound = freedom + 6.0 * (2.0 * freedom).sqrt();
        assert!(
            statistic < bound,
            "seed {seed}: {statistic} of {freedom} degrees of freedom"
        );
    }
}

#[test]
fn the_same_seed_draws_the_same_and_another_seed_does_not() {
    let draws = |seed| {
        let row = sampler(Sampling {
            seed,
            ..Sampling::default()
        });
        let mut scratch = Scratch::default();
        (0..200)
            .map(|position| row.text(position, &logits(9), &mut scratch).unwrap())
            .collect::<Vec<u32>>()
    };
    assert_eq!(draws(5), draws(5));
    assert_ne!(draws(5), draws(6));
    assert_ne!(draws(5), draws(5 + (1 << 32)), "the upper half counts too");
}

#[test]
fn streams_and_positions_of_a_row_are_independent() {
    let row = sampler(Sampling {
        audio_temperature: 2.0,
        ..Sampling::default()
    });
    let mut scratch = Scratch::default();
    let logits = logits(3);
    let mut draw = |position, step| row.audio(position, step, &logits, &mut scratch).unwrap();
    let by_step: Vec<u32> = (0..16).map(|step| draw(0, step)).collect();
    let by_position: Vec<u32> = (0..16).map(|position| draw(position, 0)).collect();
    let far: Vec<u32> = (0..16)
        .map(|position| draw(position + (1 << 32), 0))
        .collect();
    assert_ne!(by_step, by_position);
    assert_ne!(by_position, far);
}

#[test]
fn one_candidate_or_no_temperature_is_the_greedy_choice() {
    let mut scratch = Scratch::default();
    for name in 0..50 {
        let logits = logits(name);
        let greedy = greedy(&logits).unwrap();
        for (temperature, top_k) in [(0.0, 250), (5.0, 1), (1e-6, 250), (1e-40, 250)] {
            let row = sampler(Sampling {
                text_temperature: temperature,
                text_top_k: top_k,
                ..Sampling::default()
            });
            let drawn = row.text(u64::from(name), &logits, &mut scratch).unwrap();
            assert_eq!(drawn, greedy, "temperature {temperature}, top-k {top_k}");
        }
    }
}

#[test]
fn the_lowest_index_wins_a_tie() {
    assert_eq!(greedy(&[1.0, 2.0, 2.0, -0.0]), Ok(1));
    assert_eq!(greedy(&[-0.0, 0.0]), Ok(0));
}

#[test]
fn minus_infinity_is_never_drawn_and_anything_else_that_is_not_finite_is_a_fault() {
    let row = sampler(Sampling {
        text_temperature: 5.0,
        ..Sampling::default()
    });
    let mut scratch = Scratch::default();
    let hole = [f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY, 1.0];
    for position in 0..200 {
        let drawn = row.text(position, &hole, &mut scratch).unwrap();
        assert!(drawn % 2 == 1, "token {drawn} has no probability");
    }
    for broken in [
        &[1.0, f32::NAN][..],
        &[f32::INFINITY, 1.0],
        &[f32::NEG_INFINITY; 3],
        &[-f32::NAN, 0.0],
        &[],
    ] {
        assert_eq!(row.text(0, broken, &mut scratch), Err(RowFault::NotFinite));
        assert_eq!(greedy(broken), Err(RowFault::NotFinite));
        assert_eq!(probabilities(broken, 0.7, 25), Err(RowFault::NotFinite));
    }
}

#[test]
fn the_penalty_holds_tokens_back_that_were_said_within_its_context() {
    let mut row = sampler(Sampling {
        repetition_penalty: 2.0,
        repetition_penalty_context: 2,
        ..Sampling::greedy()
    });
    let mut scratch = Scratch::default();
    let logits = [3.0, 2.5, 2.0, -1.0];
    let mut said = Vec::new();
    for position in 0..5 {
        let token = row.text(position, &logits, &mut scratch).unwrap();
        said.push(token);
        row.said(token);
    }
    assert_eq!(
        said,
        [0, 1, 2, 0, 1],
        "a token comes back once its turn is over"
    );

    let mut negative = row.clone();
    negative.said(0);
    negative.said(0);
    let token = negative.text(9, &[-1.0, -1.5], &mut scratch).unwrap();
    assert_eq!(token, 1, "negative logits go down, and once only");
    let code = row.audio(9, 0, &logits, &mut scratch).unwrap();
    assert_eq!(code, 0, "codes are not penalized");
}

#[test]
fn without_a_penalty_nothing_is_held_back() {
    let mut row = sampler(Sampling::greedy());
    row.said(0);
    let mut scratch = Scratch::default();
    assert_eq!(row.text(0, &[3.0, 2.9], &mut scratch), Ok(0));
}
