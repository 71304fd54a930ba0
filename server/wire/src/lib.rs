//! What crosses the network: messages of `/api/chat`, its query, JSON bodies. Shared by the server and the UI.
//!
//! Lives here: byte forms, JSON forms, and the checks a value must pass to have one. Serde and nothing else.
//! May not live here: sockets, audio, clocks, what a server does with a message.
//! Start reading at [`socket::Uplink`].
#![warn(missing_docs)]

pub mod api;
pub mod notice;
pub mod query;
pub mod socket;
