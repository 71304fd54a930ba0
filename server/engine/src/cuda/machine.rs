//! What the backend needs of a machine that runs kernels: memory, copies, launches, products.
//!
//! Lives here: the trait [`Machine`] and the small types it speaks. `host` runs the kernels' host build, `device` an
//! NVIDIA GPU, `count` only counts. May not live here: the network, what a kernel computes.
//!
//! Everything asked of a machine happens in the order it was asked for; only [`Machine::read`] and
//! [`Machine::synchronize`] wait.

use slots::engine::EngineError;

use crate::backend::Done;

use super::args::{Address, Kernel};

/// A matrix product `y = [y +] x Wᵀ`, every output a sum in f32 whose order depends on the shape alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// `[outputs, inputs]`, in `kind`.
    pub weights: Address,
    /// `[lanes, inputs]`, in `kind`.
    pub x: Address,
    /// `[lanes, outputs]`, f32.
    pub y: Address,
    /// Rows of `x`.
    pub lanes: usize,
    /// Rows of the matrix.
    pub outputs: usize,
    /// Columns of the matrix.
    pub inputs: usize,
    /// Whether weights and inputs are bf16; else f32.
    pub half: bool,
    /// Whether it is added to what `y` holds.
    pub add: bool,
}

/// Pieces of one length, copied from one memory to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Where the first piece comes from.
    pub from: Address,
    /// Bytes from one to the next.
    pub from_stride: usize,
    /// Where it goes.
    pub to: Address,
    /// Bytes from one to the next.
    pub to_stride: usize,
    /// Bytes of one.
    pub bytes: usize,
    /// How many.
    pub count: usize,
}

/// An operation that can be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A kernel.
    Launch {
        /// Which.
        kernel: Kernel,
        /// Blocks.
        blocks: [u32; 2],
        /// Bytes of its structure.
        args: Box<[u8]>,
    },
    /// A product.
    Product(Product),
    /// A copy.
    Copy(Pieces),
}

/// A machine that runs kernels in order.
pub trait Machine: Send + 'static {
    /// Memory that is given back when dropped.
    type Memory: Send + Sync + 'static;
    /// Operations that are launched as one.
    type Graph: Send + 'static;

    /// One line: which machine.
    fn describe(&self) -> String;

    /// Whether it matters what is written; a machine that only counts has no use for numbers.
    fn keeps_numbers(&self) -> bool {
        true
    }

    /// `bytes` of memory; what it holds is unspecified.
    ///
    /// # Errors
    /// There is not so much.
    fn allocate(&mut self, bytes: usize) -> Result<Self::Memory, EngineError>;

    /// Where a memory begins; aligned to 64 bytes at least.
    fn address(memory: &Self::Memory) -> Address;

    /// Fills `bytes` at `at` with zeros.
    ///
    /// # Errors
    /// The machine failed.
    fn zero(&mut self, at: Address, bytes: usize) -> Done;

    /// Puts `bytes` at `at`; they may be reused at once.
    ///
    /// # Errors
    /// The machine failed.
    fn write(&mut self, at: Address, bytes: &[u8]) -> Done;

    /// Waits for everything asked before, then fills `out` from `at`.
    ///
    /// # Errors
    /// The machine failed, now or in what was asked before.
    fn read(&mut self, at: Address, out: &mut [u8]) -> Done;

    /// Copies within the machine.
    ///
    /// # Errors
    /// The machine failed.
    fn copy(&mut self, pieces: Pieces) -> Done;

    /// Runs `kernel` with `blocks`; `args` are the bytes of its structure.
    ///
    /// # Errors
    /// The machine failed.
    fn launch(&mut self, kernel: Kernel, blocks: [u32; 2], args: &[u8]) -> Done;

    /// Computes a product.
    ///
    /// # Errors
    /// The machine failed.
    fn product(&mut self, product: Product) -> Done;

    /// Makes `ops` one graph; does not run it.
    ///
    /// # Errors
    /// This machine cannot, now or ever.
    fn capture(&mut self, ops: &[Op]) -> Result<Self::Graph, EngineError>;

    /// Runs a graph; the memory that its operations name has to exist still.
    ///
    /// # Errors
    /// The machine failed.
    fn replay(&mut self, graph: &Self::Graph) -> Done;

    /// Waits for everything asked before.
    ///
    /// # Errors
    /// The machine failed.
    fn synchronize(&mut self) -> Done;
}
