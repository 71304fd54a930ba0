//! The program, its model and machine. What can be changed has a file each.

mod log;
mod password;
mod policy;
mod tokens;

use leptos::prelude::*;
use wire::api::Page;
use wire::api::account::ApiToken;
use wire::api::live::{Changed, LiveEvent};
use wire::api::system::{Check, CheckState, System, Tls};

use super::Me;
use crate::io::listing::Listing;
use crate::io::{events, page};
use crate::view::loaded::Loaded;
use crate::view::theme::ThemeSwitch;
use log::Log;
use password::Password;
use policy::Kept;
use tokens::Tokens;

#[component]
pub fn SystemPage() -> impl IntoView {
    let system = Listing::<System>::new();
    system.ask("api/system");
    let tokens = Listing::<Page<ApiToken>>::new();
    tokens.ask("api/tokens");
    // What another operator changes, and what this page changes itself.
    events::follow(move |event| {
        let changed = LiveEvent::Changed {
            what: Changed::System,
        };
        if event == changed {
            system.ask("api/system");
            tokens.ask("api/tokens");
        }
    });
    view! {
        <h1>"System"</h1>
        <Loaded answer=system.answer show={|system: System| view! { <Facts system=system /> }} />
        <Password />
        <Kept />
        <Tokens list=tokens />
        <Log />
        <section><h2>"This browser"</h2><ThemeSwitch /></section>
    }
}

#[component]
fn Facts(system: System) -> impl IntoView {
    let me = expect_context::<Me>();
    let through_https =
        me.0.with(|me| matches!(me, Some(Ok(account)) if account.secure));
    let settings = system.settings.into_iter().map(|setting| view! {
        <tr><td>{setting.name}</td><td>{setting.value}</td><td class="quiet">{setting.source}</td></tr> }).collect_view();
    view! {
        <ul class="checks">{system.checks.into_iter().map(|check| view! { <CheckLine check=check /> }).collect_view()}</ul>
        <dl><dt>"Program"</dt><dd>"vivavoce "{system.version}</dd><dt>"Model"</dt><dd>{system.model}</dd>
            <dt>"TLS"</dt><dd>{tls(&system.tls, through_https)}</dd></dl>
        <details><summary>"Licences"</summary><ul>{system.licences.into_iter().map(|line| view! { <li>{line}</li> }).collect_view()}</ul></details>
        <details><summary>"Limits"</summary><dl>{system.limits.into_iter().map(|(what, much)| view! { <dt>{what}</dt><dd>{much}</dd> }).collect_view()}</dl></details>
        <details><summary>"Settings"</summary><div class="scroll"><table><thead><tr><th scope="col">"Name"</th><th scope="col">"Value"</th><th scope="col">"From"</th></tr></thead>
            <tbody>{settings}</tbody></table></div></details>
    }
}

#[component]
fn CheckLine(check: Check) -> impl IntoView {
    let (word, class) = match check.state {
        CheckState::Good => ("works", "well"),
        CheckState::Note => ("note", "full"),
        CheckState::Bad => ("fails", "late"),
    };
    view! { <li><span class=class>{word}</span><b>{check.name}</b><span>{check.text}</span></li> }
}

/// `through_https`: this page came over https, if not from here then from a proxy.
fn tls(tls: &Tls, through_https: bool) -> String {
    match tls {
        Tls::Off if through_https => "Off here; a proxy before this server has https.".to_owned(),
        Tls::Off => "Off: browsers give a microphone to pages of this machine only.".to_owned(),
        Tls::SelfSigned {
            fingerprint,
            expires_at_ms,
        } => {
            let until = page::local_time(*expires_at_ms);
            format!("Self-signed until {until}; browsers warn once. SHA-256 {fingerprint}")
        }
        Tls::Files {
            fingerprint,
            expires_at_ms,
            problem,
        } => {
            let until = page::local_time(*expires_at_ms);
            let problem = problem
                .as_ref()
                .map(|problem| format!(" The newer files cannot be used: {problem}"))
                .unwrap_or_default();
            format!("From files, until {until}. SHA-256 {fingerprint}.{problem}")
        }
    }
}
