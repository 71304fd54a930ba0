//! One binary for all tests that drive the real program; each file is one topic.

mod api;
mod bench;
mod cli;
mod duplex;
mod fetch;
mod http;
mod hub;
mod load;
mod program;
mod stopping;
mod support;
