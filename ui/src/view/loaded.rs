//! What a list shows before it is there, when it cannot be had, and a line for problems.

use leptos::prelude::*;

use crate::io::api::{Answer, Problem};

/// `show` once the answer is there; else that it is on its way, or why it is not.
#[component]
pub fn Loaded<T, V>(
    answer: RwSignal<Option<Answer<T>>>,
    show: impl Fn(T) -> V + Send + Sync + Clone + 'static,
) -> impl IntoView
where
    T: Clone + Send + Sync + 'static,
    V: IntoView + 'static,
{
    move || match answer.get() {
        None => view! { <p class="quiet" role="status">"Loading…"</p> }.into_any(),
        Some(Err(problem)) => view! { <Trouble problem=problem /> }.into_any(),
        Some(Ok(value)) => show(value).into_any(),
    }
}

#[component]
pub fn Trouble(problem: Problem) -> impl IntoView {
    view! { <p class="trouble" role="alert">{problem.text}</p> }
}

/// The last problem of an action, if there is one.
#[component]
pub fn LastTrouble(problem: RwSignal<Option<Problem>>) -> impl IntoView {
    move || {
        problem
            .get()
            .map(|problem| view! { <Trouble problem=problem /> })
    }
}
