//! Voices that can be called.

use leptos::prelude::*;
use leptos::task::spawn_local;
use wire::api::talk::Talk;

use crate::io::api;
use crate::view::loaded::Loaded;

#[component]
pub fn VoicesPage() -> impl IntoView {
    let talk = RwSignal::new(None);
    spawn_local(async move { talk.set(Some(api::get::<Talk>("api/talk").await)) });
    view! {
        <h1>"Voices"</h1>
        <p class="quiet">"Voices come with the model's folder, as bundles in its folder voices."</p>
        <Loaded answer=talk show={move |talk: Talk| match talk.voices.is_empty() {
            true => view! { <p class="quiet">"This model has no voices: callers get the voice the model likes."</p> }.into_any(),
            false => view! { <ul class="cards">{talk.voices.into_iter().map(|name| view! { <li><b>{name}</b></li> }).collect_view()}</ul> }.into_any(),
        }} />
    }
}
