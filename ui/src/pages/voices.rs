//! Voices: the list. One voice is a `card`; new ones come by `add`.

mod add;
mod card;

use leptos::prelude::*;
use wire::api::Page;
use wire::api::live::{Changed, LiveEvent};
use wire::api::voices::Voice;

use crate::io::events;
use crate::io::listing::Listing;
use crate::view::loaded::{LastTrouble, Loaded};

use add::AddVoice;
use card::VoiceCard;

/// More than any list has had so far; what is beyond is said.
const SHOWN_MAX: usize = 200;

#[component]
pub fn VoicesPage() -> impl IntoView {
    let list = Listing::<Page<Voice>>::new();
    let archived = RwSignal::new(false);
    let problem = RwSignal::new(None);
    let ask = move || list.ask(format!("api/voices?limit={SHOWN_MAX}"));
    ask();
    let again = Callback::new(move |()| ask());
    events::follow(move |event| {
        let voices = LiveEvent::Changed {
            what: Changed::Voices,
        };
        let personas = LiveEvent::Changed {
            what: Changed::Personas,
        };
        if event == voices || event == personas {
            ask();
        }
    });
    let shown = move |list: Page<Voice>| {
        let more = list.next.is_some();
        let voices: Vec<Voice> = list
            .items
            .into_iter()
            .filter(|voice| archived.get() || !voice.archived)
            .collect();
        let cards = match voices.is_empty() {
            true => view! { <p class="empty">"No voices: callers get the one that the model likes. Add one below."</p> }.into_any(),
            false => view! { <ul class="cards voices">{voices.into_iter().map(|voice| view! {
                <VoiceCard voice=voice problem=problem again=again /> }).collect_view()}</ul> }.into_any(),
        };
        view! { {cards} {more.then(|| view! { <p class="quiet">"These are the first "{SHOWN_MAX}"."</p> })} }
    };
    view! {
        <h1>"Voices"</h1>
        <div class="bar">
            <label class="switch"><input type="checkbox" bind:checked=archived />"Show the archive too"</label>
        </div>
        <LastTrouble problem=problem />
        <Loaded answer=list.answer show=shown />
        <section aria-labelledby="add"><h2 id="add">"Add a voice"</h2><AddVoice again=again /></section>
    }
}
