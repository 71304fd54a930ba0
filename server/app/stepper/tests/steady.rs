//! The tick allocates nothing and frees nothing, whoever joins, talks or leaves.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use super::*;
use slots::testing::Speech;

/// Counts what each thread asks of the allocator.
struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

fn note() {
    // A thread that is ending has no counter any more, and nobody asks for it.
    let _ = ASKED.try_with(|asked| asked.set(asked.get() + 1));
}

// SAFETY: every call goes unchanged to the system's allocator; the counter neither allocates nor unwinds.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note();
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What `work` asks of the allocator.
fn asked(work: impl FnOnce()) -> u64 {
    let before = ASKED.get();
    work();
    ASKED.get() - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(asked(|| drop(Box::new([0u8; 100]))), 2);
}

#[test]
fn a_tick_asks_nothing_of_the_allocator() {
    let engine = ScriptedEngine::new(Speech::Untouched).with_capacity(16);
    let mut house = House::new(engine);
    let call = ScriptedCall {
        chunks: 2,
        ..ScriptedCall::default()
    };
    let mut seats: Vec<_> = (0..16).map(|session| house.ask(session, 0, call)).collect();
    for tick in 0..300u32 {
        for seat in &mut seats {
            // More than a frame a tick now and then, so that frames are dropped and skipped as well.
            for _ in 0..=u32::from(tick % 9 == 0) {
                seat.mic.push(&frame(0.1));
            }
            if tick % 40 != 7 {
                events(seat);
            }
        }
        match tick % 20 {
            // A caller leaves, another comes, one comes back on a newer connection, one waits in vain.
            5 => drop(seats.remove(0)),
            6 => seats.push(house.ask(1_000 + u128::from(tick), 0, call)),
            9 => seats.push(house.ask(1_000 + u128::from(tick - 3), 1, call)),
            12 => drop(house.ask(5_000, 0, call)),
            _ => {}
        }
        let asked = asked(|| {
            let next = house.stepper.tick().and_then(|_| house.stepper.rest());
            assert!(next.is_ok());
        });
        assert_eq!(asked, 0, "tick {tick}");
        house.stepper.run_errands();
    }
    assert!(house.log.seated() > 30 && house.log.steps() > 290);
}
