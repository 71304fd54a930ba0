//! One binary for all tests that drive the real program; each file is one topic.

mod api;
mod bench;
mod cli;
#[cfg(debug_assertions)]
mod device;
mod duplex;
mod fetch;
mod http;
mod hub;
mod killed;
mod load;
#[cfg(unix)]
mod paused;
mod program;
mod proxy;
mod safety;
mod stopping;
mod support;
mod upkeep;
