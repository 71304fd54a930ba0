//! The network of the switchboard: codec, temporal transformer, depformer, and the rows that callers sit in.
//!
//! Lives here: everything that knows tensors, weight files, tokens and devices.
//! May not live here: sockets, queries, threads of the tick, clocks.
#![warn(missing_docs)]

pub mod backend;
pub mod codec;
pub mod config;
pub mod cuda;
pub mod demo;
pub mod device;
pub mod kernels;
pub mod measure;
pub mod model;
pub mod native;
pub mod prepare;
pub mod prompt;
pub mod sampling;
pub mod snapshots;
pub mod tensor;
pub mod text;
pub mod tokenizer;
pub mod tokens;
pub mod verify;
pub mod voice_model;
pub mod voices;
pub mod weights;
