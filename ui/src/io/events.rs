//! The server's events, for as long as a page wants them.

use std::rc::Rc;
use std::time::Duration;

use leptos::prelude::*;
use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use web_sys::{EventSource, MessageEvent};
use wire::api::live::{Changed, LiveEvent};

use super::page::{self, address};
use super::{api, build};

const NAMES: [&str; 4] = ["board", "history", "second", "changed"];
/// When it is tried again after an answer that was no stream: from a proxy whose server restarts, say. A line that
/// breaks is taken up again by the browser itself.
const AGAIN_AFTER: Duration = Duration::from_secs(3);

/// One stream, and what hears it.
struct Stream {
    source: EventSource,
    _heard: Closure<dyn Fn(MessageEvent)>,
    _opened: Closure<dyn Fn()>,
    _failed: Closure<dyn Fn()>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.source.set_onopen(None);
        self.source.set_onerror(None);
        self.source.close();
    }
}

/// What stays the same from one stream to the next.
#[derive(Clone)]
struct Follower {
    on: Rc<dyn Fn(LiveEvent)>,
    connected: RwSignal<bool>,
    stream: StoredValue<Option<Stream>, LocalStorage>,
}

impl Follower {
    fn open(&self) {
        let Ok(source) = EventSource::new(&address("api/events")) else {
            self.connected.set(false);
            return;
        };
        let on = self.on.clone();
        let heard = Closure::<dyn Fn(MessageEvent)>::new(move |event: MessageEvent| {
            let text = event.data().as_string().unwrap_or_default();
            if let Ok(event) = serde_json::from_str(&text) {
                on(event);
            }
        });
        for name in NAMES {
            let _ = source.add_event_listener_with_callback(name, heard.as_ref().unchecked_ref());
        }
        let connected = self.connected;
        let on = self.on.clone();
        let opened = Closure::<dyn Fn()>::new(move || {
            if !connected.get_untracked() {
                build::look();
            }
            connected.set(true);
            // What changed between a page's first look and now, or while the line was broken, was not told.
            for what in Changed::ALL {
                on(LiveEvent::Changed { what });
            }
        });
        let (follower, watched) = (self.clone(), source.clone());
        let failed = Closure::<dyn Fn()>::new(move || {
            connected.set(false);
            if watched.ready_state() == EventSource::CLOSED {
                // Refused, or no stream at all. If it is known no more who asks, this page goes.
                api::turned_away();
                let follower = follower.clone();
                set_timeout(move || follower.open_again(), AGAIN_AFTER);
            }
        });
        source.set_onopen(Some(opened.as_ref().unchecked_ref()));
        source.set_onerror(Some(failed.as_ref().unchecked_ref()));
        let stream = Stream {
            source,
            _heard: heard,
            _opened: opened,
            _failed: failed,
        };
        self.stream.set_value(Some(stream));
    }

    fn open_again(&self) {
        // The page may be gone by now, or out of sight.
        if self.stream.try_with_value(Option::is_some) == Some(true) {
            self.open();
        }
    }

    /// Browsers hold six lines to a server, for all their windows together. A page that nobody sees, or that is kept for
    /// the way back, takes none of them.
    fn seen_or_not(&self, seen: bool) {
        match (seen, self.stream.try_with_value(Option::is_some)) {
            (true, Some(false)) => self.open(),
            (false, Some(true)) => self.stream.set_value(None),
            _ => {}
        }
    }
}

/// Calls `on` for each event until the component that asked is gone. The signal says whether the line stands.
pub fn follow(on: impl Fn(LiveEvent) + 'static) -> ReadSignal<bool> {
    let connected = RwSignal::new(true);
    let follower = Follower {
        on: Rc::new(on),
        connected,
        stream: StoredValue::new_local(None),
    };
    follower.open();
    let follower = StoredValue::new_local(follower);
    let look = move |seen: bool| {
        follower.try_with_value(|follower| follower.seen_or_not(seen));
    };
    let changes = window_event_listener(leptos::ev::visibilitychange, move |_| {
        look(!page::is_hidden());
    });
    let leaves = window_event_listener(leptos::ev::pagehide, move |_| look(false));
    let returns = window_event_listener(leptos::ev::pageshow, move |_| look(!page::is_hidden()));
    on_cleanup(move || {
        changes.remove();
        leaves.remove();
        returns.remove();
        look(false);
    });
    connected.read_only()
}
