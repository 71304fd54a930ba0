//! app
pub mod audio;
pub mod stepper;
pub mod cli;
pub mod config;
pub mod sessions;
pub mod telemetry;
pub mod web;
