//! The browser's side: the talk page and the operator's pages.
use leptos::prelude::*;
use leptos_router::components::Router;

fn main() {
    console_error_panic_hook::set_once();
    mount_to_body(|| view! { <Router><main>"vivavoce"</main></Router> });
}
