//! The program, its model and machine; password, tokens, what is kept, the log.

use leptos::prelude::*;
use leptos::task::spawn_local;
use wire::api::Page;
use wire::api::account::{Account, ApiToken, NewToken, PasswordChange, Scope, TokenMade};
use wire::api::system::{CheckState, LogLine, Policy, System};

use super::Me;
use crate::io::{api, page};
use crate::view::loaded::{LastTrouble, Loaded};

#[component]
pub fn SystemPage() -> impl IntoView {
    let system = RwSignal::new(None);
    spawn_local(async move { system.set(Some(api::get::<System>("api/system").await)) });
    view! {
        <h1>"System"</h1>
        <Loaded answer=system show={|system: System| view! {
            <ul class="checks">{system.checks.into_iter().map(|check| { let (mark, class) = match check.state { CheckState::Good => ("works", "well"), CheckState::Note => ("note", "full"), CheckState::Bad => ("fails", "late") };
                view! { <li><span class=class>{mark}</span><b>{check.name}</b><span>{check.text}</span></li> } }).collect_view()}</ul>
            <details><summary>"Version, licences, limits, settings"</summary>
                <p>"vivavoce "{system.version}", model "{system.model}</p><ul>{system.licences.into_iter().map(|line| view! { <li>{line}</li> }).collect_view()}</ul>
                <dl class="totals">{system.limits.into_iter().chain(system.settings.into_iter().map(|setting| (setting.name, format!("{} ({})", setting.value, setting.source)))).map(|(name, value)| view! { <div><dt>{name}</dt><dd>{value}</dd></div> }).collect_view()}</dl>
            </details> }} />
        <Password />
        <Kept />
        <Tokens />
        <Log />
    }
}

#[component]
fn Password() -> impl IntoView {
    let me = expect_context::<Me>();
    let set = move || {
        me.0.get()
            .and_then(Result::ok)
            .is_some_and(|account| account.password_set)
    };
    let (current, new) = (RwSignal::new(String::new()), RwSignal::new(String::new()));
    let problem = RwSignal::new(None);
    let submit = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        let change = PasswordChange {
            current: Some(current.get_untracked()).filter(|_| set()),
            new: new.get_untracked(),
        };
        spawn_local(async move {
            match api::send::<_, Account>(
                gloo_net::http::Method::PUT,
                "api/account/password",
                None,
                &change,
            )
            .await
            {
                Ok(account) => {
                    me.0.set(Some(Ok(account)));
                    problem.set(None);
                }
                Err(error) => problem.set(Some(error)),
            }
        });
    };
    let sign_out = move |_| {
        spawn_local(async move {
            problem.set(api::post_empty("api/account/sign-out").await.err());
            me.ask();
        })
    };
    view! {
        <section><h2>"Password"</h2>
        <p class="quiet">{move || if set() { "Set. It counts for every page and every request." } else { "None yet: only this machine is let in, without signing in." }}</p>
        <form on:submit=submit>
            {move || set().then(|| view! { <label>"Present password"<input type="password" autocomplete="current-password" bind:value=current /></label> })}
            <label>"New password (8 characters or more)"<input type="password" autocomplete="new-password" minlength="8" required bind:value=new /></label>
            <div class="actions"><button type="submit">"Set the password"</button>
            {move || set().then(|| view! { <button type="button" class="plain" on:click=sign_out>"Sign out"</button> })}</div>
        </form><LastTrouble problem=problem /></section>
    }
}

#[component]
fn Kept() -> impl IntoView {
    let policy = RwSignal::new(None);
    spawn_local(async move { policy.set(Some(api::get::<Policy>("api/policy").await)) });
    view! { <section><h2>"What is kept of calls"</h2><Loaded answer=policy show={move |now: Policy| {
        let draft = now.draft.clone();
        let (record, keep) = (RwSignal::new(draft.record_audio), RwSignal::new(draft.keep_transcripts));
        let (recording_days, session_days) = (RwSignal::new(draft.recording_days.to_string()), RwSignal::new(draft.session_days.to_string()));
        let problem = RwSignal::new(None);
        let submit = move |event: leptos::ev::SubmitEvent| {
            event.prevent_default();
            let mut draft = draft.clone();
            draft.record_audio = record.get_untracked();
            draft.keep_transcripts = keep.get_untracked();
            draft.recording_days = recording_days.get_untracked().parse().unwrap_or(0);
            draft.session_days = session_days.get_untracked().parse().unwrap_or(0);
            spawn_local(async move {
                match api::put::<_, Policy>("api/policy", now.version, &draft).await {
                    Ok(saved) => policy.set(Some(Ok(saved))),
                    Err(error) => problem.set(Some(error)),
                }
            });
        };
        view! { <form on:submit=submit>
            <label class="switch"><input type="checkbox" bind:checked=record />"Record audio. Callers are told before they call."</label>
            <label>"Days until a recording is deleted"<input inputmode="numeric" bind:value=recording_days /></label>
            <label class="switch"><input type="checkbox" bind:checked=keep />"Keep what the agent says as text"</label>
            <label>"Days until a session is deleted"<input inputmode="numeric" bind:value=session_days /></label>
            <LastTrouble problem=problem /><button type="submit">"Save"</button></form> }
    }} /></section> }
}

#[component]
fn Tokens() -> impl IntoView {
    let list = RwSignal::new(None);
    let problem = RwSignal::new(None);
    let made = RwSignal::new(None::<String>);
    let name = RwSignal::new(String::new());
    let scope = RwSignal::new("call".to_owned());
    let ask = move || {
        spawn_local(async move { list.set(Some(api::get::<Page<ApiToken>>("api/tokens").await)) })
    };
    ask();
    let make = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        let scope = match scope.get_untracked().as_str() {
            "metrics" => Scope::Metrics,
            "operate" => Scope::Operate,
            _ => Scope::Call,
        };
        let wish = NewToken {
            name: name.get_untracked(),
            scopes: vec![scope],
            persona_id: None,
            days: None,
        };
        spawn_local(async move {
            match api::post::<_, TokenMade>("api/tokens", &wish).await {
                Ok(token) => made.set(Some(token.token)),
                Err(error) => problem.set(Some(error)),
            }
            ask();
        });
    };
    view! {
        <section><h2>"API tokens"</h2>
        <form class="bar" on:submit=make><label>"Name"<input required maxlength="80" bind:value=name /></label>
            <label>"For"<select bind:value=scope><option value="call">"calls"</option><option value="metrics">"metrics"</option><option value="operate">"operating"</option></select></label>
            <button type="submit">"Make a token"</button></form>
        {move || made.get().map(|token| view! { <p class="made">"Shown this once: "<input readonly value=token aria-label="The token" /></p> })}
        <LastTrouble problem=problem />
        <Loaded answer=list show={move |list: Page<ApiToken>| match list.items.is_empty() {
            true => view! { <p class="quiet">"None."</p> }.into_any(),
            false => view! { <ul>{list.items.into_iter().map(|token| { let id = token.id;
                let delete = move |_| spawn_local(async move { problem.set(api::delete(&format!("api/tokens/{id}")).await.err()); ask(); });
                view! { <li><b>{token.name}</b>" · made "{page::local_time(token.created_at_ms)}" "<button class="plain" on:click=delete>"End it"</button></li> } }).collect_view()}</ul> }.into_any(),
        }} /></section>
    }
}

#[component]
fn Log() -> impl IntoView {
    let lines = RwSignal::new(None);
    let ask = move || {
        spawn_local(async move { lines.set(Some(api::get::<Page<LogLine>>("api/logs").await)) })
    };
    ask();
    view! {
        <section><h2>"Log"</h2><button class="plain" on:click=move |_| ask()>"Read it again"</button>
        <Loaded answer=lines show={|lines: Page<LogLine>| view! { <pre class="log">{lines.items.into_iter().rev().map(|line| format!("{}  {:<5} {}\n", page::local_time(line.at_ms), line.level, line.text)).collect::<String>()}</pre> }} /></section>
    }
}
