//! One persona: its form, a test call beside it, its links and versions. What is written is kept until it is saved.

use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos_router::NavigateOptions;
use leptos_router::hooks::{use_navigate, use_params_map};
use ui::model::persona_form::{Number, PersonaForm};
use ui::model::text::seconds;
use wire::api::live::{Changed, LiveEvent};
use wire::api::personas::{Persona, PromptCost, PromptQuestion};
use wire::api::talk::Talk;

use super::conflict::Conflict;
use super::shares::Shares;
use super::versions::Versions;
use crate::io::api::{self, Problem};
use crate::io::listing::{Listing, settled};
use crate::io::{events, page};
use crate::pages::talk::TalkPanel;
use crate::view::ask::Ask;
use crate::view::loaded::{LastTrouble, Loaded};
use crate::view::to::To;

#[component]
pub fn PersonaPage() -> impl IntoView {
    let params = use_params_map();
    let id = Memo::new(move |_| {
        params.with(|params| {
            params
                .get("id")
                .and_then(|id| id.parse::<i64>().ok())
                .unwrap_or(0)
        })
    });
    move || {
        let persona = Listing::<Persona>::new();
        persona.ask(format!("api/personas/{}", id.get()));
        view! { <p><To path="/personas">"All personas"</To></p>
        <Loaded answer=persona.answer show={move |found: Persona| view! { <Editor persona=found /> }} /> }
    }
}

/// Where this browser keeps what was written and not saved.
pub(super) fn unsaved_key(id: i64) -> String {
    format!("unsaved-{id}")
}

#[component]
fn Editor(persona: Persona) -> impl IntoView {
    let id = persona.id;
    let key = StoredValue::new(unsaved_key(id));
    let path = StoredValue::new(format!("api/personas/{id}"));
    // What was written and not saved on an earlier visit.
    let kept = page::recall(&key.get_value())
        .and_then(|text| serde_json::from_str::<(i64, PersonaForm)>(&text).ok())
        .filter(|(_, form)| *form != PersonaForm::of(&persona.draft));
    let came_back = RwSignal::new(kept.is_some());
    // The version that the form grew out of: saving names it, so that nobody's work is overwritten unseen.
    let base = RwSignal::new(
        kept.as_ref()
            .map_or(persona.version, |(version, _)| *version),
    );
    let form = RwSignal::new(match kept {
        Some((_, form)) => form,
        None => PersonaForm::of(&persona.draft),
    });
    let saved = RwSignal::new(persona);
    let draft = Memo::new(move |_| form.with(PersonaForm::draft));
    let changed = Memo::new(move |_| {
        saved.with(|saved| draft.with(|draft| draft.as_ref() != Ok(&saved.draft)))
    });
    Effect::new(move |_| {
        let text = form.with(|form| serde_json::to_string(&(base.get(), form)));
        match (changed.get(), text) {
            (true, Ok(text)) => page::remember(&key.get_value(), &text),
            (true, Err(_)) => {}
            (false, _) => page::forget(&key.get_value()),
        }
    });
    let leaving = window_event_listener(leptos::ev::beforeunload, move |event| {
        if changed.get_untracked() {
            event.prevent_default();
        }
    });
    on_cleanup(move || leaving.remove());

    let problem = RwSignal::new(None::<Problem>);
    let conflict = RwSignal::new(None::<Persona>);
    // A version that was saved by another while this one is being written.
    let newest = RwSignal::new(None::<i64>);
    let changed_now = move || changed.try_get_untracked().unwrap_or(false);
    // The form shows what the server holds.
    let take = Callback::new(move |persona: Persona| {
        base.set(persona.version);
        form.set(PersonaForm::of(&persona.draft));
        saved.set(persona);
        conflict.set(None);
        newest.set(None);
        problem.set(None);
        came_back.set(false);
    });
    let save = Callback::new(move |()| {
        let draft = match draft.get_untracked() {
            Ok(draft) => draft,
            Err(number) => {
                problem.set(Some(Problem::of_page(format!(
                    "{} is no number that fits: {}.",
                    number.label(),
                    number.hint()
                ))));
                return;
            }
        };
        spawn_local(async move {
            match api::put::<_, Persona>(&path.get_value(), base.get_untracked(), &draft).await {
                Ok(persona) => take.run(persona),
                Err(error) if error.status == 412 => {
                    match api::get::<Persona>(&path.get_value()).await {
                        Ok(theirs) => conflict.set(Some(theirs)),
                        Err(error) => problem.set(Some(error)),
                    }
                }
                Err(error) => problem.set(Some(error)),
            }
        });
    });
    let submit = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        save.run(());
    };
    // What somebody wrote goes only if it can come back.
    let ask = expect_context::<Ask>();
    let drop_for = move |persona: Persona| {
        let (written, grown_from) = (form.get_untracked(), base.get_untracked());
        take.run(persona);
        ask.offer_undo("What you had written is gone from the form.", move || {
            let _ = form.try_set(written.clone());
            let _ = base.try_set(grown_from);
        });
    };
    let undo = move |_| drop_for(saved.get_untracked());
    // Another operator's save: taken over where nothing is written, told where something is.
    events::follow(move |event| {
        let changed = LiveEvent::Changed {
            what: Changed::Personas,
        };
        if event == changed {
            spawn_local(async move {
                let Ok(theirs) = api::get::<Persona>(&path.get_value()).await else {
                    return;
                };
                let newer = saved.try_with_untracked(|saved| theirs.version > saved.version);
                match (newer, changed_now()) {
                    (Some(true), false) => take.run(theirs),
                    (Some(true), true) => newest.set(Some(theirs.version)),
                    _ => {}
                }
            });
        }
    });
    let keep_mine = Callback::new(move |()| {
        if let Some(theirs) = conflict.get_untracked() {
            base.set(theirs.version);
            saved.set(theirs);
            conflict.set(None);
            save.run(());
        }
    });
    let take_theirs = Callback::new(move |()| {
        if let Some(theirs) = conflict.get_untracked() {
            drop_for(theirs);
        }
    });
    view! {
        <h1>{move || saved.with(|saved| saved.draft.name.clone())}
            {move || saved.with(|saved| saved.archived).then(|| view! { " "<span class="tag">"archived"</span> })}</h1>
        <div class="two">
            <form class="card" on:submit=submit>
                {move || came_back.get().then(|| view! { <p class="told" role="status">"What you had written here and not saved is back. "
                    <button type="button" class="plain" on:click=undo>"Throw it away"</button></p> })}
                <Fields form=form />
                <LastTrouble problem=problem />
                {move || conflict.get().map(|theirs| draft.get_untracked().ok().map(|mine| view! {
                    <Conflict theirs=theirs mine=mine keep_mine=keep_mine take_theirs=take_theirs /> }))}
                <div class="actions"><button type="submit" class="main" disabled=move || !changed.get()>{move || format!("Save as version {}", saved.with(|saved| saved.version) + 1)}</button>
                    <span role="status">{move || changed.get().then(|| match newest.get() {
                        Some(version) => format!("not saved; meanwhile another operator saved version {version}, and saving yours shows both"),
                        None => "not saved".to_owned(),
                    })}</span>
                    {move || changed.get().then(|| view! { <button type="button" class="plain" on:click=undo>"Undo the changes"</button> })}</div>
            </form>
            <div><h2>"Test call"</h2>
                <p class="quiet">{move || if changed.get() { "Calls the saved version: save first to hear what you wrote." } else { "Calls the saved version." }}</p>
                <TalkPanel persona=id name=Signal::derive(move || saved.with(|saved| saved.draft.name.clone())) /></div>
        </div>
        <Acts id=id saved=saved problem=problem />
        <Shares id=id />
        <Versions id=id version=Signal::derive(move || saved.with(|saved| saved.version)) restored=take />
    }
}

#[component]
fn Fields(form: RwSignal<PersonaForm>) -> impl IntoView {
    let talk = Listing::<Talk>::new();
    talk.ask("api/talk");
    let voices = move || {
        talk.answer.with(|talk| match talk {
            Some(Ok(talk)) => talk.voices.clone(),
            _ => Vec::new(),
        })
    };
    let chosen = move || form.with(|form| form.voice.clone());
    let number = move |number: Number| {
        let at = number as usize;
        view! {
            <label>{number.label()}<span class="hint">{number.hint()}</span>
                <input inputmode="decimal" placeholder="the model's choice" prop:value=move || form.with(|form| form.numbers[at].clone())
                    on:input=move |event| form.update(|form| form.numbers[at] = event_target_value(&event)) /></label>
        }
    };
    view! {
        <label>"Name"<input required maxlength="80" prop:value=move || form.with(|form| form.name.clone())
            on:input=move |event| form.update(|form| form.name = event_target_value(&event)) /></label>
        <label>"Role text"<span class="hint">"Who it is, what it knows, how it talks. Callers never see it."</span>
            <textarea rows="11" prop:value=move || form.with(|form| form.role_text.clone())
                on:input=move |event| form.update(|form| form.role_text = event_target_value(&event))></textarea></label>
        <Cost form=form />
        <label>"Voice"<select prop:value=chosen on:change=move |event| form.update(|form| form.voice = event_target_value(&event))>
            <option value="" selected=move || chosen().is_empty()>"the default voice"</option>
            {move || voices().into_iter().chain(Some(chosen()).filter(|name| !name.is_empty() && !voices().contains(name))).map(|name| {
                let is = form.with_untracked(|form| form.voice == name);
                view! { <option value=name.clone() selected=is>{name.clone()}</option> } }).collect_view()}</select></label>
        <label class="switch"><input type="checkbox" prop:checked=move || form.with(|form| form.caller_first)
            on:change=move |event| form.update(|form| form.caller_first = event_target_checked(&event)) />"Silent until the caller has spoken (10 s at most)"</label>
        <details><summary>"Sampling"</summary><div class="grid">{Number::ALL.map(number).collect_view()}</div></details>
    }
}

/// What reading the prompt costs, counted by the server while it is written.
#[component]
fn Cost(form: RwSignal<PersonaForm>) -> impl IntoView {
    let asked = move |form: &PersonaForm| format!("{}\0{}", form.voice, form.role_text);
    let text = RwSignal::new(form.with_untracked(asked));
    Effect::new(move |_| text.set(form.with(asked)));
    let calm = settled(text);
    let cost = RwSignal::new(None::<api::Answer<PromptCost>>);
    Effect::new(move |_| {
        let asked = calm.get();
        let Some((voice, role_text)) = asked.split_once('\0') else {
            return;
        };
        let question = PromptQuestion {
            role_text: role_text.to_owned(),
            voice: Some(voice.to_owned()).filter(|voice| !voice.is_empty()),
        };
        spawn_local(async move {
            let answer = api::post("api/personas/cost", &question).await;
            if calm.try_get_untracked() == Some(asked) {
                cost.set(Some(answer));
            }
        });
    });
    view! {
        <p class="cost" aria-live="polite">{move || cost.get().map(|cost| match cost {
            Ok(cost) => {
                let wait = match cost.prepare_ms {
                    Some(ms) => format!(" Its first caller waits about {}, later ones not at all.", seconds(ms)),
                    None => String::new(),
                };
                view! { <span><b>{cost.text_tokens}" of "{cost.text_tokens_max}</b>" tokens."{wait}</span> }.into_any()
            }
            Err(error) => view! { <span class="late">{error.text}</span> }.into_any(),
        })}</p>
    }
}

#[component]
fn Acts(id: i64, saved: RwSignal<Persona>, problem: RwSignal<Option<Problem>>) -> impl IntoView {
    let ask = expect_context::<Ask>();
    let navigate = StoredValue::new_local(use_navigate());
    let go =
        move |to: String| navigate.with_value(|navigate| navigate(&to, NavigateOptions::default()));
    let act = move |what: &'static str| {
        spawn_local(async move {
            match api::post::<_, Persona>(&format!("api/personas/{id}/{what}"), &()).await {
                Ok(persona) if persona.id != id => go(format!("/personas/{}", persona.id)),
                Ok(persona) => saved.set(persona),
                Err(error) => problem.set(Some(error)),
            }
        });
    };
    let away = move |_| {
        let name = saved.with_untracked(|saved| saved.draft.name.clone());
        super::archive(
            id,
            name,
            ask,
            problem,
            Callback::new(move |()| go("/personas".to_owned())),
        );
    };
    view! {
        <div class="actions">
            <button type="button" on:click=move |_| act("duplicate")>"Duplicate"</button>
            {move || (!saved.with(|saved| saved.is_default || saved.archived)).then(|| view! {
                <button type="button" on:click=move |_| act("default")>"Make it the default"</button>
                <button type="button" on:click=away>"Archive"</button> })}
            {move || saved.with(|saved| saved.is_default).then(|| view! { <span class="quiet">"This is the default: callers that name no persona get it."</span> })}
            {move || saved.with(|saved| saved.archived).then(|| view! { <button type="button" on:click=move |_| act("unarchive")>"Take out of the archive"</button> })}
        </div>
    }
}
