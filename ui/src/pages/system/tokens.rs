//! API tokens: what programs present instead of a password.

use leptos::prelude::*;
use leptos::task::spawn_local;
use wire::api::Page;
use wire::api::account::{ApiToken, NewToken, Scope, TokenMade};
use wire::api::personas::Persona;

use crate::io::listing::Listing;
use crate::io::{api, page};
use crate::view::ask::Ask;
use crate::view::loaded::{LastTrouble, Loaded};
use crate::view::once::ShownOnce;

#[component]
pub fn Tokens(list: Listing<Page<ApiToken>>) -> impl IntoView {
    let problem = RwSignal::new(None);
    let made = RwSignal::new(None::<String>);
    let again = Callback::new(move |()| list.ask("api/tokens"));
    let personas = Listing::<Page<Persona>>::new();
    personas.ask("api/personas?limit=200&archived=true");
    view! {
        <section><h2>"API tokens"</h2>
            <p class="quiet">"For programs: "<code>"Authorization: Bearer"</code>", "<code>"?token="</code>" or "<code>"?worker_auth_id="</code>"."</p>
            <Make personas=personas problem=problem made=made again=again />
            {move || made.get().map(|token| view! { <ShownOnce what="The token" secret=token /> })}
            <LastTrouble problem=problem />
            <Loaded answer=list.answer show={move |list: Page<ApiToken>| match list.items.is_empty() {
                true => view! { <p class="quiet">"No tokens yet."</p> }.into_any(),
                false => view! { <ul class="rows">{list.items.into_iter().map(|token| view! { <Row token=token personas=personas problem=problem again=again /> }).collect_view()}</ul> }.into_any(),
            }} /></section>
    }
}

#[component]
fn Make(
    personas: Listing<Page<Persona>>,
    problem: RwSignal<Option<api::Problem>>,
    made: RwSignal<Option<String>>,
    again: Callback<()>,
) -> impl IntoView {
    let field = |value: &str| RwSignal::new(value.to_owned());
    let (name, scope, persona, days) = (field(""), field("call"), field(""), field(""));
    let make = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        let scope = match scope.get_untracked().as_str() {
            "metrics" => Scope::Metrics,
            "operate" => Scope::Operate,
            _ => Scope::Call,
        };
        let wish = NewToken {
            name: name.get_untracked().trim().to_owned(),
            scopes: vec![scope],
            persona_id: persona
                .get_untracked()
                .parse()
                .ok()
                .filter(|_| scope == Scope::Call),
            days: days.get_untracked().parse().ok(),
        };
        spawn_local(async move {
            match api::post::<_, TokenMade>("api/tokens", &wish).await {
                Ok(token) => {
                    made.set(Some(token.token));
                    name.set(String::new());
                    problem.set(None);
                }
                Err(error) => problem.set(Some(error)),
            }
            again.run(());
        });
    };
    view! {
        <form class="bar" on:submit=make>
            <label>"Name"<input required maxlength="80" bind:value=name /></label>
            <label>"For"<select bind:value=scope><option value="call">"calls"</option><option value="metrics">"reading metrics"</option>
                <option value="operate">"operating"</option></select></label>
            {move || (scope.get() == "call").then(|| view! {
                <label>"Persona"<select bind:value=persona><option value="">"any"</option>
                    {move || personas.answer.get().and_then(Result::ok).map(|all| all.items.into_iter().filter(|persona| !persona.archived).map(|persona| view! {
                        <option value=persona.id.to_string()>{persona.draft.name}</option> }).collect_view())}</select></label> })}
            <label>"Ends"<select bind:value=days><option value="">"when you end it"</option><option value="30">"in 30 days"</option>
                <option value="365">"in a year"</option></select></label>
            <button type="submit">"Make a token"</button></form>
    }
}

fn scope_word(scope: Scope) -> &'static str {
    match scope {
        Scope::Call => "calls",
        Scope::Metrics => "metrics",
        Scope::Operate => "operating",
    }
}

#[component]
fn Row(
    token: ApiToken,
    personas: Listing<Page<Persona>>,
    problem: RwSignal<Option<api::Problem>>,
    again: Callback<()>,
) -> impl IntoView {
    let ask = expect_context::<Ask>();
    let id = token.id;
    let question = format!(
        "End the token \"{}\"? Programs that use it are refused from now on.",
        token.name
    );
    let end = move |_| {
        ask.first(question.clone(), "End it", move || {
            spawn_local(async move {
                problem.set(api::delete(&format!("api/tokens/{id}")).await.err());
                again.run(());
            });
        });
    };
    let scopes = token
        .scopes
        .iter()
        .map(|&scope| scope_word(scope))
        .collect::<Vec<_>>()
        .join(", ");
    // Bound to one persona, if it is.
    let bound = move || {
        let id = token.persona_id?;
        let name = personas.answer.with(|all| {
            let all = all.as_ref()?.as_ref().ok()?;
            let persona = all.items.iter().find(|persona| persona.id == id)?;
            Some(persona.draft.name.clone())
        });
        Some(format!(
            "only {}",
            name.unwrap_or_else(|| format!("persona {id}"))
        ))
    };
    let used = token.used_at_ms.map_or("never used".to_owned(), |at_ms| {
        format!("last used {}", page::local_time(at_ms))
    });
    let ends = token
        .expires_at_ms
        .map(|at_ms| format!("ends {}", page::local_time(at_ms)));
    view! {
        <li><b>{token.name}</b><span class="tag">{scopes}</span><span class="agent">{bound}</span>
            <span class="quiet">"made "{page::local_time(token.created_at_ms)}", "{used}</span><span class="quiet">{ends}</span>
            <button type="button" class="plain" on:click=end>"End it"</button></li>
    }
}
