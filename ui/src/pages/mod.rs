//! Pages: they put views together and ask the server. [`App`] decides who sees which.

mod live;
mod personas;
mod sessions;
mod sign_in;
mod system;
mod talk;
mod voices;

use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos_router::components::{Route, Router, Routes};
use leptos_router::hooks::use_location;
use leptos_router::path;
use wire::api::account::{Account, Role};

use crate::io::{api, build, page};
use crate::view::ask::{Ask, AskPlace};
use crate::view::icons::{self, Icon};
use crate::view::loaded::Trouble;
use crate::view::theme::{self, ThemeSwitch};
use crate::view::to::To;

/// Who is asking, for all pages.
#[derive(Clone, Copy)]
pub struct Me(pub RwSignal<Option<api::Answer<Account>>>);

impl Me {
    pub fn ask(self) {
        spawn_local(async move { self.0.set(Some(api::get("api/account").await)) });
    }

    /// Asks anew. What is shown stays while the server cannot be reached.
    fn ask_again(self) {
        spawn_local(async move {
            if let Ok(account) = api::get("api/account").await {
                self.0.set(Some(Ok(account)));
            }
        });
    }
}

#[component]
pub fn App() -> impl IntoView {
    let me = Me(RwSignal::new(None));
    provide_context(me);
    me.ask();
    api::when_turned_away(move || me.ask_again());
    theme::recall();
    // The router would take the link for one of its own.
    let skip = |event: leptos::ev::MouseEvent| {
        event.prevent_default();
        page::go_to("main");
    };
    // Pages stay as they are for as long as they are somebody's who may see them.
    let role = Memo::new(move |_| me.0.get().map(|answer| answer.map(|account| account.role)));
    view! {
        <Router base=page::base()>
            <a class="skip" href="#main" on:click=skip>"Skip to content"</a>
            {move || match role.get() {
                None => view! { <p class="quiet" role="status">"Loading…"</p> }.into_any(),
                Some(Err(problem)) => view! { <main id="main" class="alone" tabindex="-1"><Trouble problem=problem />
                    <button type="button" on:click=move |_| me.ask()>"Try again"</button></main> }.into_any(),
                Some(Ok(Role::Operator)) => view! { <Operator /> }.into_any(),
                Some(Ok(Role::Guest | Role::Caller)) => view! { <main id="main" class="alone" tabindex="-1"><talk::TalkPage /></main> }.into_any(),
                Some(Ok(Role::Nobody)) => view! { <main id="main" class="alone" tabindex="-1"><sign_in::SignIn /></main> }.into_any(),
            }}
        </Router>
    }
}

#[component]
fn Operator() -> impl IntoView {
    let ask = Ask::provide();
    let replaced = RwSignal::new(false);
    build::when_other(move || {
        let _ = replaced.try_set(true);
    });
    let path = use_location().pathname;
    Effect::new(move |before: Option<String>| {
        let path = path.get();
        page::set_title(&title(path.strip_prefix(&*page::base()).unwrap_or(&path)));
        // Whoever hears the page, or goes through it by keys, is where the new one begins.
        if before.is_some_and(|before| before != path) {
            page::go_to("main");
        }
        path
    });
    view! {
        <div class="desk">
            <nav aria-label="Main">
                <p class="mark" aria-hidden="true"><svg viewBox="0 0 32 32"><path class="caller" d="M3 14v4M7 11v10M11 7v18M15 12v8" />
                    <path class="agent" d="M17.5 12v8M21 7v18M25 11v10M29 14v4" /></svg><span>"vivavoce"</span></p>
                <To path="/live"><Icon path=icons::LIVE />"Live"</To>
                <To path="/talk"><Icon path=icons::TALK />"Talk"</To>
                <To path="/personas"><Icon path=icons::PERSONAS />"Personas"</To>
                <To path="/voices"><Icon path=icons::VOICES />"Voices"</To>
                <To path="/sessions"><Icon path=icons::SESSIONS />"Sessions"</To>
                <To path="/system"><Icon path=icons::SYSTEM />"System"</To>
                <ThemeSwitch />
            </nav>
            <main id="main" tabindex="-1">
                <div role="status">{move || replaced.get().then(|| view! { <p class="told">"The server has a newer version of these pages. What you wrote is kept. "
                    <button type="button" on:click=|_| page::reload()>"Reload"</button></p> })}</div>
                <Routes fallback=|| view! { <h1>"Nothing here"</h1><p><To path="/">"Go to the first page"</To></p> }>
                    <Route path=path!("/") view=First />
                    <Route path=path!("/live") view=live::LivePage />
                    <Route path=path!("/talk") view=talk::TalkPage />
                    <Route path=path!("/talk/:token") view=talk::TalkPage />
                    <Route path=path!("/personas") view=personas::PersonasPage />
                    <Route path=path!("/personas/:id") view=personas::PersonaPage />
                    <Route path=path!("/voices") view=voices::VoicesPage />
                    <Route path=path!("/sessions") view=sessions::SessionsPage />
                    <Route path=path!("/sessions/:id") view=sessions::SessionPage />
                    <Route path=path!("/system") view=system::SystemPage />
                    <Route path=path!("/sign-in") view=live::LivePage />
                </Routes>
            </main>
            <AskPlace ask=ask />
        </div>
    }
}

/// What the browser calls a page, by its path below the root.
fn title(path: &str) -> String {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    match (parts.next(), parts.next()) {
        (Some("live"), _) => "Live".to_owned(),
        (Some("talk"), _) => "Talk".to_owned(),
        (Some("personas"), None) => "Personas".to_owned(),
        (Some("personas"), Some(_)) => "Persona".to_owned(),
        (Some("voices"), _) => "Voices".to_owned(),
        (Some("sessions"), None) => "Sessions".to_owned(),
        (Some("sessions"), Some(number)) => format!("Session {number}"),
        (Some("system"), _) => "System".to_owned(),
        _ => String::new(),
    }
}

/// A new operator's first page: a call, and what is next.
#[component]
fn First() -> impl IntoView {
    let me = expect_context::<Me>();
    let password_set = move || {
        me.0.with(|me| matches!(me, Some(Ok(account)) if account.password_set))
    };
    view! {
        <h1>"Welcome"</h1>
        <p class="lead">"Everything is running. Call the default persona to hear it; then make it your own."</p>
        <talk::TalkPanel />
        <h2>"What is next"</h2>
        <ul>
            <li><To path="/personas">"Write a persona"</To>" and share it by a link"</li>
            <li><To path="/live">"Watch the slots"</To>" and whether the box keeps real time"</li>
            {move || (!password_set()).then(|| view! { <li><To path="/system">"Set a password"</To>" before other machines can reach this one"</li> })}
        </ul>
    }
}
