//! The operator's password, and signing out.

use leptos::html;
use leptos::prelude::*;
use leptos::task::spawn_local;
use wire::api::account::{Account, PasswordChange};

use crate::io::api;
use crate::pages::Me;
use crate::view::loaded::LastTrouble;

#[component]
pub fn Password() -> impl IntoView {
    let me = expect_context::<Me>();
    let set = move || {
        me.0.get()
            .and_then(Result::ok)
            .is_some_and(|account| account.password_set)
    };
    let (current, new) = (RwSignal::new(String::new()), RwSignal::new(String::new()));
    let problem = RwSignal::new(None);
    let told = RwSignal::new(None::<&'static str>);
    let form = NodeRef::<html::Form>::new();
    let submit = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        let change = PasswordChange {
            current: Some(current.get_untracked()).filter(|_| untrack(set)),
            new: new.get_untracked(),
        };
        let first = !untrack(set);
        told.set(None);
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
                    current.set(String::new());
                    new.set(String::new());
                    // Empty again, and not yet wrong for it.
                    if let Some(form) = form.get_untracked() {
                        form.reset();
                    }
                    problem.set(None);
                    told.set(Some(match first {
                        true => "The password is set. This browser stays signed in.",
                        false => "The password is changed. Every other browser is signed out.",
                    }));
                }
                Err(error) => problem.set(Some(error)),
            }
        });
    };
    let sign_out = move |_| {
        spawn_local(async move {
            problem.set(api::post_empty("api/account/sign-out").await.err());
            me.ask();
        });
    };
    view! {
        <section><h2>"Password"</h2>
            <p class="quiet">{move || match set() {
                true => "Set. It counts for every page and every request; changing it ends every other operator's session.",
                false => "None yet: only this machine is let in, without signing in.",
            }}</p>
            <form class="card" node_ref=form on:submit=submit>
                {move || set().then(|| view! { <label>"Present password"<input type="password" autocomplete="current-password" required bind:value=current /></label> })}
                <label>"New password"<span class="hint">"8 characters or more"</span>
                    <input type="password" autocomplete="new-password" minlength="8" required bind:value=new /></label>
                <LastTrouble problem=problem />
                <div role="status">{move || told.get().map(|told| view! { <p class="told">{told}</p> })}</div>
                <div class="actions"><button type="submit">"Set the password"</button>
                    {move || set().then(|| view! { <button type="button" class="plain" on:click=sign_out>"Sign out"</button> })}</div>
            </form></section>
    }
}
