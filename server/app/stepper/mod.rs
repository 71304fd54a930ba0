//! The stepping thread: owns the engine and the slot table, and everything that others may hold of it.
//!
//! Lives here: the thread, its handle, the queues of a seat, its clock, its numbers.
//! May not live here: sockets, Opus, SQL, names of metrics. Who sits where is decided in the crate `slots`.
//! The rule of the room: the tick takes no lock that another thread can hold, allocates nothing in steady state, and
//! never touches disk or network. What needs any of that is left to the doorbell thread.

pub mod start;

pub mod handle;

pub mod queues;

mod thread;

mod party;

mod doorbell;

mod watchdog;

pub mod board;

pub mod by_hand;

pub mod clock;

#[cfg(test)]
mod tests;

pub use start::{Options, StartError, StepperThread, StopError, spawn};
