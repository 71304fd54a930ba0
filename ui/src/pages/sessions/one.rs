//! One session: its shape and sound, what happened, what was said, and what it counted.

use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos_router::hooks::{use_navigate, use_params_map};
use ui::model::text::{clock, ms, reason};
use ui::model::transcript::Transcript;
use wire::api::Page;
use wire::api::live::{Changed, LiveEvent};
use wire::api::sessions::{SessionDetail, TranscriptPiece};

use crate::io::listing::Listing;
use crate::io::{api, events, page};
use crate::view::ask::Ask;
use crate::view::loaded::{LastTrouble, Loaded};
use crate::view::player::Player;
use crate::view::to::To;
use crate::view::waves::CallShape;

/// How often a running call is asked what was said in it, in seconds.
const SAID_EVERY_S: u32 = 3;

#[component]
pub fn SessionPage() -> impl IntoView {
    let params = use_params_map();
    let id = Memo::new(move |_| {
        params.with(|params| {
            params
                .get("id")
                .and_then(|id| id.parse::<i64>().ok())
                .unwrap_or(0)
        })
    });
    move || view! { <Session id=id.get() /> }
}

#[component]
fn Session(id: i64) -> impl IntoView {
    let session = Listing::<SessionDetail>::new();
    let said = Listing::<Page<TranscriptPiece>>::new();
    session.ask(format!("api/sessions/{id}"));
    said.ask(format!("api/sessions/{id}/transcript"));
    // What a running call becomes; one that is over does not change any more.
    let runs = move || {
        session.answer.with_untracked(
            |answer| matches!(answer, Some(Ok(detail)) if detail.summary.ended_at_ms.is_none()),
        )
    };
    let ask_said = move || said.ask(format!("api/sessions/{id}/transcript"));
    let seconds = StoredValue::new(0_u32);
    events::follow(move |event| match event {
        LiveEvent::Changed {
            what: Changed::Sessions,
        } if runs() => {
            session.ask(format!("api/sessions/{id}"));
            ask_said();
        }
        LiveEvent::Second(_) if runs() => {
            seconds.update_value(|seconds| *seconds += 1);
            if seconds.get_value().is_multiple_of(SAID_EVERY_S) {
                ask_said();
            }
        }
        _ => {}
    });
    let problem = RwSignal::new(None);
    let ask = expect_context::<Ask>();
    let navigate = StoredValue::new_local(use_navigate());
    let delete = move |_| {
        let text = format!(
            "Delete session {id} with its transcript and recording? It cannot be brought back."
        );
        ask.first(text, "Delete it", move || {
            spawn_local(async move {
                match api::delete(&format!("api/sessions/{id}")).await {
                    Ok(()) => {
                        navigate.with_value(|navigate| navigate("/sessions", Default::default()))
                    }
                    Err(error) => problem.set(Some(error)),
                }
            });
        });
    };
    let missing = Memo::new(move |_| session.answer.with(|answer| matches!(answer, Some(Err(_)))));
    let there = move || session.answer.with(|answer| matches!(answer, Some(Ok(_))));
    let recorded = move || {
        session
            .answer
            .with(|answer| matches!(answer, Some(Ok(detail)) if detail.recording_seconds.is_some()))
    };
    view! {
        <p><To path="/sessions">"All sessions"</To></p>
        <h1>"Session "{id}</h1>
        <Loaded answer=session.answer show={move |detail: SessionDetail| view! { <Detail id=id detail=detail /> }} />
        {move || (!missing.get()).then(|| view! {
            <section><h2>"What the agent said"</h2>
                <Loaded answer=said.answer show={move |said: Page<TranscriptPiece>| view! { <Said pieces=said.items /> }} /></section> })}
        <LastTrouble problem=problem />
        {move || there().then(|| view! {
            <div class="actions">
                <a class="button" href=page::address(&format!("api/sessions/{id}/export?format=text")) download>"Save as text"</a>
                <a class="button" href=page::address(&format!("api/sessions/{id}/export?format=json")) download>"Save as JSON"</a>
                {move || recorded().then(|| view! { <a class="button" href=page::address(&format!("api/sessions/{id}/audio")) download=format!("session-{id}.wav")>"Save as WAV"</a> })}
                <button type="button" class="danger" on:click=delete>"Delete"</button></div> })}
    }
}

#[component]
fn Detail(id: i64, detail: SessionDetail) -> impl IntoView {
    let one = detail.summary;
    let counts = one.counters;
    let rows = [
        ("Caller", one.caller),
        (
            "Persona",
            match one.persona_version {
                Some(version) => format!("{}, version {version}", one.persona),
                None => one.persona,
            },
        ),
        ("Voice", one.voice),
        ("Seed", one.seed),
        ("Began", page::local_time(one.began_at_ms)),
        (
            "Ended",
            one.end_reason
                .map_or("running".to_owned(), |name| reason(&name)),
        ),
        ("Length", clock(counts.frames as f64 * 80.0)),
        ("Frames lost", counts.deficit.to_string()),
        ("Caller's frames dropped", counts.drops.to_string()),
        ("Caller's frames missing", counts.missing.to_string()),
        ("Late ticks", counts.late_ticks.to_string()),
        (
            "Mean tick",
            ms(u32::try_from(counts.tick_mean_us).unwrap_or(0)),
        ),
        ("Taken up again", counts.resumed.to_string()),
    ];
    let began_at_ms = one.began_at_ms;
    let persona = one.persona_id;
    let shape = match detail.recording_seconds {
        Some(seconds) => {
            let source = page::address(&format!("api/sessions/{id}/audio"));
            view! { <Player levels=detail.levels source=source seconds=seconds /> }.into_any()
        }
        None => view! {
        <CallShape caller=detail.levels.caller agent=detail.levels.agent />
        <p class="quiet">"Loudness only: no recording is kept of this call."</p> }
        .into_any(),
    };
    view! {
        {shape}
        <section><dl class="totals">{rows.into_iter().map(|(name, value)| view! { <div><dt>{name}</dt><dd>{value}</dd></div> }).collect_view()}</dl>
            {persona.map(|persona| view! { <p><To path=format!("/personas/{persona}")>"The persona as it is now"</To></p> })}</section>
        <section><h2>"Timeline"</h2>
            <ol class="timeline">{detail.timeline.into_iter().map(|event| view! {
                <li><span class="time">{clock((event.at_ms - began_at_ms) as f64)}</span><span>{reason(&event.what)}" "<span class="quiet">{event.detail}</span></span></li>
            }).collect_view()}</ol></section>
        <details><summary>"Role text as the model read it"</summary><pre>{detail.role_text}</pre></details>
    }
}

#[component]
fn Said(pieces: Vec<TranscriptPiece>) -> impl IntoView {
    let mut transcript = Transcript::default();
    for piece in pieces {
        transcript.say(piece.frame as f64 * 80.0, &piece.text);
    }
    match transcript.lines.is_empty() {
        true => view! { <p class="empty">"Nothing, or it was not kept."</p> }.into_any(),
        false => view! { <div class="words" tabindex="0" role="region" aria-label="What the agent said">{transcript.lines.into_iter().map(|line| view! {
            <p><span class="time">{clock(line.at_ms)}</span><span>{line.text}</span></p> }).collect_view()}</div> }.into_any(),
    }
}
