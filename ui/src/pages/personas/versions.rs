//! What a persona was: who changed it when, what changed, and the way back.

use leptos::prelude::*;
use leptos::task::spawn_local;
use ui::model::persona_form::differences;
use wire::api::Page;
use wire::api::personas::{Persona, PersonaDraft, PersonaVersion};

use crate::io::listing::Listing;
use crate::io::{api, page};
use crate::view::diff::Diff;
use crate::view::loaded::{LastTrouble, Loaded};

/// `version` is the newest one; `restored` is told what the server made of an old one.
#[component]
pub fn Versions(
    id: i64,
    #[prop(into)] version: Signal<i64>,
    restored: Callback<Persona>,
) -> impl IntoView {
    let list = Listing::<Page<PersonaVersion>>::new();
    let problem = RwSignal::new(None);
    Effect::new(move |_| {
        version.track();
        list.ask(format!("api/personas/{id}/versions?limit=200"));
    });
    let restore = Callback::new(move |number: i64| {
        let path = format!("api/personas/{id}/versions/{number}/restore");
        let newest = version.get_untracked();
        spawn_local(async move {
            match api::send::<_, Persona>(gloo_net::http::Method::POST, &path, Some(newest), &())
                .await
            {
                Ok(persona) => {
                    problem.set(None);
                    restored.run(persona);
                }
                Err(error) => problem.set(Some(error)),
            }
        });
    });
    view! {
        <section><h2>"Versions"</h2>
            <p class="quiet">"Every save is kept. Restoring one makes a new version of it."</p>
            <LastTrouble problem=problem />
            <Loaded answer=list.answer show={move |list: Page<PersonaVersion>| {
                let older = list.items.iter().skip(1).map(|older| Some(older.draft.clone())).chain([None]).collect::<Vec<_>>();
                view! { <ol class="versions">{list.items.into_iter().zip(older).map(|(one, older)| view! {
                    <Row one=one older=older newest=version restore=restore /> }).collect_view()}</ol> }
            }} />
        </section>
    }
}

#[component]
fn Row(
    one: PersonaVersion,
    older: Option<PersonaDraft>,
    newest: Signal<i64>,
    restore: Callback<i64>,
) -> impl IntoView {
    let number = one.version;
    let summary = format!(
        "Version {number}: {}, {}",
        page::local_time(one.changed_at_ms),
        one.changed_by
    );
    let before = older.unwrap_or_default();
    let fields = differences(&before, &one.draft);
    let text_differs = before.role_text != one.draft.role_text;
    let nothing = fields.is_empty() && !text_differs;
    view! {
        <li><details><summary>{summary}</summary>
            {nothing.then(|| view! { <p class="quiet">"The same as the version before."</p> })}
            <ul>{fields.into_iter().map(|(name, before, now)| view! { <li>{name}": "<del>{before}</del>" → "<ins>{now}</ins></li> }).collect_view()}</ul>
            {text_differs.then(|| view! { <Diff old=before.role_text new=one.draft.role_text /> })}</details>
            {move || (number != newest.get()).then(|| view! { <button type="button" class="plain" on:click=move |_| restore.run(number)>"Restore"</button> })}
        </li>
    }
}
