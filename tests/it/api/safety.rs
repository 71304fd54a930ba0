//! Who may do what.

use reqwest::Method;
use serde_json::{Value, json};

use super::Asking;
use crate::support::{Setup, TestApp};

pub const PASSWORD: &str = "correct horse";

/// The cookie of a signed-in operator.
pub async fn sign_in(app: &TestApp) -> String {
    let asking = Asking::of(app);
    let set = asking.request(Method::PUT, "/api/account/password");
    let set = set.json(&json!({"new": PASSWORD})).send().await.unwrap();
    assert_eq!(set.status(), 200);
    let cookie = set.headers()["set-cookie"].to_str().unwrap().to_owned();
    for word in ["HttpOnly", "SameSite=Strict"] {
        assert!(cookie.contains(word), "{cookie}");
    }
    cookie.split(';').next().unwrap().to_owned()
}

/// Every route of the description as (method, path with numbers in place of parameters).
async fn all_routes(app: &TestApp) -> Vec<(Method, String)> {
    let description = Asking::of(app).get("/api/openapi.json").await.good();
    let paths = description["paths"].as_object().unwrap();
    let mut all = Vec::new();
    for (path, methods) in paths {
        let parts = path
            .split('/')
            .map(|part| if part.starts_with('{') { "1" } else { part });
        let path = parts.collect::<Vec<_>>().join("/");
        for method in methods.as_object().unwrap().keys() {
            if let Ok(method) = Method::from_bytes(method.to_uppercase().as_bytes()) {
                all.push((method, path.clone()));
            }
        }
    }
    assert!(all.len() > 25, "{all:?}");
    all
}

/// What anybody may ask.
const PUBLIC: [&str; 4] = [
    "/api/account",
    "/api/account/sign-in",
    "/api/account/sign-out",
    "/api/talk/recordings/1",
];

#[tokio::test(flavor = "multi_thread")]
async fn once_a_password_is_set_every_route_asks_who_is_there() {
    let app = Setup::echo().start().await;
    sign_in(&app).await;
    let stranger = Asking::of(&app);
    for (method, path) in all_routes(&app).await {
        let response = stranger
            .request(method.clone(), &path)
            .send()
            .await
            .unwrap();
        let status = response.status().as_u16();
        match PUBLIC.contains(&path.as_str()) {
            true => assert_ne!(status, 401, "{method} {path}"),
            false => {
                assert_eq!(status, 401, "{method} {path}");
                let body: Value = response.json().await.unwrap();
                assert!(body["error"]["hint"].is_string(), "{body}");
            }
        }
    }
    let refused = app.dial("").await.err().unwrap();
    assert_eq!(
        (refused.status, refused.error.code.as_str()),
        (401, "sign_in_needed")
    );
    assert_eq!(stranger.get("/metrics").await.status, 401);
    for open in ["/livez", "/readyz", "/health", "/", "/talk"] {
        assert_eq!(stranger.get(open).await.status, 200, "{open}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_change_nothing_even_with_the_cookie() {
    let app = Setup::echo().start().await;
    let cookie = sign_in(&app).await;
    let mut asking = Asking::with(&app, "cookie", cookie);
    asking.get("/api/personas").await.good();
    for header in [
        ("origin", "https://evil.example"),
        ("sec-fetch-site", "cross-site"),
    ] {
        asking.headers.push((header.0, header.1.to_owned()));
        for (method, path) in all_routes(&app).await {
            if method != Method::GET {
                let status = asking
                    .request(method.clone(), &path)
                    .send()
                    .await
                    .unwrap()
                    .status();
                assert_eq!(status, 403, "{method} {path}");
            }
        }
        asking.headers.pop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_in_takes_the_password_and_few_wrong_ones() {
    let app = Setup::echo().start().await;
    let cookie = sign_in(&app).await;
    let asking = Asking::of(&app);
    let wrong = asking
        .post("/api/account/sign-in", json!({"password": "wrong"}))
        .await;
    assert_eq!((wrong.status, wrong.code()), (401, "wrong_password"));
    let right = asking
        .post("/api/account/sign-in", json!({"password": PASSWORD}))
        .await;
    assert_eq!(right.body["role"], "operator");
    let second = right.cookie.unwrap().split(';').next().unwrap().to_owned();
    Asking::with(&app, "cookie", second.clone())
        .get("/api/personas")
        .await
        .good();
    let out = Asking::with(&app, "cookie", second.clone());
    assert_eq!(
        out.post("/api/account/sign-out", json!({})).await.status,
        204
    );
    assert_eq!(out.get("/api/personas").await.status, 401);
    let change = Asking::with(&app, "cookie", cookie.clone());
    let unproven = change.request(Method::PUT, "/api/account/password");
    let unproven = unproven
        .json(&json!({"new": "another one"}))
        .send()
        .await
        .unwrap();
    assert_eq!(unproven.status(), 401);
    let mut statuses = Vec::new();
    for _ in 0..8 {
        statuses.push(
            asking
                .post("/api/account/sign-in", json!({"password": "wrong"}))
                .await
                .status,
        );
    }
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
    let short = Setup::echo().start().await;
    let short = Asking::of(&short).request(Method::PUT, "/api/account/password");
    assert_eq!(
        short
            .json(&json!({"new": "short"}))
            .send()
            .await
            .unwrap()
            .status(),
        400
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_does_what_its_scopes_say() {
    let app = Setup::echo().start().await;
    Asking::of(&app)
        .post("/api/personas", json!({"name": "Ada", "role_text": "A"}))
        .await
        .good();
    Asking::of(&app)
        .post("/api/personas", json!({"name": "Bea", "role_text": "B"}))
        .await
        .good();
    let operator = Asking::with(&app, "cookie", sign_in(&app).await);
    let make = async |scopes: Value, persona: Value| {
        let wish = json!({"name": "t", "scopes": scopes, "persona_id": persona});
        let made = operator.post("/api/tokens", wish).await.good();
        made["token"].as_str().unwrap().to_owned()
    };
    let call = make(json!(["call"]), Value::Null).await;
    let measure = make(json!(["metrics"]), Value::Null).await;
    let operate = make(json!(["operate"]), Value::Null).await;
    let only_bea = make(json!(["call"]), json!(2)).await;
    let bearer = |token: &str| Asking::with(&app, "authorization", format!("Bearer {token}"));
    assert_eq!(bearer(&call).get("/api/personas").await.status, 403);
    assert_eq!(bearer(&call).get("/metrics").await.status, 403);
    assert_eq!(bearer(&measure).get("/metrics").await.status, 200);
    assert_eq!(bearer(&measure).get("/api/personas").await.status, 401);
    assert_eq!(bearer(&operate).get("/api/personas").await.status, 200);
    assert_eq!(
        bearer(&operate).get("/api/tokens").await.status,
        403,
        "tokens are made in person"
    );
    for query in [
        format!("token={call}"),
        format!("worker_auth_id={call}"),
        format!("token={only_bea}&persona=2"),
    ] {
        drop(app.live(&query).await);
    }
    for (query, status) in [
        (format!("token={only_bea}&persona=1"), 403),
        (format!("token={only_bea}&text_prompt=Own"), 403),
        (format!("token={measure}"), 403),
        ("token=unknown".to_owned(), 401),
    ] {
        assert_eq!(
            app.dial(&query).await.err().unwrap().status,
            status,
            "{query}"
        );
    }
    let id = operator.get("/api/tokens").await.good()["items"][0]["id"]
        .as_i64()
        .unwrap();
    for _ in 0..2 {
        assert_eq!(
            operator.delete(&format!("/api/tokens/{id}")).await.status,
            204
        );
    }
    assert_eq!(
        app.dial(&format!("token={only_bea}"))
            .await
            .err()
            .unwrap()
            .status,
        401
    );
    for bad in [
        json!({"name": "", "scopes": ["call"]}),
        json!({"name": "x", "scopes": []}),
    ] {
        assert_eq!(operator.post("/api/tokens", bad).await.status, 400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_link_opens_one_persona_and_nothing_else() {
    let app = Setup::echo().start().await;
    let local = Asking::of(&app);
    for name in ["Ada", "Bea"] {
        local
            .post("/api/personas", json!({"name": name, "role_text": name}))
            .await
            .good();
    }
    let operator = Asking::with(&app, "cookie", sign_in(&app).await);
    let made = operator
        .post(
            "/api/personas/2/shares",
            json!({"label": "Door", "days": 7}),
        )
        .await
        .good();
    let page = local
        .get(&format!("/{}", made["path"].as_str().unwrap()))
        .await;
    assert_eq!(page.status, 200);
    let cookie = page.cookie.unwrap().split(';').next().unwrap().to_owned();
    let guest = Asking::with(&app, "cookie", cookie);
    assert_eq!(guest.get("/api/account").await.good()["role"], "guest");
    let talk = guest.get("/api/talk").await.good();
    assert_eq!(
        (&talk["personas"][0]["name"], &talk["may_choose"]),
        (&json!("Bea"), &json!(false))
    );
    assert_eq!(talk["personas"].as_array().unwrap().len(), 1);
    assert_eq!(talk["memory_s"], 240);
    assert_eq!(guest.get("/api/personas").await.status, 403);
    // An operator who opens the link sees what its guests see.
    let path = made["path"].as_str().unwrap();
    let link = path.strip_prefix("talk/").unwrap();
    let seen = operator.get(&format!("/api/talk?link={link}")).await.good();
    assert_eq!(seen, talk);
    assert_eq!(operator.get("/api/talk?link=unknown").await.status, 404);
    assert!(local.get("/talk/unknown").await.cookie.is_none());
    let id = made["id"].as_i64().unwrap();
    assert_eq!(
        operator.delete(&format!("/api/shares/{id}")).await.status,
        204
    );
    assert_eq!(guest.get("/api/account").await.good()["role"], "nobody");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_carries_the_headers_that_keep_browsers_from_harm() {
    let app = Setup::echo().start().await;
    for path in ["/", "/api/personas", "/nothing"] {
        let response = reqwest::get(app.url(path)).await.unwrap();
        let csp = response.headers()["content-security-policy"]
            .to_str()
            .unwrap();
        assert!(
            !csp.contains("unsafe-inline") && csp.contains("frame-ancestors 'none'"),
            "{csp}"
        );
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(response.headers()[name], value, "{path}");
        }
        let asked = &response.headers()["permissions-policy"];
        assert!(asked.to_str().unwrap().contains("microphone=(self)"));
    }
    let wrong = Asking::of(&app).delete("/api/account").await;
    assert_eq!((wrong.status, wrong.code()), (405, "wrong_method"));
}
