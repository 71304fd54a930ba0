//! Calls of hours: nothing grows, and nothing is heard when a window wraps.

use slots::engine::FrameKind;

use crate::callers::{CALLERS, CONTEXT, DEMO, FIXTURE, caller, sampled};
use crate::heap;
use crate::switchboard::{Call, Machine, Switchboard, pcm};

#[test]
fn ten_thousand_frames_take_the_memory_of_a_hundred() {
    // One thread, so that this thread's heap is all of the engine's.
    let mut board = Switchboard::new(&FIXTURE, Machine::f32(1), 2);
    board.join(0, &CALLERS[2]);
    board.join(1, &CALLERS[1]);
    let mut steps = |count| {
        for _ in 0..count {
            board.step(&[0]);
            assert_eq!(board.last(0).kind, FrameKind::Live);
            assert!(board.last(0).pcm.iter().all(|sample| sample.is_finite()));
        }
    };
    steps(100);
    let before = heap::bytes();
    steps(9_900);
    assert_eq!(
        heap::bytes(),
        before,
        "bytes after 10,000 frames and after 100"
    );
}

#[test]
fn a_thousand_callers_take_the_memory_of_ten() {
    let mut board = Switchboard::with(&FIXTURE, Machine::f32(1), 2, |options| {
        options.prefill_chunk = 16;
    });
    let mut callers = |rounds: usize| {
        for round in 0..rounds {
            let guest = &CALLERS[round % CALLERS.len()];
            board.join(round % 2, guest);
            board.tick(&[round % 2]);
            board.leave(round % 2);
            // And one who leaves while the prompt is read.
            board.seat(round % 2, guest);
            board.leave(round % 2);
        }
    };
    callers(10);
    let before = heap::bytes();
    callers(1_000);
    assert_eq!(heap::bytes(), before);
}

/// The largest step from one sample to the next: inside frames, and from frame to frame.
fn steepest(call: &Call, frame_samples: usize) -> (f32, f32) {
    let samples = pcm(call);
    let (mut inside, mut between) = (0.0_f32, 0.0_f32);
    for (at, pair) in samples.windows(2).enumerate() {
        let step = (pair[1] - pair[0]).abs();
        let seam = (at + 1) % frame_samples == 0;
        let steepest = if seam { &mut between } else { &mut inside };
        *steepest = steepest.max(step);
    }
    (inside, between)
}

#[test]
fn no_click_is_heard_when_a_window_wraps() {
    let museum = caller(
        &DEMO,
        "museum",
        Some("NATF0"),
        "You are a museum guide.",
        sampled(3),
        1,
    );
    let cases = [
        (&*FIXTURE, &CALLERS[1], 6 * CONTEXT),
        (&*DEMO, &museum, DEMO.config().lm.context + 20),
    ];
    for (model, guest, frames) in cases {
        let call = Switchboard::new(model, Machine::f32(1), 1).whole_call(0, guest, frames);
        assert!(call.iter().all(|heard| heard.kind == FrameKind::Live));
        let (inside, between) = steepest(&call, slots::units::FRAME_SAMPLES);
        assert!(inside > 0.0, "{}: somebody speaks", guest.name);
        assert!(
            between <= inside,
            "{}: {between} between frames, {inside} inside",
            guest.name
        );
    }
}
