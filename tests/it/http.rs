//! What is said before a call begins: health, metrics, the page, who is let in, queries that are refused.

mod connections;

use vivavoce::store::Store;
use vivavoce::web::{AppState, WebSettings};
use wire::api::{ErrorBody, Health, HealthState};

use crate::support::{Setup, TestApp, TestPrepare, dial_over, listen};

async fn get(url: &str) -> reqwest::Response {
    reqwest::get(url).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_answers_while_the_model_loads() {
    let state =
        AppState::<TestPrepare>::open(WebSettings::default(), Store::in_memory().await.unwrap())
            .await
            .unwrap();
    let (address, _stop) = listen(&state);
    let url = |path| format!("http://{address}{path}");
    assert_eq!(get(&url("/livez")).await.status(), 200);
    for path in ["/readyz", "/health"] {
        let response = get(&url(path)).await;
        assert_eq!(response.status(), 503);
        assert!(response.headers().contains_key("retry-after"));
        let health: Health = response.json().await.unwrap();
        assert_eq!(health.state, HealthState::Loading);
    }
    assert!(
        get(&url("/metrics"))
            .await
            .text()
            .await
            .unwrap()
            .contains("vivavoce_loaded 0")
    );
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let refused = dial_over(stream, "").await.err().unwrap();
    assert_eq!(
        (refused.status, refused.error.code.as_str()),
        (503, "loading")
    );
    assert!(refused.retry_after.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_goes_red_when_full_and_health_stays_green() {
    let app = Setup::echo().slots(1).start().await;
    let (status, health) = app.health().await;
    assert_eq!(
        (status, health.state, health.slots),
        (200, HealthState::Ready, 1)
    );
    let caller = app.live("").await;
    let (status, health) = app.health().await;
    assert_eq!(
        (status, health.state, health.slots_taken),
        (503, HealthState::Full, 1)
    );
    assert!(health.last_tick_age_ms.is_some());
    assert_eq!(get(&app.url("/health")).await.status(), 200);
    drop(caller);
    app.all_slots_free().await;
    assert_eq!(app.health().await.0, 200);
    app.stepper.drain();
    crate::support::until("the drain to be seen", || !app.board().in_service()).await;
    assert_eq!(app.health().await.0, 503);
    assert_eq!(get(&app.url("/health")).await.status(), 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_prometheus_text_with_a_tick_histogram() {
    let app = Setup::echo().start().await;
    let mut caller = app.live("").await;
    caller.talk(5).await;
    let response = get(&app.url("/metrics")).await;
    let content_type = response.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(content_type.starts_with("text/plain; version=0.0.4"));
    let text = response.text().await.unwrap();
    for line in text.lines() {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(
            line.starts_with("# ")
                || (name.starts_with("vivavoce_") && value.parse::<f64>().is_ok()),
            "{line}"
        );
    }
    assert!(text.contains("vivavoce_tick_seconds_bucket{le=\"0.08\"}"));
    assert_eq!(
        app.metric("vivavoce_slots_by_phase{phase=\"live\"}").await,
        1.0
    );
    assert!(app.metric("vivavoce_tick_seconds_count").await >= 5.0);
    drop(caller);
    app.metric_reaches("vivavoce_sessions_ended_total{reason=\"hung_up\"}", 1.0)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_served_with_the_right_types() {
    let app = Setup::echo().start().await;
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/personas/3", "text/html; charset=utf-8"),
        ("/api/openapi.json", "application/json"),
    ] {
        let response = get(&app.url(path)).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], content_type);
    }
    for path in [
        "/nothing",
        "/assets/nothing.js",
        "/../Cargo.toml",
        "/%2e%2e/Cargo.toml",
        "/api/chats",
    ] {
        let response = get(&app.url(path)).await;
        assert_eq!(response.status(), 404, "{path}");
        assert_eq!(
            response.json::<ErrorBody>().await.unwrap().error.code,
            "not_found"
        );
    }
    // A person who typed a wrong address gets a page; a script never does.
    for (path, kind) in [
        ("/nothing", "text/html; charset=utf-8"),
        ("/assets/nothing.js", "application/json"),
        ("/api/nothing", "application/json"),
    ] {
        let asked = reqwest::Client::new().get(app.url(path));
        let asked = asked.header("accept", "text/html,application/xhtml+xml;q=0.9");
        let response = asked.send().await.unwrap();
        assert_eq!(response.status(), 404, "{path}");
        assert_eq!(response.headers()["content-type"], kind, "{path}");
    }
    let response = get(&app.url("/api/chat")).await;
    assert_eq!(response.status(), 426);
    assert!(
        response
            .json::<ErrorBody>()
            .await
            .unwrap()
            .error
            .hint
            .is_some()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_tells_browsers_to_be_careful() {
    let app = Setup::echo().start().await;
    for path in ["/", "/nothing", "/livez", "/metrics", "/api/chat?seed=x"] {
        let response = get(&app.url(path)).await;
        let header = |name| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("referrer-policy"), "no-referrer", "{path}");
        let policy = header("content-security-policy");
        assert!(
            policy.contains("frame-ancestors 'none'"),
            "{path}: {policy}"
        );
    }
    let client = reqwest::Client::new();
    let stranger = client.get(app.url("/")).header("host", "evil.example");
    let refused = stranger.send().await.unwrap();
    assert_eq!(refused.status(), 403);
    assert_eq!(refused.headers()["x-content-type-options"], "nosniff");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_beyond_the_limit_is_refused_unread() {
    let app = Setup::echo().start().await;
    let refused = |path: &str, bytes: usize| {
        let request = reqwest::Client::new().post(app.url(path));
        let request = request.header("content-type", "application/json");
        request.body(vec![b' '; bytes]).send()
    };
    for (path, bytes, code) in [("/api/personas/cost", 100_000, "bad_body")] {
        let refused = refused(path, bytes).await.unwrap();
        assert_eq!(refused.status(), 413, "{path}");
        let error = refused.json::<ErrorBody>().await.unwrap().error;
        assert_eq!(error.code, code, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_has_the_one_body() {
    let app = Setup::echo().start().await;
    let cases = [
        ("POST", "/api/chat", 405, "wrong_method"),
        ("DELETE", "/livez", 405, "wrong_method"),
        ("PATCH", "/api/personas", 405, "wrong_method"),
        ("PUT", "/api/openapi.json", 405, "wrong_method"),
        ("POST", "/personas", 405, "wrong_method"),
        ("POST", "/nothing", 404, "not_found"),
        ("GET", "/api/nothing", 404, "not_found"),
        ("GET", "/api/personas/seven", 400, "bad_value"),
        ("GET", "/api/logs?after=x", 400, "bad_value"),
        ("GET", "/api/sessions?limit=many", 400, "bad_value"),
    ];
    for (method, path, status, code) in cases {
        let method = method.parse().unwrap();
        let request = reqwest::Client::new().request(method, app.url(path));
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), status, "{path}");
        let allow = response.headers().contains_key("allow");
        assert_eq!(allow, status == 405 && path != "/personas", "{path}");
        let error = response.json::<ErrorBody>().await.unwrap().error;
        assert_eq!(error.code, code, "{path}");
        assert!(!error.message.is_empty(), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_told_why_they_are_not_let_in() {
    let app = Setup::echo().start().await;
    let client = reqwest::Client::new();
    for (name, value) in [("host", "evil.example"), ("x-forwarded-for", "1.2.3.4")] {
        let response = client
            .get(app.url("/readyz"))
            .header(name, value)
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 403);
        let error = response.json::<ErrorBody>().await.unwrap().error;
        assert!(error.hint.unwrap().contains("password"));
    }
}

async fn refusals(app: &TestApp, cases: &[(&str, &str)]) {
    for (query, code) in cases {
        let refused = app
            .dial(query)
            .await
            .err()
            .unwrap_or_else(|| panic!("{query} was taken"));
        assert_eq!(
            (refused.status, refused.error.code.as_str()),
            (400, *code),
            "{query}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_values_are_refused_before_the_upgrade_and_good_ones_reach_the_engine() {
    let app = Setup::echo().start().await;
    refusals(
        &app,
        &[
            ("seed=abc", "bad_value"),
            ("seed=3.7", "bad_value"),
            ("seed=18446744073709551616", "bad_value"),
            ("text_temperature=NaN", "bad_value"),
            ("audio_temperature=1e999", "bad_value"),
            ("text_temperature=-1", "bad_value"),
            ("audio_topk=0", "bad_value"),
            ("voice_prompt=NATF99", "unknown_voice"),
        ],
    )
    .await;
    for (query, seed) in [
        ("seed=42", Some(42)),
        ("seed=9223372036854775808", Some(1 << 63)),
        ("seed=-1", None),
        ("seed=", None),
    ] {
        drop(app.live(query).await);
        let asked = app.prepare.asked.lock().unwrap().pop().unwrap();
        if let Some(seed) = seed {
            assert_eq!(asked.sampling.seed, seed, "{query}");
        }
        assert_eq!(asked.sampling.text_temperature, 0.7);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_a_seed_differ() {
    let app = Setup::echo().start().await;
    for _ in 0..2 {
        drop(app.live("").await);
    }
    let asked = app.prepare.asked.lock().unwrap();
    assert_ne!(asked[0].sampling.seed, asked[1].sampling.seed);
}

#[tokio::test(flavor = "multi_thread")]
async fn voices_that_are_paths_are_refused() {
    let app = Setup::echo().start().await;
    let sent = [
        "../../etc/passwd",
        "..%2f..%2fx.pt",
        "%2e%2e",
        "%252e%252e%252fx",
        "/etc/passwd",
        "C:%5Cx.pt",
        "x%00.pt",
    ];
    for voice in sent {
        refusals(&app, &[(&format!("voice_prompt={voice}"), "bad_voice")]).await;
    }
    assert!(
        app.prepare.asked.lock().unwrap().is_empty(),
        "none of them reached the engine"
    );
    drop(app.live("voice_prompt=NATM0.pt").await);
    let asked = app.prepare.asked.lock().unwrap();
    assert_eq!(asked[0].voice.as_deref(), Some("NATM0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_of_5000_characters_fits_and_a_query_beyond_the_limit_is_told() {
    let app = Setup::echo().start().await;
    let prompt: String = (0..5_000)
        .map(|at| if at % 5 == 0 { 'é' } else { 'e' })
        .collect();
    let encoded = prompt.replace('é', "%C3%A9").replacen('e', "%65", 2_000);
    assert!(encoded.len() > 13_000);
    drop(app.live(&format!("text_prompt={encoded}")).await);
    let asked = app.prepare.asked.lock().unwrap().pop().unwrap();
    assert_eq!(asked.text_prompt, Some(prompt));
    let refused = app
        .dial(&format!("text_prompt={}", "e".repeat(20_000)))
        .await
        .err()
        .unwrap();
    assert_eq!(
        (refused.status, refused.error.code.as_str()),
        (414, "query_too_long")
    );
}
