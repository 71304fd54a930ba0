//! What is kept of calls, and for how long.

use leptos::prelude::*;
use leptos::task::spawn_local;
use wire::api::system::{Policy, PolicyDraft};

use crate::io::api::{self, Problem};
use crate::io::listing::Listing;
use crate::view::loaded::{LastTrouble, Loaded};

#[component]
pub fn Kept() -> impl IntoView {
    let policy = Listing::<Policy>::new();
    policy.ask("api/policy");
    let saved = RwSignal::new(false);
    view! {
        <section><h2>"What is kept of calls"</h2>
            <Loaded answer=policy.answer show={move |now: Policy| view! { <Form now=now policy=policy saved=saved /> }} />
            <div role="status">{move || saved.get().then(|| view! { <p class="told">"Saved: it counts for calls that begin from now on."</p> })}</div></section>
    }
}

#[component]
fn Form(now: Policy, policy: Listing<Policy>, saved: RwSignal<bool>) -> impl IntoView {
    let draft = now.draft;
    let version = now.version;
    let (record, keep) = (
        RwSignal::new(draft.record_audio),
        RwSignal::new(draft.keep_transcripts),
    );
    let recording_days = RwSignal::new(draft.recording_days.to_string());
    let session_days = RwSignal::new(draft.session_days.to_string());
    let problem = RwSignal::new(None::<Problem>);
    let submit = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        saved.set(false);
        // Fields that hold no number are 0, which the server refuses with the range.
        let days = |field: RwSignal<String>| field.get_untracked().trim().parse().unwrap_or(0);
        let draft = PolicyDraft {
            record_audio: record.get_untracked(),
            recording_days: days(recording_days),
            keep_transcripts: keep.get_untracked(),
            session_days: days(session_days),
        };
        spawn_local(async move {
            match api::put::<_, Policy>("api/policy", version, &draft).await {
                Ok(now) => {
                    policy.answer.set(Some(Ok(now)));
                    saved.set(true);
                }
                Err(error) => problem.set(Some(error)),
            }
        });
    };
    let stale = move || {
        problem.with(|problem| {
            problem
                .as_ref()
                .is_some_and(|problem| problem.status == 412)
        })
    };
    view! {
        <form class="card" on:submit=submit>
            <label class="switch"><input type="checkbox" bind:checked=record />"Record audio. Callers are told before they call."</label>
            <label>"Days until a recording is deleted"<input type="number" min="1" max="3650" required bind:value=recording_days /></label>
            <label class="switch"><input type="checkbox" bind:checked=keep />"Keep what the agent says as text"</label>
            <label>"Days until a session is deleted"<input type="number" min="1" max="3650" required bind:value=session_days /></label>
            <LastTrouble problem=problem />
            <div class="actions"><button type="submit">"Save"</button>
                {move || stale().then(|| view! { <button type="button" on:click=move |_| policy.ask("api/policy")>"Read what the other one saved"</button> })}</div>
        </form>
    }
}
