//! The built-in demo model, really computed: every conversation of its `behaviour.json`, offline and over the network.

mod behaviour;
mod calls;
mod offline;
mod real_time;
mod slots_in_time;
mod switchboard;
mod user;
mod voices;
