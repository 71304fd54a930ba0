//! The server's events, for as long as a page wants them. The browser reconnects by itself.

use leptos::prelude::*;
use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use web_sys::{EventSource, MessageEvent};
use wire::api::live::LiveEvent;

use super::page::address;

const NAMES: [&str; 4] = ["board", "history", "second", "changed"];

/// Calls `on` for each event until the component that asked is gone. The signal says whether the line stands.
pub fn follow(on: impl Fn(LiveEvent) + 'static) -> ReadSignal<bool> {
    let (connected, set_connected) = signal(true);
    let Ok(source) = EventSource::new(&address("api/events")) else {
        set_connected.set(false);
        return connected;
    };
    let heard = Closure::<dyn Fn(MessageEvent)>::new(move |event: MessageEvent| {
        let text = event.data().as_string().unwrap_or_default();
        if let Ok(event) = serde_json::from_str(&text) {
            on(event);
        }
    });
    for name in NAMES {
        let _ = source.add_event_listener_with_callback(name, heard.as_ref().unchecked_ref());
    }
    let opened = Closure::<dyn Fn()>::new(move || set_connected.set(true));
    let failed = Closure::<dyn Fn()>::new(move || set_connected.set(false));
    source.set_onopen(Some(opened.as_ref().unchecked_ref()));
    source.set_onerror(Some(failed.as_ref().unchecked_ref()));
    let held = StoredValue::new_local((source, heard, opened, failed));
    on_cleanup(move || {
        held.with_value(|(source, ..)| {
            source.set_onopen(None);
            source.set_onerror(None);
            source.close();
        });
    });
    connected
}
