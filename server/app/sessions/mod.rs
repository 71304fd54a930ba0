//! Sessions: one task for each caller, between a WebSocket and a seat at the tick.
//!
//! Lives here: the life of a call from upgrade to close message, Opus on its way in and out, pings, limits, resumption.
//! May not live here: HTTP routes (`web`), who gets a row (`slots`), the tick, SQL. An engine is only ever named by
//! the type of call it seats.
//! Start reading at [`host::SessionHost::run`].
//!
//! | queue | bound | when it is full |
//! |---|---|---|
//! | frames decoded in one go (`uplink`) | 25 frames | the oldest is dropped and counted: a burst keeps its newest 2 s |
//! | words from the reading to the writing half (`link`) | 8 | the word is dropped; the first of its kind went through |
//! | a resuming connection on its way to its session | 1 | the newcomer is told that its token is unknown |

pub mod counters;
pub mod host;
pub mod limits;

mod downlink;
mod link;
mod phase;
pub(crate) mod rate;
mod registry;
mod session;
mod socket;
mod uplink;

pub(crate) use registry::random_u128 as random_key;
