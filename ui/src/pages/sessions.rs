//! The log of sessions: the list, and one with its timeline, words and sound.

use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos_router::components::A;
use leptos_router::hooks::{use_navigate, use_params_map};
use ui::model::text::{address_part, clock, ms, reason};
use ui::model::transcript::Transcript;
use wire::api::Page;
use wire::api::live::{Changed, LiveEvent};
use wire::api::sessions::{SessionDetail, SessionSummary, TranscriptPiece};

use crate::io::{api, events, page};
use crate::view::loaded::{LastTrouble, Loaded};
use crate::view::waves::CallShape;

#[component]
pub fn SessionsPage() -> impl IntoView {
    let list = RwSignal::new(None);
    let (caller, words, ended) = (
        RwSignal::new(String::new()),
        RwSignal::new(String::new()),
        RwSignal::new(String::new()),
    );
    let cursors = RwSignal::new(Vec::<String>::new());
    let ask = move || {
        let cursor = cursors.with(|cursors| cursors.last().cloned().unwrap_or_default());
        let path = format!(
            "api/sessions?caller={}&query={}&reason={}&cursor={cursor}",
            address_part(&caller.get()),
            address_part(&words.get()),
            ended.get()
        );
        spawn_local(async move { list.set(Some(api::get::<Page<SessionSummary>>(&path).await)) });
    };
    Effect::new(move |_| ask());
    events::follow(move |event| {
        if event
            == (LiveEvent::Changed {
                what: Changed::Sessions,
            })
        {
            untrack(ask);
        }
    });
    view! {
        <h1>"Sessions"</h1>
        <div class="bar"><label>"Caller"<input type="search" bind:value=caller /></label><label>"The agent said"<input type="search" bind:value=words /></label>
            <label>"Ended"<select bind:value=ended><option value="">"in any way"</option>
                {["hung_up", "full", "peer_gone", "cut_off", "closed_by_operator", "row_fault", "engine_fault"].into_iter().map(|name| view! { <option value=name>{reason(name)}</option> }).collect_view()}</select></label></div>
        <Loaded answer=list show={move |list: Page<SessionSummary>| {
            let next = list.next.clone();
            match list.items.is_empty() {
                true => view! { <p class="quiet">"No calls here yet."</p> }.into_any(),
                false => view! {
                    <table><thead><tr><th>"Began"</th><th>"Caller"</th><th>"Persona"</th><th>"Length"</th><th>"Words"</th><th>"Ended"</th></tr></thead>
                    <tbody>{list.items.into_iter().map(|session| view! { <tr>
                        <td><A href=format!("/sessions/{}", session.id)>{page::local_time(session.began_at_ms)}</A></td><td class="caller">{session.caller}</td><td class="agent">{session.persona}</td>
                        <td>{clock(session.counters.frames as f64 * 80.0)}</td><td>{session.words}</td>
                        <td>{session.end_reason.map_or("running".to_owned(), |name| reason(&name))}</td></tr> }).collect_view()}</tbody></table>
                    <div class="actions">
                        {move || (!cursors.with(Vec::is_empty)).then(|| view! { <button on:click=move |_| cursors.update(|all| drop(all.pop()))>"Newer"</button> })}
                        {next.map(|next| view! { <button on:click=move |_| cursors.update(|all| all.push(next.clone()))>"Older"</button> })}
                    </div> }.into_any(),
            }
        }} />
    }
}

#[component]
pub fn SessionPage() -> impl IntoView {
    let params = use_params_map();
    let id = params.with_untracked(|params| {
        params
            .get("id")
            .and_then(|id| id.parse::<i64>().ok())
            .unwrap_or(0)
    });
    let session = RwSignal::new(None);
    let said = RwSignal::new(None);
    let problem = RwSignal::new(None);
    spawn_local(async move {
        session.set(Some(
            api::get::<SessionDetail>(&format!("api/sessions/{id}")).await,
        ));
        said.set(Some(
            api::get::<Page<TranscriptPiece>>(&format!("api/sessions/{id}/transcript")).await,
        ));
    });
    let navigate = use_navigate();
    let delete = move |_| {
        if page::window().confirm_with_message(
            "Delete this session with transcript and recording? It cannot be brought back.",
        ) != Ok(true)
        {
            return;
        }
        let navigate = navigate.clone();
        spawn_local(async move {
            match api::delete(&format!("api/sessions/{id}")).await {
                Ok(()) => navigate("/sessions", Default::default()),
                Err(error) => problem.set(Some(error)),
            }
        });
    };
    view! {
        <p><A href="/sessions">"All sessions"</A></p>
        <h1>"Session "{id}</h1>
        <Loaded answer=session show={move |detail: SessionDetail| {
            let one = detail.summary;
            let counts = one.counters;
            let rows = [
                ("Caller", one.caller), ("Persona", match one.persona_version { Some(version) => format!("{} (version {version})", one.persona), None => one.persona }),
                ("Voice", one.voice), ("Seed", one.seed), ("Began", page::local_time(one.began_at_ms)),
                ("Ended", one.end_reason.map_or("running".to_owned(), |name| reason(&name))), ("Length", clock(counts.frames as f64 * 80.0)),
                ("Frames lost", counts.deficit.to_string()), ("Caller's frames dropped", counts.drops.to_string()),
                ("Late ticks", counts.late_ticks.to_string()), ("Mean tick", ms(counts.tick_mean_us as u32)), ("Taken up again", counts.resumed.to_string()),
            ];
            view! {
                <CallShape caller=detail.levels.caller agent=detail.levels.agent />
                {detail.recording_seconds.map(|_| view! { <audio controls preload="metadata" src=page::address(&format!("api/sessions/{id}/audio"))></audio> })}
                <dl class="totals">{rows.into_iter().map(|(name, value)| view! { <div><dt>{name}</dt><dd>{value}</dd></div> }).collect_view()}</dl>
                <h2>"Timeline"</h2>
                <ol class="timeline">{detail.timeline.into_iter().map(|event| view! { <li><span class="time">{clock((event.at_ms - one.began_at_ms) as f64)}</span>{reason(&event.what)}" "{event.detail}</li> }).collect_view()}</ol>
                <details><summary>"Role text"</summary><pre>{detail.role_text}</pre></details> }
        }} />
        <h2>"What the agent said"</h2>
        <Loaded answer=said show={move |said: Page<TranscriptPiece>| {
            let mut transcript = Transcript::default();
            for piece in said.items {
                transcript.say(piece.frame as f64 * 80.0, &piece.text);
            }
            match transcript.lines.is_empty() {
                true => view! { <p class="quiet">"Nothing, or it was not kept."</p> }.into_any(),
                false => view! { <div class="words">{transcript.lines.into_iter().map(|line| view! { <p><span class="time">{clock(line.at_ms)}</span>{line.text}</p> }).collect_view()}</div> }.into_any(),
            }
        }} />
        <LastTrouble problem=problem />
        <div class="actions"><a class="button" href=page::address(&format!("api/sessions/{id}/export?format=text")) download>"Save as text"</a>
            <a class="button" href=page::address(&format!("api/sessions/{id}/export")) download>"Save as JSON"</a>
            <button class="danger" on:click=delete>"Delete"</button></div>
    }
}
