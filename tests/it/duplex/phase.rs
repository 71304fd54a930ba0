//! When frames become whole against the tick: own clients are told, for others the server moves its cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use audio::ogg_write::OggWriter;
use slots::cut::WATCHED_TICKS;
use vivavoce::stepper::board::SlotPhase;
use vivavoce::stepper::clock::HandClock;
use wire::notice::Notice;
use wire::socket::Uplink;

use crate::support::{Caller, Heard, PATIENCE, Setup, TestApp, one_tick, until};

const MOVED: &str = "vivavoce_cuts_moved_total";
const HEARD: &str = "vivavoce_frames_heard_total";
const DROPPED: &str = "vivavoce_cut_samples_dropped_total";
const FRAME_OF_SPEECH: f32 = 0.3;
/// Ticks in which a decision is due, few enough that a call may bring two such stretches faster than real time.
const LONG: u32 = 2 * WATCHED_TICKS + 10;
/// What a muted microphone sends.
const NOTHING: f32 = 0.0;

#[tokio::test(flavor = "multi_thread")]
async fn callers_with_ext_hear_where_their_frames_lie() {
    let setup = Setup::echo().limits(|limits| limits.phase_every = Duration::from_millis(20));
    let app = setup.start().await;
    let mut caller = app.live("ext=1").await;
    for _ in 0..200 {
        caller.say(0.2).await;
        match caller.next().await {
            Heard::Notice(Notice::Phase { wait_us }) => return assert!(wait_us <= 80_000),
            Heard::Closed { .. } | Heard::Lost => panic!("the call ended"),
            _ => {}
        }
    }
    panic!("no phase was told");
}

/// 60 ms of sound in one packet: three Opus frames without a byte in them, which is what a client that saves
/// bandwidth sends of silence.
fn sixty_ms() -> Vec<u8> {
    OggWriter::new(77).page(&[0xff, 3], 2_880)
}

/// Callers and a clock that go in step: each frame has been read before its tick comes.
struct Calls {
    app: TestApp,
    clock: Arc<HandClock>,
    callers: Vec<Caller>,
    said: f64,
}

impl Calls {
    async fn start(queries: &[&str]) -> Self {
        let clock = Arc::new(HandClock::new());
        // Notices would come between; they have a test of their own.
        let setup = Setup::echo().limits(|limits| limits.phase_every = PATIENCE);
        let app = setup.clock(clock.clone()).start().await;
        let mut callers = Vec::new();
        for query in queries {
            callers.push(app.call(query).await);
        }
        let allowed = AtomicU64::new(0);
        until("everybody to be seated", || {
            one_tick(&clock);
            allowed.fetch_add(1, Relaxed);
            app.board().slots_in(SlotPhase::Live) == queries.len()
        })
        .await;
        // The first tick needed no leave.
        let ticks = 1 + allowed.into_inner();
        until("those ticks", || app.board().ticks() == ticks).await;
        clock.wait_for_sleepers(1);
        for (row, caller) in callers.iter_mut().enumerate() {
            caller.until_ready().await;
            for _ in 0..app.board().slot_frames(row) {
                caller.frame().await;
            }
        }
        Self {
            app,
            clock,
            callers,
            said: 0.0,
        }
    }

    /// Everybody says a frame right after a tick, so that it waits for the next one; `ticks` times.
    async fn talk(&mut self, ticks: u32, loudness: f32) {
        for _ in 0..ticks {
            for caller in &mut self.callers {
                caller.say(loudness).await;
            }
            self.said += self.callers.len() as f64;
            self.app.metric_reaches(HEARD, self.said).await;
            one_tick(&self.clock);
            for caller in &mut self.callers {
                caller.frame().await;
            }
            // The tick is over only when its thread sleeps again.
            self.clock.wait_for_sleepers(1);
        }
    }

    /// Moves so far, and samples dropped by them.
    async fn moved(&self) -> (f64, f64) {
        (self.app.metric(MOVED).await, self.app.metric(DROPPED).await)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sound_that_stands_at_every_tick_is_left_out_once_and_in_silence() {
    let mut calls = Calls::start(&[""]).await;
    // From now on 60 ms stand over at every tick.
    calls.talk(1, FRAME_OF_SPEECH).await;
    calls.callers[0].send(Uplink::Audio(&sixty_ms())).await;
    calls.talk(LONG, FRAME_OF_SPEECH).await;
    assert_eq!(calls.moved().await, (0.0, 0.0), "speech stays whole");
    calls.talk(20, NOTHING).await;
    let once = (1.0, 60.0 * 24.0);
    assert_eq!(calls.moved().await, once);
    // A client that changes its mind is not followed.
    calls.callers[0].send(Uplink::Audio(&sixty_ms())).await;
    calls.talk(LONG, NOTHING).await;
    assert_eq!(calls.moved().await, once);
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_frames_and_clients_that_move_their_own_lose_nothing() {
    let mut calls = Calls::start(&["", "ext=1"]).await;
    calls.talk(1, NOTHING).await;
    calls.callers[1].send(Uplink::Audio(&sixty_ms())).await;
    calls.talk(LONG, NOTHING).await;
    assert_eq!(calls.moved().await, (0.0, 0.0));
    for slot in 0..2 {
        // Shown for each live caller; on this clock a frame waits the 80 ms between two ticks.
        let name = format!("vivavoce_mic_wait_seconds{{slot=\"{slot}\"}}");
        assert_eq!(calls.app.metric(&name).await, 0.08);
    }
}
