//! Slots: who sits in which row of the batch, and what each row does next tick. Pure decisions.
//!
//! Lives here: units, slot states, the slot table, the pace of the tick, what a caller's sound is cut to, the trait of the
//! engine.
//! May not live here: tensors, sockets, clocks, randomness, async. Time arrives as an argument.
#![warn(missing_docs)]

pub mod backlog;
pub mod call;
pub mod cut;
pub mod engine;
pub mod loudness;
pub mod pace;
pub mod slot;
pub mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod times;
pub mod units;
