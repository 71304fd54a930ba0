//! A new voice, from a bundle or a recording.

use leptos::html;
use leptos::prelude::*;
use leptos::task::spawn_local;
use ui::model::text::bytes;
use ui::model::voice_form::{Kind, Missing, VoiceForm};
use wire::api::voices::{CONSENT_CHARS_MAX, VoiceMade};

use crate::io::upload::post_form;
use crate::view::loaded::LastTrouble;

/// Shows what `field` says, where its field is.
#[component]
fn Beside(missing: Memo<Missing>, field: fn(&Missing) -> &Option<String>) -> impl IntoView {
    move || {
        let text = missing.with(|missing| field(missing).clone());
        text.map(|text| view! { <span class="hint late" role="alert">{text}</span> })
    }
}

#[component]
pub fn AddVoice(again: Callback<()>) -> impl IntoView {
    let chooser = NodeRef::<html::Input>::new();
    let file = RwSignal::new_local(None::<web_sys::File>);
    let (name, consent) = (RwSignal::new(String::new()), RwSignal::new(String::new()));
    // From the first try on, what is missing is said while it is being put right.
    let tried = RwSignal::new(false);
    let problem = RwSignal::new(None);
    let made = RwSignal::new(None::<VoiceMade>);
    let progress = RwSignal::new(None::<f64>);
    let over = RwSignal::new(false);

    let form = move || VoiceForm {
        name: name.get(),
        consent: consent.get(),
        file: file.with(|file| file.as_ref().map(|file| (file.name(), file.size() as u64))),
    };
    let missing = Memo::new(move |_| match tried.get() {
        true => form().check().err().unwrap_or_default(),
        false => Missing::default(),
    });
    let take = move |files: Option<web_sys::FileList>| {
        let Some(chosen) = files.and_then(|files| files.get(0)) else {
            return;
        };
        if name.with_untracked(|name| name.trim().is_empty()) {
            name.set(VoiceForm::name_of(&chosen.name()));
        }
        made.set(None);
        problem.set(None);
        file.set(Some(chosen));
    };
    let choose = move |_| take(chooser.get_untracked().and_then(|input| input.files()));
    let drop_in = move |event: web_sys::DragEvent| {
        event.prevent_default();
        over.set(false);
        take(event.data_transfer().and_then(|transfer| transfer.files()));
    };
    let empty = move || {
        file.set(None);
        name.set(String::new());
        consent.set(String::new());
        if let Some(input) = chooser.get_untracked() {
            input.set_value("");
        }
    };
    let send = move |event: web_sys::SubmitEvent| {
        event.prevent_default();
        let form = untrack(form);
        tried.set(form.check().is_err());
        if tried.get_untracked() {
            return;
        }
        let (Some(chosen), Ok(body)) = (file.get_untracked(), web_sys::FormData::new()) else {
            return;
        };
        // The server reads the fields before the file, so they come first.
        let fields = [("name", form.name.trim()), ("consent", form.consent.trim())];
        let filled = fields
            .iter()
            .all(|(field, text)| body.append_with_str(field, text).is_ok());
        if !filled || body.append_with_blob("file", &chosen).is_err() {
            return;
        }
        progress.set(Some(0.0));
        problem.set(None);
        spawn_local(async move {
            let answer =
                post_form::<VoiceMade>("api/voices", &body, move |part| progress.set(Some(part)))
                    .await;
            progress.set(None);
            match answer {
                Ok(voice) => {
                    made.set(Some(voice));
                    empty();
                    again.run(());
                }
                Err(error) => problem.set(Some(error)),
            }
        });
    };
    view! {
        <form class="add" on:submit=send novalidate>
            <label class="drop" class:over=move || over.get() on:drop=drop_in
                on:dragover=move |event: web_sys::DragEvent| { event.prevent_default(); over.set(true) } on:dragleave=move |_| over.set(false)>
                <b>"Choose a file"</b>" or drop it here"
                <input class="unseen" type="file" node_ref=chooser accept=Kind::ACCEPT aria-describedby="file-hint" on:change=choose />
                <span class="hint" id="file-hint">{move || match form().file {
                    Some((name, length)) => format!("{name}, {}. {}", bytes(length), Kind::of(&name).promise()),
                    None => "A bundle of this model (.pt, .safetensors), or a recording of one person (wav, flac, ogg, mp3).".to_owned(),
                }}</span>
                <Beside missing=missing field=|missing| &missing.file />
            </label>
            <label>"Name"<input bind:value=name maxlength="64" />
                <span class="hint">"Callers and personas name the voice by it."</span>
                <Beside missing=missing field=|missing| &missing.name /></label>
            {move || form().needs_consent().then(|| view! {
                <label>"Consent"<textarea rows="2" bind:value=consent maxlength=CONSENT_CHARS_MAX.to_string()></textarea>
                    <span class="hint">"Who is heard, and that they agreed to have their voice used here. It is kept with the voice."</span>
                    <Beside missing=missing field=|missing| &missing.consent /></label> })}
            <div class="actions">
                <button type="submit" class="main" disabled=move || progress.get().is_some()>"Add the voice"</button>
                {move || progress.get().map(|part| match part < 1.0 {
                    true => view! { <progress max="1" value=part.to_string()></progress><span>{format!("{:.0} % sent", part * 100.0)}</span> }.into_any(),
                    false => view! { <progress></progress><span role="status">"Sent. The voice is being made, live calls go first…"</span> }.into_any(),
                })}
            </div>
            <LastTrouble problem=problem />
            <div role="status">{move || made.get().map(|made| view! {
                <div class="told"><p><b>{made.voice.name.clone()}</b>" is there: callers can have it at once."</p>
                    {(!made.notes.is_empty()).then(|| view! { <ul>{made.notes.iter().map(|note| view! { <li>{note.clone()}</li> }).collect_view()}</ul> })}</div> })}</div>
        </form>
    }
}
