//! What operators do: from signing in to a persona that others call, what is kept of calls, the end of it all.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;
use vivavoce::store::Store;

use crate::chromium::{Chromium, Window};
use crate::looks::is_well;
use crate::served::Served;
use crate::{can_run, question};

pub const PASSWORD: &str = "correct horse";

/// A server with an operator's password; the folder holds it and has to live as long.
pub fn with_password() -> (Served, TempDir) {
    let folder = TempDir::new().expect("a temp folder");
    let file = folder.path().join("password");
    std::fs::write(&file, PASSWORD).expect("a file");
    let served = Served::start(&["--password-file", &file.display().to_string()]);
    (served, folder)
}

async fn window() -> Chromium {
    Chromium::open(Window::default()).await
}

async fn with_microphone() -> Chromium {
    let microphone = question();
    Chromium::open(Window {
        microphone: Some(&microphone),
        ..Window::default()
    })
    .await
}

pub async fn sign_in(window: &Chromium, page: &str) {
    window.goto(page).await;
    window.sees("for its operator").await;
    window.fill("Password", PASSWORD).await;
    window.press("Sign in").await;
    window.sees("Personas").await;
}

/// Presses the button of the question that is being asked.
pub async fn confirm(window: &Chromium) {
    let script = "const b = document.querySelector('dialog[open] button.danger'); if (!b) return null; b.click(); return true";
    window.until("a question", script, json!(null)).await;
}

/// What a request of the page itself answers: status, type, and the body's beginning as text.
async fn fetched(window: &Chromium, path: &str) -> Value {
    let script = "const box = window.__got ||= {}; const path = arguments[0]; \
        if (!(path in box)) { box[path] = null; fetch(path).then(async answer => { const bytes = new Uint8Array(await answer.arrayBuffer()); \
        box[path] = {status: answer.status, kind: answer.headers.get('content-type'), length: bytes.length, \
        text: new TextDecoder('latin1').decode(bytes.slice(0, 4000))}; }); } return box[path]";
    window.until(path, script, json!(path)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_signs_in_makes_a_persona_calls_it_watches_it_shares_it_and_edits_it() {
    if !can_run("the way of an operator") {
        return;
    }
    let (served, _password) = with_password();
    let desk = with_microphone().await;
    desk.goto(&served.page("/personas")).await;
    desk.sees("for its operator").await;
    desk.fill("Password", "not this one").await;
    desk.press("Sign in").await;
    desk.sees("this is not the password").await;
    desk.screenshot("sign-in-wrong").await;
    is_well(&desk, "sign-in-wrong").await;
    desk.fill("Password", PASSWORD).await;
    desk.press("Sign in").await;
    desk.press("New persona").await;
    desk.sees("Save as version 2").await;
    desk.fill("Name", "Night porter").await;
    desk.fill("Role text", "You are the night porter of a small hotel.")
        .await;
    desk.sees("of 92 tokens").await;
    desk.press("Save as version 2").await;
    desk.sees("Save as version 3").await;

    // The test call stands beside the form; another operator watches its slot.
    desk.press("Call").await;
    desk.sees("You are talking").await;
    let watch = window().await;
    sign_in(&watch, &served.page("/live")).await;
    watch.sees("Night porter · NATF0").await;
    watch.sees("3 of 4 slots free").await;
    let lively = "return document.querySelector('.tile.taken .last').innerText.length > 5 || null";
    watch.until("words on the tile", lively, json!(null)).await;
    watch.press("Listen in").await;
    watch.sees("Stop listening").await;
    watch.screenshot("live-call").await;
    is_well(&watch, "live-call").await;
    watch.press("Hang up").await;
    watch
        .sees("The caller is told that an operator ended it")
        .await;
    confirm(&watch).await;
    desk.sees("An operator ended this call").await;
    watch.sees("4 of 4 slots free").await;

    // Whoever has the link can call this persona and see nothing else.
    desk.fill("For whom", "the front door").await;
    desk.press("Make a link").await;
    desk.sees("Shown this once").await;
    let link = "return document.querySelector('.made input').value";
    let link = desk.until("the link", link, json!(null)).await;
    let guest = with_microphone().await;
    guest.goto(link.as_str().expect("an address")).await;
    guest.sees("Night porter").await;
    guest.press("Call").await;
    guest.sees("You are talking").await;
    watch.sees("link the front door").await;
    guest.press("Hang up").await;
    guest.sees("You hung up").await;
    assert!(
        !guest.text().await.contains("Sessions"),
        "{}",
        guest.text().await
    );

    desk.fill("Role text", "You are the night porter of a large hotel.")
        .await;
    desk.press("Save as version 3").await;
    desk.sees("Save as version 4").await;
    desk.press("Version 3").await;
    desk.sees("+ You are the night porter of a large hotel.")
        .await;
    desk.sees("− You are the night porter of a small hotel.")
        .await;
    desk.screenshot("persona-versions").await;
    is_well(&desk, "persona-versions").await;
    for (who, allowed) in [(&desk, "401"), (&watch, "nothing"), (&guest, "nothing")] {
        let errors = who.console_errors().await;
        assert!(
            errors.iter().all(|line| line.contains(allowed)),
            "{errors:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_operator_talks_within_a_minute_of_the_first_start() {
    if !can_run("the first start") {
        return;
    }
    let began = Instant::now();
    let served = Served::start(&[]);
    let window = with_microphone().await;
    window.goto(&served.page("/")).await;
    window.sees("Welcome").await;
    window.press("Call").await;
    window.sees("You are talking").await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_call_is_told_before_plays_on_its_page_and_is_deleted_for_good() {
    if !can_run("a recording") {
        return;
    }
    let served = Served::start(&[]);
    let window = with_microphone().await;
    window.goto(&served.page("/talk")).await;
    window.sees("Audio is not recorded").await;
    window.goto(&served.page("/system")).await;
    let record = "const box = [...document.querySelectorAll('label.switch')].find(l => l.innerText.startsWith('Record audio')); \
        if (!box) return null; box.querySelector('input').click(); return true";
    window.until("the switch", record, json!(null)).await;
    window.press("Save").await;
    window
        .sees("it counts for calls that begin from now on")
        .await;

    window.goto(&served.page("/talk")).await;
    window.sees("Calls are recorded and kept for 30 days").await;
    window.press("Call").await;
    window.sees("You are talking").await;
    let said = "const words = document.querySelector('.words p'); return words && words.innerText.length > 12 || null";
    window.until("words of the agent", said, json!(null)).await;
    window.press("Hang up").await;
    window.sees("Save the recording").await;

    window.goto(&served.page("/sessions")).await;
    window.sees("recorded").await;
    window.find("tbody a").await.click().await.expect("a link");
    window.sees("on the left ear").await;
    let length = "const a = document.querySelector('audio'); return a && a.duration > 1 && a.duration || null";
    window
        .until("the sound's length", length, json!(null))
        .await;
    window.press("Play").await;
    let plays = "const a = document.querySelector('audio'); return a.currentTime > 0.3 || null";
    window.until("the sound to play", plays, json!(null)).await;
    window.press("Pause").await;
    window.screenshot("session-recorded").await;
    is_well(&window, "session-recorded").await;

    // What the file holds: the caller left, the agent right, both heard.
    let decode = "const box = window; if (!box.__pcm) { box.__pcm = 'asked'; \
        fetch('/api/sessions/1/audio').then(a => a.arrayBuffer()).then(b => new AudioContext({sampleRate: 24000}).decodeAudioData(b)) \
        .then(b => { const peak = n => b.getChannelData(n).reduce((m, x) => Math.max(m, Math.abs(x)), 0); \
        box.__pcm = [b.numberOfChannels, peak(0), peak(1)]; }); } return Array.isArray(box.__pcm) ? box.__pcm : null";
    let pcm = window.until("the decoded file", decode, json!(null)).await;
    assert_eq!(pcm[0], 2);
    for side in [1, 2] {
        assert!(
            pcm[side].as_f64() > Some(0.05),
            "a side is not heard: {pcm}"
        );
    }
    let text = fetched(&window, "/api/sessions/1/export?format=text").await;
    assert!(
        text["text"]
            .as_str()
            .unwrap_or_default()
            .contains("Persona  Good company"),
        "{text}"
    );
    let file = fetched(&window, "/api/sessions/1/export?format=json").await;
    let file: Value = serde_json::from_str(file["text"].as_str().expect("text")).expect("JSON");
    assert_eq!(file["session"]["end_reason"], "hung_up");
    assert!(
        file["transcript"]
            .as_array()
            .is_some_and(|pieces| !pieces.is_empty()),
        "{file}"
    );

    window.press("Delete").await;
    window.sees("It cannot be brought back").await;
    window.press("Leave it").await;
    window.sees("on the left ear").await;
    window.press("Delete").await;
    confirm(&window).await;
    window.sees("No calls here yet").await;
    let gone = fetched(&window, "/api/sessions/1/audio").await;
    assert_eq!(gone["status"], 404, "{gone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_who_write_at_once_lose_nothing() {
    if !can_run("two operators") {
        return;
    }
    let served = Served::start(&[]);
    let (ada, ben) = (window().await, window().await);
    for one in [&ada, &ben] {
        one.goto(&served.page("/personas/2")).await;
        one.sees("Save as version 2").await;
    }
    ben.fill("Role text", "Ben's text").await;
    ben.sees("not saved").await;
    ada.fill("Role text", "Ada's text").await;
    ada.press("Save as version 2").await;
    ada.sees("Save as version 3").await;
    // Ben is told at once, saves all the same, and sees both.
    ben.sees("meanwhile another operator saved version 2").await;
    ben.press("Save as version 2").await;
    ben.sees("Two people wrote at once").await;
    ben.sees("− Ada's text").await;
    ben.sees("+ Ben's text").await;
    ben.screenshot("persona-conflict").await;
    is_well(&ben, "persona-conflict").await;
    ben.press("Save mine as version 3").await;
    ben.sees("Save as version 4").await;
    // Ada wrote nothing since: her form follows, and version 2 is hers to take back.
    let follows = "return document.querySelector('textarea').value === \"Ben's text\" || null";
    ada.until("Ben's text in Ada's form", follows, json!(null))
        .await;
    let restore = "const li = [...document.querySelectorAll('.versions > li')].find(li => li.innerText.startsWith('Version 2')); \
        const b = li && li.querySelector('button'); if (!b) return null; b.click(); return true";
    ada.until("a way back", restore, json!(null)).await;
    let back = "return document.querySelector('textarea').value === \"Ada's text\" || null";
    ada.until("Ada's text again", back, json!(null)).await;
    ada.sees("Save as version 5").await;

    // What is written and left is there on the way back, also when it cannot be saved as it is.
    ada.fill("Role text", "Half a thought").await;
    ada.press("Sampling").await;
    ada.fill("Text temperature", "warm").await;
    ada.press("Personas").await;
    ada.sees("not saved").await;
    ada.goto(&served.page("/personas/2")).await;
    ada.sees("What you had written here and not saved is back")
        .await;
    let kept = "return document.querySelector('textarea').value === 'Half a thought' \
        && [...document.querySelectorAll('input')].some(i => i.value === 'warm') || null";
    ada.until("the half thought", kept, json!(null)).await;
    ada.press("Throw it away").await;
    ada.until("Ada's text again", back, json!(null)).await;
    ada.sees("What you had written is gone from the form").await;
    ada.press("Undo").await;
    ada.until("the half thought again", kept, json!(null)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_signed_out_elsewhere_sees_the_door_and_not_old_news() {
    if !can_run("signing out elsewhere") {
        return;
    }
    let (served, _password) = with_password();
    let (ada, ben) = (window().await, window().await);
    sign_in(&ben, &served.page("/live")).await;
    ben.sees("4 of 4 slots free").await;
    sign_in(&ada, &served.page("/system")).await;
    ada.fill("Present password", PASSWORD).await;
    ada.fill("New password", "another horse").await;
    ada.press("Set the password").await;
    ada.sees("Every other browser is signed out").await;
    ada.screenshot("system-password").await;
    is_well(&ada, "system-password").await;
    ben.sees("for its operator").await;
    assert!(!ben.text().await.contains("slots free"));
    ada.press("Sign out").await;
    ada.sees("for its operator").await;
}

/// A log of `sessions` calls, every third from the door, in the file that a server will open.
async fn a_long_log_of(sessions: i64, data: &std::path::Path) {
    let file = data.join("vivavoce.db");
    Store::open(&file).await.expect("a new file").close().await;
    let options = SqliteConnectOptions::new().filename(&file);
    let mut connection = options.connect().await.expect("it is there");
    let fill = sqlx::query(
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1) \
         insert into session (id, caller, persona, role_text, voice, seed, began_at_ms, seen_at_ms, ended_at_ms, \
         end_reason) select i, case i % 3 when 0 then 'token door' else 'local' end, 'own text', '', 'NATF0', i, \
         at.ms + i * 1000, at.ms + i * 1000, at.ms + i * 1000 + 900, 'hung_up' \
         from n, (select (unixepoch() - ?1) * 1000 as ms) at",
    );
    fill.bind(sessions)
        .execute(&mut connection)
        .await
        .expect("rows");
    connection.close().await.expect("nothing is open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_log_is_turned_page_by_page_and_found_again_as_it_was_left() {
    if !can_run("a long log") {
        return;
    }
    let data = TempDir::new().expect("a temp folder");
    a_long_log_of(120, data.path()).await;
    let served = Served::start(&["--data-dir", &data.path().display().to_string()]);
    let window = window().await;
    window.goto(&served.page("/sessions")).await;
    let first = "const a = document.querySelector('tbody a'); return a && a.getAttribute('href').endsWith(arguments[0]) || null";
    window.until("the newest", first, json!("/120")).await;
    window.press("Older").await;
    window.until("the second page", first, json!("/70")).await;
    window.press("Older").await;
    window.until("the third page", first, json!("/20")).await;
    window.press("Newer").await;
    window.until("the second page", first, json!("/70")).await;
    window.fill("Caller", "door").await;
    window
        .until("the newest of the door", first, json!("/120"))
        .await;
    let rows = "return document.querySelectorAll('tbody tr').length === arguments[0] || null";
    window.until("its 40 calls", rows, json!(40)).await;
    window.find("tbody a").await.click().await.expect("a link");
    window.sees("Session 120").await;
    window.client.back().await.expect("the way back");
    window.until("its 40 calls", rows, json!(40)).await;
    window.press("Clear").await;
    window.until("a full page", rows, json!(50)).await;
    window.fill("Caller", "nobody of this name").await;
    window.sees("No session fits").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn personas_come_in_from_a_file_and_a_broken_file_is_told() {
    if !can_run("importing personas") {
        return;
    }
    let served = Served::start(&[]);
    let window = window().await;
    window.goto(&served.page("/personas")).await;
    window.sees("Museum guide").await;
    let file = fetched(&window, "/api/personas/export").await;
    let mut file: Value = serde_json::from_str(file["text"].as_str().expect("text")).expect("JSON");
    let mut other = file["personas"][0].clone();
    other["name"] = json!("From a file");
    file["personas"].as_array_mut().expect("a list").push(other);
    let folder = TempDir::new().expect("a temp folder");
    let (good, broken) = (
        folder.path().join("good.json"),
        folder.path().join("broken.json"),
    );
    std::fs::write(&good, file.to_string()).expect("a file");
    std::fs::write(&broken, "{\"personas\": 7}").expect("a file");
    let field = window.find("input[type=file]").await;
    field
        .send_keys(&broken.display().to_string())
        .await
        .expect("a file field");
    window.sees("broken.json holds no personas").await;
    field
        .send_keys(&good.display().to_string())
        .await
        .expect("a file field");
    window.sees("1 made, 4 were there already").await;
    window.sees("From a file").await;
    window.fill("Search", "from a").await;
    let one = "return document.querySelectorAll('.cards > li').length === 1 || null";
    window.until("the one that fits", one, json!(null)).await;
    window.press("Archive").await;
    window.sees("From a file is in the archive").await;
    window.press("Undo").await;
    window.until("it is back", one, json!(null)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_drains_the_server_and_the_page_says_that_it_is_gone() {
    if !can_run("draining") {
        return;
    }
    let mut served = Served::start(&[]);
    let window = with_microphone().await;
    let caller = with_microphone().await;
    caller.goto(&served.page("/talk")).await;
    caller.press("Call").await;
    caller.sees("You are talking").await;
    window.goto(&served.page("/live")).await;
    window.sees("3 of 4 slots free").await;
    window.press("Drain the server").await;
    window.sees("stops when the running calls are over").await;
    confirm(&window).await;
    window.sees("no new callers; 1 still talking").await;
    window.screenshot("live-draining").await;
    is_well(&window, "live-draining").await;
    caller.press("Hang up").await;
    caller.sees("You hung up").await;
    window.sees("The line to the server broke").await;
    assert_eq!(served.ended(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn below_a_path_the_pages_find_everything() {
    if !can_run("a path below a proxy") {
        return;
    }
    let served = Served::start(&["--base-path", "/voice"]);
    let window = with_microphone().await;
    // Without the slash at its end, and from deep inside.
    window.goto(&served.page("/voice")).await;
    window.sees("Welcome").await;
    window.press("Call").await;
    window.sees("You are talking").await;
    window.press("Hang up").await;
    window.sees("You hung up").await;
    window.press("Live").await;
    window.sees("In time").await;
    window.press("Sessions").await;
    window.find("tbody a").await.click().await.expect("a link");
    window.sees("Session 1").await;
    window.client.refresh().await.expect("a reload");
    window.sees("Session 1").await;
    window.goto(&served.page("/voice/personas/2")).await;
    window.press("Make a link").await;
    window.sees("Shown this once").await;
    let link = "return document.querySelector('.made input').value";
    let link = window.until("the link", link, json!(null)).await;
    let link = link.as_str().expect("an address").to_owned();
    assert!(link.starts_with(&served.page("/voice/talk/")), "{link}");
    window.goto(&link).await;
    window.sees("Museum guide").await;
    assert_eq!(window.console_errors().await, [""; 0]);
}
