//! Both orders inside a tick say the same, one frame apart.

use engine::voice_model::Order;
use slots::engine::FrameKind;

use crate::callers::{CALLERS, CONTEXT, Caller, DEMO, FIXTURE, caller, sampled};
use crate::switchboard::{Call, Machine, Switchboard, assert_same, text};
use engine::weights::Checkpoint;

fn hear(checkpoint: &Checkpoint, order: Order, guest: &Caller, frames: usize) -> Call {
    let mut board = Switchboard::with(checkpoint, Machine::f32(1), 2, |options| {
        options.order = order;
    });
    board.whole_call(1, guest, frames)
}

fn check(checkpoint: &Checkpoint, guest: &Caller, frames: usize) {
    let sooner = hear(checkpoint, Order::Sooner, guest, frames);
    let overlapped = hear(checkpoint, Order::Overlapped, guest, frames + 1);
    assert_same(&sooner, &overlapped[1..], guest.name);
    assert!(sooner.iter().all(|heard| heard.kind == FrameKind::Live));
    assert_eq!(overlapped[0].kind, FrameKind::Live);
    assert_eq!(
        overlapped[0].text, "",
        "the first frame is forced by the prompt"
    );
    assert_eq!(text(&sooner), text(&overlapped));
}

#[test]
fn sooner_and_overlapped_say_the_same_one_frame_apart() {
    for guest in &*CALLERS {
        check(&FIXTURE, guest, 3 * CONTEXT);
    }
}

#[test]
fn sooner_and_overlapped_say_the_same_one_frame_apart_with_the_demo() {
    let museum = "You are a museum guide.";
    let guest = caller(&DEMO, "museum", Some("NATF0"), museum, sampled(5), 1);
    check(&DEMO, &guest, 60);
}
