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
use leptos_router::components::{A, Route, Router, Routes};
use leptos_router::path;
use wire::api::account::{Account, Role};

use crate::io::{api, page};
use crate::view::ask::{Ask, AskPlace};
use crate::view::icons::{self, Icon};
use crate::view::loaded::Loaded;
use crate::view::theme::{self, ThemeSwitch};

/// Who is asking, for all pages.
#[derive(Clone, Copy)]
pub struct Me(pub RwSignal<Option<api::Answer<Account>>>);

impl Me {
    pub fn ask(self) {
        spawn_local(async move { self.0.set(Some(api::get("api/account").await)) });
    }
}

#[component]
pub fn App() -> impl IntoView {
    let me = Me(RwSignal::new(None));
    provide_context(me);
    me.ask();
    theme::recall();
    view! {
        <Router base=page::base()>
            <a class="skip" href="#main">"Skip to content"</a>
            <Loaded answer=me.0 show={move |account: Account| match account.role {
                Role::Operator => view! { <Operator /> }.into_any(),
                Role::Guest | Role::Caller => view! { <main id="main" class="alone"><talk::TalkPage /></main> }.into_any(),
                Role::Nobody => view! { <main id="main" class="alone"><sign_in::SignIn /></main> }.into_any(),
            }} />
        </Router>
    }
}

#[component]
fn Operator() -> impl IntoView {
    let ask = Ask::provide();
    view! {
        <div class="desk">
            <nav aria-label="Main">
                <p class="mark" aria-hidden="true"><svg viewBox="0 0 32 32"><path class="caller" d="M3 14v4M7 11v10M11 7v18M15 12v8" />
                    <path class="agent" d="M17.5 12v8M21 7v18M25 11v10M29 14v4" /></svg><span>"vivavoce"</span></p>
                <A href="/live"><Icon path=icons::LIVE />"Live"</A>
                <A href="/talk"><Icon path=icons::TALK />"Talk"</A>
                <A href="/personas"><Icon path=icons::PERSONAS />"Personas"</A>
                <A href="/voices"><Icon path=icons::VOICES />"Voices"</A>
                <A href="/sessions"><Icon path=icons::SESSIONS />"Sessions"</A>
                <A href="/system"><Icon path=icons::SYSTEM />"System"</A>
                <ThemeSwitch />
            </nav>
            <main id="main" tabindex="-1">
                <Routes fallback=|| view! { <h1>"Nothing here"</h1><p><A href="/">"Go to the first page"</A></p> }>
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

/// A new operator's first page: a call, and what is next.
#[component]
fn First() -> impl IntoView {
    view! {
        <h1>"Welcome"</h1>
        <p class="lead">"Everything is running. Call the default persona to hear it; then make it your own."</p>
        <talk::TalkPanel />
        <h2>"What is next"</h2>
        <ul>
            <li><A href="/personas">"Write a persona"</A>" and share it by a link"</li>
            <li><A href="/live">"Watch the slots"</A>" and whether the box keeps real time"</li>
            <li><A href="/system">"Set a password"</A>" before other machines can reach this one"</li>
        </ul>
    }
}
