//! The product: threads, sockets, disk and the command line of the switchboard.
//!
//! Lives here: everything between the network card and the engine, and between a shell and the engine.
//! May not live here: arithmetic of the network (`engine`), who sits where (`slots`), message formats (`wire`).
//! Start reading at [`cli::main`] for a command, at [`stepper`] for the tick.
#![warn(missing_docs)]

pub mod cli;
pub mod config;
pub mod journal;
pub mod resample;
pub mod sessions;
pub mod stepper;
pub mod store;
pub mod telemetry;
pub mod voice_sample;
pub mod web;
