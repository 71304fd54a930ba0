//! Every page as it looks: in light, in dark, on a phone. `target/screenshots` has them; what a program can judge is judged.

use std::path::Path;

use serde_json::{Value, json};

use crate::chromium::{Chromium, Window};
use crate::operator::with_password;
use crate::served::Served;
use crate::{can_run, question};

/// What is wrong with the page that is shown, one line each.
const AUDIT: &str = include_str!("audit.js");
/// No page of all may wait for lines that other pages hold.
const PAINT_MS_EVER: f64 = 20_000.0;
const PAINTED: &str = "const p = performance.getEntriesByName('first-contentful-paint')[0]; return p ? p.startTime : null";

/// Name, colours, size.
const LOOKS: [(&str, bool, (u32, u32)); 3] = [
    ("light", false, (1280, 900)),
    ("dark", true, (1280, 900)),
    ("phone", false, (390, 844)),
];

async fn window(dark: bool, size: (u32, u32)) -> Chromium {
    let window = Chromium::open(Window {
        dark,
        size,
        ..Window::default()
    })
    .await;
    if size.0 < 500 {
        // A window of a desk is never as narrow as a phone.
        let phone =
            json!({"width": size.0, "height": size.1, "deviceScaleFactor": 1, "mobile": true});
        window
            .devtools("Emulation.setDeviceMetricsOverride", phone)
            .await;
    }
    window
}

pub async fn is_well(window: &Chromium, what: &str) {
    let found = window.client.execute(AUDIT, vec![]).await;
    assert_eq!(found.expect("the audit runs"), json!([]), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_in_order_in_light_dark_and_on_a_phone() {
    if !can_run("screenshots of every page") {
        return;
    }
    let served = Served::start(&[]);
    let microphone = question();
    let caller = Chromium::open(Window {
        microphone: Some(&microphone),
        ..Window::default()
    })
    .await;
    let said = "const words = document.querySelector('.words p'); return words && words.innerText.length > 12 || null";
    for call in 0..2 {
        caller.goto(&served.page("/talk")).await;
        caller.press("Call").await;
        caller.sees("You are talking").await;
        caller.until("words of the agent", said, json!(null)).await;
        // The second call goes on: the pages show it.
        if call == 0 {
            caller.press("Hang up").await;
            caller.sees("You hung up").await;
        }
    }
    let pages = [
        ("/", "first", "Welcome", "vivavoce"),
        ("/live", "live", "3 of 4 slots free", "Live · vivavoce"),
        ("/talk", "talk", "Ready when you are", "Talk · vivavoce"),
        (
            "/personas",
            "personas",
            "Museum guide",
            "Personas · vivavoce",
        ),
        ("/personas/1", "persona", "Version 1", "Persona · vivavoce"),
        ("/voices", "voices", "NATF0", "Voices · vivavoce"),
        ("/sessions", "sessions", "hung up", "Sessions · vivavoce"),
        (
            "/sessions/1",
            "session",
            "What the agent said",
            "Session 1 · vivavoce",
        ),
        ("/system", "system", "API tokens", "System · vivavoce"),
        ("/nothing-here", "nothing", "Nothing here", "vivavoce"),
    ];
    let mut painted = Vec::new();
    for (look, dark, size) in LOOKS {
        let window = window(dark, size).await;
        for (at, (path, name, text, title)) in pages.into_iter().enumerate() {
            let what = format!("{name} {look}");
            window.goto(&served.page(path)).await;
            window.sees(text).await;
            window.screenshot(&format!("{name}-{look}")).await;
            is_well(&window, &what).await;
            assert_eq!(window.client.title().await.expect("a title"), title);
            let errors = window.console_errors().await;
            // The console notes that the page itself came with a 404.
            let told = |line: &String| name == "nothing" && line.contains("404");
            assert!(errors.iter().all(told), "{what}: {errors:?}");
            let ms = window.until("a paint", PAINTED, Value::Null).await;
            let ms = ms.as_f64().expect("a number");
            assert!(ms < PAINT_MS_EVER, "{what}: {ms} ms");
            // The first one fills the cache.
            if at > 0 {
                painted.push(format!("{what}: {ms:.0} ms"));
            }
        }
    }
    // For a person to read: how long it takes is no matter of a test.
    let times = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/screenshots/first-paint.txt");
    std::fs::write(times, painted.join("\n")).expect("the times are written");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_alone_lead_to_the_content_to_another_page_and_out_of_a_question() {
    if !can_run("keys alone") {
        return;
    }
    let served = Served::start(&[]);
    let window = window(false, (1280, 900)).await;
    window.goto(&served.page("/live")).await;
    window.sees("4 of 4 slots free").await;
    let here = "const at = document.activeElement; return (at.id || at.innerText || at.tagName).trim() === arguments[0] || null";
    let press = async |keys: &str| {
        let at = window.client.active_element().await.expect("a place");
        at.send_keys(keys).await.expect("keys");
    };
    let (tab, enter, escape) = ("\u{e004}", "\u{e007}", "\u{e00c}");
    press(tab).await;
    window
        .until(
            "the way past the navigation",
            here,
            json!("Skip to content"),
        )
        .await;
    press(enter).await;
    window.until("the content", here, json!("main")).await;
    // The first thing in it that can be used is the last one of an idle page.
    press(tab).await;
    window
        .until("the first button", here, json!("Drain the server"))
        .await;
    press(enter).await;
    window
        .until("the harmless answer", here, json!("Leave it"))
        .await;
    press(escape).await;
    window
        .until("back at the button", here, json!("Drain the server"))
        .await;
    // Each link of the navigation, from the top.
    window.client.refresh().await.expect("a reload");
    window.sees("4 of 4 slots free").await;
    for name in ["Skip to content", "Live", "Talk", "Personas"] {
        press(tab).await;
        window.until(name, here, json!(name)).await;
    }
    press(enter).await;
    window.sees("Museum guide").await;
    window
        .until("the new page's content", here, json!("main"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_door_is_in_order_in_light_dark_and_on_a_phone() {
    if !can_run("screenshots of the door") {
        return;
    }
    let (served, _password) = with_password();
    for (look, dark, size) in LOOKS {
        let window = window(dark, size).await;
        window.goto(&served.page("/live")).await;
        window.sees("for its operator").await;
        window.fill("Password", "not this one").await;
        window.press("Sign in").await;
        window.sees("this is not the password").await;
        window.screenshot(&format!("sign-in-{look}")).await;
        is_well(&window, look).await;
    }
}
