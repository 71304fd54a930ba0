//! Calls over `/api/chat`, as the published clients make them and as broken ones do.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use slots::testing::{ScriptedEngine, Work};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use vivavoce::stepper::clock::{Clock, HandClock};
use wire::notice::{EndReason, Notice};
use wire::socket::{Control, Uplink};

use crate::support::{
    Caller, FastClock, Heard, Setup, TestApp, dial_over, loudness, one_tick, small_ear, until,
};

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
async fn anything_but_ogg_opus_gets_one_clear_error_and_ends_the_call() {
    let app = Setup::echo().slots(8).start().await;
    let mut raw_opus = vec![0xfc; 120];
    raw_opus[1] = 0x7f;
    let mut webm = b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\xf7\x81".to_vec();
    webm.resize(400, 0x42);
    let mut mp4 = b"\0\0\0\x1cftypiso5\0\0\x02\0iso5".to_vec();
    mp4.resize(400, 0);
    let cases = [
        (raw_opus, "Opus packets must be in Ogg pages"),
        (webm, "WebM"),
        (mp4, "MP4"),
    ];
    for (bytes, found) in cases {
        for ready_first in [true, false] {
            let mut caller = app.call("").await;
            if ready_first {
                caller.until_ready().await;
            }
            for _ in 0..3 {
                caller.send(Uplink::Audio(&bytes)).await;
            }
            let (errors, code) = caller.ending().await;
            assert_eq!((errors.len(), code), (1, 1003), "{errors:?}");
            assert!(
                errors[0].contains("expected Ogg/Opus") && errors[0].contains(found),
                "{errors:?}"
            );
        }
    }
    app.all_slots_free().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_messages_are_ignored_and_text_frames_get_one_error() {
    let app = Setup::echo().start().await;
    let mut caller = app.live("").await;
    let oddities = [
        Uplink::Empty,
        Uplink::Ready,
        Uplink::Control(Control::Pause),
        Uplink::Metadata("{}"),
        Uplink::Text("hi"),
        Uplink::Error("oh"),
        Uplink::Ping,
        Uplink::Unknown {
            kind: 0x7f,
            payload: &[1, 2],
        },
        Uplink::Unknown {
            kind: 0x09,
            payload: &[],
        },
    ];
    for odd in oddities {
        caller.send(odd).await;
    }
    for _ in 0..3 {
        caller
            .send_raw(Message::Text("{\"type\":\"hello\"}".into()))
            .await;
    }
    caller.until(|heard| matches!(heard, Heard::Error(_))).await;
    // The call goes on, and what was not understood is not mentioned again.
    for _ in 0..30 {
        caller.say(0.5).await;
        let heard = caller.until(|heard| matches!(heard, Heard::Audio(_))).await;
        assert_eq!(heard.len(), 1, "{heard:?}");
    }
    assert!(frames_until_heard(&mut caller, 0.5, HEARD).await < 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_messages_and_a_huge_one_end_only_that_call() {
    let app = Setup::echo().start().await;
    let mut neighbour = app.live("").await;
    let mut flooding = app.live("").await;
    for _ in 0..300 {
        flooding.send_raw(Message::Text("spam".into())).await;
    }
    let (errors, code) = flooding.ending().await;
    assert_eq!(code, 1008);
    assert!(
        errors.last().unwrap().contains("too many messages"),
        "{errors:?}"
    );
    let mut huge = app.live("").await;
    huge.send_raw(Message::Binary(vec![1; 2 << 20].into()))
        .await;
    assert_eq!(huge.ending().await.1, 1009);
    neighbour.talk(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_house_is_told_at_once_and_the_seated_never_notice() {
    let app = Setup::echo().slots(2).start().await;
    let mut seated = [app.live("").await, app.live("").await];
    let ticks = app.board().ticks();
    let mut refused = app.call("").await;
    let (errors, code) = refused.ending().await;
    // A second of ticks, whatever the clock of this test is.
    assert!(app.board().ticks() - ticks < 25 * 12);
    assert_eq!(code, 1013);
    assert!(
        errors.len() == 1 && errors[0].contains("all 2 slots are taken"),
        "{errors:?}"
    );
    for caller in &mut seated {
        caller.talk(3).await;
    }
    drop(seated);
    app.all_slots_free().await;
    app.live("").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_asked_waits_with_a_place_and_gets_the_next_free_slot() {
    let app = Setup::echo().slots(1).start().await;
    let first = app.live("").await;
    let mut waiting = app.call("ext=1").await;
    let heard = waiting
        .until(|heard| matches!(heard, Heard::Notice(_)))
        .await;
    assert_eq!(
        heard.last(),
        Some(&Heard::Notice(Notice::Queued { place: 1 }))
    );
    drop(first);
    waiting.until_ready().await;
    waiting.talk(2).await;
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
async fn leaving_before_ready_frees_the_slot() {
    let (app, permits) = with_held_prompts(100_000).await;
    for (goodbye, nth) in [(true, 1), (false, 2)] {
        let mut caller = app.call("").await;
        until("the prompt to be begun", || {
            app.log.seated() == nth && app.log.chunks() >= nth
        })
        .await;
        if goodbye {
            caller.send_raw(Message::Close(None)).await;
        }
        drop(caller);
        until("the slot to be free", || {
            let _ = permits.try_send(());
            app.log.vacated() == nth
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_up_frees_the_slot_within_two_ticks() {
    let clock = Arc::new(HandClock::new());
    let app = Setup::echo().clock(clock.clone()).start().await;
    one_tick(&clock);
    let mut caller = app.call("").await;
    until("the caller to be seated", || {
        one_tick(&clock);
        app.free_slots() == 3
    })
    .await;
    caller.until_ready().await;
    drop(caller);
    app.metric_reaches("vivavoce_sessions_ended_total{reason=\"hung_up\"}", 1.0)
        .await;
    clock.wait_for_sleepers(1);
    // No more time passes than this, and it must do.
    one_tick(&clock);
    one_tick(&clock);
    until("the slot to be free", || app.free_slots() == 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_goodbye_ends_only_that_call() {
    let app = Setup::echo().slots(2).start().await;
    let mut neighbour = app.live("").await;
    let close = |code: u16| CloseFrame {
        code: code.into(),
        reason: "bye".into(),
    };
    for wrong in 0..7 {
        let mut caller = app.live("").await;
        caller.talk(2).await;
        match wrong {
            0 => caller.send_raw(Message::Close(None)).await,
            1 => caller.send_raw(Message::Close(Some(close(4999)))).await,
            // Codes that must never be sent, as raw bytes of a masked close frame.
            2 => write_raw(&caller, &[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xed]).await,
            3 => write_raw(&caller, &[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xee]).await,
            // A reset in the middle of a message.
            4 => {
                write_raw(&caller, &[0x82, 0xfe, 0x10, 0x00, 0, 0, 0, 0, 1, 2, 3]).await;
                caller.socket.get_ref().set_zero_linger().unwrap();
            }
            // A frame that breaks the protocol: reserved bits.
            5 => write_raw(&caller, &[0xf2, 0x81, 0, 0, 0, 0, 6]).await,
            // Gone without a word.
            _ => {}
        }
        drop(caller);
        until("the slot to be free", || app.free_slots() == 1).await;
        neighbour.talk(2).await;
    }
}

/// Bytes past the WebSocket layer.
async fn write_raw(caller: &Caller, bytes: &[u8]) {
    let stream = caller.socket.get_ref();
    stream.writable().await.unwrap();
    assert_eq!(stream.try_write(bytes).unwrap(), bytes.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_who_does_not_read_is_let_go_and_others_never_notice() {
    let clock = Arc::new(HandClock::new());
    let setup = Setup::echo().clock(clock.clone());
    let app = setup
        .limits(|limits| limits.close_within = Duration::from_millis(50))
        .start()
        .await;
    let mut deaf = dial_over(small_ear(app.address).await, "").await.unwrap();
    let mut neighbour = app.call("").await;
    until("both to be seated", || {
        one_tick(&clock);
        app.free_slots() == 2
    })
    .await;
    neighbour.until_ready().await;
    // The deaf one shows life all the time; only its ears are shut.
    while app.free_slots() < 3 {
        one_tick(&clock);
        neighbour.frame().await;
        neighbour.say(0.3).await;
        if app.board().ticks().is_multiple_of(50) {
            deaf.send(Uplink::Ping).await;
        }
        assert!(app.board().ticks() < 4_000, "nobody noticed");
    }
    app.metric_reaches(
        "vivavoce_sessions_ended_total{reason=\"listener_too_slow\"}",
        1.0,
    )
    .await;
    one_tick(&clock);
    neighbour.frame().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_answers_no_ping_is_let_go() {
    let setup = Setup::echo().limits(|limits| {
        limits.ws_ping_every = Duration::from_millis(50);
        limits.peer_gone_after = Duration::from_millis(400);
        limits.close_within = Duration::from_millis(50);
    });
    let app = setup.start().await;
    // Nobody reads this socket, so nothing answers; the neighbour's does.
    let mute = app.call("").await;
    let mut neighbour = app.live("").await;
    let gone = "vivavoce_sessions_ended_total{reason=\"peer_gone\"}";
    let slow = "vivavoce_sessions_ended_total{reason=\"listener_too_slow\"}";
    while app.metric(gone).await + app.metric(slow).await < 1.0 {
        neighbour.talk(1).await;
    }
    assert_eq!(app.metric(slow).await, 0.0);
    neighbour.talk(3).await;
    drop(mute);
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

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_short_calls_in_a_row_all_work() {
    let app = Setup::echo()
        .slots(2)
        .clock(FastClock::with_haste(20))
        .start()
        .await;
    for n in 0..300 {
        let mut caller = app.live("").await;
        if n % 3 == 0 {
            caller.talk(1).await;
        }
        if n % 2 == 0 {
            caller.send_raw(Message::Close(None)).await;
        }
        drop(caller);
        app.all_slots_free().await;
    }
    assert_eq!(app.metric("vivavoce_joined_total").await, 300.0);
    assert_eq!(app.metric("vivavoce_refused_total").await, 0.0);
    app.metric_reaches("vivavoce_sessions_ended_total{reason=\"hung_up\"}", 300.0)
        .await;
    assert_eq!(app.metric("vivavoce_sessions").await, 0.0);
}

fn live_notice(heard: &[Heard]) -> (String, u32) {
    let found = heard.iter().find_map(|heard| match heard {
        Heard::Notice(Notice::Live {
            resume, generation, ..
        }) => Some((resume.clone(), *generation)),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no live notice in {heard:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_resumed_with_its_token_and_only_once() {
    let app = Setup::echo().slots(1).start().await;
    let mut caller = app.call("ext=1").await;
    let (token, generation) = live_notice(&caller.until_ready().await);
    assert_eq!(generation, 0);
    caller.talk(3).await;
    drop(caller);
    let mut caller = app.call(&format!("ext=1&resume={token}")).await;
    let (next_token, generation) = live_notice(&caller.until_ready().await);
    assert_eq!(generation, 1);
    caller.talk(3).await;
    assert_eq!(
        app.metric("vivavoce_joined_total").await,
        1.0,
        "the seat is the same"
    );
    // A newer connection takes over even if the old one is not known to be lost.
    let mut newest = app.call(&format!("ext=1&resume={next_token}")).await;
    assert_eq!(live_notice(&newest.until_ready().await).1, 2);
    newest.talk(2).await;
    assert_eq!(caller.ending().await.1, 1008);
    // An older one never displaces it.
    for old in [token, next_token, "0".repeat(32)] {
        let mut late = app.call(&format!("resume={old}")).await;
        let ended = late
            .until(|heard| matches!(heard, Heard::Closed { .. }))
            .await;
        let told = ended.iter().any(|heard| {
            matches!(
                heard,
                Heard::Notice(Notice::Ended {
                    reason: EndReason::ResumeUnknown,
                    redial: false,
                    ..
                })
            )
        });
        assert!(told, "{ended:?}");
    }
    newest.talk(2).await;
    // A close message is the end: nothing is kept.
    newest.send_raw(Message::Close(None)).await;
    app.all_slots_free().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seat_is_not_kept_for_ever_nor_for_clients_that_did_not_ask() {
    let setup = Setup::echo().slots(2);
    let app = setup
        .limits(|limits| limits.resume_within = Duration::from_millis(100))
        .start()
        .await;
    let asked = app.live("ext=1").await;
    let stock = app.live("").await;
    drop((asked, stock));
    app.all_slots_free().await;
    app.metric_reaches("vivavoce_sessions_ended_total{reason=\"hung_up\"}", 2.0)
        .await;
    assert!(app.metric("vivavoce_parked_frames_dropped_total").await > 0.0);
}

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

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_row_ends_its_call_with_a_reason_and_no_other() {
    let app = Setup::of(ScriptedEngine::echo().row_fault_at(0, 30))
        .start()
        .await;
    let mut first = app.live("").await;
    let mut second = app.live("").await;
    let (errors, code) = first.ending().await;
    assert_eq!((errors.len(), code), (1, 1011));
    second.talk(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_device_is_told_to_everybody_and_readiness_goes_red() {
    let mut app = Setup::of(ScriptedEngine::echo().failing_at(40, "out of memory"))
        .start()
        .await;
    let mut callers = [app.live("").await, app.live("ext=1").await];
    for caller in &mut callers {
        let (errors, code) = caller.ending().await;
        assert_eq!((errors.len(), code), (1, 1011));
    }
    assert!(app.thread.stopped().await.is_err());
    assert_eq!(app.health().await.0, 503);
    app.state.calls_ended().await;
    let mut late = app.call("").await;
    assert_eq!(late.ending().await.1, 1011);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_tells_its_callers_and_then_nobody_is_left() {
    let mut app = Setup::echo().start().await;
    let mut caller = app.live("").await;
    app.stepper.stop();
    let (errors, code) = caller.ending().await;
    assert_eq!((errors.len(), code), (1, 1001));
    app.state.calls_ended().await;
    assert!(app.thread.stopped().await.is_ok());
}
