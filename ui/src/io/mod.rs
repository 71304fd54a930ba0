//! The browser: requests, events, the line of a call, its sound.
//!
//! May not live here: what is decided (`model`), what is drawn (`view`).

pub mod api;
pub mod build;
pub mod events;
pub mod line;
pub mod listen;
pub mod listing;
pub mod page;
pub mod sound;
pub mod upload;
