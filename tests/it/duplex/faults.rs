//! What callers are told when a row, the device or the server ends.

use slots::testing::ScriptedEngine;

use crate::support::Setup;

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
