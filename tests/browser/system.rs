//! The System page: tokens for programs, TLS, the log; and pages that are older than their server.

use serde_json::json;

use crate::can_run;
use crate::chromium::{Chromium, Window};
use crate::cut::Line;
use crate::operator::{confirm, sign_in, with_password};
use crate::question;
use crate::served::Served;

/// What `/metrics` answers to this token.
async fn status_of(served: &Served, token: &str) -> u16 {
    let asked = reqwest::Client::new().get(served.page("/metrics"));
    let answer = asked.bearer_auth(token).send().await.expect("it answers");
    answer.status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_shown_once_works_and_is_ended() {
    if !can_run("tokens") {
        return;
    }
    let (served, _password) = with_password();
    let window = Chromium::open(Window::default()).await;
    sign_in(&window, &served.page("/system")).await;
    window.sees("No tokens yet").await;
    window.fill("Name", "the dashboard").await;
    let choose = "const s = [...document.querySelectorAll('select')].find(s => [...s.options].some(o => o.value === 'metrics')); \
         if (!s) return null; s.value = 'metrics'; s.dispatchEvent(new Event('change', {bubbles: true})); return true";
    window.until("the scopes", choose, json!(null)).await;
    window.press("Make a token").await;
    window.sees("Shown this once").await;
    let token = "return document.querySelector('.made input').value";
    let token = window.until("the token", token, json!(null)).await;
    let token = token.as_str().expect("a text").to_owned();
    assert_eq!(status_of(&served, &token).await, 200);
    assert_eq!(status_of(&served, "another").await, 401);
    // It is gone with the page; what stays is what can be told.
    window.client.refresh().await.expect("a reload");
    window.sees("the dashboard").await;
    window.sees("last used").await;
    assert!(!window.text().await.contains(&token));
    window.press("End it").await;
    window
        .sees("Programs that use it are refused from now on")
        .await;
    confirm(&window).await;
    window.sees("No tokens yet").await;
    assert_eq!(status_of(&served, &token).await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_a_call_works_and_the_page_names_the_certificate() {
    if !can_run("TLS in the browser") {
        return;
    }
    let served = Served::start(&["--tls", "self-signed"]);
    assert!(served.url.starts_with("https://"), "{}", served.url);
    let microphone = question();
    let window = Chromium::open(Window {
        microphone: Some(&microphone),
        ..Window::default()
    })
    .await;
    window.goto(&served.page("/")).await;
    window.sees("Welcome").await;
    window.press("Call").await;
    window.sees("You are talking").await;
    window.press("Hang up").await;
    window.sees("You hung up").await;
    window.press("System").await;
    window.sees("Self-signed until").await;
    window.sees("SHA-256").await;
    // What just happened stands in the log.
    window.sees("call ended").await;
    let only = "const l = [...document.querySelectorAll('label.switch')].find(l => l.innerText.startsWith('Only warnings')); \
         if (!l) return null; l.querySelector('input').click(); return true";
    window.until("the switch", only, json!(null)).await;
    let gone =
        "return document.querySelector('.log').innerText.includes('call ended') ? null : true";
    window.until("fewer lines", gone, json!(null)).await;
    assert_eq!(window.console_errors().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_older_than_its_server_is_told_once_the_line_is_back() {
    if !can_run("a newer server") {
        return;
    }
    let served = Served::start(&[]);
    let line = Line::to(&served.url).await;
    let window = Chromium::open(Window::default()).await;
    window.goto(&format!("{}/live", line.url)).await;
    window.sees("4 of 4 slots free").await;
    const NEWER: &str = "The server has a newer version of these pages";
    let break_off = async || {
        line.cut();
        window.sees("The line to the server broke").await;
        line.mend();
        let whole =
            "return document.body.innerText.includes('The line to the server broke') ? null : true";
        window.until("the line again", whole, json!(null)).await;
    };
    // The same server: nothing to say.
    break_off().await;
    window.sees("4 of 4 slots free").await;
    assert!(!window.text().await.contains(NEWER));
    // This page was made by a script of another name.
    let older = "document.querySelector('script[type=module]').setAttribute('src', './assets/start-older.js'); return true";
    window.until("an older page", older, json!(null)).await;
    break_off().await;
    window.sees(NEWER).await;
    window.press("Reload").await;
    window.sees("4 of 4 slots free").await;
    let gone = "return document.body.innerText.includes(arguments[0]) ? null : true";
    window.until("the newer page", gone, json!(NEWER)).await;
}
