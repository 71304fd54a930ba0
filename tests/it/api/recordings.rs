//! Audio of calls: kept when the policy says so, fetched by who may, gone when its time is over.

use std::path::{Path, PathBuf};

use reqwest::Method;
use serde_json::Value;
use slots::units::FRAME_SAMPLES;
use tokio_tungstenite::tungstenite::Message;
use wire::notice::Notice;

use super::Asking;
use super::log::{ended, newest};
use crate::support::{Caller, Heard, Setup, TestApp, until, within};

/// A switchboard that keeps what it keeps in `folder` and records.
async fn recording(folder: &Path) -> TestApp {
    let app = Setup::echo().data(folder).start().await;
    let store = app.state.desk().store();
    let mut policy = store.policy().await.unwrap();
    policy.draft.record_audio = true;
    store
        .set_policy(&policy.draft, policy.version)
        .await
        .unwrap();
    app
}

/// A caller who is live, and where its recording will be.
async fn recorded_caller(app: &TestApp) -> (Caller, String) {
    let mut caller = app.call("ext=1").await;
    let heard = caller.until_ready().await;
    let path = heard.iter().find_map(|heard| match heard {
        Heard::Notice(Notice::Live { recording, .. }) => recording.clone(),
        _ => None,
    });
    (caller, path.expect("it is told before the ready byte"))
}

/// Ends a call that could be resumed.
async fn hang_up(mut caller: Caller) {
    caller.send_raw(Message::Close(None)).await;
}

/// The bytes at `path`, as soon as they are there.
async fn fetched(app: &TestApp, path: &str) -> Vec<u8> {
    let fetching = async {
        loop {
            let request = Asking::of(app).request(Method::GET, path);
            let response = request.send().await.unwrap();
            if response.status().is_success() {
                return response.bytes().await.unwrap().to_vec();
            }
            crate::support::before_the_next_look().await;
        }
    };
    within("the recording", fetching).await
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("recordings"));
    let entries = entries.into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_are_kept_side_by_side_to_the_sample() {
    let folder = tempfile::tempdir().unwrap();
    let app = recording(folder.path()).await;
    let asking = Asking::of(&app);
    assert_eq!(asking.get("/api/talk").await.good()["recorded"], true);
    let (mut caller, path) = recorded_caller(&app).await;
    let path = format!("/{path}");
    caller.talk(10).await;
    assert_eq!(asking.get(&path).await.status, 404, "the call is on");
    // More at once than the tick takes, so that some of it is dropped or skipped.
    for loudness in [0.1, 0.5, 0.3, 0.2, 0.4, 0.1] {
        caller.say(loudness).await;
    }
    caller.talk(30).await;
    hang_up(caller).await;
    let session = newest(&app, ended).await;
    assert_eq!(session["recorded"], true);
    app.state.desk().journal().finish().await;

    let wav = fetched(&app, &path).await;
    let mut reader = hound::WavReader::new(&wav[..]).unwrap();
    let spec = reader.spec();
    assert_eq!((spec.channels, spec.sample_rate), (2, 24_000));
    let samples: Vec<i16> = reader.samples().map(Result::unwrap).collect();
    let frames = session["counters"]["frames"].as_u64().unwrap() as usize;
    // The last frame may have been made and not been read when the caller left.
    let kept = samples.len() / 2 / FRAME_SAMPLES;
    assert!((frames - 1..=frames).contains(&kept), "{kept} of {frames}");
    // The engine says what it hears, in the same frame.
    let differing = samples.chunks(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(differing, 0);
    let loud = samples.iter().filter(|sample| sample.abs() > 1_000).count();
    assert!(loud > 10 * FRAME_SAMPLES, "{loud}");

    let id = session["id"].as_i64().unwrap();
    let detail = asking.get(&format!("/api/sessions/{id}")).await.good();
    let seconds = kept * FRAME_SAMPLES / 24_000;
    assert_eq!(detail["recording_seconds"], seconds);
    let operators = fetched(&app, &format!("/api/sessions/{id}/audio")).await;
    assert_eq!(operators, wav);
    let request = asking.request(Method::GET, &path);
    let part = request.header("range", "bytes=40-43").send().await.unwrap();
    assert_eq!(part.status(), 206);
    let range = format!("bytes 40-43/{}", wav.len());
    assert_eq!(part.headers()["content-range"], range.as_str());
    assert_eq!(part.bytes().await.unwrap(), &wav[40..44]);

    assert_eq!(
        asking.delete(&format!("/api/sessions/{id}")).await.status,
        204
    );
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    assert_eq!(asking.get(&path).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_recorded_unless_the_policy_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let app = Setup::echo().data(folder.path()).start().await;
    assert_eq!(
        Asking::of(&app).get("/api/talk").await.good()["recorded"],
        false
    );
    let mut caller = app.call("ext=1").await;
    let heard = caller.until_ready().await;
    let told = heard.iter().any(|heard| {
        matches!(
            heard,
            Heard::Notice(Notice::Live {
                recording: None,
                session: Some(_),
                ..
            })
        )
    });
    assert!(told, "{heard:?}");
    caller.talk(5).await;
    hang_up(caller).await;
    let session = newest(&app, ended).await;
    assert_eq!(session["recorded"], false);
    let audio = format!("/api/sessions/{}/audio", session["id"]);
    assert_eq!(Asking::of(&app).get(&audio).await.status, 404);
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_caller_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let app = recording(folder.path()).await;
    let mut seated = Vec::new();
    for _ in 0..app.board().capacity() {
        seated.push(app.live("").await);
    }
    app.call("").await.ending().await;
    let refused = newest(&app, ended).await;
    assert_eq!(refused["end_reason"], "full");
    assert_eq!(refused["recorded"], false);
    drop(seated);
    app.all_slots_free().await;
    app.state.desk().journal().finish().await;
    assert_eq!(files(folder.path()).len(), app.board().capacity());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_goes_on_when_its_recording_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    // A file where the folder should be.
    std::fs::write(folder.path().join("recordings"), "in the way").unwrap();
    let app = recording(folder.path()).await;
    let (mut caller, path) = recorded_caller(&app).await;
    let journal = app.state.desk().journal().clone();
    let calls = journal.live().all();
    let given_up = async {
        while calls[0].recorded() {
            caller.talk(1).await;
        }
    };
    within("the recording to be given up", given_up).await;
    caller.talk(20).await;
    hang_up(caller).await;
    let session = newest(&app, ended).await;
    assert_eq!(session["end_reason"], "hung_up");
    let frames = session["counters"]["frames"].as_i64().unwrap();
    assert!(frames >= 20, "{session}");
    let detail = Asking::of(&app)
        .get(&format!("/api/sessions/{}", session["id"]))
        .await
        .good();
    let given_up = |event: &Value| event["what"] == "recording_given_up";
    let timeline = detail["timeline"].as_array().unwrap();
    assert!(timeline.iter().any(given_up), "{detail}");
    assert_eq!(Asking::of(&app).get(&format!("/{path}")).await.status, 404);
    until("the row to be gone", || journal.live().all().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_fetches_a_recording_with_a_guessed_key() {
    let folder = tempfile::tempdir().unwrap();
    let app = recording(folder.path()).await;
    let asking = Asking::of(&app);
    for key in [
        "0",
        "%2e%2e%2fvivavoce.db",
        "00000000000000000000000000000000",
    ] {
        let answer = asking.get(&format!("/api/talk/recordings/{key}")).await;
        assert_eq!(answer.status, 404, "{key}");
    }
}
