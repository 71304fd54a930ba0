//! The motif: two voices facing each other, caller from the left, agent from the right.

use leptos::prelude::*;

/// Bars of one side.
const BARS: usize = 32;
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 120.0;

/// Recent levels of both sides, the newest in the middle where they meet. Decoration for who sees it: the words beside
/// it say the same.
#[component]
pub fn Waves(#[prop(into)] levels: Signal<Vec<(u8, u8)>>) -> impl IntoView {
    let path = move |caller: bool| {
        levels.with(|levels| {
            let step = WIDTH / (2 * BARS) as f64;
            let newest = levels.iter().rev().take(BARS).enumerate();
            newest
                .map(|(age, &(left, right))| {
                    let level = if caller { left } else { right };
                    let half = 2.0 + f64::from(level) / 255.0 * (HEIGHT / 2.0 - 4.0);
                    let away = (age as f64 + 0.75) * step;
                    let x = if caller {
                        WIDTH / 2.0 - away
                    } else {
                        WIDTH / 2.0 + away
                    };
                    format!(
                        "M{x:.1} {:.1}V{:.1}",
                        HEIGHT / 2.0 - half,
                        HEIGHT / 2.0 + half
                    )
                })
                .collect::<String>()
        })
    };
    view! {
        <svg class="waves" viewBox=format!("0 0 {WIDTH} {HEIGHT}") preserveAspectRatio="none" aria-hidden="true">
            <path class="caller" d=move || path(true) />
            <path class="agent" d=move || path(false) />
        </svg>
    }
}

/// A whole call: caller above the line, agent below it.
#[component]
pub fn CallShape(caller: Vec<u8>, agent: Vec<u8>) -> impl IntoView {
    let steps = caller.len().max(agent.len()).max(1);
    let side = |levels: &[u8], up: bool| -> String {
        let bar = |(at, &level): (usize, &u8)| {
            let x = (at as f64 + 0.5) / steps as f64 * WIDTH;
            let height = f64::from(level) / 255.0 * (HEIGHT / 2.0 - 2.0);
            let y = if up {
                HEIGHT / 2.0 - 1.0 - height
            } else {
                HEIGHT / 2.0 + 1.0 + height
            };
            format!("M{x:.2} {:.1}V{y:.1}", HEIGHT / 2.0)
        };
        levels.iter().enumerate().map(bar).collect()
    };
    let width = format!("{:.2}", (WIDTH / steps as f64 * 0.8).clamp(0.3, 6.0));
    view! {
        // The paths inherit the width: a rule of the style sheet would win over an attribute of their own.
        <svg class="waves shape" viewBox=format!("0 0 {WIDTH} {HEIGHT}") preserveAspectRatio="none" role="img" stroke-width=width
            aria-label="Loudness over the call: caller above the line, agent below it">
            <path class="caller" d=side(&caller, true) />
            <path class="agent" d=side(&agent, false) />
        </svg>
    }
}
