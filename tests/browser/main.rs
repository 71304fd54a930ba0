//! The pages in a real browser (headless Chromium), against the real program with the demo model.
//!
//! Without a browser every test here says loudly that it was left out, and how to get one; with
//! `VIVAVOCE_BROWSER=required` that is a failure. Screenshots of every page lie in `target/screenshots`.

mod chromium;
mod cut;
mod looks;
mod operator;
mod served;
mod system;
mod talk;
mod ui_files;
mod voices;

use std::path::{Path, PathBuf};

use chromium::{Chromium, Window};
use serde_json::json;
use served::Served;

fn can_run(test: &str) -> bool {
    chromium::at_hand(test) && ui_files::made(test)
}

fn question() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/demo/user_question1.wav")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_is_answered_sees_the_words_and_finds_the_call_in_the_log() {
    if !can_run("a call in the browser") {
        return;
    }
    let served = Served::start(&[]);
    let microphone = question();
    let window = Chromium::open(Window {
        microphone: Some(&microphone),
        ..Window::default()
    })
    .await;
    window.goto(&served.page("/talk")).await;
    window.press("Call").await;
    window.sees("You are talking").await;
    let said = "const words = document.querySelector('.words p'); return words && words.innerText.length > 12 || null";
    window.until("words of the agent", said, json!(null)).await;
    window.screenshot("talk-live").await;
    window.press("Hang up").await;
    window.sees("You hung up").await;
    window.goto(&served.page("/sessions")).await;
    window.sees("hung up").await;
    window.screenshot("sessions").await;
    let first = window.find("tbody a").await;
    first.click().await.expect("a link");
    window.sees("What the agent said").await;
    window.until("the transcript", said, json!(null)).await;
    window.screenshot("session").await;
    assert_eq!(window.console_errors().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_microphone_the_page_says_what_to_do() {
    if !can_run("a refused microphone") {
        return;
    }
    let served = Served::start(&[]);
    let window = Chromium::open(Window::default()).await;
    window.goto(&served.page("/talk")).await;
    window.press("Call").await;
    window.sees("microphone was not allowed").await;
}
