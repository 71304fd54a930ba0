//! Every operation against the plain CPU backend, and the promises about rows and lanes to the bit.

mod attend;
mod convolve;
mod cost;
mod math;
mod sample;

use super::{Cuda, Host};
use crate::backend::Backend;
use crate::backend::KvDtype;
use crate::kernels::Dtype;
use crate::native::Native;

/// Sums of a few dozen products of numbers below 1, in another order.
const SAME: f32 = 2e-5;
/// Relative error of bf16, 2^-8, on inputs, products and sums of that size.
const HALF: f32 = 3e-2;

fn gpu() -> Cuda<Host> {
    Cuda::new(Host::default(), Dtype::F32, KvDtype::F32)
}

fn half_gpu() -> Cuda<Host> {
    Cuda::new(Host::default(), Dtype::Bf16, KvDtype::Bf16)
}

/// As on a small card: 8-bit weights, fp8 keys and values.
fn small_gpu() -> Cuda<Host> {
    Cuda::new(Host::default(), Dtype::Q8_0, KvDtype::Fp8)
}

fn native() -> Native {
    Native::new(Dtype::F32, KvDtype::F32, 1)
}

/// The same numbers for the same seed, in -1..1.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }

    fn take(&mut self, n: usize) -> Vec<f32> {
        (0..n)
            .map(|_| self.next() as f32 / (1u64 << 30) as f32 - 1.0)
            .collect()
    }
}

fn up<B: Backend>(b: &mut B, data: &[f32], width: usize) -> B::Buf {
    let mut buf = B::Buf::default();
    b.upload(data, width, &mut buf)
        .expect("numbers can be uploaded");
    buf
}

fn down<B: Backend>(b: &mut B, buf: &B::Buf) -> Vec<f32> {
    let mut data = Vec::new();
    b.download(buf, &mut data)
        .expect("a written buffer can be read");
    data
}

#[track_caller]
fn assert_close(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!(
            (a - b).abs() <= tolerance,
            "{what}: number {index} is {a}, expected {b}"
        );
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn reading_a_buffer_that_was_never_written_is_an_error_and_not_a_panic() {
    let mut b = gpu();
    assert!(b.download(&Default::default(), &mut Vec::new()).is_err());
}
