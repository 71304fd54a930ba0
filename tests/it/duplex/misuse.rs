//! Callers that break the protocol, flood, or do not listen: they end, and nobody else notices.

use std::sync::Arc;
use std::time::Duration;

use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use vivavoce::stepper::clock::HandClock;
use wire::socket::{Control, Uplink};

use super::{HEARD, frames_until_heard};
use crate::support::{Caller, Heard, PATIENCE, Setup, dial_over, one_tick, small_ear, until};

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
        .limits(|limits| {
            limits.close_within = Duration::from_millis(50);
            // On a busy machine these ticks take long, and unanswered pings must not be the first to tell.
            limits.peer_gone_after = 10 * PATIENCE;
        })
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
    for n in 0.. {
        if app.free_slots() == 3 {
            break;
        }
        // Counted here: the tick may be some steps ahead, and would pass by any number it is asked for.
        if n % 50 == 0 {
            deaf.send(Uplink::Ping).await;
        }
        one_tick(&clock);
        neighbour.frame().await;
        neighbour.say(0.3).await;
        assert!(n < 4_000, "nobody noticed");
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
