//! One slot: who talks in it, how well, and what an operator can do about it.

use leptos::prelude::*;
use leptos::task::spawn_local;
use ui::model::board::{phase_word, rtf};
use ui::model::text::{clock, ms};
use wire::api::live::{Board, CallView, SlotPhase};

use crate::io::api;
use crate::io::listen::Ear;
use crate::view::ask::Ask;
use crate::view::to::To;
use crate::view::waves::Waves;

/// Levels a tile shows.
const LEVELS: usize = 32;

#[component]
pub fn Tile(
    row: usize,
    board: RwSignal<Option<Board>>,
    problem: RwSignal<Option<api::Problem>>,
    ear: Ear,
) -> impl IntoView {
    let phase = Memo::new(move |_| {
        let slot = |board: &Board| board.slots.get(row).map(|slot| slot.phase);
        board
            .with(|board| board.as_ref().and_then(slot))
            .unwrap_or(SlotPhase::Free)
    });
    let call = Memo::new(move |_| {
        let call = |board: &Board| board.slots.get(row).and_then(|slot| slot.call.clone());
        board.with(|board| board.as_ref().and_then(call))
    });
    // Buttons stay the same ones while a call lasts: numbers change four times a second, and nobody can press what is new
    // each time.
    let session = Memo::new(move |_| call.with(|call| call.as_ref().map(|call| call.session)));
    let levels = RwSignal::new(vec![(0, 0); LEVELS]);
    Effect::new(move |_| {
        board.track();
        let newest = call.with_untracked(|call| {
            call.as_ref()
                .map_or((0, 0), |call| (call.caller_level, call.agent_level))
        });
        levels.update(|levels| {
            levels.remove(0);
            levels.push(newest);
        });
    });
    view! {
        <article class="tile" class:taken=move || session.get().is_some() aria-label=format!("Slot {}", row + 1)>
            <header><b>{row + 1}</b><span>{move || phase_word(phase.get())}</span>
                {move || call.with(|call| call.as_ref().map(|call| call.recorded)).unwrap_or(false).then(|| view! { <span class="tag late">"● recording"</span> })}
                <span class="time">{move || call.with(|call| call.as_ref().map(|call| clock(f64::from(call.elapsed_ms))))}</span></header>
            <Waves levels=levels />
            {move || session.get().map(|session| view! { <Talking session=session call=call board=board problem=problem ear=ear /> })}
        </article>
    }
}

#[component]
fn Talking(
    session: i64,
    call: Memo<Option<CallView>>,
    board: RwSignal<Option<Board>>,
    problem: RwSignal<Option<api::Problem>>,
    ear: Ear,
) -> impl IntoView {
    let ask = expect_context::<Ask>();
    let of = move |part: fn(&CallView) -> String| {
        call.with(|call| call.as_ref().map(part).unwrap_or_default())
    };
    let hang_up = move |_| {
        let text = format!(
            "End the call of {}? The caller is told that an operator ended it.",
            of(|call| call.caller.clone())
        );
        ask.first(text, "Hang up", move || {
            spawn_local(async move {
                problem.set(
                    api::post_empty(&format!("api/live/{session}/hang-up"))
                        .await
                        .err(),
                )
            });
        });
    };
    let heard = move || ear.session.get() == Some(session);
    let tick_us = move || board.with(|board| board.as_ref().map_or(0, |board| board.tick_p50_us));
    view! {
        <p class="who"><span class="caller">{move || of(|call| call.caller.clone())}</span>
            <span class="agent">{move || of(|call| format!("{} · {}", call.persona, call.voice))}</span></p>
        <p class="last">{move || of(|call| call.words.clone())}</p>
        <dl>
            <dt>"RTF"</dt><dd>{move || format!("{:.2}", rtf(tick_us()))}</dd>
            <dt>"Deficit"</dt><dd class:late=move || call.with(|call| call.as_ref().is_some_and(|call| call.deficit > 0))>{move || of(|call| call.deficit.to_string())}</dd>
            <dt>"Drops"</dt><dd>{move || of(|call| call.drops.to_string())}</dd>
            <dt>"Wait"</dt><dd>{move || of(|call| ms(call.mic_wait_us))}</dd>
        </dl>
        <footer><To path=format!("/sessions/{session}")>"Session "{session}</To>
            <button type="button" aria-pressed=move || heard().to_string() on:click=move |_| ear.press(session)>
                {move || if heard() { "Stop listening" } else { "Listen in" }}</button>
            <button type="button" class="danger" on:click=hang_up>"Hang up"</button></footer>
    }
}
