//! One voice: where it comes from, how it sounds, who uses it, its name and its place.

use leptos::prelude::*;
use leptos::task::spawn_local;
use ui::model::text::{address_part, clock};
use wire::api::voices::{Voice, VoiceChange, VoiceOrigin};

use crate::io::api::{self, Problem};
use crate::io::page;
use crate::view::ask::Ask;
use crate::view::loaded::LastTrouble;

/// Milliseconds of one frame.
const FRAME_MS: f64 = 80.0;

fn path(name: &str) -> String {
    format!("api/voices/{}", address_part(name))
}

fn origin(voice: &Voice) -> &'static str {
    match voice.origin {
        VoiceOrigin::Model => "from the model's folder",
        VoiceOrigin::Bundle => "uploaded bundle",
        VoiceOrigin::Recording => "made from a recording",
    }
}

#[component]
pub fn VoiceCard(
    voice: Voice,
    problem: RwSignal<Option<Problem>>,
    again: Callback<()>,
) -> impl IntoView {
    let ask = expect_context::<Ask>();
    let own = voice.origin != VoiceOrigin::Model;
    let renaming = RwSignal::new(false);
    let name = voice.name.clone();
    let head = move || match renaming.get() {
        true => view! { <NewName name=name.clone() open=renaming again=again /> }.into_any(),
        false => view! { <b class="name">{name.clone()}</b> }.into_any(),
    };
    let used = match voice.personas.len() {
        0 => "no persona uses it".to_owned(),
        _ => format!("used by {}", voice.personas.join(", ")),
    };
    let archive = {
        let (name, away) = (voice.name.clone(), !voice.archived);
        move |_| set_archived(name.clone(), away, ask, problem, again)
    };
    let delete = {
        let name = voice.name.clone();
        move |_| {
            let gone = name.clone();
            ask.first(
                format!("Delete the voice {name} and its recording for good?"),
                "Delete it",
                move || {
                    let path = path(&gone);
                    spawn_local(async move {
                        problem.set(api::delete(&path).await.err());
                        again.run(());
                    });
                },
            );
        }
    };
    view! {
        <li class:gone=voice.archived>
            {head}
            <p class="quiet">{origin(&voice)}", "{clock(f64::from(voice.frames) * FRAME_MS)}" of a call's memory"</p>
            <p class="quiet">{used}</p>
            {voice.consent.clone().map(|consent| view! { <p class="quiet">"Consent: "{consent}</p> })}
            <Preview name=voice.name.clone() ready=voice.preview_ready archived=voice.archived />
            <div class="foot">
                {voice.is_default.then(|| view! { <span class="tag">"default"</span> })}
                {voice.archived.then(|| view! { <span class="tag">"archived"</span> })}
                {voice.created_at_ms.map(|at_ms| view! { <span>"added "{page::local_time(at_ms)}</span> })}
                {own.then(|| view! { <button type="button" class="plain" on:click=move |_| renaming.set(true)>"Rename"</button> })}
                <button type="button" class="plain" on:click=archive>{if voice.archived { "Take out of the archive" } else { "Archive" }}</button>
                {(own && voice.archived).then(|| view! { <button type="button" class="plain" on:click=delete>"Delete"</button> })}
            </div>
        </li>
    }
}

/// Moves a voice and offers to take that back.
fn set_archived(
    name: String,
    archived: bool,
    ask: Ask,
    problem: RwSignal<Option<Problem>>,
    again: Callback<()>,
) {
    spawn_local(async move {
        let change = VoiceChange {
            archived: Some(archived),
            ..VoiceChange::default()
        };
        match api::patch::<_, Voice>(&path(&name), &change).await {
            Ok(_) if archived => {
                problem.set(None);
                let text = format!("{name} is in the archive: callers cannot have it any more.");
                ask.offer_undo(text, move || {
                    set_archived(name.clone(), false, ask, problem, again)
                });
            }
            Ok(_) => problem.set(None),
            Err(error) => problem.set(Some(error)),
        }
        again.run(());
    });
}

/// The field in place of the name.
#[component]
fn NewName(name: String, open: RwSignal<bool>, again: Callback<()>) -> impl IntoView {
    let wished = RwSignal::new(name.clone());
    let problem = RwSignal::new(None);
    let save = move |event: web_sys::SubmitEvent| {
        event.prevent_default();
        let (path, to) = (path(&name), wished.get_untracked().trim().to_owned());
        spawn_local(async move {
            let change = VoiceChange {
                name: Some(to),
                ..VoiceChange::default()
            };
            match api::patch::<_, Voice>(&path, &change).await {
                Ok(_) => {
                    open.set(false);
                    again.run(());
                }
                Err(error) => problem.set(Some(error)),
            }
        });
    };
    view! {
        <form class="bar" on:submit=save>
            <label>"New name"<input bind:value=wished maxlength="64" autofocus /></label>
            <button type="submit" class="main">"Save"</button>
            <button type="button" on:click=move |_| open.set(false)>"Leave it"</button>
        </form>
        <LastTrouble problem=problem />
    }
}

/// The clip: rendered by a free slot when it is asked for first.
#[component]
fn Preview(name: String, ready: bool, archived: bool) -> impl IntoView {
    let asked = RwSignal::new(ready);
    let waiting = RwSignal::new(false);
    let problem = RwSignal::new(None);
    let address = format!("{}/preview", path(&name));
    let source = page::address(&address);
    let render = move |_| {
        let address = address.clone();
        waiting.set(true);
        problem.set(None);
        spawn_local(async move {
            let answer = api::reach(&address).await;
            waiting.set(false);
            match answer {
                Ok(()) => asked.set(true),
                Err(error) => problem.set(Some(error)),
            }
        });
    };
    view! {
        <div class="preview" role="group" aria-label=format!("How {name} sounds")>
            {move || match (asked.get(), waiting.get()) {
                (true, _) => view! { <audio controls preload="none" src=source.clone()></audio> }.into_any(),
                (_, true) => view! { <p class="quiet" role="status">"A free slot speaks a few seconds with this voice…"</p> }.into_any(),
                _ if archived => view! { <p class="quiet">"It has never been heard; out of the archive it can be."</p> }.into_any(),
                _ => view! { <button type="button" on:click=render.clone()>"Make a preview"</button> }.into_any(),
            }}
            <LastTrouble problem=problem />
        </div>
    }
}
