//! What the scheduler itself costs: one tick of 64 talking rows with an engine that takes no time.
//!
//! Claim: at most 60 microseconds a tick at the median, and not one allocation in steady state.
//! Repeat it with `cargo bench --bench tick`. No weights, no threads, no clock; the same frames in every run.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use slots::testing::{ScriptedCall, ScriptedEngine, Speech};
use slots::units::{FRAME_SAMPLES, SessionKey};
use vivavoce::stepper::by_hand::ByHand;
use vivavoce::stepper::clock::HandClock;
use vivavoce::stepper::handle::{JoinRequest, Seat, SeatEvent};

/// The house the claim speaks of, and two smaller ones to see what a row costs.
const SLOTS: [usize; 3] = [1, 16, 64];
/// Ticks before anything is measured: past the start of a call, where long queues are cut.
const WARMUP_TICKS: usize = 100;
/// Ticks whose lengths and allocations are printed, apart from what criterion measures.
const COUNTED_TICKS: usize = 2_000;

struct Counting;

static ASKED: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes unchanged to the system's allocator; the counter neither allocates nor unwinds.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.fetch_add(1, Relaxed);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ASKED.fetch_add(1, Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A full house in which everybody talks and listens.
struct House {
    stepper: ByHand<ScriptedEngine>,
    seats: Vec<Seat>,
    frame: [f32; FRAME_SAMPLES],
}

impl House {
    fn new(slots: usize) -> Self {
        // The engine leaves its buffers alone: what it would write is the engine's cost, not the scheduler's.
        let engine = ScriptedEngine::new(Speech::Untouched).with_capacity(slots);
        let (handle, stepper) = ByHand::new(engine, Arc::new(HandClock::free_running()));
        drop(handle);
        let ask = |session: usize| {
            let request = JoinRequest {
                call: ScriptedCall::default(),
                session: SessionKey(session as u128),
                generation: 0,
                may_wait: false,
            };
            stepper.ask(request).expect("there is a row for each")
        };
        let seats = (0..slots).map(ask).collect();
        let mut house = Self {
            stepper,
            seats,
            frame: [0.1; FRAME_SAMPLES],
        };
        for _ in 0..WARMUP_TICKS {
            house.callers();
            house.tick();
        }
        house
    }

    /// What the session tasks do in a tick's time: one frame in, one out. Not measured.
    fn callers(&mut self) {
        self.stepper.run_errands();
        for seat in &mut self.seats {
            while let Some(event) = seat.speaker.try_next() {
                assert!(!matches!(event, SeatEvent::Ended(_)), "nobody leaves");
            }
            seat.mic.push(&self.frame);
        }
    }

    /// One tick and the way to its sleep, timed.
    fn tick(&mut self) -> Duration {
        let begun = Instant::now();
        let next = black_box(&mut self.stepper).tick();
        let took = begun.elapsed();
        next.expect("the engine does not fail");
        self.stepper.rest().expect("the engine does not fail");
        took
    }
}

fn tick(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tick");
    for slots in SLOTS {
        let mut house = House::new(slots);
        let mut asked = 0;
        let mut lengths: Vec<Duration> = Vec::with_capacity(COUNTED_TICKS);
        for _ in 0..COUNTED_TICKS {
            house.callers();
            let before = ASKED.load(Relaxed);
            let took = house.tick();
            asked += ASKED.load(Relaxed) - before;
            lengths.push(took);
        }
        lengths.sort_unstable();
        println!(
            "{slots} slots: median {} ns, p99 {} ns a tick, {asked} calls of the allocator in {COUNTED_TICKS} ticks",
            lengths[COUNTED_TICKS / 2].as_nanos(),
            lengths[COUNTED_TICKS * 99 / 100].as_nanos(),
        );
        assert_eq!(
            asked, 0,
            "a tick in steady state asks nothing of the allocator"
        );
        group.bench_function(BenchmarkId::from_parameter(slots), |bencher| {
            bencher.iter_custom(|ticks| {
                (0..ticks)
                    .map(|_| {
                        house.callers();
                        house.tick()
                    })
                    .sum()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, tick);
criterion_main!(benches);
