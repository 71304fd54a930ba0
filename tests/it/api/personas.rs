//! Personas, their versions and links.

use reqwest::Method;
use serde_json::{Value, json};

use super::Asking;
use crate::support::Setup;

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_cannot_overwrite_each_other_unnoticed() {
    let app = Setup::echo().start().await;
    let asking = Asking::of(&app);
    let made = asking
        .post(
            "/api/personas",
            json!({"name": " Ada ", "role_text": "You are Ada."}),
        )
        .await;
    assert_eq!((made.status, made.etag.as_deref()), (201, Some("\"1\"")));
    let id = made.body["id"].as_i64().unwrap();
    assert_eq!(made.body["name"], "Ada");
    let path = format!("/api/personas/{id}");
    let first = asking
        .put(&path, 1, json!({"name": "Ada", "role_text": "First."}))
        .await;
    assert_eq!((first.status, first.etag.as_deref()), (200, Some("\"2\"")));
    let second = asking
        .put(&path, 1, json!({"name": "Ada", "role_text": "Second."}))
        .await;
    assert_eq!((second.status, second.code()), (412, "changed_meanwhile"));
    let blind = asking
        .request(Method::PUT, &path)
        .json(&json!({"name": "x", "role_text": ""}));
    assert_eq!(blind.send().await.unwrap().status(), 428);
    let restored = asking.request(Method::POST, &format!("{path}/versions/1/restore"));
    let restored = restored.header("if-match", "\"2\"").send().await.unwrap();
    assert_eq!(restored.status(), 200);
    let now = asking.get(&path).await.good();
    assert_eq!(
        (&now["role_text"], &now["version"]),
        (&json!("You are Ada."), &json!(3))
    );
    let versions = asking.get(&format!("{path}/versions")).await.good();
    assert_eq!(versions["items"].as_array().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_that_is_no_good_is_refused_with_the_field() {
    let app = Setup::echo().start().await;
    let asking = Asking::of(&app);
    let long = "x".repeat(17_000);
    let cases = [
        (
            json!({"name": "", "role_text": ""}),
            400,
            "bad_value",
            "name",
        ),
        (
            json!({"name": "a\u{7}b", "role_text": ""}),
            400,
            "bad_value",
            "name",
        ),
        (
            json!({"name": "a".repeat(81), "role_text": ""}),
            400,
            "bad_value",
            "name",
        ),
        (
            json!({"name": "a", "role_text": long}),
            400,
            "bad_value",
            "role_text",
        ),
        (
            json!({"name": "a", "role_text": "x".repeat(2_000)}),
            400,
            "prompt_too_long",
            "2000",
        ),
        (
            json!({"name": "a", "role_text": "", "voice": "BASS9"}),
            400,
            "unknown_voice",
            "NATF0",
        ),
        (
            json!({"name": "a", "role_text": "", "voice": "../x"}),
            400,
            "bad_voice",
            "voice",
        ),
        (
            json!({"name": "a", "role_text": "", "sampling": {"text_temperature": 9.0}}),
            400,
            "bad_value",
            "text_temperature",
        ),
        (
            json!({"name": "a", "role_text": "", "sampling": {"seed": "-1"}}),
            400,
            "bad_value",
            "seed",
        ),
        (
            json!({"name": "a", "role_text": "", "colour": 1}),
            422,
            "bad_body",
            "colour",
        ),
        (json!({"name": "a"}), 422, "bad_body", "role_text"),
    ];
    for (draft, status, code, word) in cases {
        let refused = asking.post("/api/personas", draft.clone()).await;
        assert_eq!((refused.status, refused.code()), (status, code), "{draft}");
        let message = refused.body["error"]["message"].as_str().unwrap();
        assert!(message.contains(word), "{message}");
    }
    let list = asking.get("/api/personas?limit=0").await;
    assert_eq!((list.status, list.code()), (400, "bad_value"));
    let form = asking
        .request(Method::POST, "/api/personas")
        .body("name=x")
        .send()
        .await
        .unwrap();
    assert_eq!(form.status(), 415);
}

#[tokio::test(flavor = "multi_thread")]
async fn personas_go_out_as_a_file_and_come_in_again() {
    let app = Setup::echo().start().await;
    let asking = Asking::of(&app);
    for name in ["Ada", "Bea"] {
        asking
            .post("/api/personas", json!({"name": name, "role_text": name}))
            .await
            .good();
    }
    let mut file = asking.get("/api/personas/export").await.good();
    assert_eq!(file["personas"].as_array().unwrap().len(), 2);
    file["personas"][1]["role_text"] = json!("another");
    file["personas"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "Cleo", "role_text": "c"}));
    let imported = asking
        .post("/api/personas/import", file.clone())
        .await
        .good();
    assert_eq!(
        imported,
        json!({"created": ["Cleo"], "unchanged": ["Ada"], "renamed": [["Bea", "Bea imported"]]})
    );
    file["personas"][0]["name"] = json!("");
    let refused = asking.post("/api/personas/import", file).await;
    assert!(
        refused.body["error"]["message"]
            .as_str()
            .unwrap()
            .contains("persona 1"),
        "{refused:?}"
    );
    for name in ["Ada copy", "Ada copy 2"] {
        let copy = asking.post("/api/personas/1/duplicate", json!({})).await;
        assert_eq!(copy.good()["name"], name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_file_comes_in_whole_and_other_bodies_stay_short() {
    let app = Setup::echo().start().await;
    let asking = Asking::of(&app);
    let role_text = "word ".repeat(160);
    let persona = |n: usize| {
        json!({"name": format!("Persona {n:03}"), "role_text": role_text.trim(),
        "sampling": {"seed": "7"}, "greeting": "caller_first"})
    };
    let personas: Vec<_> = (0..300).map(persona).collect();
    let file = json!({"schema": "vivavoce-personas/1", "personas": personas});
    assert!(file.to_string().len() > 200_000);
    let imported = asking.post("/api/personas/import", file.clone()).await;
    assert_eq!(
        imported.good()["created"].as_array().map(Vec::len),
        Some(300)
    );
    assert_eq!(asking.get("/api/personas/export").await.good(), file);
    let long = json!({"name": "Ada", "role_text": "x".repeat(100_000)});
    let refused = asking.post("/api/personas", long).await;
    assert_eq!((refused.status, refused.code()), (413, "bad_body"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_names_one_twice_keeps_both_unless_they_are_the_same() {
    let app = Setup::echo().start().await;
    let asking = Asking::of(&app);
    let named = |name: &str, role_text: &str| json!({"name": name, "role_text": role_text});
    let file = |personas: &[Value]| json!({"schema": "vivavoce-personas/1", "personas": personas});
    let twins = [
        named("Ada", "one"),
        named("Ada", "one"),
        named("ada", "two"),
        named("ADA", "three"),
    ];
    let imported = asking.post("/api/personas/import", file(&twins)).await;
    assert_eq!(
        imported.good(),
        json!({"created": ["Ada"], "unchanged": ["Ada"],
            "renamed": [["ada", "ada imported"], ["ADA", "ADA imported 2"]]})
    );
    let half = [named("Bea", "fine"), named("Cleo", &"x".repeat(2_000))];
    let refused = asking.post("/api/personas/import", file(&half)).await;
    assert_eq!((refused.status, refused.code()), (400, "bad_value"));
    let list = asking.get("/api/personas?query=Bea").await.good();
    assert_eq!(list["items"], json!([]), "nothing was imported");
    let many: Vec<_> = (0..1_001).map(|n| named(&format!("p{n}"), "")).collect();
    let refused = asking.post("/api/personas/import", file(&many)).await;
    assert_eq!((refused.status, refused.code()), (400, "bad_value"));
    let later = json!({"schema": "vivavoce-personas/2", "personas": []});
    let refused = asking.post("/api/personas/import", later).await;
    assert_eq!((refused.status, refused.code()), (400, "bad_value"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_persona_cannot_be_archived_and_others_come_back() {
    let app = Setup::echo().start().await;
    let asking = Asking::of(&app);
    for name in ["Ada", "Bea"] {
        asking
            .post("/api/personas", json!({"name": name, "role_text": name}))
            .await
            .good();
    }
    let refused = asking.delete("/api/personas/1").await;
    assert_eq!((refused.status, refused.code()), (409, "is_default"));
    for _ in 0..2 {
        assert_eq!(asking.delete("/api/personas/2").await.status, 204);
    }
    assert_eq!(asking.delete("/api/personas/99").await.status, 204);
    let archived = asking.get("/api/personas?archived=true").await.good();
    assert_eq!(archived["items"][0]["name"], "Bea");
    asking
        .post("/api/personas/2/unarchive", json!({}))
        .await
        .good();
    asking
        .post("/api/personas/2/default", json!({}))
        .await
        .good();
    assert_eq!(asking.delete("/api/personas/1").await.status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_gets_the_persona_it_names_or_the_default_one() {
    let app = Setup::echo().start().await;
    let asking = Asking::of(&app);
    for (name, voice) in [("Ada", "NATF0"), ("Bea", "NATM0")] {
        let draft = json!({"name": name, "role_text": format!("You are {name}."), "voice": voice,
            "sampling": {"text_temperature": 0.25}});
        asking.post("/api/personas", draft).await.good();
    }
    app.prepare.asked.lock().unwrap().clear();
    let cases = [
        ("persona=2", "You are Bea.", "NATM0", 0.25),
        ("", "You are Ada.", "NATF0", 0.25),
        ("text_prompt=%20", "You are Ada.", "NATF0", 0.25),
        (
            "persona=2&voice_prompt=NATF0&text_temperature=0.5",
            "You are Bea.",
            "NATF0",
            0.5,
        ),
    ];
    for (query, text, voice, temperature) in cases {
        drop(app.live(query).await);
        let asked = app.prepare.asked.lock().unwrap().pop().unwrap();
        assert_eq!(asked.text_prompt.as_deref(), Some(text), "{query}");
        assert_eq!(asked.voice.as_deref(), Some(voice), "{query}");
        assert_eq!(asked.sampling.text_temperature, temperature, "{query}");
    }
    drop(app.live("text_prompt=Own").await);
    let asked = app.prepare.asked.lock().unwrap().pop().unwrap();
    assert_eq!(
        (asked.text_prompt.as_deref(), asked.voice),
        (Some("Own"), None)
    );
    let refused = app.dial("persona=77").await.err().unwrap();
    assert_eq!(
        (refused.status, refused.error.code.as_str()),
        (404, "not_found")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_prompt_costs_is_told_before_it_is_saved() {
    let app = Setup::echo().start().await;
    let asking = Asking::of(&app);
    let cost = asking
        .post(
            "/api/personas/cost",
            json!({"role_text": "x".repeat(1_500)}),
        )
        .await
        .good();
    assert_eq!(
        (&cost["text_tokens"], &cost["positions_max"]),
        (&json!(1_500), &json!(1_000))
    );
}
