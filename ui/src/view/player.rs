//! The recording of a call: its shape is the line that is clicked to go somewhere.

use leptos::html;
use leptos::prelude::*;
use ui::model::text::clock;
use wire::api::sessions::Levels;

use super::waves::CallShape;

/// `source` is the address of the sound, `seconds` its length.
#[component]
pub fn Player(levels: Levels, source: String, seconds: u32) -> impl IntoView {
    let sound = NodeRef::<html::Audio>::new();
    let at_s = RwSignal::new(0.0_f64);
    let playing = RwSignal::new(false);
    let length_s = f64::from(seconds.max(1));
    let look = move |_| {
        if let Some(sound) = sound.get_untracked() {
            at_s.set(sound.current_time());
            playing.set(!sound.paused());
        }
    };
    let press = move |_| {
        let Some(sound) = sound.get_untracked() else {
            return;
        };
        match sound.paused() {
            // A promise: what becomes of it is told by the events below.
            true => drop(sound.play()),
            false => drop(sound.pause()),
        }
    };
    let go = move |event: web_sys::Event| {
        let to_s = event_target_value(&event).parse::<f64>().unwrap_or(0.0);
        if let Some(sound) = sound.get_untracked() {
            sound.set_current_time(to_s);
            at_s.set(to_s);
        }
    };
    let x = move || format!("{:.2}", at_s.get() / length_s * 100.0);
    view! {
        <div class="player">
            <CallShape caller=levels.caller agent=levels.agent />
            <svg class="at" viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true"><line x1=x x2=x y1="0" y2="100" /></svg>
            <input type="range" min="0" max=length_s.to_string() step="0.1" aria-label="Place in the recording" prop:value=move || at_s.get().to_string()
                aria-valuetext=move || format!("{} of {}", clock(at_s.get() * 1_000.0), clock(length_s * 1_000.0)) on:input=go />
        </div>
        <audio node_ref=sound preload="metadata" src=source on:timeupdate=look on:play=look on:pause=look on:ended=look></audio>
        <div class="actions">
            <button type="button" class="main" on:click=press>{move || if playing.get() { "Pause" } else { "Play" }}</button>
            <span class="time">{move || clock(at_s.get() * 1_000.0)}" / "{clock(length_s * 1_000.0)}</span>
            <span class="quiet"><span class="caller">"Caller"</span>" on the left ear, "<span class="agent">"agent"</span>" on the right"</span>
        </div>
    }
}
