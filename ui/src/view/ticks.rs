//! The tick chart: each second's mean and longest tick against the 80 ms line.

use leptos::prelude::*;
use wire::api::live::TickSecond;

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 200.0;
/// Seconds that are shown.
pub const SECONDS: usize = 600;
/// Seconds that median and p99 are taken over.
const QUANTILE_SECONDS: f64 = 60.0;
/// What the chart's top stands for, in microseconds.
const TOP_US: f64 = 120_000.0;
const LINE_US: f64 = 80_000.0;

fn y(us: f64) -> f64 {
    HEIGHT - us.min(TOP_US) / TOP_US * HEIGHT
}

/// `quantiles` are median and p99 of the last minute, in microseconds: both drawn over that minute.
#[component]
pub fn Ticks(
    #[prop(into)] seconds: Signal<Vec<TickSecond>>,
    #[prop(into)] quantiles: Signal<(u32, u32)>,
) -> impl IntoView {
    let minute = move |us: u32| {
        let begin = WIDTH * (1.0 - QUANTILE_SECONDS / SECONDS as f64);
        format!("M{begin:.1} {:.1}H{WIDTH}", y(f64::from(us)))
    };
    let line = move |of: fn(&TickSecond) -> u32| {
        seconds.with(|seconds| {
            let skipped = SECONDS.saturating_sub(seconds.len());
            let point = |(at, second): (usize, &TickSecond)| {
                let x = (skipped + at) as f64 / SECONDS as f64 * WIDTH;
                format!(
                    "{}{x:.1} {:.1}",
                    if at == 0 { "M" } else { "L" },
                    y(f64::from(of(second)))
                )
            };
            seconds.iter().enumerate().map(point).collect::<String>()
        })
    };
    let spoken = move || {
        seconds.with(|seconds| {
            let longest = seconds
                .iter()
                .map(|second| second.max_us)
                .max()
                .unwrap_or(0);
            format!(
                "Ticks of the last ten minutes; the longest took {}, the limit is 80 ms",
                ui::model::text::ms(longest)
            )
        })
    };
    view! {
        <div class="chart"><svg class="ticks" viewBox=format!("0 0 {WIDTH} {HEIGHT}") preserveAspectRatio="none" role="img" aria-label=spoken>
            <path class="limit" d=format!("M0 {0:.1}H{WIDTH}", y(LINE_US)) />
            <path class="longest" d=move || line(|second| second.max_us) />
            <path class="quantile" d=move || minute(quantiles.get().0) />
            <path class="quantile" d=move || minute(quantiles.get().1) />
            <path class="mean" d=move || line(|second| second.mean_us) />
        </svg>
        <span class="limit" aria-hidden="true">"80 ms"</span></div>
        <p class="legend"><span class="limit">"80 ms: real time"</span><span class="longest">"longest of each second"</span>
            <span class="mean">"mean"</span><span class="quantile">"median and p99 of the last minute"</span><span>"the last ten minutes"</span></p>
    }
}
