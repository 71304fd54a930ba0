//! A machine that does nothing and has no memory: for counting what a tick asks for, at any size, anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use slots::engine::EngineError;

use crate::backend::Done;

use super::args::{Address, Kernel};
use super::machine::{Machine, Op, Pieces, Product};

/// Takes everything and does nothing; whatever is read is zero. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Count {
    next: Address,
    held: Arc<AtomicU64>,
}

impl Count {
    /// Bytes of memory that are held now.
    pub fn held_bytes(&self) -> u64 {
        self.held.load(Relaxed)
    }
}

/// Memory that is not there.
#[derive(Debug)]
pub struct NoMemory {
    at: Address,
    bytes: u64,
    held: Arc<AtomicU64>,
}

impl Drop for NoMemory {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Relaxed);
    }
}

impl Machine for Count {
    type Memory = NoMemory;
    type Graph = ();

    fn describe(&self) -> String {
        "nothing, counted".to_owned()
    }

    fn keeps_numbers(&self) -> bool {
        false
    }

    fn allocate(&mut self, bytes: usize) -> Result<NoMemory, EngineError> {
        // No two memories are at one place, and none is at 0.
        self.next += 64;
        let at = self.next;
        self.next += bytes as Address;
        let bytes = bytes as u64;
        self.held.fetch_add(bytes, Relaxed);
        Ok(NoMemory {
            at,
            bytes,
            held: Arc::clone(&self.held),
        })
    }

    fn address(memory: &NoMemory) -> Address {
        memory.at
    }

    fn zero(&mut self, _at: Address, _bytes: usize) -> Done {
        Ok(())
    }

    fn write(&mut self, _at: Address, _bytes: &[u8]) -> Done {
        Ok(())
    }

    fn read(&mut self, _at: Address, out: &mut [u8]) -> Done {
        out.fill(0);
        Ok(())
    }

    fn copy(&mut self, _pieces: Pieces) -> Done {
        Ok(())
    }

    fn launch(&mut self, _kernel: Kernel, _blocks: [u32; 2], _args: &[u8]) -> Done {
        Ok(())
    }

    fn product(&mut self, _product: Product) -> Done {
        Ok(())
    }

    fn capture(&mut self, _ops: &[Op]) -> Result<(), EngineError> {
        Ok(())
    }

    fn replay(&mut self, _graph: &()) -> Done {
        Ok(())
    }

    fn synchronize(&mut self) -> Done {
        Ok(())
    }
}
