//! The network of the switchboard: codec, temporal transformer, depformer, and the rows that callers sit in.
//!
//! Lives here: everything that knows tensors, weight files, tokens and devices.
//! May not live here: sockets, queries, threads of the tick, clocks.
#![warn(missing_docs)]

pub mod backend;
pub mod config;
pub mod weights;
pub mod kernels;
pub mod codec;
pub mod model;
pub mod native;
pub mod text;
pub mod tokenizer;
