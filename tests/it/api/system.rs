//! The System page: what doctor says, settings, limits, log, policy.

use reqwest::Method;
use serde_json::{Value, json};

use super::Asking;
use crate::program::{Home, Server};
use crate::support::Setup;

#[tokio::test(flavor = "multi_thread")]
async fn slots_auto_offers_what_stays_in_time_and_the_system_page_says_so() {
    let home = Home::new();
    let server = Server::start(&home, &[], &["--slots", "auto", "--admission", "on"]);
    let system = server.get("/api/system").await;
    let checks = system["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["name"] == "calibration");
    let text = found.unwrap_or_else(|| panic!("{system}"))["text"].as_str();
    let slots = server.get("/health").await["slots"].as_u64().unwrap();
    let said = format!("{slots} of 4 slots are offered");
    assert!(text.unwrap().starts_with(&said), "{text:?}");

    let other = Home::new();
    let fixed = Server::start(&other, &[], &["--slots", "2", "--admission", "on"]);
    let system = fixed.get("/api/system").await.to_string();
    assert!(!system.contains("calibration"), "nobody asked: {system}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_system_page_says_what_doctor_says_of_a_server_that_runs() {
    let home = Home::new();
    let server = Server::start(&home, &[("HF_TOKEN", "hf_topsecret")], &["--slots", "2"]);
    let system: Value = server.get("/api/system").await;
    assert_eq!(system["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        (&system["model"], &system["tls"]["kind"]),
        (&json!("demo"), &json!("off"))
    );
    let checks = system["checks"].as_array().unwrap();
    let names: Vec<_> = checks
        .iter()
        .map(|check| check["name"].as_str().unwrap())
        .collect();
    for name in ["cpu", "memory", "gpu", "model", "data folder", "microphone"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(!names.contains(&"port"), "it holds the port itself");
    for check in checks {
        assert_ne!(check["state"], "bad", "{check}");
        assert!(!check["text"].as_str().unwrap().is_empty(), "{check}");
    }
    let settings = system["settings"].as_array().unwrap();
    let setting = |name: &str| settings.iter().find(|setting| setting["name"] == name);
    assert_eq!(
        setting("slots"),
        Some(&json!({"name": "slots", "value": "2", "source": "flag"}))
    );
    assert_eq!(setting("hub token").unwrap()["value"], "********");
    assert!(!system.to_string().contains("topsecret"));
    let licences = system["licences"].as_array().unwrap();
    assert!(licences.len() >= 2, "{licences:?}");
    assert!(system["limits"].as_array().unwrap().len() >= 5, "{system}");

    let log: Value = server.get("/api/logs").await;
    let lines = log["items"].as_array().unwrap();
    let is_there = |words: &str| {
        let text = |line: &Value| line["text"].as_str().unwrap().contains(words);
        lines.iter().any(text)
    };
    assert!(
        is_there("listening on http://") && is_there("ready slots=2"),
        "{log}"
    );
    let number = |line: &Value| line["number"].as_u64().unwrap();
    assert!(
        lines
            .windows(2)
            .all(|pair| number(&pair[1]) == number(&pair[0]) + 1)
    );
    let last = number(lines.last().unwrap());
    let fresh: Value = server.get(&format!("/api/logs?after={}", last - 1)).await;
    assert_eq!(fresh["items"].as_array().unwrap().len(), 1, "{fresh}");

    // Drained from the page, an idle server ends in order.
    let drain = reqwest::Client::new()
        .post(server.url("/api/drain"))
        .send()
        .await;
    assert_eq!(drain.unwrap().status(), 202);
    assert_eq!(server.ended().await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_is_changed_by_whoever_has_read_it() {
    let app = Setup::echo().start().await;
    let asking = Asking::of(&app);
    let first = asking.get("/api/policy").await;
    assert_eq!((first.status, first.etag.as_deref()), (200, Some("\"1\"")));
    let mut draft = first.body.clone();
    draft.as_object_mut().unwrap().remove("version");
    assert_eq!(draft["record_audio"], false, "off until somebody wants it");
    for (name, days) in [
        ("recording_days", 0),
        ("recording_days", 3_651),
        ("session_days", 0),
    ] {
        let mut wrong = draft.clone();
        wrong[name] = json!(days);
        let refused = asking.put("/api/policy", 1, wrong).await;
        assert_eq!((refused.status, refused.code()), (400, "bad_value"));
        let message = refused.body["error"]["message"].as_str().unwrap();
        assert!(message.contains(name), "{message}");
    }
    let blind = asking.request(Method::PUT, "/api/policy").json(&draft);
    assert_eq!(blind.send().await.unwrap().status(), 428);
    draft["record_audio"] = json!(true);
    let changed = asking.put("/api/policy", 1, draft.clone()).await;
    assert_eq!(
        (changed.status, changed.etag.as_deref()),
        (200, Some("\"2\""))
    );
    let stale = asking.put("/api/policy", 1, draft).await;
    assert_eq!((stale.status, stale.code()), (412, "changed_meanwhile"));
    assert_eq!(asking.get("/api/policy").await.body, changed.body);
}
