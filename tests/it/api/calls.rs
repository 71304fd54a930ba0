//! Calls as the API answers them: whose persona, who is heard first, and an end from outside.

use serde_json::{Value, json};
use wire::notice::{EndReason, Notice};

use super::Asking;
use super::log::{ended, newest};
use crate::support::{Heard, Setup, TestApp, loudness};
use slots::testing::{ScriptedEngine, Speech};

/// Louder than what Opus makes of silence.
const HEARD: f32 = 0.005;

async fn persona(app: &TestApp, draft: Value) -> i64 {
    let made = Asking::of(app).post("/api/personas", draft).await.good();
    made["id"].as_i64().unwrap()
}

/// A switchboard whose agent always talks.
async fn talkative() -> TestApp {
    let engine = ScriptedEngine::new(Speech::Voice).saying(" word", 1);
    Setup::of(engine).start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_lets_the_caller_speak_first_is_not_heard_before() {
    let app = talkative().await;
    let draft = json!({"name": "Listener", "role_text": "Listen.", "greeting": "caller_first"});
    let id = persona(&app, draft).await;
    let mut caller = app.live(&format!("persona={id}")).await;
    for n in 0..20 {
        let heard = loudness(&caller.frame().await);
        assert!(heard < HEARD, "frame {n}: {heard}");
        // A quiet room is no speech.
        caller.say(0.0005).await;
    }
    caller.say(0.3).await;
    let mut held = 0;
    while loudness(&caller.frame().await) < HEARD {
        held += 1;
        assert!(held < 100, "the caller has spoken");
        caller.say(0.3).await;
    }
    caller.until(|heard| matches!(heard, Heard::Text(_))).await;
    drop(caller);
    let session = newest(&app, ended).await;
    let store = app.state.desk().store();
    let kept = store
        .transcript(session["id"].as_i64().unwrap())
        .await
        .unwrap();
    assert!(
        kept[0].frame >= 20,
        "what nobody heard was not said: {kept:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_waits_ten_seconds_for_a_caller_who_does_not_speak() {
    let app = talkative().await;
    let draft = json!({"name": "Listener", "role_text": "Listen.", "greeting": "caller_first"});
    let id = persona(&app, draft).await;
    let mut caller = app.live(&format!("persona={id}")).await;
    let mut frames = 0;
    while loudness(&caller.frame().await) < HEARD {
        frames += 1;
        assert!(frames < 200, "it never speaks");
    }
    // Opus takes a frame or two to come out of silence.
    assert!((120..=130).contains(&frames), "{frames}");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_the_query_win_over_the_personas() {
    let app = Setup::echo().start().await;
    let draft = json!({"name": "Ada", "role_text": "You are Ada.", "voice": "NATM0",
        "sampling": {"text_temperature": 0.25, "audio_top_k": 9, "seed": "77"}});
    let id = persona(&app, draft).await;
    let cases = [
        ("", "You are Ada.", "NATM0", 77, json!("Ada")),
        (
            "&seed=5&voice_prompt=NATF0",
            "You are Ada.",
            "NATF0",
            5,
            json!("Ada"),
        ),
        (
            "&text_prompt=Other",
            "Other",
            "NATM0",
            77,
            json!("own text"),
        ),
        (
            "&text_prompt=%20",
            "You are Ada.",
            "NATM0",
            77,
            json!("Ada"),
        ),
    ];
    for (query, text, voice, seed, name) in cases {
        let caller = app.live(&format!("persona={id}{query}")).await;
        // What was just saved is also prepared aside, without a seed.
        let asked = app.prepare.asked.lock().unwrap().clone();
        let asked = asked.iter().rfind(|asked| asked.sampling.seed == seed);
        let asked = asked.expect("a call with this seed");
        assert_eq!(asked.text_prompt.as_deref(), Some(text), "{query}");
        assert_eq!(asked.voice.as_deref(), Some(voice), "{query}");
        assert_eq!(
            (asked.sampling.seed, asked.sampling.audio_top_k),
            (seed, 9),
            "{query}"
        );
        drop(caller);
        let seed_text = seed.to_string();
        let session = newest(&app, |session| {
            session["seed"] == seed_text && session["persona"] == name
        })
        .await;
        assert_eq!(
            session["persona_id"].is_null(),
            name == "own text",
            "{session}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persona_that_is_not_there_is_refused_before_the_upgrade() {
    let app = Setup::echo().start().await;
    let id = persona(&app, json!({"name": "Ada", "role_text": "You are Ada."})).await;
    persona(
        &app,
        json!({"name": "Other", "role_text": "You are another."}),
    )
    .await;
    let asking = Asking::of(&app);
    asking
        .post(&format!("/api/personas/{}/default", id + 1), json!({}))
        .await
        .good();
    assert_eq!(
        asking.delete(&format!("/api/personas/{id}")).await.status,
        204
    );
    for gone in [id, 99] {
        let refused = app
            .dial(&format!("persona={gone}"))
            .await
            .err()
            .expect("refused");
        assert_eq!(
            (refused.status, refused.error.code.as_str()),
            (404, "not_found")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_opens_its_persona_and_no_choice_of_text_voice_or_seed() {
    let app = Setup::echo().start().await;
    let id = persona(&app, json!({"name": "Ada", "role_text": "You are Ada."})).await;
    let token = json!({"name": "phone", "scopes": ["call"], "persona_id": id});
    let made = Asking::of(&app).post("/api/tokens", token).await.good();
    let password = json!({"new": "a long password"});
    Asking::of(&app)
        .put("/api/account/password", 0, password)
        .await
        .good();
    let token = made["token"]
        .as_str()
        .unwrap_or_else(|| panic!("{made}"))
        .to_owned();
    let refused = app.dial("").await.err().expect("nobody knows this caller");
    assert_eq!(refused.status, 401);
    for choice in [
        "text_prompt=hi",
        "voice_prompt=NATM0",
        "seed=5",
        "persona=99",
    ] {
        let refused = app
            .dial(&format!("token={token}&{choice}"))
            .await
            .err()
            .expect(choice);
        assert_eq!(
            (refused.status, refused.error.code.as_str()),
            (403, "not_allowed"),
            "{choice}"
        );
    }
    let mut caller = app
        .live(&format!("token={token}&text_temperature=0.5&seed=-1"))
        .await;
    caller.talk(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_ends_a_call_and_the_caller_hears_why() {
    let app = Setup::echo().start().await;
    let mut caller = app.live("ext=1").await;
    caller.talk(2).await;
    let session = newest(&app, |session| session["live_at_ms"].is_i64()).await;
    let live = app.state.desk().journal().live();
    live.get(session["id"].as_i64().unwrap())
        .expect("it runs")
        .hang_up();
    let heard = caller
        .until(|heard| matches!(heard, Heard::Closed { .. }))
        .await;
    let told = heard.iter().any(|heard| {
        matches!(
            heard,
            Heard::Notice(Notice::Ended {
                reason: EndReason::ClosedByOperator,
                redial: false,
                ..
            })
        )
    });
    assert!(told, "{heard:?}");
    let session = newest(&app, ended).await;
    assert_eq!(session["end_reason"], "closed_by_operator");
}
