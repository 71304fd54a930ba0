//! A machine that does nothing and has no memory: for counting what a tick asks for, at any size, anywhere.

use slots::engine::EngineError;

use crate::backend::Done;

use super::args::{Address, Kernel};
use super::machine::{Machine, Op, Pieces, Product};

/// Takes everything and does nothing; whatever is read is zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    next: Address,
}

/// Memory that is not there.
#[derive(Debug)]
pub struct NoMemory(Address);

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
        Ok(NoMemory(at))
    }

    fn address(memory: &NoMemory) -> Address {
        memory.0
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
