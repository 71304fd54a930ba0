//! Personas: the list, and one with its editor, versions and links.

use gloo_timers::callback::Timeout;
use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos_router::components::A;
use leptos_router::hooks::{use_navigate, use_params_map};
use ui::model::diff::{self, Kind};
use ui::model::text::address_part;
use wire::api::Page;
use wire::api::personas::{
    Greeting, NewShare, Persona, PersonaDraft, PersonaFile, PersonaVersion, PromptCost,
    PromptQuestion, Share, ShareMade,
};
use wire::api::talk::Talk;

use super::talk::TalkPanel;
use crate::io::{api, page};
use crate::view::loaded::{LastTrouble, Loaded};

#[component]
pub fn PersonasPage() -> impl IntoView {
    let list = RwSignal::new(None);
    let query = RwSignal::new(String::new());
    let archived = RwSignal::new(false);
    let problem = RwSignal::new(None);
    let ask = move || {
        let path = format!(
            "api/personas?limit=200&archived={}&query={}",
            archived.get(),
            address_part(&query.get())
        );
        spawn_local(async move { list.set(Some(api::get::<Page<Persona>>(&path).await)) });
    };
    Effect::new(move |_| ask());
    let navigate = use_navigate();
    let create = move |_| {
        let navigate = navigate.clone();
        spawn_local(async move {
            let draft = PersonaDraft {
                name: "New persona".to_owned(),
                role_text: "You are a helpful assistant.".to_owned(),
                ..PersonaDraft::default()
            };
            match api::post::<_, Persona>("api/personas", &draft).await {
                Ok(made) => navigate(&format!("/personas/{}", made.id), Default::default()),
                Err(error) => problem.set(Some(error)),
            }
        });
    };
    let export = move |_| {
        spawn_local(async move {
            match api::get::<PersonaFile>("api/personas/export").await {
                Ok(file) => drop(page::save(
                    "vivavoce-personas.json",
                    &serde_json::to_string_pretty(&file).unwrap_or_default(),
                )),
                Err(error) => problem.set(Some(error)),
            }
        })
    };
    view! {
        <h1>"Personas"</h1>
        <div class="bar">
            <label>"Search"<input type="search" bind:value=query /></label>
            <label class="switch"><input type="checkbox" bind:checked=archived />"Archived"</label>
            <button class="main" on:click=create>"New persona"</button>
            <button class="plain" on:click=export>"Export all"</button>
        </div>
        <LastTrouble problem=problem />
        <Loaded answer=list show={move |list: Page<Persona>| match list.items.is_empty() {
            true => view! { <p class="quiet">"None here. A persona is a name, a role text and a voice."</p> }.into_any(),
            false => view! { <ul class="cards">{list.items.into_iter().map(|persona| view! {
                <li><A href=format!("/personas/{}", persona.id)><b>{persona.draft.name}</b>
                    <span class="quiet">{persona.draft.voice.unwrap_or_else(|| "default voice".to_owned())}" · version "{persona.version}" · "{persona.calls}" calls"
                    {persona.is_default.then_some(" · default")}</span>
                    <span class="text">{persona.draft.role_text}</span></A></li> }).collect_view()}</ul> }.into_any(),
        }} />
    }
}

#[component]
pub fn PersonaPage() -> impl IntoView {
    let params = use_params_map();
    let id = move || {
        params.with(|params| {
            params
                .get("id")
                .and_then(|id| id.parse::<i64>().ok())
                .unwrap_or(0)
        })
    };
    let persona = RwSignal::new(None);
    Effect::new(move |_| {
        let path = format!("api/personas/{}", id());
        spawn_local(async move { persona.set(Some(api::get::<Persona>(&path).await)) });
    });
    view! { <Loaded answer=persona show={move |found: Persona| view! { <Editor persona=found again=persona /> }} /> }
}

#[component]
fn Editor(persona: Persona, again: RwSignal<Option<api::Answer<Persona>>>) -> impl IntoView {
    let id = persona.id;
    let version = persona.version;
    let path = StoredValue::new(format!("api/personas/{id}"));
    let before = persona.draft.clone();
    let name = RwSignal::new(before.name.clone());
    let role_text = RwSignal::new(before.role_text.clone());
    let voice = RwSignal::new(before.voice.clone().unwrap_or_default());
    let caller_first = RwSignal::new(before.greeting == Greeting::CallerFirst);
    let text_temperature = RwSignal::new(
        before
            .sampling
            .text_temperature
            .map(|value| value.to_string())
            .unwrap_or_default(),
    );
    let audio_temperature = RwSignal::new(
        before
            .sampling
            .audio_temperature
            .map(|value| value.to_string())
            .unwrap_or_default(),
    );
    let seed = RwSignal::new(before.sampling.seed.clone().unwrap_or_default());
    let problem = RwSignal::new(None::<api::Problem>);
    let base = before.clone();
    let draft = move || {
        let some = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let mut draft = base.clone();
        draft.name = name.get();
        draft.role_text = role_text.get();
        draft.voice = some(voice.get());
        draft.greeting = if caller_first.get() {
            Greeting::CallerFirst
        } else {
            Greeting::AgentFirst
        };
        draft.sampling.text_temperature = text_temperature.get().trim().parse().ok();
        draft.sampling.audio_temperature = audio_temperature.get().trim().parse().ok();
        draft.sampling.seed = some(seed.get());
        draft
    };
    let draft = Memo::new(move |_| draft());
    let changed = Memo::new(move |_| draft.get() != before);
    let leaving = window_event_listener(leptos::ev::beforeunload, move |event| {
        if changed.get_untracked() {
            event.prevent_default();
        }
    });
    on_cleanup(move || leaving.remove());
    let cost = RwSignal::new(None::<api::Answer<PromptCost>>);
    let waiting = StoredValue::new_local(None::<Timeout>);
    Effect::new(move |_| {
        let question = PromptQuestion {
            role_text: role_text.get(),
            voice: Some(voice.get()).filter(|voice| !voice.is_empty()),
        };
        // Once the writing pauses, not with each letter.
        waiting.set_value(Some(Timeout::new(300, move || {
            spawn_local(
                async move { cost.set(Some(api::post("api/personas/cost", &question).await)) },
            );
        })));
    });
    let voices = RwSignal::new(Vec::<String>::new());
    spawn_local(async move {
        if let Ok(talk) = api::get::<Talk>("api/talk").await {
            voices.set(talk.voices);
        }
    });
    let save = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        let draft = draft.get_untracked();
        spawn_local(async move {
            match api::put::<_, Persona>(&path.get_value(), version, &draft).await {
                Ok(saved) => again.set(Some(Ok(saved))),
                Err(error) => problem.set(Some(error)),
            }
        });
    };
    let navigate = use_navigate();
    let archive = {
        let navigate = navigate.clone();
        move |_| {
            let navigate = navigate.clone();
            spawn_local(async move {
                match api::delete(&path.get_value()).await {
                    Ok(()) => navigate("/personas", Default::default()),
                    Err(error) => problem.set(Some(error)),
                }
            });
        }
    };
    let act = move |what: &'static str| {
        let navigate = navigate.clone();
        move |_| {
            let navigate = navigate.clone();
            spawn_local(async move {
                match api::post::<_, Persona>(&format!("{}/{what}", path.get_value()), &()).await {
                    Ok(persona) if persona.id != id => {
                        navigate(&format!("/personas/{}", persona.id), Default::default())
                    }
                    Ok(persona) => again.set(Some(Ok(persona))),
                    Err(error) => problem.set(Some(error)),
                }
            });
        }
    };
    view! {
        <p><A href="/personas">"All personas"</A></p>
        <h1>{persona.draft.name.clone()}</h1>
        <div class="two">
            <form on:submit=save>
                <label>"Name"<input required maxlength="80" bind:value=name /></label>
                <label>"Role text"<textarea rows="10" bind:value=role_text></textarea></label>
                <p class="cost" aria-live="polite">{move || match cost.get() {
                    None => String::new(),
                    Some(Err(error)) => error.text,
                    Some(Ok(cost)) => {
                        let prepare = cost.prepare_ms.map(|ms| format!("; its first caller waits about {:.1} s, later ones none", f64::from(ms) / 1_000.0)).unwrap_or_default();
                        format!("{} of {} tokens{prepare}", cost.text_tokens, cost.text_tokens_max)
                    }
                }}</p>
                <label>"Voice"<select bind:value=voice><option value="">"the default voice"</option>
                    {move || voices.get().into_iter().map(|name| { let is = voice.get_untracked() == name; view! { <option value=name.clone() selected=is>{name.clone()}</option> } }).collect_view()}</select></label>
                <label class="switch"><input type="checkbox" bind:checked=caller_first />"The caller speaks first"</label>
                <details><summary>"Sampling"</summary>
                    <label>"Text temperature (0 to 5)"<input inputmode="decimal" bind:value=text_temperature placeholder="the model's" /></label>
                    <label>"Audio temperature (0 to 5)"<input inputmode="decimal" bind:value=audio_temperature placeholder="the model's" /></label>
                    <label>"Seed"<input inputmode="numeric" bind:value=seed placeholder="drawn for each call" /></label>
                </details>
                <LastTrouble problem=problem />
                {move || problem.get().filter(|problem| problem.code == "changed_meanwhile").map(|_| view! {
                    <p>"Somebody else saved this persona meanwhile. What you wrote is still here: copy it, then "
                        <button type="button" class="plain" on:click=move |_| spawn_local(async move { again.set(Some(api::get(&path.get_value()).await)) })>"load the newer one"</button></p> })}
                <div class="actions"><button type="submit" class="main" disabled=move || !changed.get()>{format!("Save as version {}", version + 1)}</button>
                    {move || changed.get().then_some("not saved")}</div>
                <div class="actions">
                    <button type="button" class="plain" on:click=act("duplicate")>"Duplicate"</button>
                    {(!persona.is_default).then(|| view! { <button type="button" class="plain" on:click=act("default")>"Make it the default"</button> })}
                    {match persona.archived {
                        true => view! { <button type="button" class="plain" on:click=act("unarchive")>"Take out of the archive"</button> }.into_any(),
                        false => view! { <button type="button" class="plain" on:click=archive>"Archive"</button> }.into_any(),
                    }}
                </div>
            </form>
            <div><h2>"Test call"</h2><p class="quiet">"Of the saved version."</p><TalkPanel persona=id /></div>
        </div>
        <Shares id=id />
        <Versions id=id version=version again=again />
    }
}

#[component]
fn Shares(id: i64) -> impl IntoView {
    let list = RwSignal::new(None);
    let problem = RwSignal::new(None);
    let made = RwSignal::new(None::<String>);
    let label = RwSignal::new(String::new());
    let path = StoredValue::new(format!("api/personas/{id}/shares"));
    let ask = move || {
        spawn_local(async move { list.set(Some(api::get::<Page<Share>>(&path.get_value()).await)) })
    };
    ask();
    let make = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        let wish = NewShare {
            label: label.get_untracked(),
            days: None,
        };
        spawn_local(async move {
            match api::post::<_, ShareMade>(&path.get_value(), &wish).await {
                Ok(share) => made.set(Some(page::address(&share.path))),
                Err(error) => problem.set(Some(error)),
            }
            ask();
        });
    };
    view! {
        <section><h2>"Share links"</h2>
        <p class="quiet">"Whoever has a link can call this persona, and nothing else."</p>
        <form class="bar" on:submit=make><label>"For whom"<input maxlength="80" bind:value=label /></label><button type="submit">"Make a link"</button></form>
        {move || made.get().map(|link| view! { <p class="made">"Shown this once: "<input readonly value=link.clone() aria-label="The link" />
            <button class="plain" on:click=move |_| drop(page::window().navigator().clipboard().write_text(&link))>"Copy"</button></p> })}
        <LastTrouble problem=problem />
        <Loaded answer=list show={move |list: Page<Share>| view! { <ul>{list.items.into_iter().map(|share| {
            let id = share.id;
            let delete = move |_| spawn_local(async move { problem.set(api::delete(&format!("api/shares/{id}")).await.err()); ask(); });
            view! { <li>{if share.label.is_empty() { "without a name".to_owned() } else { share.label }}" · made "{page::local_time(share.created_at_ms)}" "
                {match share.used_at_ms { Some(at) => format!("· used {}", page::local_time(at)), None => "· never used".to_owned() }}
                <button class="plain" on:click=delete>"End it"</button></li> } }).collect_view()}</ul> }} />
        </section>
    }
}

#[component]
fn Versions(id: i64, version: i64, again: RwSignal<Option<api::Answer<Persona>>>) -> impl IntoView {
    let list = RwSignal::new(None);
    let problem = RwSignal::new(None);
    spawn_local(async move {
        list.set(Some(
            api::get::<Page<PersonaVersion>>(&format!("api/personas/{id}/versions")).await,
        ))
    });
    view! {
        <section><h2>"Versions"</h2>
        <LastTrouble problem=problem />
        <Loaded answer=list show={move |list: Page<PersonaVersion>| {
            let older = list.items.iter().skip(1).map(|older| older.draft.role_text.clone()).chain([String::new()]).collect::<Vec<_>>();
            view! { <ol class="versions" reversed>{list.items.into_iter().zip(older).map(|(one, older)| {
                let number = one.version;
                let restore = move |_| spawn_local(async move {
                    let path = format!("api/personas/{id}/versions/{number}/restore");
                    match api::send::<_, Persona>(gloo_net::http::Method::POST, &path, Some(version), &()).await {
                        Ok(persona) => again.set(Some(Ok(persona))),
                        Err(error) => problem.set(Some(error)),
                    }
                });
                view! { <li value=number><details><summary>{one.draft.name}" · "{page::local_time(one.changed_at_ms)}" · "{one.changed_by}</summary>
                    <pre class="diff">{diff::lines(&older, &one.draft.role_text).into_iter().map(|(kind, line)| match kind {
                        Kind::Same => view! { <span>"  "{line}"\n"</span> }.into_any(),
                        Kind::Gone => view! { <del>"− "{line}"\n"</del> }.into_any(),
                        Kind::New => view! { <ins>"+ "{line}"\n"</ins> }.into_any(),
                    }).collect_view()}</pre></details>
                    {(number != version).then(|| view! { <button class="plain" on:click=restore>"Restore"</button> })}</li> }
            }).collect_view()}</ol> }
        }} /></section>
    }
}
