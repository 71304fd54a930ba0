//! The kernels on the host: the build of the same sources by a C compiler, one block after the other.
//!
//! For tests and for `verify` on machines without a GPU; slow. Memory begins as NaN, so that nothing is read that was
//! never written.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

use half::bf16;
use slots::engine::EngineError;

use crate::backend::Done;

use super::args::{Address, Kernel, built};
use super::machine::{Machine, Op, Pieces, Product};
use super::tape::perform;

/// Runs kernels on the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// Whether the threads of a block run backwards: what works both ways does not depend on their order.
    pub backward: bool,
}

/// Memory of the host, reached by its address.
#[derive(Debug)]
pub struct HostMemory {
    at: *mut u8,
    layout: Layout,
}

// SAFETY: the bytes are only touched by the one `Host` whose backend owns the memory, which is `&mut` for it.
unsafe impl Send for HostMemory {}
// SAFETY: as above; nothing is read through a shared reference.
unsafe impl Sync for HostMemory {}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and not given back before.
        unsafe { dealloc(self.at, self.layout) }
    }
}

const ALIGNMENT: usize = 64;

impl Machine for Host {
    type Memory = HostMemory;
    type Graph = Box<[Op]>;

    fn describe(&self) -> String {
        "GPU kernels on the cpu".to_owned()
    }

    fn allocate(&mut self, bytes: usize) -> Result<HostMemory, EngineError> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).map_err(|_| EngineError {
            what: format!("{bytes} bytes are no size of memory"),
        })?;
        // SAFETY: the size is not zero.
        let at = unsafe { alloc(layout) };
        if at.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: that many bytes were just allocated.
        unsafe { at.write_bytes(0xff, layout.size()) };
        Ok(HostMemory { at, layout })
    }

    fn address(memory: &HostMemory) -> Address {
        memory.at as Address
    }

    fn zero(&mut self, at: Address, bytes: usize) -> Done {
        // SAFETY: the backend asks for memory that it owns.
        unsafe { (at as *mut u8).write_bytes(0, bytes) };
        Ok(())
    }

    fn write(&mut self, at: Address, bytes: &[u8]) -> Done {
        // SAFETY: as above, and a caller's slice is not machine memory.
        unsafe { (at as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn read(&mut self, at: Address, out: &mut [u8]) -> Done {
        // SAFETY: as above.
        unsafe { (at as *const u8).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    fn copy(&mut self, pieces: Pieces) -> Done {
        for piece in 0..pieces.count {
            let from = pieces.from as usize + piece * pieces.from_stride;
            let to = pieces.to as usize + piece * pieces.to_stride;
            // SAFETY: as above; the two may be one.
            unsafe { (from as *const u8).copy_to(to as *mut u8, pieces.bytes) };
        }
        Ok(())
    }

    fn launch(&mut self, kernel: Kernel, blocks: [u32; 2], args: &[u8]) -> Done {
        // Both sides declare the structure; a difference would read beyond it.
        assert_eq!(args.len(), built::args_bytes(kernel), "{kernel:?}");
        let entry = built::entry(kernel, self.backward);
        // SAFETY: the arguments are those of this kernel, and name memory that the backend owns.
        unsafe { entry(args.as_ptr().cast(), blocks[0], blocks[1]) };
        Ok(())
    }

    fn product(&mut self, product: Product) -> Done {
        let Product {
            lanes,
            outputs,
            inputs,
            ..
        } = product;
        // SAFETY: the product names memory of these shapes that the backend owns; x and y are not the same.
        let y = unsafe { std::slice::from_raw_parts_mut(product.y as *mut f32, lanes * outputs) };
        let put = |y: &mut f32, sum: f32| *y = if product.add { *y + sum } else { sum };
        if product.half {
            // SAFETY: as above.
            let (w, x) = unsafe {
                (
                    std::slice::from_raw_parts(product.weights as *const bf16, outputs * inputs),
                    std::slice::from_raw_parts(product.x as *const bf16, lanes * inputs),
                )
            };
            let x: Vec<f32> = x.iter().map(|x| x.to_f32()).collect();
            let mut row = vec![0.0; inputs];
            for output in 0..outputs {
                let w = &w[output * inputs..][..inputs];
                row.iter_mut().zip(w).for_each(|(to, w)| *to = w.to_f32());
                for lane in 0..lanes {
                    let sum = dot(&row, &x[lane * inputs..][..inputs]);
                    put(&mut y[lane * outputs + output], sum);
                }
            }
        } else {
            // SAFETY: as above.
            let (w, x) = unsafe {
                (
                    std::slice::from_raw_parts(product.weights as *const f32, outputs * inputs),
                    std::slice::from_raw_parts(product.x as *const f32, lanes * inputs),
                )
            };
            for lane in 0..lanes {
                let x = &x[lane * inputs..][..inputs];
                for output in 0..outputs {
                    let sum = dot(&w[output * inputs..][..inputs], x);
                    put(&mut y[lane * outputs + output], sum);
                }
            }
        }
        Ok(())
    }

    fn capture(&mut self, ops: &[Op]) -> Result<Box<[Op]>, EngineError> {
        Ok(ops.into())
    }

    fn replay(&mut self, graph: &Box<[Op]>) -> Done {
        perform(self, graph)
    }

    fn synchronize(&mut self) -> Done {
        Ok(())
    }
}

/// Sums kept apart, so that the compiler can use vector registers.
const SUMS: usize = 16;

fn dot(w: &[f32], x: &[f32]) -> f32 {
    let mut sums = [0.0f32; SUMS];
    let (w, w_rest) = w.as_chunks::<SUMS>();
    let (x, x_rest) = x.as_chunks::<SUMS>();
    for (w, x) in w.iter().zip(x) {
        for at in 0..SUMS {
            sums[at] += w[at] * x[at];
        }
    }
    let rest: f32 = w_rest.iter().zip(x_rest).map(|(w, x)| w * x).sum();
    sums.iter().sum::<f32>() + rest
}
