//! What the pages know and decide, without a browser: tested on the host.
//!
//! May not live here: Leptos, web-sys, fetching, drawing.

pub mod call;
pub mod diff;
pub mod resample;
pub mod text;
pub mod transcript;
