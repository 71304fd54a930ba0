//! The log of sessions: the list; one session is in `one`.

mod one;

use leptos::prelude::*;
use ui::model::address::{query_of, value_in};
use ui::model::session_filter::SessionFilter;
use ui::model::text::{clock, reason};
use wire::api::Page;
use wire::api::live::{Changed, LiveEvent};
use wire::api::personas::Persona;
use wire::api::sessions::SessionSummary;
use wire::notice::EndReason;

use crate::io::listing::{Listing, settled};
use crate::io::{events, page};
use crate::view::loaded::Loaded;
use crate::view::to::To;

pub use one::SessionPage;

#[component]
pub fn SessionsPage() -> impl IntoView {
    let list = Listing::<Page<SessionSummary>>::new();
    let personas = Listing::<Page<Persona>>::new();
    personas.ask("api/personas?limit=200");
    // As the page was left: the address keeps what was looked for.
    let before = page::query();
    let text = |name: &str| RwSignal::new(value_in(&before, name));
    let (caller, words, voice) = (text("caller"), text("said"), text("voice"));
    let (persona, ended) = (text("persona"), text("ended"));
    let (from, to) = (text("from"), text("to"));
    let (caller_calm, words_calm, voice_calm) = (settled(caller), settled(words), settled(voice));
    let filter = Memo::new(move |_| SessionFilter {
        caller: caller_calm.get(),
        words: words_calm.get(),
        voice: voice_calm.get(),
        persona_id: persona.get(),
        ended: ended.get(),
        from_ms: page::day_ms(&from.get(), 0),
        // Up to the end of that day.
        to_ms: page::day_ms(&to.get(), 1),
    });
    // The way back: cursors of the pages that were turned.
    let turned = value_in(&before, "pages");
    let turned = turned.split(' ').filter(|cursor| !cursor.is_empty());
    let turned = RwSignal::new(turned.map(str::to_owned).collect::<Vec<_>>());
    Effect::new(move |_| {
        page::set_query(&query_of(&[
            ("caller", caller_calm.get()),
            ("said", words_calm.get()),
            ("voice", voice_calm.get()),
            ("persona", persona.get()),
            ("ended", ended.get()),
            ("from", from.get()),
            ("to", to.get()),
            ("pages", turned.with(|turned| turned.join(" "))),
        ]));
    });
    let ask =
        move || {
            list.ask(filter.with(|filter| {
                turned.with(|turned| filter.path(turned.last().map(String::as_str)))
            }))
        };
    Effect::new(move |before: Option<SessionFilter>| {
        let now = filter.get();
        // Another question begins at its first page.
        if before.is_some_and(|before| before != now) && !turned.with_untracked(Vec::is_empty) {
            turned.set(Vec::new());
        }
        now
    });
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
    // The list of personas comes later than the choice that the address holds.
    let chosen = move |id: i64| persona.with_untracked(|chosen| *chosen == id.to_string());
    let clear = move |_| {
        for field in [caller, words, voice, persona, ended, from, to] {
            field.set(String::new());
        }
    };
    view! {
        <h1>"Sessions"</h1>
        <form class="bar" role="search" on:submit=|event| event.prevent_default()>
            <label>"Caller"<input type="search" bind:value=caller /></label>
            <label>"The agent said"<input type="search" placeholder="words, or beginnings" bind:value=words /></label>
            <label>"Persona"<select bind:value=persona><option value="">"any"</option>
                {move || personas.answer.get().and_then(Result::ok).map(|all| all.items.into_iter().map(|persona| view! {
                    <option value=persona.id.to_string() selected=chosen(persona.id)>{persona.draft.name}</option> }).collect_view())}</select></label>
            <label>"Voice"<input type="search" bind:value=voice /></label>
            <label>"Ended"<select bind:value=ended><option value="">"in any way"</option><option value="running">"not yet: running"</option>
                <option value="cut_off">{reason("cut_off")}</option>
                {EndReason::ALL.into_iter().map(|why| view! { <option value=why.name()>{reason(why.name())}</option> }).collect_view()}</select></label>
            <label>"From"<input type="date" bind:value=from /></label>
            <label>"To"<input type="date" bind:value=to /></label>
            {move || (!filter.with(SessionFilter::is_empty)).then(|| view! { <button type="button" class="plain" on:click=clear>"Clear"</button> })}
        </form>
        <Loaded answer=list.answer show={move |page: Page<SessionSummary>| {
            let next = page.next.clone();
            match page.items.is_empty() {
                true if filter.with_untracked(SessionFilter::is_empty) => view! {
                    <p class="empty">"No calls here yet. "<To path="/talk">"Make the first one."</To></p> }.into_any(),
                true => view! { <p class="empty">"No session fits. Words are looked for in what the agent said: all of them, each from its beginning."</p> }.into_any(),
                false => view! {
                    <Rows sessions=page.items />
                    <div class="actions">
                        {move || (!turned.with(Vec::is_empty)).then(|| view! { <button type="button" on:click=move |_| turned.update(|all| drop(all.pop()))>"Newer"</button> })}
                        {next.map(|next| view! { <button type="button" on:click=move |_| turned.update(|all| all.push(next.clone()))>"Older"</button> })}
                    </div> }.into_any(),
            }
        }} />
    }
}

#[component]
fn Rows(sessions: Vec<SessionSummary>) -> impl IntoView {
    let row = |session: SessionSummary| {
        let length = clock(session.counters.frames as f64 * 80.0);
        let end = session
            .end_reason
            .map_or("running".to_owned(), |name| reason(&name));
        view! {
            <tr><td><To path=format!("/sessions/{}", session.id)>{page::local_time(session.began_at_ms)}</To></td>
                <td class="caller">{session.caller}</td><td class="agent">{session.persona}</td>
                <td class="number">{length}</td><td class="number wide">{session.words}</td>
                <td>{end}{session.recorded.then(|| view! { " "<span class="tag">"recorded"</span> })}</td></tr>
        }
    };
    view! {
        <div class="scroll"><table>
            <thead><tr><th scope="col">"Began"</th><th scope="col">"Caller"</th><th scope="col">"Persona"</th>
                <th scope="col" class="number">"Length"</th><th scope="col" class="number wide">"Words"</th><th scope="col">"Ended"</th></tr></thead>
            <tbody>{sessions.into_iter().map(row).collect_view()}</tbody>
        </table></div>
    }
}
