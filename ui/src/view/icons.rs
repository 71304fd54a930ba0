//! Small signs beside the words of the navigation; they say nothing that the words do not.

use leptos::prelude::*;

/// A sign of lines on a field of 24 by 24.
#[component]
pub fn Icon(path: &'static str) -> impl IntoView {
    view! { <svg viewBox="0 0 24 24" aria-hidden="true"><path d=path /></svg> }
}

pub const LIVE: &str = "M3 12h4l2.5-7 5 14 2.5-7h4";
pub const TALK: &str = "M4 10v4M8 7v10M11 10.5v3M13 10.5v3M16 7v10M20 10v4";
pub const PERSONAS: &str =
    "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4.5 20c1-3.6 4-5 7.5-5s6.5 1.4 7.5 5";
pub const VOICES: &str =
    "M12 3a3 3 0 0 0-3 3v5a3 3 0 0 0 6 0V6a3 3 0 0 0-3-3zM6 11a6 6 0 0 0 12 0M12 17v4";
pub const SESSIONS: &str = "M8 6h12M8 12h12M8 18h12M4 6h.01M4 12h.01M4 18h.01";
pub const SYSTEM: &str = "M4 7h9M19 7h1M4 17h1M11 17h9M16 7m-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0M8 17m-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0";
