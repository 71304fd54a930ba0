//! The live switchboard: the tick against its line, then a tile for each slot.

use leptos::prelude::*;
use leptos::task::spawn_local;
use ui::model::text::{bytes, clock, ms};
use wire::api::HealthState;
use wire::api::live::{Board, CallView, LiveEvent, SlotPhase, SlotView, TickSecond};

use crate::io::{api, events, page};
use crate::view::loaded::LastTrouble;
use crate::view::ticks::{SECONDS, Ticks};
use crate::view::waves::Waves;

/// Levels a tile shows.
const TILE_LEVELS: usize = 32;

#[component]
pub fn LivePage() -> impl IntoView {
    let board = RwSignal::new(None::<Board>);
    let seconds = RwSignal::new(Vec::<TickSecond>::new());
    let problem = RwSignal::new(None);
    let connected = events::follow(move |event| match event {
        LiveEvent::Board(fresh) => board.set(Some(fresh)),
        LiveEvent::History { seconds: all } => seconds.set(all),
        LiveEvent::Second(second) => seconds.update(|all| {
            if all.len() == SECONDS {
                all.remove(0);
            }
            all.push(second);
        }),
        LiveEvent::Changed { .. } => {}
    });
    let slots =
        Memo::new(move |_| board.with(|board| board.as_ref().map_or(0, |board| board.slots.len())));
    let drain = move |_| {
        let sure = page::window().confirm_with_message(
            "No new callers are taken from now on, and the server stops when the running calls are over. Go on?",
        );
        if sure == Ok(true) {
            spawn_local(async move { problem.set(api::post_empty("api/drain").await.err()) });
        }
    };
    view! {
        <h1>"Live"</h1>
        {move || (!connected.get()).then(|| view! { <p class="trouble" role="alert">"The line to the server broke; trying again…"</p> })}
        <LastTrouble problem=problem />
        <p class=move || format!("state {}", board.with(|board| board.as_ref().map_or("loading", |board| state(board).0))) role="status">
            {move || board.with(|board| board.as_ref().map_or("Loading…", |board| state(board).1))}
            <span class="figure">{move || board.with(|board| board.as_ref().map(|board| format!(
                "tick {} / {} p99", ms(board.tick_p50_us), ms(board.tick_p99_us))))}</span>
        </p>
        <Ticks seconds=seconds />
        <div class="tiles">
            {move || (0..slots.get()).map(|row| view! { <Tile row=row board=board problem=problem /> }).collect_view()}
        </div>
        {move || board.get().map(|board| view! { <Totals board=board /> })}
        <button class="danger" on:click=drain>"Drain the server"</button>
    }
}

/// A word for the style sheet and one for people.
fn state(board: &Board) -> (&'static str, &'static str) {
    match board.state {
        HealthState::Ready => ("well", "In time"),
        HealthState::Full => ("full", "In time, all slots taken"),
        HealthState::Late => ("late", "Late: no new callers"),
        HealthState::Draining => ("full", "Draining"),
        HealthState::Loading => ("loading", "Loading the model"),
        HealthState::Failed => ("late", "Failed"),
    }
}

#[component]
fn Tile(
    row: usize,
    board: RwSignal<Option<Board>>,
    problem: RwSignal<Option<api::Problem>>,
) -> impl IntoView {
    let slot = Memo::new(move |_| {
        board.with(|board| {
            board
                .as_ref()
                .and_then(|board| board.slots.get(row).cloned())
        })
    });
    let levels = RwSignal::new(vec![(0, 0); TILE_LEVELS]);
    Effect::new(move |_| {
        let newest = slot.with(|slot| {
            let call = slot.as_ref().and_then(|slot| slot.call.as_ref());
            call.map_or((0, 0), |call| (call.caller_level, call.agent_level))
        });
        levels.update(|levels| {
            levels.remove(0);
            levels.push(newest);
        });
    });
    let call =
        Memo::new(move |_| slot.with(|slot| slot.as_ref().and_then(|slot| slot.call.clone())));
    let rtf = move || {
        board.with(|board| {
            board
                .as_ref()
                .map_or(0.0, |board| f64::from(board.tick_p50_us) / 80_000.0)
        })
    };
    view! {
        <article class="tile" class:taken=move || call.with(Option::is_some) aria-label=format!("Slot {}", row + 1)>
            <header><b>{row + 1}</b><span>{move || slot.with(phase_word)}</span>
                <span class="time">{move || call.with(|call| call.as_ref().map(|call| clock(f64::from(call.elapsed_ms))))}</span></header>
            <Waves levels=levels />
            {move || call.get().map(|call: CallView| {
                let session = call.session;
                let hang_up = move |_| {
                    if page::window().confirm_with_message("End this call?") == Ok(true) {
                        spawn_local(async move { problem.set(api::post_empty(&format!("api/live/{session}/hang-up")).await.err()) });
                    }
                };
                view! {
                    <p class="who"><span class="caller">{call.caller}</span><span class="agent">{call.persona}" · "{call.voice}</span></p>
                    <p class="last">{call.words}</p>
                    <dl><dt>"RTF"</dt><dd>{format!("{:.2}", rtf())}</dd><dt>"Deficit"</dt><dd>{call.deficit}</dd>
                        <dt>"Drops"</dt><dd>{call.drops}</dd><dt>"Wait"</dt><dd>{ms(call.mic_wait_us)}</dd></dl>
                    {call.recorded.then_some("● recording")}
                    <footer><a href=page::address(&format!("sessions/{session}"))>"Session "{session}</a>
                        <button class="plain" on:click=hang_up>"Hang up"</button></footer>
                }
            })}
        </article>
    }
}

fn phase_word(slot: &Option<SlotView>) -> &'static str {
    match slot.as_ref().map(|slot| slot.phase) {
        Some(SlotPhase::Live) => "live",
        Some(SlotPhase::Queued) => "waiting for its prompt",
        Some(SlotPhase::Prefill) => "preparing",
        Some(SlotPhase::Closing) => "closing",
        Some(SlotPhase::Free) | None => "free",
    }
}

#[component]
fn Totals(board: Board) -> impl IntoView {
    let Board {
        totals,
        prompt_cache,
        device,
        waiting,
        ..
    } = board;
    let rows = [
        ("Waiting", waiting.to_string()),
        ("Calls since the start", totals.joined.to_string()),
        ("Refused", totals.refused.to_string()),
        ("Late ticks", totals.late_ticks.to_string()),
        ("Frames lost to callers", totals.deficit.to_string()),
        ("Caller's frames dropped", totals.drops.to_string()),
        (
            "Prompts known / read",
            format!("{} / {}", prompt_cache.hits, prompt_cache.misses),
        ),
        ("Prompt cache", bytes(prompt_cache.bytes)),
        ("Model", device.model),
        ("Device", device.name),
        (
            "Memory",
            device.process_bytes.map(bytes).unwrap_or_default(),
        ),
        ("Up", clock(totals.up_s as f64 * 1_000.0)),
    ];
    view! { <dl class="totals">{rows.into_iter().map(|(name, value)| view! { <div><dt>{name}</dt><dd>{value}</dd></div> }).collect_view()}</dl> }
}
