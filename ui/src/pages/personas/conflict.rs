//! Somebody else saved meanwhile: both texts side by side, and nothing lost either way.

use leptos::prelude::*;
use ui::model::persona_form::differences;
use wire::api::personas::{Persona, PersonaDraft};

use crate::io::page;
use crate::view::diff::Diff;

/// `theirs` is what the server holds now, `mine` what was about to be saved.
#[component]
pub fn Conflict(
    theirs: Persona,
    mine: PersonaDraft,
    keep_mine: Callback<()>,
    take_theirs: Callback<()>,
) -> impl IntoView {
    let rows = differences(&theirs.draft, &mine);
    let text_differs = theirs.draft.role_text != mine.role_text;
    let by = format!(
        "Meanwhile {} saved version {} ({}).",
        theirs.changed_by,
        theirs.version,
        page::local_time(theirs.changed_at_ms)
    );
    view! {
        <div class="panel" role="alert">
            <h2>"Two people wrote at once"</h2>
            <p>{by}" Nothing is lost: yours is still in the form, the other one is saved."</p>
            {(!rows.is_empty()).then(|| view! {
                <table><thead><tr><th scope="col">"Field"</th><th scope="col">"Saved now"</th><th scope="col">"Yours"</th></tr></thead>
                <tbody>{rows.into_iter().map(|(name, theirs, mine)| view! { <tr><td>{name}</td><td>{theirs}</td><td>{mine}</td></tr> }).collect_view()}</tbody></table> })}
            {text_differs.then(|| view! { <h3>"Role text: saved now (−) against yours (+)"</h3><Diff old=theirs.draft.role_text new=mine.role_text /> })}
            <div class="actions">
                <button type="button" class="main" on:click=move |_| keep_mine.run(())>{format!("Save mine as version {}", theirs.version + 1)}</button>
                <button type="button" on:click=move |_| take_theirs.run(())>"Take theirs into the form"</button></div>
            <p class="hint">"Either way the older one stays among the versions, or in the form until you choose."</p>
        </div>
    }
}
