//! Links that lead a caller to one persona.

use leptos::prelude::*;
use leptos::task::spawn_local;
use wire::api::Page;
use wire::api::personas::{NewShare, Share, ShareMade};

use crate::io::listing::Listing;
use crate::io::{api, page};
use crate::view::ask::Ask;
use crate::view::loaded::{LastTrouble, Loaded};
use crate::view::once::ShownOnce;

#[component]
pub fn Shares(id: i64) -> impl IntoView {
    let list = Listing::<Page<Share>>::new();
    let problem = RwSignal::new(None);
    let made = RwSignal::new(None::<String>);
    let (label, days) = (RwSignal::new(String::new()), RwSignal::new(String::new()));
    let again = Callback::new(move |()| list.ask(format!("api/personas/{id}/shares")));
    again.run(());
    let make = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        let wish = NewShare {
            label: label.get_untracked().trim().to_owned(),
            days: days.get_untracked().parse().ok(),
        };
        spawn_local(async move {
            match api::post::<_, ShareMade>(&format!("api/personas/{id}/shares"), &wish).await {
                Ok(share) => {
                    made.set(Some(page::address(&share.path)));
                    label.set(String::new());
                    problem.set(None);
                }
                Err(error) => problem.set(Some(error)),
            }
            again.run(());
        });
    };
    view! {
        <section><h2>"Share links"</h2>
            <p class="quiet">"Whoever has a link can call this persona, and nothing else. It always leads to the newest version."</p>
            <form class="bar" on:submit=make>
                <label>"For whom"<input maxlength="80" bind:value=label placeholder="shown in the log" /></label>
                <label>"Ends"<select bind:value=days><option value="">"when you end it"</option><option value="1">"in a day"</option>
                    <option value="7">"in a week"</option><option value="30">"in 30 days"</option><option value="365">"in a year"</option></select></label>
                <button type="submit">"Make a link"</button></form>
            {move || made.get().map(|link| view! { <ShownOnce what="The link" secret=link /> })}
            <LastTrouble problem=problem />
            <Loaded answer=list.answer show={move |list: Page<Share>| match list.items.is_empty() {
                true => view! { <p class="quiet">"No links yet."</p> }.into_any(),
                false => view! { <ul class="rows">{list.items.into_iter().map(|share| view! { <Row share=share problem=problem again=again /> }).collect_view()}</ul> }.into_any(),
            }} />
        </section>
    }
}

#[component]
fn Row(
    share: Share,
    problem: RwSignal<Option<api::Problem>>,
    again: Callback<()>,
) -> impl IntoView {
    let ask = expect_context::<Ask>();
    let id = share.id;
    let name = match share.label.is_empty() {
        true => "A link without a name".to_owned(),
        false => share.label,
    };
    let question = format!(
        "End \"{name}\"? Whoever has it cannot call any more, and it cannot be brought back."
    );
    let end = move |_| {
        ask.first(question.clone(), "End it", move || {
            spawn_local(async move {
                problem.set(api::delete(&format!("api/shares/{id}")).await.err());
                again.run(());
            });
        });
    };
    let used = share.used_at_ms.map_or("never used".to_owned(), |at_ms| {
        format!("last used {}", page::local_time(at_ms))
    });
    let ends = share
        .expires_at_ms
        .map(|at_ms| format!("ends {}", page::local_time(at_ms)));
    view! {
        <li><b>{name}</b><span class="quiet">"made "{page::local_time(share.created_at_ms)}", "{used}</span><span class="quiet">{ends}</span>
            <button type="button" class="plain" on:click=end>"End it"</button></li>
    }
}
