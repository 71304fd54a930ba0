//! Light or dark: as the system says, until the person chooses.

use leptos::prelude::*;

use crate::io::page;

/// Puts the choice of an earlier visit into force.
pub fn recall() {
    if let Some(theme) = page::recall("theme") {
        put(&theme);
    }
}

fn put(theme: &str) {
    let root = page::window()
        .document()
        .and_then(|document| document.document_element());
    if let Some(root) = root {
        let _ = root.set_attribute("data-theme", theme);
    }
}

fn is_dark() -> bool {
    match page::recall("theme") {
        Some(theme) => theme == "dark",
        None => {
            let wish = page::window().match_media("(prefers-color-scheme: dark)");
            wish.ok().flatten().is_some_and(|query| query.matches())
        }
    }
}

#[component]
pub fn ThemeSwitch() -> impl IntoView {
    let dark = RwSignal::new(is_dark());
    let switch = move |_| {
        let next = if dark.get_untracked() {
            "light"
        } else {
            "dark"
        };
        page::remember("theme", next);
        put(next);
        dark.set(next == "dark");
    };
    view! {
        <button type="button" class="plain theme" on:click=switch>
            {move || if dark.get() { "Light colours" } else { "Dark colours" }}</button>
    }
}
