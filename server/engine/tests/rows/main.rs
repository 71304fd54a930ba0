//! What a caller is promised whatever the other rows do: the same bits alone and in company, on a fresh row and on a
//! recycled one, read from a prompt and restored from a snapshot.
//!
//! Models: `fixtures/tiny2` (a window of 24 positions, so that it wraps often) and the built-in demo. All of it runs on
//! the CPU's own kernels; that these are right is the matter of `recorded.rs`, here they need only be equal.
//! Start reading at `switchboard.rs`.

mod callers;
mod faults;
mod gpu;
mod growth;
mod heap;
mod isolation;
mod orders;
mod pinned;
mod prefill;
mod recycling;
mod sampling;
mod switchboard;
