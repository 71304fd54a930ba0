//! A row that somebody used before is as good as new.

use engine::tokenizer::Piece;
use slots::call::Sampling;
use slots::engine::{Engine, FrameKind};

use crate::callers::{CALLERS, CONTEXT, Caller, DEMO, FIXTURE, POISON, caller, poison, sampled};
use crate::switchboard::{Machine, Switchboard, assert_same, text_tokens};

const FRAMES: usize = 3 * CONTEXT + 4;

/// How the row was used before.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// The predecessor left while the prompt was read.
    ChunksRead(u32),
    /// The predecessor spoke for so many frames.
    Frames(usize),
    /// The predecessor's row failed.
    Fault,
}

const BEFORE: [Before; 7] = [
    Before::ChunksRead(0),
    Before::ChunksRead(1),
    Before::ChunksRead(3),
    Before::Frames(1),
    Before::Frames(CONTEXT - 1),
    Before::Frames(2 * CONTEXT + 3),
    Before::Fault,
];

fn use_row(board: &mut Switchboard, row: usize, by: &Caller, poison: &Caller, before: Before) {
    match before {
        Before::ChunksRead(chunks) => {
            board.seat(row, by);
            for _ in 0..chunks {
                board.prefill(row);
            }
        }
        Before::Frames(frames) => {
            board.join(row, by);
            board.ticks(row, frames);
        }
        Before::Fault => {
            board.join(row, poison);
            board.ticks(row, 3);
            let fault = board.last(row).kind;
            assert!(matches!(fault, FrameKind::Fault(_)), "{fault:?}");
        }
    }
    board.leave(row);
}

/// Plays each caller on a row used in each way, with an empty cache of prompts and from a snapshot.
fn check(threads: usize, cache_bytes: usize) {
    let machine = Machine::f32(threads);
    for (at, guest) in CALLERS.iter().enumerate() {
        let fresh = Switchboard::new(&FIXTURE, machine, 1).whole_call(0, guest, FRAMES);
        let mut board = Switchboard::with(&FIXTURE, machine, 3, |options| {
            options.prompt_cache_bytes = cache_bytes;
            options.prefill_chunk = 8;
        });
        for (use_number, before) in BEFORE.into_iter().enumerate() {
            // Every predecessor once, in every row once; now and then the same caller again.
            let (row, by) = (use_number % 3, &CALLERS[(at + use_number) % CALLERS.len()]);
            use_row(&mut board, row, by, &POISON, before);
            let hits = board.model.counters().prompt_cache_hits;
            let call = board.whole_call(row, guest, FRAMES);
            let what = format!("{} after {} ({before:?})", guest.name, by.name);
            assert_same(&call, &fresh, &what);
            let restored = board.model.counters().prompt_cache_hits > hits;
            assert!(!restored || cache_bytes > 0);
            // From the second call on the prompt is known, whichever row read it.
            assert!(restored || cache_bytes == 0 || use_number == 0);
        }
    }
}

#[test]
fn a_recycled_row_is_a_fresh_one_for_the_whole_call_when_the_prompt_is_read() {
    check(1, 0);
}

#[test]
fn a_recycled_row_is_a_fresh_one_for_the_whole_call_when_a_snapshot_is_restored() {
    check(2, 64 << 20);
}

#[test]
fn the_tenth_caller_of_a_row_hears_what_the_first_would_have() {
    let mut board = Switchboard::new(&FIXTURE, Machine::f32(1), 2);
    for round in 0..2 {
        for guest in &*CALLERS {
            let fresh = Switchboard::new(&FIXTURE, Machine::f32(1), 1).whole_call(0, guest, 30);
            let call = board.whole_call(1, guest, 30);
            assert_same(&call, &fresh, &format!("{} in round {round}", guest.name));
        }
    }
}

#[test]
fn half_a_character_is_not_left_to_the_next_holder() {
    let board = || Switchboard::new(&FIXTURE, Machine::f32(1), 1);
    // Bytes from 0xc2 to 0xf4 begin a character of two to four bytes.
    let begins = |token: &u32| matches!(FIXTURE.tokenizer().piece(*token), Some(Piece::Byte(byte)) if (0xc2..=0xf4).contains(byte));
    let with_a_start = CALLERS.iter().find_map(|caller| {
        let tokens = text_tokens(board(), caller, FRAMES);
        Some((caller, tokens.iter().position(begins)?))
    });
    // Model call `n` runs ahead of the caller's frame `n`, which brings its token.
    let (caller, frame) = with_a_start.expect("random weights say bytes, too");
    for guest in &*CALLERS {
        let mut used = board();
        used.whole_call(0, caller, frame + 1);
        let fresh = board().whole_call(0, guest, 5);
        assert_same(&used.whole_call(0, guest, 5), &fresh, guest.name);
    }
}

#[test]
fn the_demos_personas_and_voices_are_the_same_on_a_recycled_row() {
    let machine = Machine::f32(2);
    let personas = [
        (
            "museum",
            "NATF0",
            "You are a museum guide.",
            Sampling::greedy(),
        ),
        (
            "pizza",
            "NATM0",
            "You take orders for a pizza place.",
            sampled(7),
        ),
        ("no text", "NATM0", "", sampled(8)),
    ];
    let guests: Vec<Caller> = (1..)
        .zip(personas)
        .map(|(mic, (name, voice, text, sampling))| {
            caller(&DEMO, name, Some(voice), text, sampling, mic)
        })
        .collect();
    let poison = poison(&DEMO);
    let mut board = Switchboard::new(&DEMO, machine, 2);
    // The second call of each guest comes from a snapshot, in the other row.
    let uses = [
        (0, 0, Before::Frames(40)),
        (1, 0, Before::Fault),
        (2, 1, Before::ChunksRead(1)),
        (0, 1, Before::Fault),
        (1, 1, Before::Frames(3)),
        (2, 0, Before::Frames(1)),
    ];
    let frames = 80;
    let fresh: Vec<_> = guests
        .iter()
        .map(|guest| Switchboard::new(&DEMO, machine, 1).whole_call(0, guest, frames))
        .collect();
    for (guest, row, before) in uses {
        use_row(&mut board, row, &guests[(guest + 1) % 3], &poison, before);
        let call = board.whole_call(row, &guests[guest], frames);
        let what = format!("{} in row {row} after {before:?}", guests[guest].name);
        assert_same(&call, &fresh[guest], &what);
    }
}

#[test]
fn a_demo_call_is_the_same_on_a_recycled_row_after_the_window_has_wrapped() {
    let machine = Machine::f32(1);
    let guest = caller(
        &DEMO,
        "museum",
        Some("NATF0"),
        "You are a museum guide.",
        sampled(9),
        1,
    );
    let frames = DEMO.config().lm.context + 20;
    let mut board = Switchboard::new(&DEMO, machine, 1);
    let fresh = board.whole_call(0, &guest, frames);
    let recycled = board.whole_call(0, &guest, frames);
    assert_same(
        &recycled,
        &fresh,
        "the same call again, on a window that has wrapped",
    );
}
