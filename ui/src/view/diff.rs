//! Two texts, line by line: what is gone, what is new. Marked by signs as well as by colour.

use leptos::prelude::*;
use ui::model::diff::{self, Kind};

#[component]
pub fn Diff(old: String, new: String) -> impl IntoView {
    let line = |(kind, line): (Kind, String)| match kind {
        Kind::Same => view! { <span>"  "{line}</span> }.into_any(),
        Kind::Gone => view! { <del>"− "{line}</del> }.into_any(),
        Kind::New => view! { <ins>"+ "{line}</ins> }.into_any(),
    };
    view! { <pre class="diff">{diff::lines(&old, &new).into_iter().map(line).collect_view()}</pre> }
}
