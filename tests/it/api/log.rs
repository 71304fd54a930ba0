//! The log of sessions.

use serde_json::{Value, json};

use super::Asking;
use crate::support::{PATIENCE, Setup, TestApp};
use slots::testing::ScriptedEngine;

/// The newest session, as soon as it is as `wanted`.
pub async fn newest(app: &TestApp, wanted: impl Fn(&Value) -> bool) -> Value {
    let asking = Asking::of(app);
    let looking = async {
        loop {
            let list = asking.get("/api/sessions").await.good();
            let newest = list["items"][0].clone();
            if !newest.is_null() && wanted(&newest) {
                return newest;
            }
            crate::support::before_the_next_look().await;
        }
    };
    tokio::time::timeout(PATIENCE, looking)
        .await
        .expect("the log shows it")
}

pub fn ended(session: &Value) -> bool {
    session["end_reason"].is_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_in_the_log_with_what_was_said_and_how_it_ended() {
    let app = Setup::of(ScriptedEngine::echo().saying(" word", 1))
        .start()
        .await;
    let asking = Asking::of(&app);
    asking
        .post(
            "/api/personas",
            json!({"name": "Ada", "role_text": "You are Ada."}),
        )
        .await
        .good();
    let mut caller = app.live("seed=18446744073709551615").await;
    caller.talk(30).await;
    let running = newest(&app, |session| session["live_at_ms"].is_i64()).await;
    let id = running["id"].as_i64().unwrap();
    let refused = asking.delete(&format!("/api/sessions/{id}")).await;
    assert_eq!((refused.status, refused.code()), (409, "still_running"));
    drop(caller);
    let session = newest(&app, ended).await;
    assert_eq!(session["end_reason"], "hung_up");
    assert_eq!(
        (&session["persona"], &session["persona_version"]),
        (&json!("Ada"), &json!(1))
    );
    assert_eq!(
        (&session["voice"], &session["caller"]),
        (&json!("NATF0"), &json!("local"))
    );
    assert_eq!(session["seed"], "18446744073709551615");
    let frames = session["counters"]["frames"].as_i64().unwrap();
    assert!(frames >= 30, "{session}");
    let transcript = asking
        .get(&format!("/api/sessions/{id}/transcript"))
        .await
        .good();
    let said = transcript["items"].as_array().unwrap();
    assert!(
        said.len() as i64 >= frames - 1,
        "the last words count too: {} of {frames}",
        said.len()
    );
    let detail = asking.get(&format!("/api/sessions/{id}")).await.good();
    assert_eq!(detail["role_text"], "You are Ada.");
    let timeline: Vec<_> = detail["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["what"].as_str().unwrap())
        .collect();
    assert_eq!(timeline, ["began", "live", "ended"]);
    assert!(detail["levels"]["agent"].as_array().unwrap().len() >= 30);
    let text = asking
        .get(&format!("/api/sessions/{id}/export?format=text"))
        .await
        .good();
    assert!(text.as_str().unwrap().contains("word word"), "{text}");
    let file = asking
        .get(&format!("/api/sessions/{id}/export"))
        .await
        .good();
    assert_eq!(file["schema"], "vivavoce-session/1");
    for _ in 0..2 {
        assert_eq!(
            asking.delete(&format!("/api/sessions/{id}")).await.status,
            204
        );
    }
    assert_eq!(asking.get(&format!("/api/sessions/{id}")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_was_refused_is_in_the_log_too() {
    let app = Setup::echo().slots(1).start().await;
    let _holder = app.live("").await;
    let mut refused = app.call("").await;
    refused.ending().await;
    let session = newest(&app, ended).await;
    assert_eq!(
        (&session["end_reason"], &session["live_at_ms"]),
        (&json!("full"), &Value::Null)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_of_what_was_said_when_the_policy_says_so() {
    let app = Setup::of(ScriptedEngine::echo().saying(" secret", 1))
        .start()
        .await;
    let store = app.state.desk().store();
    let mut policy = store.policy().await.unwrap();
    policy.draft.keep_transcripts = false;
    store
        .set_policy(&policy.draft, policy.version)
        .await
        .unwrap();
    let mut caller = app.live("").await;
    caller.talk(20).await;
    drop(caller);
    let session = newest(&app, ended).await;
    assert!(session["words"].as_i64().unwrap() > 0);
    let transcript = store
        .transcript(session["id"].as_i64().unwrap())
        .await
        .unwrap();
    assert!(transcript.is_empty(), "{transcript:?}");
}
