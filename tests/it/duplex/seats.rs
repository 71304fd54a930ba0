//! Getting a seat, keeping it, giving it back.

use std::sync::Arc;
use std::time::Duration;

use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use vivavoce::stepper::clock::HandClock;
use wire::notice::{EndReason, Notice};
use wire::socket::CLOSE_LINE_LOST;

use super::with_held_prompts;
use crate::support::{FastClock, Heard, Setup, one_tick, until};

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
    let (newest_token, generation) = live_notice(&newest.until_ready().await);
    assert_eq!(generation, 2);
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
    // A close message that says that the call goes on elsewhere keeps the seat.
    let lost = CloseFrame {
        code: CLOSE_LINE_LOST.into(),
        reason: "".into(),
    };
    newest.send_raw(Message::Close(Some(lost))).await;
    newest
        .until(|heard| matches!(heard, Heard::Closed { .. } | Heard::Lost))
        .await;
    let mut newest = app.call(&format!("ext=1&resume={newest_token}")).await;
    assert_eq!(live_notice(&newest.until_ready().await).1, 3);
    newest.talk(2).await;
    assert_eq!(app.metric("vivavoce_joined_total").await, 1.0);
    // Any other close message is the end: nothing is kept.
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
