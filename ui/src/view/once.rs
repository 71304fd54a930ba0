//! A secret that is shown once.

use leptos::prelude::*;

use crate::io::page;

/// `what` it is, for its label.
#[component]
pub fn ShownOnce(what: &'static str, secret: String) -> impl IntoView {
    let copied = RwSignal::new(false);
    let text = secret.clone();
    let copy = move |_| {
        // Only pages from https or this machine have a clipboard; the field can be selected everywhere.
        if page::is_secure() {
            let _ = page::window().navigator().clipboard().write_text(&text);
            copied.set(true);
        }
    };
    view! {
        <div class="made told" role="status">
            <b>"Shown this once: copy it now."</b>
            <input readonly value=secret aria-label=what />
            {page::is_secure().then(|| view! { <button type="button" on:click=copy>{move || if copied.get() { "Copied" } else { "Copy" }}</button> })}
        </div>
    }
}
