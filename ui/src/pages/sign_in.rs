//! Signing in.

use leptos::prelude::*;
use leptos::task::spawn_local;
use wire::api::account::{Account, SignIn as Wish};

use super::Me;
use crate::io::{api, page};
use crate::view::loaded::LastTrouble;

#[component]
pub fn SignIn() -> impl IntoView {
    let me = expect_context::<Me>();
    let password = RwSignal::new(String::new());
    let problem = RwSignal::new(None);
    let submit = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        let wish = Wish {
            password: password.get_untracked(),
        };
        spawn_local(async move {
            match api::post::<_, Account>("api/account/sign-in", &wish).await {
                Ok(account) => me.0.set(Some(Ok(account))),
                Err(error) => problem.set(Some(error)),
            }
        });
    };
    view! {
        {match page::link() {
            Some(_) => view! {
                <h1>"This link has ended"</h1>
                <p>"Ask whoever gave it to you for a new one. Operators can sign in here."</p>
            }.into_any(),
            None => view! {
                <h1>"Sign in"</h1>
                <p>"This server is for its operator, and for callers who have a link."</p>
            }.into_any(),
        }}
        <form on:submit=submit>
            <label>"Password"<input type="password" autocomplete="current-password" autofocus required bind:value=password /></label>
            <button type="submit" class="main">"Sign in"</button>
        </form>
        <LastTrouble problem=problem />
    }
}
