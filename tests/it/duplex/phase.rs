//! When frames become whole against the tick: own clients are told, for others the server moves its cut.

use std::sync::Arc;
use std::time::Duration;

use slots::cut::WATCHED_TICKS;
use vivavoce::audio::ogg_write::OggWriter;
use vivavoce::stepper::clock::HandClock;
use wire::notice::Notice;
use wire::socket::Uplink;

use crate::support::{Caller, Heard, Setup, TestApp, one_tick, until};

const MOVED: &str = "vivavoce_cuts_moved_total";
const DROPPED: &str = "vivavoce_cut_samples_dropped_total";
const FRAME_OF_SPEECH: f32 = 0.3;
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

/// Ticks and whole frames in turn, so that each frame has come right after a tick and waits for the next one.
async fn talk(caller: &mut Caller, clock: &HandClock, ticks: u32, loudness: f32) {
    for _ in 0..ticks {
        caller.say(loudness).await;
        one_tick(clock);
        caller.frame().await;
    }
}

async fn seated(app: &TestApp, clock: &HandClock, query: &str) -> Caller {
    let free = app.free_slots();
    let mut caller = app.call(query).await;
    until("the caller to be seated", || {
        one_tick(clock);
        app.free_slots() < free
    })
    .await;
    caller.until_ready().await;
    caller
}

#[tokio::test(flavor = "multi_thread")]
async fn sound_that_stands_at_every_tick_is_left_out_once_and_in_silence() {
    let clock = Arc::new(HandClock::new());
    let app = Setup::echo().clock(clock.clone()).start().await;
    let mut caller = seated(&app, &clock, "").await;
    // From now on 60 ms stand over at every tick.
    talk(&mut caller, &clock, 1, FRAME_OF_SPEECH).await;
    caller.send(Uplink::Audio(&sixty_ms())).await;
    talk(&mut caller, &clock, 3 * WATCHED_TICKS, FRAME_OF_SPEECH).await;
    assert_eq!(app.metric(MOVED).await, 0.0, "speech stays whole");
    talk(&mut caller, &clock, 20, NOTHING).await;
    assert_eq!(app.metric(MOVED).await, 1.0);
    assert_eq!(app.metric(DROPPED).await, 60.0 * 24.0);
    // A client that changes its mind is not followed.
    caller.send(Uplink::Audio(&sixty_ms())).await;
    talk(&mut caller, &clock, 3 * WATCHED_TICKS, NOTHING).await;
    assert_eq!(app.metric(MOVED).await, 1.0);
    assert_eq!(app.metric(DROPPED).await, 60.0 * 24.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_frames_and_clients_that_move_their_own_lose_nothing() {
    let clock = Arc::new(HandClock::new());
    let app = Setup::echo().clock(clock.clone()).start().await;
    let mut whole = seated(&app, &clock, "").await;
    let mut own = seated(&app, &clock, "ext=1").await;
    own.say(NOTHING).await;
    own.send(Uplink::Audio(&sixty_ms())).await;
    for _ in 0..3 * WATCHED_TICKS {
        own.say(NOTHING).await;
        talk(&mut whole, &clock, 1, NOTHING).await;
        own.frame().await;
    }
    assert_eq!(app.metric(MOVED).await, 0.0);
    assert_eq!(app.metric(DROPPED).await, 0.0);
    for slot in 0..2 {
        // Shown for each live caller; on this clock no time passes but between ticks.
        app.metric(&format!("vivavoce_mic_wait_seconds{{slot=\"{slot}\"}}"))
            .await;
    }
}
