//! The Voices page: adding one from a recording, hearing it, giving it to a persona, putting it away.

use std::path::Path;

use serde_json::json;

use crate::can_run;
use crate::chromium::{Chromium, Window};
use crate::served::Served;

#[tokio::test(flavor = "multi_thread")]
async fn a_voice_is_made_from_a_recording_heard_used_and_archived() {
    if !can_run("adding a voice") {
        return;
    }
    let served = Served::start(&[]);
    let window = Chromium::open(Window::default()).await;
    window.goto(&served.page("/voices")).await;
    window.sees("from the model's folder").await;

    // Everything that is missing is said at once, beside its field.
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/voices/speech.flac");
    window.press("Add the voice").await;
    window.sees("Choose a file.").await;
    let field = window.find("input[type=file]").await;
    field
        .send_keys(&recording.display().to_string())
        .await
        .expect("a file field");
    window.sees("A recording: one person").await;
    window.press("Add the voice").await;
    window.sees("who is heard and that they agreed.").await;
    window.fill("Consent", "Ada, who agreed").await;
    window.fill("Name", "Ada").await;
    window.screenshot("voices-add").await;
    window.press("Add the voice").await;
    window.sees("is there: callers can have it at once").await;
    window.sees("Consent: Ada, who agreed").await;

    // A free slot renders the clip, and the browser can play it.
    let card = "const card = [...document.querySelectorAll('.voices > li')].find(li => li.innerText.startsWith('Ada'));";
    let press = format!(
        "{card} const b = card && [...card.querySelectorAll('button')].find(b => b.innerText === arguments[0]); \
         if (!b) return null; b.click(); return true"
    );
    window
        .until("the preview button", &press, json!("Make a preview"))
        .await;
    let plays = format!(
        "{card} const a = card && card.querySelector('audio'); if (!a) return null; a.preload = 'metadata'; \
         return a.duration > 2 && a.duration < 20 || null"
    );
    window
        .until("a clip with a length", &plays, json!(null))
        .await;
    window.screenshot("voices-preview").await;

    // It can be chosen for a persona without a restart, and then it is not put away under that persona.
    window.goto(&served.page("/personas")).await;
    window.press("New persona").await;
    window.sees("Save as version 2").await;
    let choose = "const s = [...document.querySelectorAll('select')].find(s => [...s.options].some(o => o.value === 'Ada')); \
         if (!s) return null; s.value = 'Ada'; s.dispatchEvent(new Event('input', {bubbles: true})); \
         s.dispatchEvent(new Event('change', {bubbles: true})); return true";
    window
        .until("the voice in the editor", choose, json!(null))
        .await;
    window.press("Save as version 2").await;
    window.sees("Save as version 3").await;
    window.goto(&served.page("/voices")).await;
    window.sees("used by New persona").await;
    window
        .until("the archive button", &press, json!("Archive"))
        .await;
    window.sees("personas use this voice: New persona").await;

    // Another one goes, and comes back.
    let other = "const card = [...document.querySelectorAll('.voices > li')].find(li => li.innerText.startsWith('NATM0')); \
         const b = card && [...card.querySelectorAll('button')].find(b => b.innerText === 'Archive'); \
         if (!b) return null; b.click(); return true";
    window.until("another voice", other, json!(null)).await;
    window.sees("NATM0 is in the archive").await;
    window.press("Undo").await;
    window
        .until("another voice again", other, json!(null))
        .await;
    // The refusals above were answers of the server, which the console notes; nothing else may be there.
    let errors = window.console_errors().await;
    assert!(errors.iter().all(|line| line.contains("409")), "{errors:?}");
}
