//! The network on kernels of our own for NVIDIA GPUs.
//!
//! Lives here: [`Cuda`], which turns each operation into launches and products of a [`machine::Machine`], and the
//! machines: [`Host`] runs the kernels' host build, so that everything but the GPU itself is tested without one.
//! Kernels are in `kernels/`, one source for both; `kernels/shim.h` says how.
//! Promises: lanes are all rows of the batch, and every launch has the same shape whoever is seated, so a row's bits do
//! not depend on the others; idle rows cost no attention, and their rings and carries keep their bits.
//! May not live here: names of tensors in files, tokens, the choice of a device (`device`).

mod args;
mod backend;
mod buffers;
mod compute;
mod convolve;
mod cost;
mod count;
#[cfg(feature = "cuda")]
mod device;
mod host;
pub mod machine;
mod queries;
mod ring;
mod sample;
mod tape;
#[cfg(test)]
mod tests;

pub use args::Kernel;
pub use backend::Cuda;
pub use cost::Part;
pub use count::{Count, NoMemory};
#[cfg(feature = "cuda")]
pub use device::{Gpu, GpuMemory, OpenError};
pub use host::{Host, HostMemory};
pub use tape::TapeCounts;
