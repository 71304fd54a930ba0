//! app
pub mod stepper;
pub mod cli;
pub mod config;
