//! What a page asks for again and again, while the person types or others change it.

use std::time::Duration;

use leptos::prelude::*;
use leptos::task::spawn_local;
use serde::de::DeserializeOwned;

use super::api::{self, Answer};

/// How long typing must pause before it is acted on, in milliseconds.
const PAUSE_MS: u64 = 250;

/// An answer that is replaced by newer ones: one that comes late never replaces a newer one, and one that says the same
/// leaves the page as it is.
pub struct Listing<T: Send + Sync + 'static> {
    pub answer: RwSignal<Option<Answer<T>>>,
    turn: StoredValue<u32>,
    /// What the present answer was to, and its words.
    known: StoredValue<Option<(String, String)>>,
}

impl<T: Send + Sync + 'static> Clone for Listing<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Send + Sync + 'static> Copy for Listing<T> {}

impl<T: DeserializeOwned + Send + Sync + 'static> Listing<T> {
    pub fn new() -> Self {
        Self {
            answer: RwSignal::new(None),
            turn: StoredValue::new(0),
            known: StoredValue::new(None),
        }
    }

    pub fn ask(self, path: impl Into<String>) {
        let path = path.into();
        self.turn.update_value(|turn| *turn += 1);
        let turn = self.turn.get_value();
        spawn_local(async move {
            let known = self.known.try_get_value().flatten();
            let known = known.filter(|(of, _)| *of == path).map(|(_, words)| words);
            let news = api::get_if_new::<T>(&path, known.as_deref()).await;
            // The page may be gone, or have asked for something else.
            if self.turn.try_get_value() != Some(turn) {
                return;
            }
            if let Some((answer, words)) = news {
                self.known.set_value(words.map(|words| (path, words)));
                self.answer.set(Some(answer));
            }
        });
    }
}

/// `text` as it was when its typing last paused.
pub fn settled(text: RwSignal<String>) -> Signal<String> {
    let calm = RwSignal::new(text.get_untracked());
    let waiting = StoredValue::new(None::<TimeoutHandle>);
    let stop = move || {
        if let Some(Some(handle)) = waiting.try_get_value() {
            handle.clear();
        }
    };
    Effect::new(move |before: Option<()>| {
        let now = text.get();
        if before.is_none() {
            return;
        }
        stop();
        let handle = set_timeout_with_handle(
            move || calm.set(now.clone()),
            Duration::from_millis(PAUSE_MS),
        );
        waiting.set_value(handle.ok());
    });
    on_cleanup(stop);
    calm.into()
}
