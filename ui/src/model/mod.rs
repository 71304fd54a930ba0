//! What the pages know and decide, without a browser: tested on the host.
//!
//! May not live here: Leptos, web-sys, fetching, drawing.

pub mod address;
pub mod board;
pub mod call;
pub mod diff;
pub mod health;
pub mod persona_form;
pub mod resample;
pub mod session_filter;
pub mod text;
pub mod transcript;
pub mod voice_form;
