//! One binary for all tests that drive the real program; each file is one topic.

mod cli;
mod fetch;
mod hub;
mod load;
mod program;
