//! Personas: the list, export and import. One persona is in `editor`, its links in `shares`, its past in `versions`.

mod conflict;
mod editor;
mod shares;
mod versions;

use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos_router::hooks::use_navigate;
use ui::model::text::address_part;
use wire::api::Page;
use wire::api::live::{Changed, LiveEvent};
use wire::api::personas::{Imported, Persona, PersonaDraft, PersonaFile};

use crate::io::api::{self, Problem};
use crate::io::listing::{Listing, settled};
use crate::io::{events, page};
use crate::view::ask::Ask;
use crate::view::loaded::{LastTrouble, Loaded};
use crate::view::to::To;

pub use editor::PersonaPage;

/// Personas on a page of the list.
const PAGE: u32 = 60;

#[component]
pub fn PersonasPage() -> impl IntoView {
    let list = Listing::<Page<Persona>>::new();
    let query = RwSignal::new(String::new());
    let calm = settled(query);
    let archived = RwSignal::new(false);
    let problem = RwSignal::new(None);
    // The way back: cursors of the pages that were turned.
    let turned = RwSignal::new(Vec::<String>::new());
    let ask = move || {
        let query = address_part(calm.get().trim());
        let cursor = turned.with(|turned| turned.last().cloned().unwrap_or_default());
        list.ask(format!(
            "api/personas?limit={PAGE}&archived={}&query={query}&cursor={}",
            archived.get(),
            address_part(&cursor)
        ));
    };
    Effect::new(move |before: Option<(String, bool)>| {
        let now = (calm.get(), archived.get());
        // Another question begins at its first page.
        if before.is_some_and(|before| before != now) && !turned.with_untracked(Vec::is_empty) {
            turned.set(Vec::new());
        }
        now
    });
    Effect::new(move |_| ask());
    let again = Callback::new(move |()| untrack(ask));
    events::follow(move |event| {
        if event
            == (LiveEvent::Changed {
                what: Changed::Personas,
            })
        {
            again.run(());
        }
    });
    let navigate = use_navigate();
    let create = move |_| {
        let navigate = navigate.clone();
        spawn_local(async move {
            match made().await {
                Ok(made) => navigate(&format!("/personas/{}", made.id), Default::default()),
                Err(error) => problem.set(Some(error)),
            }
        });
    };
    view! {
        <h1>"Personas"</h1>
        <div class="bar">
            <label>"Search"<input type="search" bind:value=query /></label>
            <label class="switch"><input type="checkbox" bind:checked=archived />"Show the archive too"</label>
            <button type="button" class="main" on:click=create>"New persona"</button>
            <Files problem=problem again=again />
        </div>
        <LastTrouble problem=problem />
        <Loaded answer=list.answer show={move |list: Page<Persona>| { let next = list.next.clone(); match list.items.is_empty() {
            true if calm.get_untracked().is_empty() => view! { <p class="empty">"None yet. A persona is a name, a role text and a voice."</p> }.into_any(),
            true => view! { <p class="empty">"No persona fits."</p> }.into_any(),
            false => view! { <ul class="cards">{list.items.into_iter().map(|persona| view! { <Card persona=persona problem=problem again=again /> }).collect_view()}</ul>
                <div class="actions">
                    {move || (!turned.with(Vec::is_empty)).then(|| view! { <button type="button" on:click=move |_| turned.update(|all| drop(all.pop()))>"Page before"</button> })}
                    {next.map(|next| view! { <button type="button" on:click=move |_| turned.update(|all| all.push(next.clone()))>"Next page"</button> })}
                </div> }.into_any(),
        }}} />
    }
}

/// A new persona under the first name that is free.
async fn made() -> api::Answer<Persona> {
    let mut number = 1;
    loop {
        let name = match number {
            1 => "New persona".to_owned(),
            number => format!("New persona {number}"),
        };
        let draft = PersonaDraft {
            name,
            role_text: "You are a helpful assistant.".to_owned(),
            ..PersonaDraft::default()
        };
        match api::post::<_, Persona>("api/personas", &draft).await {
            Err(problem) if problem.code == "name_taken" && number < 100 => number += 1,
            answer => return answer,
        }
    }
}

#[component]
fn Card(
    persona: Persona,
    problem: RwSignal<Option<Problem>>,
    again: Callback<()>,
) -> impl IntoView {
    let id = persona.id;
    let ask = expect_context::<Ask>();
    let name = persona.draft.name.clone();
    let voice = persona
        .draft
        .voice
        .unwrap_or_else(|| "default voice".to_owned());
    let act = if persona.archived {
        let back = move |_| unarchive(id, problem, again);
        view! { <button type="button" class="plain" on:click=back>"Take out of the archive"</button> }.into_any()
    } else if persona.is_default {
        // Callers that name no persona need one.
        ().into_any()
    } else {
        let away = move |_| archive(id, name.clone(), ask, problem, again);
        view! { <button type="button" class="plain" on:click=away>"Archive"</button> }.into_any()
    };
    view! {
        <li class:gone=persona.archived>
            <To path=format!("/personas/{id}") attr:class="whole">{persona.draft.name}</To>
            <p class="text">{persona.draft.role_text}</p>
            <div class="foot"><span class="agent">{voice}</span><span>"version "{persona.version}</span><span>{persona.calls}" calls"</span>
                {persona.is_default.then(|| view! { <span class="tag">"default"</span> })}
                {persona.is_preset.then(|| view! { <span class="tag">"preset"</span> })}
                {persona.archived.then(|| view! { <span class="tag">"archived"</span> })}
                {page::recall(&editor::unsaved_key(id)).map(|_| view! { <span class="tag late">"not saved"</span> })}{act}</div>
        </li>
    }
}

pub(super) fn unarchive(id: i64, problem: RwSignal<Option<Problem>>, again: Callback<()>) {
    spawn_local(async move {
        problem.set(
            api::post_empty(&format!("api/personas/{id}/unarchive"))
                .await
                .err(),
        );
        again.run(());
    });
}

/// Archives and offers to take it back.
pub(super) fn archive(
    id: i64,
    name: String,
    ask: Ask,
    problem: RwSignal<Option<Problem>>,
    after: Callback<()>,
) {
    spawn_local(async move {
        match api::delete(&format!("api/personas/{id}")).await {
            Ok(()) => {
                after.run(());
                ask.offer_undo(format!("{name} is in the archive."), move || {
                    spawn_local(async move {
                        drop(api::post_empty(&format!("api/personas/{id}/unarchive")).await)
                    });
                });
            }
            Err(error) => problem.set(Some(error)),
        }
    });
}

#[component]
fn Files(problem: RwSignal<Option<Problem>>, again: Callback<()>) -> impl IntoView {
    let told = RwSignal::new(None::<Imported>);
    let export = move |_| {
        spawn_local(async move {
            match api::get::<PersonaFile>("api/personas/export").await {
                Ok(file) => drop(page::save(
                    "vivavoce-personas.json",
                    &serde_json::to_string_pretty(&file).unwrap_or_default(),
                )),
                Err(error) => problem.set(Some(error)),
            }
        });
    };
    let import = move |event: web_sys::Event| {
        let input: web_sys::HtmlInputElement = event_target(&event);
        let Some(file) = input.files().and_then(|files| files.get(0)) else {
            return;
        };
        input.set_value("");
        spawn_local(async move {
            let text = page::text_of(&file).await;
            let read = serde_json::from_str::<PersonaFile>(&text).map_err(|error| {
                Problem::of_page(format!("{} holds no personas: {error}", file.name()))
            });
            let answer = match read {
                Ok(file) => api::post::<_, Imported>("api/personas/import", &file).await,
                Err(problem) => Err(problem),
            };
            match answer {
                Ok(imported) => {
                    problem.set(None);
                    told.set(Some(imported));
                    again.run(());
                }
                Err(error) => problem.set(Some(error)),
            }
        });
    };
    view! {
        <button type="button" on:click=export>"Export all"</button>
        <label class="button file">"Import"<input class="unseen" type="file" accept=".json,application/json" on:change=import /></label>
        <div role="status">{move || told.get().map(|told| view! { <p class="told">{said(&told)}</p> })}</div>
    }
}

fn said(imported: &Imported) -> String {
    let mut text = format!(
        "{} made, {} were there already.",
        imported.created.len(),
        imported.unchanged.len()
    );
    for (wished, given) in &imported.renamed {
        text += &format!(" {wished} is there and different: made as {given}.");
    }
    text
}
