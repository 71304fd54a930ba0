//! The live switchboard: how it is in one word, the tick against its line, then a tile for each slot.

mod tile;

use leptos::prelude::*;
use leptos::task::spawn_local;
use ui::model::board::{rtf, sign};
use ui::model::text::{bytes, clock, ms};
use wire::api::live::{Board, LiveEvent, TickSecond};

use crate::io::listen::Ear;
use crate::io::{api, events};
use crate::view::ask::Ask;
use crate::view::loaded::LastTrouble;
use crate::view::ticks::{SECONDS, Ticks};
use tile::Tile;

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
    let sign = Memo::new(move |_| board.with(|board| sign(board.as_ref())));
    let figures = move || {
        board.with(|board| {
            let board = board.as_ref()?;
            let (p50, p99) = (board.tick_p50_us, board.tick_p99_us);
            Some(format!(
                "tick {} median, {} p99 · RTF {:.2}",
                ms(p50),
                ms(p99),
                rtf(p50)
            ))
        })
    };
    let quantiles = Memo::new(move |_| {
        board.with(|board| {
            let board = board.as_ref();
            board.map_or((0, 0), |board| (board.tick_p50_us, board.tick_p99_us))
        })
    });
    let ask = expect_context::<Ask>();
    let ear = Ear::new();
    let drain = move |_| {
        let text = "No new callers are taken from now on, and the server stops when the running calls are over.";
        ask.first(text, "Drain the server", move || {
            spawn_local(async move { problem.set(api::post_empty("api/drain").await.err()) });
        });
    };
    view! {
        <h1 class="unseen">"Live"</h1>
        {move || (!connected.get()).then(|| view! {
            <p class="trouble" role="alert">"The line to the server broke: what you see is old. Trying again…"</p> })}
        <LastTrouble problem=problem />
        <div class=move || format!("state {}", sign.get().mood.class())>
            <span role="status">{move || sign.get().word}<span class="unseen">": "</span>" "<span class="figure">{move || sign.get().why}</span></span>
            <span class="figure">{figures}</span>
        </div>
        <Ticks seconds=seconds quantiles=quantiles />
        <h2 class="unseen">"Slots"</h2>
        <div class="tiles">
            {move || (0..slots.get()).map(|row| view! { <Tile row=row board=board problem=problem ear=ear /> }).collect_view()}
        </div>
        <h2>"Since the start"</h2>
        {move || board.get().map(|board| view! { <Totals board=board /> })}
        <div class="actions"><button type="button" class="danger" on:click=drain>"Drain the server"</button>
            <span class="quiet">"Takes no new callers, lets the running calls finish, then stops."</span></div>
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
        ("Calls", totals.joined.to_string()),
        ("Refused", totals.refused.to_string()),
        ("Late ticks", totals.late_ticks.to_string()),
        ("Frames lost to callers", totals.deficit.to_string()),
        ("Callers' frames dropped", totals.drops.to_string()),
        (
            "Prompts known / read",
            format!("{} / {}", prompt_cache.hits, prompt_cache.misses),
        ),
        ("Prompt cache", bytes(prompt_cache.bytes)),
        ("Model", device.model),
        ("Device", device.name),
        (
            "Device memory",
            match device.device_bytes {
                Some((used, all)) => format!("{} of {}", bytes(used), bytes(all)),
                None => "the machine's own".to_owned(),
            },
        ),
        (
            "Memory of the process",
            device
                .process_bytes
                .map_or("not told here".to_owned(), bytes),
        ),
        ("Up", clock(totals.up_s as f64 * 1_000.0)),
    ];
    view! { <dl class="totals">{rows.into_iter().map(|(name, value)| view! { <div><dt>{name}</dt><dd>{value}</dd></div> }).collect_view()}</dl> }
}
