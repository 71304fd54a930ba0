//! Calls in the browser beyond the plain one: a line that breaks, a full house, a guest, an operator who watches.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::chromium::{Chromium, PATIENCE, Window, pause};
use crate::cut::Line;
use crate::served::Served;
use crate::{can_run, question};

/// How much the agent has said so far, in characters.
const WORDS: &str = "return document.querySelector('.words').innerText.length";

const PASSWORD: &str = "a password of an operator";

fn password_file() -> (TempDir, String) {
    let folder = TempDir::new().expect("a temp folder");
    let path = folder.path().join("password");
    std::fs::write(&path, PASSWORD).expect("a file");
    let path = path.display().to_string();
    (folder, path)
}

async fn get(served: &Served, path: &str) -> Value {
    let response = reqwest::get(served.page(path)).await.expect("it answers");
    assert!(response.status().is_success(), "{path}: {response:?}");
    response.json().await.expect("JSON")
}

/// Waits until `wanted` holds for what the server says at `path`.
async fn until(served: &Served, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let value = get(served, path).await;
        if wanted(&value) {
            return value;
        }
        assert!(began.elapsed() < PATIENCE, "{path} stayed {value}");
        pause().await;
    }
}

fn taken(slots: u64) -> impl Fn(&Value) -> bool {
    move |health| health["slots_taken"] == slots
}

async fn caller(flags: &[&str]) -> Chromium {
    let microphone = question();
    Chromium::open(Window {
        microphone: Some(&microphone),
        flags,
        ..Window::default()
    })
    .await
}

async fn live(window: &Chromium, url: &str) {
    window.goto(url).await;
    window.press("Call").await;
    window.sees("You are talking").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_breaks_for_three_seconds_goes_on_with_the_same_call() {
    if !can_run("a broken line") {
        return;
    }
    let served = Served::start(&["--slots", "2"]);
    let line = Line::to(&served.url).await;
    let window = caller(&[]).await;
    live(&window, &format!("{}/talk", line.url)).await;
    let some = format!("{WORDS} > 5 || null");
    window.until("words of the agent", &some, json!(null)).await;
    let cut = Instant::now();
    line.cut();
    window.sees("The line broke. Reconnecting").await;
    // The break itself is what is tried, so it lasts its three seconds; all the while the seat is kept.
    while cut.elapsed() < Duration::from_secs(3) {
        assert_eq!(get(&served, "/health").await["slots_taken"], 1);
        pause().await;
    }
    line.mend();
    window.sees("You are talking").await;
    let before = window.client.execute(WORDS, vec![]).await.expect("words");
    let more = format!("{WORDS} > arguments[0] || null");
    window.until("further words", &more, before).await;
    let sessions = get(&served, "/api/sessions").await;
    assert_eq!(
        sessions["items"].as_array().map(Vec::len),
        Some(1),
        "{sessions}"
    );
    assert!(sessions["items"][0]["end_reason"].is_null(), "{sessions}");
    window.press("Hang up").await;
    window.sees("You hung up").await;
    until(&served, "/health", taken(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_stays_broken_ends_with_the_reason_and_frees_the_slot() {
    if !can_run("a line that stays broken") {
        return;
    }
    let served = Served::start(&["--slots", "1"]);
    let line = Line::to(&served.url).await;
    let window = caller(&[]).await;
    live(&window, &format!("{}/talk", line.url)).await;
    line.cut();
    window.sees("could not be taken up again in time").await;
    window.button("Call again").await;
    until(&served, "/health", taken(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_falls_silent_without_a_word_is_taken_up_on_another() {
    if !can_run("a silent line") {
        return;
    }
    let served = Served::start(&["--slots", "1"]);
    let line = Line::to(&served.url).await;
    let window = caller(&[]).await;
    live(&window, &format!("{}/talk", line.url)).await;
    // What is open stands and carries nothing, as behind a router that forgot it; what is new comes through.
    line.stall();
    window.sees("The line broke. Reconnecting").await;
    window.sees("You are talking").await;
    line.mend();
    let before = window.client.execute(WORDS, vec![]).await.expect("words");
    let more = format!("{WORDS} > arguments[0] || null");
    window.until("further words", &more, before).await;
    let sessions = get(&served, "/api/sessions").await;
    assert_eq!(
        sessions["items"].as_array().map(Vec::len),
        Some(1),
        "{sessions}"
    );
    assert!(sessions["items"][0]["end_reason"].is_null(), "{sessions}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_house_shows_the_place_and_lets_the_caller_in_when_a_slot_is_free() {
    if !can_run("a full house") {
        return;
    }
    let served = Served::start(&["--slots", "1"]);
    let (first, second) = (caller(&[]).await, caller(&[]).await);
    live(&first, &served.page("/talk")).await;
    second.goto(&served.page("/talk")).await;
    second.press("Call").await;
    second.sees("Everybody is busy. You are next").await;
    second.screenshot("talk-waiting").await;

    // Who leaves the line gives the place back.
    second.press("Cancel").await;
    second.sees("You hung up").await;
    until(&served, "/health", |health| health["waiting"] == 0).await;

    second.press("Call again").await;
    second.sees("You are next").await;
    first.press("Hang up").await;
    second.sees("You are talking").await;
    second.press("Hang up").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_on_a_foreign_host_says_why_there_is_no_microphone_and_where_there_is_one() {
    if !can_run("plain http on a foreign host") {
        return;
    }
    let (_folder, password) = password_file();
    let served = Served::start(&["--open-calls", "--password-file", &password]);
    let port = served.url.rsplit(':').next().expect("a port").to_owned();
    let window = caller(&["--host-resolver-rules=MAP talk.test 127.0.0.1"]).await;
    window.goto(&format!("http://talk.test:{port}/talk")).await;
    window.sees("only to pages that came over https").await;
    window.sees(&format!("http://localhost:{port}")).await;
    window.screenshot("talk-insecure").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_watches_a_guest_who_came_by_a_link_and_hangs_up() {
    if !can_run("watching a guest") {
        return;
    }
    let (_folder, password) = password_file();
    let served = Served::start(&["--password-file", &password]);
    let operator = Chromium::open(Window::default()).await;
    operator.goto(&served.page("/personas")).await;
    operator.fill("Password", PASSWORD).await;
    operator.press("Sign in").await;
    operator.press("Museum guide").await;
    operator.press("Make a link").await;
    let shown =
        "const field = document.querySelector('.told input'); return field && field.value || null";
    let link = operator.until("the link", shown, json!(null)).await;
    let link = link.as_str().expect("an address").to_owned();

    // An operator who tries it sees what a guest will see, the navigation beside it.
    operator.goto(&link).await;
    operator.sees("Museum guide").await;
    operator.sees("Ready when you are").await;
    assert!(!operator.text().await.contains("For this call only"));

    let guest = caller(&[]).await;
    guest.goto(&link).await;
    guest.press("Call").await;
    guest.sees("You are talking").await;
    let text = guest.text().await;
    assert!(
        text.contains("Museum guide") && !text.contains("Sessions") && !text.contains("System"),
        "{text}"
    );

    operator.goto(&served.page("/live")).await;
    operator.sees("Museum guide").await;
    let moving = "const paths = [...document.querySelectorAll('.tile.taken .waves path')].map(p => p.getAttribute('d')).join(); \
         return paths && paths !== arguments[0] && paths || null";
    let one = operator.until("meters", moving, json!("")).await;
    operator.until("meters that move", moving, one).await;
    operator.screenshot("live-call").await;
    operator.press("Hang up").await;
    operator.sees("Leave it").await;
    let sure = "const b = [...document.querySelectorAll('dialog[open] button.danger')][0]; if (!b) return null; b.click(); return true";
    operator.until("the question", sure, json!(null)).await;
    guest.sees("An operator ended this call").await;
    until(&served, "/health", taken(0)).await;

    // A link that was taken back says so, instead of asking its guest for a password.
    operator.goto(&served.page("/personas")).await;
    operator.press("Museum guide").await;
    operator.press("End it").await;
    operator.sees("cannot be brought back").await;
    operator.until("the question", sure, json!(null)).await;
    operator.sees("No links yet").await;
    guest.goto(&link).await;
    guest.sees("This link has ended").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_caller_holds_one_slot_however_often_the_button_or_the_page_is_changed() {
    if !can_run("double clicks and changing pages") {
        return;
    }
    let served = Served::start(&["--slots", "3"]);
    let window = caller(&[]).await;
    window.goto(&served.page("/talk")).await;
    window.button("Call").await;
    // Twice in the same moment: the second press takes the first one back, and never opens a second line.
    let twice =
        "const b = document.querySelector('.talk button.main'); b.click(); b.click(); return true";
    window.until("two clicks", twice, json!(null)).await;
    window.sees("You hung up").await;
    window.press("Call again").await;
    window.sees("You are talking").await;
    let health = get(&served, "/health").await;
    assert_eq!(health["slots_taken"], 1, "{health}");

    // Leaving the page frees the slot at once; coming back twenty times leaves nothing behind.
    let go = "const a = [...document.querySelectorAll('nav a')].find(a => a.innerText.trim() === arguments[0]); \
         if (!a) return null; a.click(); return true";
    for _ in 0..20 {
        window.until("Live", go, json!("Live")).await;
        window.until("Talk", go, json!("Talk")).await;
        window.button("Call").await;
    }
    until(&served, "/health", taken(0)).await;
    window.press("Call").await;
    window.sees("You are talking").await;
    let health = get(&served, "/health").await;
    assert_eq!(health["slots_taken"], 1, "{health}");
    window.goto("about:blank").await;
    until(&served, "/health", taken(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_stood_frozen_goes_on_with_the_newest_and_plays_no_backlog() {
    if !can_run("a frozen page") {
        return;
    }
    let served = Served::start(&["--slots", "1"]);
    let window = caller(&[]).await;
    live(&window, &served.page("/talk")).await;
    let state = |state: &str| json!({"state": state});
    window
        .devtools("Page.setWebLifecycleState", state("frozen"))
        .await;
    let frozen = Instant::now();
    // The time it stands is what is tried.
    while frozen.elapsed() < Duration::from_secs(5) {
        assert_eq!(get(&served, "/health").await["slots_taken"], 1);
        pause().await;
    }
    window
        .devtools("Page.setWebLifecycleState", state("active"))
        .await;
    window.sees("You are talking").await;
    let before = window.client.execute(WORDS, vec![]).await.expect("words");
    let more = format!("{WORDS} > arguments[0] || null");
    window.until("further words", &more, before).await;
    let held = "document.querySelector('details.health').open = true; \
        const at = [...document.querySelectorAll('details.health dt')].findIndex(e => e.innerText === 'Held ready'); \
        return parseFloat(document.querySelectorAll('details.health dd')[at].innerText)";
    let held = window.client.execute(held, vec![]).await.expect("a number");
    assert!(
        held.as_f64().is_some_and(|held_ms| held_ms < 500.0),
        "{held}"
    );
    let sessions = get(&served, "/api/sessions").await;
    assert_eq!(
        sessions["items"].as_array().map(Vec::len),
        Some(1),
        "{sessions}"
    );
    assert!(sessions["items"][0]["end_reason"].is_null(), "{sessions}");
}
