//! A link to another page of this UI.

use leptos::prelude::*;
use leptos_router::components::A;

use crate::io::page;

/// `path` begins with a slash and is below the UI's root, wherever a proxy shows that. The router's own link takes such
/// a path as it stands.
#[component]
pub fn To(#[prop(into)] path: String, children: Children) -> impl IntoView {
    view! { <A href=page::base() + &path>{children()}</A> }
}
