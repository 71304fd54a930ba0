//! The CPU's own kernels: matrix products over f32, bf16 and 8-bit weights, attention over a ring of keys and values,
//! norms, activations, tables and codebooks.
//!
//! Promise: the bits of one vector's result depend on that vector and on the weights only. Not on how many vectors
//! are computed together, not on their place, not on the number of threads, not on what other vectors hold.
//! May not live here: names of tensors, files, candle, anything that knows what the numbers mean.
//! Start reading at [`matmul`] and [`attend`].

mod activation;
mod attend_head;
mod attention;
#[cfg(test)]
mod attention_tests;
mod buffer;
mod codebook;
mod functions;
mod lanes;
mod matmul;
#[cfg(test)]
mod matmul_tests;
mod matrix;
mod norm;
mod pack;
mod pool;
mod quantize;
mod ring;
mod rope;
mod table;
mod tiles;

pub use activation::{elu, gelu_erf, silu_gate};
pub use attention::{AttendScratch, Query, WriteOrder, attend};
pub use codebook::Codebook;
pub use matmul::{Epilogue, Vectors, matmul};
pub use matrix::{Dtype, Matrix};
pub use norm::{layer_norm, rms_norm};
pub use pool::Pool;
pub use ring::{KvDtype, KvRing, RingPart};
pub use rope::Rope;
pub use table::Table;
