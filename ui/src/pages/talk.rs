//! The talk page: one button, two voices, the agent's words.

use leptos::prelude::*;
use leptos::task::spawn_local;
use ui::model::call::Phase;
use ui::model::text::{about, address_part, clock};
use wire::api::talk::Talk;

use super::Me;
use crate::io::line::{Line, Shown};
use crate::io::sound::{self, Wishes};
use crate::io::{api, page};
use crate::view::loaded::Loaded;
use crate::view::waves::Waves;

#[component]
pub fn TalkPage() -> impl IntoView {
    view! { <h1>"Talk"</h1><TalkPanel /> }
}

/// One call, of `persona`, of the link's persona, or of a persona to be chosen.
#[component]
pub fn TalkPanel(
    #[prop(optional)] persona: Option<i64>,
    /// Its name where that can change while the panel stands.
    #[prop(optional, into)]
    name: Option<Signal<String>>,
) -> impl IntoView {
    let talk = RwSignal::new(None);
    let path = match page::link() {
        Some(link) => format!("api/talk?link={}", address_part(&link)),
        None => "api/talk".to_owned(),
    };
    spawn_local(async move { talk.set(Some(api::get::<Talk>(&path).await)) });
    view! { <Loaded answer=talk show={move |talk: Talk| view! { <Panel talk=talk persona=persona name=name /> }} /> }
}

#[component]
fn Panel(talk: Talk, persona: Option<i64>, name: Option<Signal<String>>) -> impl IntoView {
    let line = StoredValue::new_local(Line::new());
    let shown = line.with_value(Line::shown);
    on_cleanup(move || line.with_value(Line::leave));
    let leaving =
        window_event_listener(leptos::ev::pagehide, move |_| line.with_value(Line::leave));
    let seeing = window_event_listener(leptos::ev::visibilitychange, move |_| {
        line.with_value(Line::seen)
    });
    on_cleanup(move || {
        leaving.remove();
        seeing.remove();
    });
    let first = persona.or(talk.personas.first().map(|persona| persona.id));
    let chosen = RwSignal::new(first.map(|id| id.to_string()).unwrap_or_default());
    let voice = RwSignal::new(String::new());
    let seed = RwSignal::new(String::new());
    let text = RwSignal::new(String::new());
    let press = move |_| {
        let mut query = format!("persona={}", chosen.get_untracked());
        for (name, value) in [
            ("voice_prompt", voice),
            ("seed", seed),
            ("text_prompt", text),
        ] {
            let value = value.get_untracked();
            if !value.trim().is_empty() {
                query += &format!("&{name}={}", address_part(value.trim()));
            }
        }
        line.with_value(|line| line.press(query));
    };
    let call = shown.call;
    let idle = Signal::derive(move || !call.with(|call| call.is_on()));
    let personas = talk.personas.clone();
    let one = personas.len() == 1 || persona.is_some();
    let known = first
        .and_then(|id| personas.iter().find(|persona| persona.id == id))
        .map(|persona| persona.name.clone())
        .unwrap_or_default();
    view! {
        <section class="talk" aria-label="Call">
            {(!page::is_secure()).then(|| view! { <Insecure /> })}
            <Waves levels=shown.levels />
            <div class="sides"><span class="caller">"You"</span><span class="agent">{move || match (one, name) {
                (true, Some(name)) => name.get(),
                (true, None) => known.clone(),
                (false, _) => "Agent".to_owned(),
            }}</span></div>
            <p class="phase" role="status">{move || call.with(|call| call.words())}</p>
            {(!one).then(|| view! {
                <label>"Persona"<select bind:value=chosen disabled=move || !idle.get()>
                    {personas.iter().map(|persona| view! { <option value=persona.id.to_string()>{persona.name.clone()}</option> }).collect_view()}
                </select></label>
            })}
            <div class="actions">
                <button class="main" class:stop=move || !idle.get() on:click=press>{move || call.with(|call| call.button())}</button>
                {move || call.with(|call| call.phase == Phase::Live).then(|| view! {
                    <button aria-pressed=move || shown.muted.get().to_string() on:click=move |_| shown.muted.update(|muted| *muted = !*muted)>
                        {move || if shown.muted.get() { "Unmute" } else { "Mute" }}</button>
                    <span class="time">{move || clock(shown.elapsed_ms.get())}</span>
                })}
            </div>
            {move || idle.get().then(|| view! {
                <p class="quiet">"Your browser will ask for the microphone. Headphones are best: then the agent does not hear itself."</p>
            })}
            {talk.recorded.then(|| view! {
                <p class="consent">"Calls are recorded and kept for "{talk.recording_days}" days. Call only if you agree."</p>
            })}
            {(!talk.recorded && talk.transcript_kept).then(|| view! {
                <p class="quiet">"What the agent says is kept as text. Audio is not recorded."</p>
            })}
            {talk.memory_s.map(|memory_s| view! { <Memory shown=shown memory_s=memory_s /> })}
            <Words shown=shown />
            <Health shown=shown />
            <SoundChoice shown=shown line=line />
            {talk.may_choose.then(|| {
                let voices = talk.voices.clone();
                view! {
                    <details><summary>"For this call only"</summary>
                        <label>"Voice"<select bind:value=voice><option value="">"the persona's"</option>
                            {voices.into_iter().map(|voice| view! { <option value=voice.clone()>{voice.clone()}</option> }).collect_view()}</select></label>
                        <label>"Seed"<input inputmode="numeric" bind:value=seed placeholder="drawn" /></label>
                        <label>"Role text"<textarea rows="3" bind:value=text placeholder="the persona's"></textarea></label>
                    </details>
                }
            })}
        </section>
    }
}

/// Why there will be no microphone, and where there is one.
#[component]
fn Insecure() -> impl IntoView {
    let me = expect_context::<Me>();
    let https = move || {
        me.0.get()
            .and_then(Result::ok)
            .and_then(|account| account.https_url)
    };
    let port = page::window().location().port().unwrap_or_default();
    let local = match port.as_str() {
        "" => "http://localhost".to_owned(),
        port => format!("http://localhost:{port}"),
    };
    view! {
        <div class="trouble" role="alert">
            <p>"Browsers give a microphone only to pages that came over https, or from the same machine. This page came over plain http, so it cannot hear you."</p>
            {move || match https() {
                Some(url) => view! { <p><a href=url.clone()>"Open it over https: "{url.clone()}</a></p> }.into_any(),
                None => view! { <p>"On the server's own machine, open "<a href=local.clone()>{local.clone()}</a>". For other machines the operator puts https before this server."</p> }.into_any(),
            }}
        </div>
    }
}

/// Once a call is longer than what the agent remembers of it.
#[component]
fn Memory(shown: Shown, memory_s: u32) -> impl IntoView {
    let past = Memo::new(move |_| {
        let live = shown.call.with(|call| call.phase == Phase::Live);
        live && shown.elapsed_ms.get() > f64::from(memory_s) * 1_000.0
    });
    view! {
        {move || past.get().then(|| view! {
            <p class="quiet" role="status">"Of this call the agent remembers about the last "{about(memory_s)}"."</p>
        })}
    }
}

/// What the agent said.
#[component]
fn Words(shown: Shown) -> impl IntoView {
    let save = move |_| {
        let text = shown
            .transcript
            .with_untracked(|transcript| transcript.text());
        let _ = page::save("transcript.txt", &text);
    };
    let recording = move || {
        shown
            .call
            .with(|call| (!call.is_on()).then(|| call.recording.clone()).flatten())
    };
    let any = move || {
        shown
            .transcript
            .with(|transcript| !transcript.lines.is_empty())
    };
    view! {
        <div class="words" aria-live="polite" aria-label="What the agent says">
            {move || shown.transcript.with(|transcript| transcript.lines.iter().map(|line| view! {
                <p><span class="time">{clock(line.at_ms)}</span>{line.text.clone()}</p>
            }).collect_view())}
        </div>
        {move || any().then(|| view! { <button class="plain" on:click=save>"Save the transcript"</button> })}
        {move || recording().map(|path| view! { <a class="button" href=page::address(&path) download="call.wav">"Save the recording"</a> })}
    }
}

/// How good the connection is, in words; numbers for who wants them.
#[component]
fn Health(shown: Shown) -> impl IntoView {
    let live = move || shown.call.with(|call| call.phase == Phase::Live);
    let words = move || shown.health.with(|health| health.words());
    view! {
        {move || live().then(|| view! {
            <details class="health"><summary>{words}</summary>
                <dl>
                    <dt>"Held ready"</dt><dd>{move || format!("{:.0} ms", shown.buffer.get().held_s * 1_000.0)}</dd>
                    <dt>"Gaps, last half minute"</dt><dd>{move || shown.health.with(|health| health.gaps())}</dd>
                    <dt>"Gaps, whole call"</dt><dd>{move || shown.buffer.get().gaps}</dd>
                    <dt>"Skipped to stay in time"</dt><dd>{move || format!("{:.1} s", shown.buffer.get().skipped_s)}</dd>
                    <dt>"Delay in buffers"</dt><dd>{move || format!("{:.0} ms", shown.health.with(|health| health.delay_ms()))}</dd>
                </dl>
            </details>
        })}
    }
}

/// Devices, and what the browser does to the microphone.
#[component]
fn SoundChoice(shown: Shown, line: StoredValue<Line, LocalStorage>) -> impl IntoView {
    let devices = RwSignal::new(Vec::new());
    let look = move || spawn_local(async move { devices.set(sound::devices().await) });
    Effect::new(move |_| {
        // Names are known once the microphone was allowed.
        if shown.call.with(|call| call.phase == Phase::Live) {
            look();
        }
    });
    let change = move |change: fn(&mut Wishes, String), value: String| {
        shown.wishes.update(|wishes| change(wishes, value));
        line.with_value(Line::change_sound);
    };
    let choice = move |microphone: bool, set: fn(&mut Wishes, String)| {
        view! {
            <select on:change=move |event| change(set, event_target_value(&event))>
                <option value="">"the browser's choice"</option>
                {move || devices.get().into_iter().filter(|device| device.0 == microphone).map(|(_, id, name)| view! {
                    <option value=id>{name}</option> }).collect_view()}
            </select>
        }
    };
    let switch = move |name: &'static str,
                       of: fn(&Wishes) -> bool,
                       set: fn(&mut Wishes, String)| {
        view! {
            <label class="switch"><input type="checkbox" prop:checked=move || shown.wishes.with(of)
                on:change=move |event| change(set, event_target_checked(&event).to_string()) />{name}</label>
        }
    };
    view! {
        <details><summary>"Sound"</summary>
            <label>"Microphone"{choice(true, |wishes, id| wishes.microphone = Some(id).filter(|id| !id.is_empty()))}</label>
            <label>"Loudspeaker"{choice(false, |wishes, id| wishes.speaker = Some(id).filter(|id| !id.is_empty()))}</label>
            {switch("Take the echo out", |wishes| wishes.echo_cancellation, |wishes, on| wishes.echo_cancellation = on == "true")}
            {switch("Take noise out", |wishes| wishes.noise_suppression, |wishes, on| wishes.noise_suppression = on == "true")}
            {switch("Close the microphone while the agent speaks", |wishes| wishes.take_turns, |wishes, on| wishes.take_turns = on == "true")}
            {switch("Even the loudness out", |wishes| wishes.auto_gain, |wishes, on| wishes.auto_gain = on == "true")}
        </details>
    }
}
