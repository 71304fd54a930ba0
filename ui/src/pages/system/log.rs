//! The tail of the log, newest first.

use std::time::Duration;

use leptos::prelude::*;
use leptos::task::spawn_local;
use wire::api::Page;
use wire::api::system::LogLine;

use crate::io::{api, page};
use crate::view::loaded::LastTrouble;

/// How often new lines are asked for.
const EVERY: Duration = Duration::from_secs(3);
/// Lines that are shown; older ones are in the server's own output.
const LINES_MAX: usize = 500;

fn is_trouble(level: &str) -> bool {
    ["warn", "error"]
        .iter()
        .any(|trouble| level.eq_ignore_ascii_case(trouble))
}

#[component]
pub fn Log() -> impl IntoView {
    let lines = RwSignal::new(Vec::<LogLine>::new());
    let problem = RwSignal::new(None);
    let follow = RwSignal::new(true);
    let only_trouble = RwSignal::new(false);
    let ask = move || {
        let after = lines.with_untracked(|lines| lines.last().map_or(0, |line| line.number));
        spawn_local(async move {
            match api::get::<Page<LogLine>>(&format!("api/logs?after={after}")).await {
                Ok(more) => {
                    let _ = problem.try_set(None);
                    // Two answers may hold the same lines.
                    let _ = lines.try_update(|lines| {
                        let last = lines.last().map_or(0, |line| line.number);
                        lines.extend(more.items.into_iter().filter(|line| line.number > last));
                        let too_many = lines.len().saturating_sub(LINES_MAX);
                        lines.drain(..too_many);
                    });
                }
                Err(error) => drop(problem.try_set(Some(error))),
            }
        });
    };
    ask();
    if let Ok(timer) = set_interval_with_handle(
        move || {
            if follow.get_untracked() {
                ask()
            }
        },
        EVERY,
    ) {
        on_cleanup(move || timer.clear());
    }
    let text = move || {
        lines.with(|lines| {
            let line = |line: &LogLine| {
                format!(
                    "{}  {:<5} {}\n",
                    page::local_time(line.at_ms),
                    line.level,
                    line.text
                )
            };
            let wanted = |one: &&LogLine| !only_trouble.get() || is_trouble(&one.level);
            lines
                .iter()
                .rev()
                .filter(wanted)
                .map(line)
                .collect::<String>()
        })
    };
    view! {
        <section><h2>"Log"</h2>
            <label class="switch"><input type="checkbox" bind:checked=follow />"Follow it"</label>
            <label class="switch"><input type="checkbox" bind:checked=only_trouble />"Only warnings and errors"</label>
            <LastTrouble problem=problem />
            {move || lines.with(Vec::is_empty).then(|| view! { <p class="quiet">"No lines yet."</p> })}
            {move || text().is_empty().then(|| view! { <p class="quiet">"No warnings and no errors among the last lines."</p> }).filter(|_| only_trouble.get())}
            <pre class="log" tabindex="0" aria-label="Lines of the log, newest first">{text}</pre></section>
    }
}
