//! Asking before an act that cannot be taken back, and offering to take back one that can.

use std::sync::Arc;

use leptos::html;
use leptos::prelude::*;

/// What is done later. Not a callback of the place that asks: that may be gone by then.
type Act = Arc<dyn Fn() + Send + Sync>;

/// A question with one way to go on; the other is to leave everything as it is.
#[derive(Clone)]
struct Question {
    text: String,
    go_on: &'static str,
    then: Act,
}

/// What was done, and how to undo it.
#[derive(Clone)]
struct Done {
    text: String,
    undo: Act,
}

/// Handed to every page through the context.
#[derive(Clone, Copy)]
pub struct Ask {
    question: RwSignal<Option<Question>>,
    done: RwSignal<Option<Done>>,
}

impl Ask {
    pub fn provide() -> Self {
        let ask = Self {
            question: RwSignal::new(None),
            done: RwSignal::new(None),
        };
        provide_context(ask);
        ask
    }

    /// Does `then` if the person says so.
    pub fn first(
        self,
        text: impl Into<String>,
        go_on: &'static str,
        then: impl Fn() + Send + Sync + 'static,
    ) {
        self.question.set(Some(Question {
            text: text.into(),
            go_on,
            then: Arc::new(then),
        }));
    }

    /// Says what was done, until it is undone or put away.
    pub fn offer_undo(self, text: impl Into<String>, undo: impl Fn() + Send + Sync + 'static) {
        self.done.set(Some(Done {
            text: text.into(),
            undo: Arc::new(undo),
        }));
    }
}

/// The place where both are shown; once on a page.
#[component]
pub fn AskPlace(ask: Ask) -> impl IntoView {
    let dialog = NodeRef::<html::Dialog>::new();
    Effect::new(move |_| {
        let asked = ask.question.with(Option::is_some);
        let Some(dialog) = dialog.get() else { return };
        match asked && !dialog.open() {
            // Refused only when it is open already.
            true => drop(dialog.show_modal()),
            false if !asked => dialog.close(),
            false => {}
        }
    });
    let go_on = move |_| {
        if let Some(question) = ask.question.get_untracked() {
            ask.question.set(None);
            (question.then)();
        }
    };
    view! {
        <dialog node_ref=dialog aria-labelledby="asked" on:close=move |_| ask.question.set(None)>
            <p id="asked">{move || ask.question.with(|question| question.as_ref().map(|question| question.text.clone()))}</p>
            <div class="actions">
                <button type="button" on:click=move |_| ask.question.set(None)>"Leave it"</button>
                <button type="button" class="danger" on:click=go_on>
                    {move || ask.question.with(|question| question.as_ref().map(|question| question.go_on))}</button>
            </div>
        </dialog>
        <div role="status">{move || ask.done.get().map(|done| view! {
            <div class="toast"><span>{done.text}</span>
                <button type="button" class="plain" on:click=move |_| { (done.undo)(); ask.done.set(None) }>"Undo"</button>
                <button type="button" class="plain" aria-label="Put this away" on:click=move |_| ask.done.set(None)>"×"</button></div>
        })}</div>
    }
}
