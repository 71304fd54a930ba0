//! How a row chooses its tokens is its caller's matter alone.

use engine::voices::VoiceBundle;
use slots::call::Sampling;

use crate::callers::{CALLERS, CONTEXT, Caller, FIXTURE, caller, made_voice, sampled};
use crate::switchboard::{Call, Machine, Switchboard, assert_same, text, text_tokens};

const FRAMES: usize = 3 * CONTEXT;

fn alone(guest: &Caller) -> Call {
    Switchboard::new(&FIXTURE, Machine::f32(1), 1).whole_call(0, guest, FRAMES)
}

/// Spoken text tokens of a call.
fn spoken(guest: &Caller, frames: usize) -> Vec<u32> {
    let board = Switchboard::new(&FIXTURE, Machine::f32(1), 1);
    let mut tokens = text_tokens(board, guest, frames);
    tokens.retain(|id| !FIXTURE.config().text.silent_ids.contains(id));
    tokens
}

#[test]
fn four_callers_with_four_voices_and_settings_at_once_each_hear_their_own_call() {
    let bundle = |name| VoiceBundle::clone(FIXTURE.voices().get(name).unwrap().1);
    let mut low = bundle("NATF0");
    low.embeddings.iter_mut().for_each(|value| *value *= 0.5);
    let other = Caller {
        name: "made voice",
        prompt: made_voice(&FIXTURE, "LOW", low, &CALLERS[3].prompt.text_ids),
        ..CALLERS[3].clone()
    };
    let guests = [&CALLERS[0], &CALLERS[1], &CALLERS[2], &other];
    for threads in [1, 2] {
        let mut board = Switchboard::new(&FIXTURE, Machine::f32(threads), 4);
        for (row, guest) in guests.iter().enumerate() {
            board.join(row, guest);
        }
        (0..FRAMES).for_each(|_| board.tick(&[0, 1, 2, 3]));
        for (row, guest) in guests.iter().enumerate() {
            assert_same(&board.leave(row), &alone(guest), guest.name);
        }
    }
}

#[test]
fn callers_who_differ_in_the_voice_alone_hear_different_calls_side_by_side() {
    let text = "Hello.";
    let guests = [Some("NATF0"), Some("NATM0"), None].map(|voice| {
        caller(
            &FIXTURE,
            "same but for the voice",
            voice,
            text,
            sampled(1),
            1,
        )
    });
    let mut board = Switchboard::new(&FIXTURE, Machine::f32(1), 3);
    for (row, guest) in guests.iter().enumerate() {
        board.join(row, guest);
    }
    (0..FRAMES).for_each(|_| board.tick(&[0, 1, 2]));
    let calls = [0, 1, 2].map(|row| board.leave(row));
    for (call, guest) in calls.iter().zip(&guests) {
        assert_same(call, &alone(guest), &format!("{:?}", guest.prompt.voice));
    }
    assert!(calls[0] != calls[1] && calls[1] != calls[2] && calls[0] != calls[2]);
}

#[test]
fn a_waiting_callers_prompt_never_becomes_somebody_elses() {
    // One is live, two more come with prompts of their own, the first leaves and the second takes that row.
    let [first, second, third] = [&CALLERS[1], &CALLERS[0], &CALLERS[4]];
    let mut board = Switchboard::with(&FIXTURE, Machine::f32(1), 3, |options| {
        options.prefill_chunk = 16;
    });
    board.join(0, first);
    board.ticks(0, 5);
    board.seat(1, third);
    board.prefill(1);
    board.leave(0);
    board.seat(0, second);
    board.prefill(0);
    board.join(2, third);
    for row in [1, 0] {
        while board.prefill(row) != slots::engine::Readiness::Live {}
    }
    (0..FRAMES).for_each(|_| board.tick(&[0, 1, 2]));
    for (row, guest) in [(0, second), (1, third), (2, third)] {
        assert_same(&board.leave(row), &alone(guest), &format!("row {row}"));
    }
}

#[test]
fn the_seed_decides_and_greedy_callers_have_none() {
    let guest = &CALLERS[1];
    let with = |sampling| alone(&guest.with_sampling(sampling));
    let calls = [0, 1, 2, u64::MAX, 1 << 32].map(|seed| with(sampled(seed)));
    for (at, call) in calls.iter().enumerate() {
        assert!(
            calls[at + 1..].iter().all(|other| call != other),
            "seed {at}"
        );
    }
    assert_same(&with(sampled(2)), &calls[2], "the same seed again");

    let greedy = |seed| Sampling {
        seed,
        ..Sampling::greedy()
    };
    assert_same(
        &with(greedy(1)),
        &with(greedy(2)),
        "greedy with another seed",
    );
    let only_the_best = Sampling {
        text_top_k: 1,
        audio_top_k: 1,
        ..sampled(3)
    };
    assert_same(&with(only_the_best), &with(greedy(0)), "top-k 1 is greedy");
}

#[test]
fn temperature_and_top_k_are_a_rows_own() {
    let guest = &CALLERS[1];
    let base = sampled(5);
    let others = [
        Sampling {
            text_temperature: 1.5,
            ..base
        },
        Sampling {
            audio_temperature: 1.5,
            ..base
        },
        Sampling {
            text_top_k: 2,
            ..base
        },
        Sampling {
            audio_top_k: 2,
            ..base
        },
    ];
    let mut board = Switchboard::new(&FIXTURE, Machine::f32(1), 5);
    let settings: Vec<Sampling> = others.into_iter().chain([base]).collect();
    for (row, &sampling) in settings.iter().enumerate() {
        board.join(row, &guest.with_sampling(sampling));
    }
    (0..FRAMES).for_each(|_| board.tick(&[0, 1, 2, 3, 4]));
    let calls: Vec<Call> = (0..5).map(|row| board.leave(row)).collect();
    for (call, &sampling) in calls.iter().zip(&settings) {
        assert_same(
            call,
            &alone(&guest.with_sampling(sampling)),
            &format!("{sampling:?}"),
        );
    }
    for (call, sampling) in calls.iter().zip(others) {
        assert!(*call != calls[4], "{sampling:?} is not the default");
    }
}

#[test]
fn a_repetition_penalty_of_one_changes_nothing_and_a_large_one_reduces_repeats() {
    let guest = &CALLERS[1];
    let with = |penalty, context, base| {
        guest.with_sampling(Sampling {
            repetition_penalty: penalty,
            repetition_penalty_context: context,
            ..base
        })
    };
    let plain = alone(&with(1.0, 0, sampled(1)));
    for (penalty, context) in [(1.0, 64), (1.0, 500), (10.0, 0)] {
        let call = alone(&with(penalty, context, sampled(1)));
        assert_same(&call, &plain, &format!("penalty {penalty} over {context}"));
    }
    assert!(!text(&plain).is_empty());

    let frames = 10 * CONTEXT;
    let repeats = |penalty| {
        let narrow = Sampling {
            text_top_k: 4,
            text_temperature: 0.3,
            ..sampled(1)
        };
        let said = spoken(&with(penalty, 64, narrow), frames);
        assert!(said.len() > frames / 2, "{} tokens were said", said.len());
        let again = |at: usize| said[at.saturating_sub(64)..at].contains(&said[at]);
        (0..said.len()).filter(|&at| again(at)).count()
    };
    let (without, with) = (repeats(1.0), repeats(10.0));
    assert!(
        2 * with < without,
        "{without} repeats without a penalty, {with} with one"
    );
}
