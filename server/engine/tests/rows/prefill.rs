//! Reading a prompt: how many calls it takes, in chunks of which length, and that nobody else notices.

use engine::voice_model::{EngineOptions, Order};
use slots::call::Sampling;
use slots::engine::{Engine, FrameKind, Readiness, SeatError};

use crate::callers::{CALLERS, CONTEXT, FIXTURE};
use crate::switchboard::{Machine, Switchboard, assert_same, slot};

const FRAMES: usize = 2 * CONTEXT;

#[test]
fn a_known_prompt_is_live_after_one_call_or_at_once_and_a_new_one_after_its_chunks() {
    let cases = [
        // order, chunk, calls that lead in
        (Order::Sooner, 8, 1),
        (Order::Sooner, 1_000, 1),
        (Order::Overlapped, 8, 0),
        (Order::Overlapped, 32, 0),
    ];
    for (order, chunk, lead_in) in cases {
        let mut board = Switchboard::with(&FIXTURE, Machine::f32(1), 2, |options| {
            options.order = order;
            options.prefill_chunk = chunk;
        });
        for guest in &*CALLERS {
            let what = format!("{}, {order:?}, chunks of {chunk}", guest.name);
            let chunks = guest.prompt.positions().div_ceil(chunk) as u32;
            let mut ready = board.seat(0, guest);
            for left in (1..=chunks + lead_in).rev() {
                assert_eq!(ready, Readiness::Prefill { chunks_left: left }, "{what}");
                ready = board.prefill(0);
            }
            assert_eq!(ready, Readiness::Live, "{what}");
            assert_eq!(
                board.prefill(0),
                Readiness::Live,
                "{what}: nothing is left to read"
            );

            // Known now, also for other rows and other ways to draw.
            assert_eq!(board.join(1, guest), lead_in, "{what}");
            let greedy = guest.with_sampling(Sampling::greedy());
            assert_eq!(board.join(0, &greedy), lead_in, "{what}");
        }
        let counters = board.model.counters();
        let guests = CALLERS.len() as u64;
        assert_eq!(counters.prompt_cache_misses, guests);
        assert_eq!(counters.prompt_cache_hits, 2 * guests);
        assert!(counters.prompt_cache_bytes > 0);
    }
}

#[test]
fn a_prompt_abandoned_in_the_middle_is_not_known() {
    let guest = &CALLERS[0];
    let mut board = Switchboard::with(&FIXTURE, Machine::f32(1), 1, |options| {
        options.prefill_chunk = 8;
    });
    board.seat(0, guest);
    board.prefill(0);
    board.leave(0);
    assert_eq!(
        board.join(0, guest),
        guest.prompt.positions().div_ceil(8) as u32 + 1
    );
}

#[test]
fn a_cache_too_small_reads_every_prompt_anew_and_stays_within_its_bytes() {
    let guest = &CALLERS[0];
    let one = {
        let mut board = Switchboard::new(&FIXTURE, Machine::f32(1), 1);
        board.join(0, guest);
        board.model.counters().prompt_cache_bytes
    };
    for (cache_bytes, hits) in [(0, 0), (one as usize - 1, 0), (one as usize, 1)] {
        let mut board = Switchboard::with(&FIXTURE, Machine::f32(1), 1, |options| {
            options.prompt_cache_bytes = cache_bytes;
        });
        for _ in 0..2 {
            board.join(0, guest);
        }
        let counters = board.model.counters();
        assert_eq!(counters.prompt_cache_hits, hits, "{cache_bytes} bytes");
        assert!(counters.prompt_cache_bytes as usize <= cache_bytes);
    }
}

#[test]
fn the_length_of_chunks_changes_no_bit() {
    for guest in &*CALLERS {
        let calls = [8, 32, 1_000, 1, EngineOptions::PREFILL_CHUNK].map(|chunk| {
            let mut board = Switchboard::with(&FIXTURE, Machine::f32(1), 1, |options| {
                options.prefill_chunk = chunk;
            });
            board.whole_call(0, guest, FRAMES)
        });
        for call in &calls[1..] {
            assert_same(call, &calls[0], guest.name);
        }
    }
}

#[test]
fn chunks_of_two_joiners_and_ticks_of_a_live_row_interleave_without_a_trace() {
    for threads in [1, 2] {
        let machine = Machine::f32(threads);
        let alone = |number: usize| {
            Switchboard::new(&FIXTURE, machine, 1).whole_call(0, &CALLERS[number], FRAMES)
        };
        let expected = [alone(1), alone(0), alone(4)];
        let mut board = Switchboard::with(&FIXTURE, machine, 3, |options| {
            options.prefill_chunk = 8;
        });
        board.join(0, &CALLERS[1]);
        let mut ready = [
            Readiness::Live,
            board.seat(1, &CALLERS[0]),
            board.seat(2, &CALLERS[4]),
        ];
        let mut frames = [0; 3];
        let mut tick = 0;
        while frames != [FRAMES; 3] {
            for row in [1, 2] {
                // The second joiner reads two chunks a tick, the first one every other tick.
                let chunks = if row == 2 { 2 } else { tick % 2 };
                for _ in 0..chunks {
                    ready[row] = board.prefill(row);
                }
            }
            let live: Vec<usize> = (0..3)
                .filter(|&row| ready[row] == Readiness::Live && frames[row] < FRAMES)
                .collect();
            board.tick(&live);
            live.iter().for_each(|&row| frames[row] += 1);
            tick += 1;
        }
        for (row, expected) in expected.iter().enumerate() {
            assert_same(
                &board.leave(row),
                expected,
                &format!("row {row}, {threads} threads"),
            );
        }
    }
}

#[test]
fn a_row_that_still_reads_takes_no_part_in_a_tick_that_names_it() {
    let (live, joiner) = (&CALLERS[1], &CALLERS[0]);
    let expected = [live, joiner]
        .map(|guest| Switchboard::new(&FIXTURE, Machine::f32(1), 1).whole_call(0, guest, FRAMES));
    let mut board = Switchboard::with(&FIXTURE, Machine::f32(1), 3, |options| {
        options.prefill_chunk = 8;
    });
    board.join(0, live);
    board.seat(1, joiner);
    board.seat(2, joiner);
    board.leave(2);
    while board.prefill(1) != Readiness::Live {
        // Row 1 still reads and row 2 is free.
        board.tick(&[0, 1, 2]);
        assert_eq!(board.last(1).kind, FrameKind::Idle);
    }
    board.ticks(1, FRAMES);
    let heard = board.leave(0);
    assert!(heard.len() > 5, "the joiner's prompt takes some ticks");
    assert_same(&heard, &expected[0][..heard.len()], live.name);
    assert_same(&board.leave(1), &expected[1], joiner.name);
}

#[test]
fn a_prompt_beyond_the_limit_is_refused_and_leaves_the_row_free() {
    let guest = &CALLERS[0];
    let positions = guest.prompt.positions();
    let mut board = Switchboard::with(&FIXTURE, Machine::f32(1), 1, |options| {
        options.positions_max = positions - 1;
    });
    let refused = board.model.seat(slot(0), guest.voice_call());
    let Err(SeatError::PromptTooLong {
        positions: found,
        positions_max,
    }) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!((found, positions_max), (positions, positions - 1));
    board.tick(&[]);
    let serving = EngineOptions::serving(FIXTURE.config(), 1);
    assert_eq!(serving.positions_max, CONTEXT / 2, "what callers are told");
}
