//! The real threads: starting, failing, hanging, stopping. Time stands still until a test allows it to pass.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;

use super::super::{Options, StartError, StepperThread, StopError, spawn};
use super::*;

fn options(slots: usize, clock: &Arc<HandClock>) -> Options {
    Options {
        clock: clock.clone(),
        ..Options::new(slots)
    }
}

async fn started(
    engine: ScriptedEngine,
    clock: &Arc<HandClock>,
) -> (StepperHandle<ScriptedCall>, StepperThread) {
    let (handle, mut thread) = spawn(move || Ok(engine), options(4, clock)).expect("threads");
    thread.ready().await.expect("the engine is ready");
    // The first tick is done, so that every request is answered by the second.
    clock.wait_for_sleepers(1);
    (handle, thread)
}

/// Joins, and lets the ticks pass that it takes.
async fn join(handle: &StepperHandle<ScriptedCall>, clock: &HandClock, session: u128) -> Seat {
    let request = JoinRequest {
        call: ScriptedCall::default(),
        session: SessionKey(session),
        generation: 0,
        may_wait: true,
    };
    let pass = async { clock.allow_us(TICK_US) };
    let (seat, ()) = tokio::join!(handle.join(request), pass);
    seat.expect("there is room")
}

/// Listens until the end.
async fn until_ended(seat: &mut Seat) -> CloseReason {
    while let Some(event) = seat.speaker.next().await {
        if let SeatEvent::Ended(reason) = event {
            assert!(
                seat.speaker.next().await.is_none(),
                "nothing follows the end"
            );
            return reason;
        }
    }
    panic!("the seat ended without a reason")
}

#[tokio::test]
async fn an_engine_fault_or_panic_tells_every_caller_after_readiness_is_red() {
    let engines = [
        (
            ScriptedEngine::echo().failing_at(3, "out of memory"),
            "the engine failed: out of memory",
        ),
        (
            ScriptedEngine::echo().panicking_at(3),
            "the engine panicked: panic at step 3, as scripted",
        ),
    ];
    for (engine, message) in engines {
        let clock = Arc::new(HandClock::new());
        let (handle, mut thread) = started(engine, &clock).await;
        let mut seats = [
            join(&handle, &clock, 1).await,
            join(&handle, &clock, 2).await,
        ];
        clock.allow_us(10 * TICK_US);
        for seat in &mut seats {
            assert_eq!(until_ended(seat).await, CloseReason::EngineFault);
            assert_eq!(
                handle.board().phase(),
                Phase::Failed,
                "red before anybody is told"
            );
        }
        let stopped = thread.stopped().await;
        assert_eq!(stopped.expect_err("a fault").to_string(), message);
        for session in 3..6 {
            let request = JoinRequest {
                call: ScriptedCall::default(),
                session: SessionKey(session),
                generation: 0,
                may_wait: true,
            };
            assert_eq!(
                handle.join(request).await.err(),
                Some(JoinError::EngineStopped)
            );
        }
        thread.join();
    }
}

#[tokio::test]
async fn an_engine_that_does_not_start_is_tried_once_and_reported_once() {
    let clock = Arc::new(HandClock::new());
    let tried = Arc::new(AtomicU32::new(0));
    let (go_tx, go_rx) = mpsc::sync_channel::<()>(1);
    let load = {
        let tried = tried.clone();
        move || {
            tried.fetch_add(1, SeqCst);
            go_rx.recv().expect("the test goes on");
            ScriptedEngine::failing_to_start("no such device")
        }
    };
    let (handle, mut thread) = spawn(load, options(4, &clock)).expect("threads");
    let request = |session| JoinRequest {
        call: ScriptedCall::default(),
        session: SessionKey(session),
        generation: 0,
        may_wait: true,
    };
    assert_eq!(
        handle.join(request(0)).await.err(),
        Some(JoinError::Loading)
    );
    go_tx.send(()).expect("the thread waits");
    let error = thread.ready().await.expect_err("it cannot start");
    assert_eq!(
        error.to_string(),
        "the engine cannot be started: no such device"
    );
    for session in 1..20 {
        assert_eq!(
            handle.join(request(session)).await.err(),
            Some(JoinError::EngineStopped)
        );
    }
    assert!(matches!(thread.stopped().await, Err(StopError::NotStarted)));
    assert_eq!(
        (tried.load(SeqCst), handle.board().phase()),
        (1, Phase::Failed)
    );
    thread.join();
}

#[tokio::test]
async fn an_engine_with_fewer_rows_than_allowed_offers_those_it_has() {
    let clock = Arc::new(HandClock::new());
    let load = || Ok(ScriptedEngine::echo().with_capacity(3));
    let (handle, mut thread) = spawn(load, options(4, &clock)).expect("threads");
    thread.ready().await.expect("three will do");
    assert_eq!(handle.board().capacity(), 3);
    assert_eq!(handle.board().slots_in(SlotPhase::Free), 3);
}

#[tokio::test]
async fn an_engine_with_more_rows_than_allowed_or_none_is_not_started() {
    for engine_slots in [0, 5] {
        let clock = Arc::new(HandClock::new());
        let load = move || Ok(ScriptedEngine::echo().with_capacity(engine_slots));
        let (_handle, mut thread) = spawn(load, options(4, &clock)).expect("threads");
        let error = thread.ready().await;
        assert!(
            matches!(error, Err(StartError::Slots { engine, asked: 4 }) if engine == engine_slots),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn dropping_the_last_handle_ends_calls_and_the_thread() {
    let clock = Arc::new(HandClock::new());
    let (handle, mut thread) = started(ScriptedEngine::echo(), &clock).await;
    let mut seat = join(&handle, &clock, 1).await;
    let other = handle.clone();
    drop(handle);
    clock.allow_us(TICK_US);
    clock.wait_for_sleepers(1);
    assert_eq!(other.board().phase(), Phase::Ready);
    drop(other);
    clock.allow_us(TICK_US);
    assert_eq!(until_ended(&mut seat).await, CloseReason::ServerStopping);
    assert!(thread.stopped().await.is_ok());
    thread.join();
}

#[tokio::test]
async fn a_call_goes_through_the_threads_from_live_to_the_last_frame() {
    let clock = Arc::new(HandClock::new());
    let (handle, mut thread) = started(ScriptedEngine::echo(), &clock).await;
    let mut seat = join(&handle, &clock, 1).await;
    clock.wait_for_sleepers(1);
    assert!(matches!(seat.speaker.next().await, Some(SeatEvent::Live)));
    for level in [0.25, 0.5] {
        seat.mic.push(&frame(level));
        clock.allow_us(TICK_US);
        match seat.speaker.next().await {
            Some(SeatEvent::Frame(frame)) => assert_eq!(frame.pcm[7], level),
            other => panic!("{other:?}"),
        }
    }
    handle.drain();
    clock.allow_us(TICK_US);
    drop(seat);
    clock.allow_us(3 * TICK_US);
    assert!(thread.stopped().await.is_ok());
    assert_eq!(handle.board().phase(), Phase::Stopped);
    thread.join();
}

#[tokio::test]
async fn a_tick_that_does_not_end_is_noticed() {
    let clock = Arc::new(HandClock::new());
    let (free_tx, free_rx) = mpsc::sync_channel::<()>(1);
    let engine = ScriptedEngine::echo().with_hook(move |work| {
        if work == slots::testing::Work::Step(1) {
            free_rx.recv().expect("the test lets go");
        }
    });
    let (hang_tx, hang_rx) = tokio::sync::oneshot::channel();
    let options = Options {
        watchdog_period: Duration::from_millis(5),
        on_hang: Box::new(move |tick| hang_tx.send(tick).expect("the test listens")),
        ..options(4, &clock)
    };
    clock.allow_us(20 * TICK_US);
    let (handle, mut thread) = spawn(move || Ok(engine), options).expect("threads");
    thread.ready().await.expect("ready");
    let _seat = join(&handle, &clock, 1).await;
    clock.allow_us(1_000_000 * TICK_US);
    let hung = hang_rx.await.expect("the hook is called");
    assert_eq!(hung, handle.board().ticks());
    free_tx.send(()).expect("the engine waits");
    handle.stop();
    assert!(thread.stopped().await.is_ok());
}
