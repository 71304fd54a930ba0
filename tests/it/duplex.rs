//! Calls over `/api/chat`, as the published clients make them and as broken ones do.

mod faults;
mod misuse;
mod phase;
mod seats;

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use slots::testing::{ScriptedEngine, Work};
use vivavoce::stepper::clock::{Clock, HandClock};
use wire::socket::Uplink;

use crate::support::{Caller, Heard, Setup, TestApp, loudness, one_tick, until};

/// Louder than what Opus makes of silence, softer than any tone in these tests.
const HEARD: f32 = 0.03;

/// Frames until something louder than `floor` is heard, while `loud` is said.
async fn frames_until_heard(caller: &mut Caller, loud: f32, floor: f32) -> usize {
    for n in 1..500 {
        caller.say(loud).await;
        if loudness(&caller.frame().await) > floor {
            return n;
        }
    }
    panic!("nothing came back");
}

/// A switchboard that reads a chunk of a prompt, and goes on ticking, only when it is given a permit.
async fn with_held_prompts(chunks: u32) -> (TestApp, SyncSender<()>) {
    let (permits, gate) = sync_channel(10_000);
    let engine = ScriptedEngine::echo().with_hook(move |work| {
        if let Work::Prefill(_) = work {
            // Without permits to come there is nothing to wait for.
            let _ = gate.recv();
        }
    });
    let setup = Setup::of(engine).chunks(chunks);
    let app = setup
        .limits(|limits| limits.ping_every = Duration::from_millis(20))
        .start()
        .await;
    (app, permits)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_any_parameter_starts_with_the_bare_ready_byte_and_two_headers() {
    let app = Setup::echo().start().await;
    let mut caller = app.call("").await;
    let ready = caller.until_ready().await;
    assert_eq!(ready.last(), Some(&Heard::Ready(vec![0])));
    for magic in [&b"OpusHead"[..], b"OpusTags"] {
        let Heard::Audio(page) = caller.next().await else {
            panic!("no header");
        };
        assert_eq!(&page[28..36], magic);
    }
    caller.talk(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn text_comes_in_pieces_beside_the_audio() {
    let app = Setup::of(ScriptedEngine::echo().saying(" grüß", 2))
        .start()
        .await;
    let mut caller = app.live("").await;
    let heard = caller.until(|heard| matches!(heard, Heard::Text(_))).await;
    assert_eq!(heard.last(), Some(&Heard::Text(" grüß".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_its_headers_before_ready_is_understood_afterwards() {
    let (app, permits) = with_held_prompts(1).await;
    let mut caller = app.call("").await;
    for _ in 0..10 {
        caller.say(0.5).await;
    }
    app.metric_reaches("vivavoce_early_messages_total", 12.0)
        .await;
    permits.send(()).unwrap();
    caller.until_ready().await;
    // Only now, and without new headers.
    assert!(frames_until_heard(&mut caller, 0.5, HEARD).await < 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn twelve_seconds_in_one_burst_do_not_become_standing_delay() {
    for in_one_message in [true, false] {
        let app = Setup::echo().start().await;
        let mut caller = app.live("").await;
        let burst: Vec<Vec<u8>> = (0..150).flat_map(|_| caller.pages(0.2)).collect();
        if in_one_message {
            caller.send(Uplink::Audio(&burst.concat())).await;
        } else {
            for page in &burst {
                caller.send(Uplink::Audio(page)).await;
            }
        }
        // Loud speech right after the burst must be answered as if there had been none.
        let frames = frames_until_heard(&mut caller, 0.9, 0.35).await;
        // What the caller had not read while it sent the burst is among these frames.
        assert!(frames < 100, "heard after {frames} frames");
        let dropped = app.metric("vivavoce_burst_frames_dropped_total").await
            + app
                .metric("vivavoce_mic_frames_lost_total{cause=\"mic_backlog\"}")
                .await
            + app
                .metric("vivavoce_mic_frames_lost_total{cause=\"mic_full\"}")
                .await;
        assert!(
            dropped >= 100.0,
            "only {dropped} frames were dropped and counted"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stock_clients_never_get_json() {
    let app = Setup::echo().chunks(3).start().await;
    let mut caller = app.call("").await;
    let mut heard = caller.until_ready().await;
    for _ in 0..40 {
        caller.say(0.1).await;
        heard.extend(caller.until(|heard| matches!(heard, Heard::Audio(_))).await);
    }
    assert!(
        !heard.iter().any(|heard| matches!(heard, Heard::Notice(_))),
        "{heard:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_come_while_a_long_prompt_is_read() {
    let (app, permits) = with_held_prompts(2).await;
    let mut caller = app.call("").await;
    for _ in 0..5 {
        assert_eq!(caller.next().await, Heard::Ping);
    }
    assert_eq!(app.log.chunks(), 1);
    permits.send(()).unwrap();
    permits.send(()).unwrap();
    caller.until_ready().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_sends_nothing_for_twenty_seconds_hears_every_frame() {
    let clock = Arc::new(HandClock::new());
    let app = Setup::of(ScriptedEngine::voices())
        .clock(clock.clone())
        .start()
        .await;
    let mut caller = app.call("").await;
    until("the caller to be seated", || {
        one_tick(&clock);
        app.free_slots() == 3
    })
    .await;
    // 20 s of ticks, and the agent speaks from the first frame on although it has heard nothing.
    for _ in 0..250 {
        one_tick(&clock);
        caller.frame().await;
    }
    for _ in 0..5 {
        caller.say(0.5).await;
        one_tick(&clock);
        caller.frame().await;
    }
    assert!(clock.now_us() > 20_000_000);
    assert_eq!(app.free_slots(), 3);
}
