//! How near the CPU's kernels come to what the machine can do: bytes of weights per second for few vectors,
//! multiply-adds per second for many.
//!
//! `cargo bench --bench kernels -- [FILTER]`; VIVAVOCE_BENCH_THREADS sets the threads (default 1 and 2). Every line is
//! the best of many runs, since neighbours on a shared machine only ever add time; with one thread it is the time that
//! thread had a processor. Sizes are those of the published network, of the `mid` preset and of the demo.

#![allow(unsafe_code)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use engine::kernels::{
    AttendScratch, Codebook, Dtype, Epilogue, KvDtype, KvRing, Matrix, Pool, Query, Rope, Vectors,
    WriteOrder, attend, elu, gelu_erf, layer_norm, matmul, rms_norm, silu_gate,
};

/// Measured time of one line.
const BUDGET: Duration = Duration::from_millis(400);

/// Time this thread has had a processor.
fn thread_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a place the call may write to; it cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Bench {
    filter: String,
    threads: usize,
    pool: Pool,
}

impl Bench {
    /// Prints the best time of `f`, with what it means for `bytes` read and `operations` done.
    fn line(&self, name: &str, bytes: f64, operations: f64, mut f: impl FnMut()) {
        f();
        let start = Instant::now();
        let mut best = Duration::MAX;
        while start.elapsed() < BUDGET {
            let (before, own_before) = (Instant::now(), thread_time());
            f();
            best = best.min(match self.threads {
                1 => thread_time() - own_before,
                _ => before.elapsed(),
            });
        }
        let seconds = best.as_secs_f64();
        println!(
            "{name:<46} {} threads {:>10.1} us {:>7.1} GB/s {:>7.1} GFLOP/s",
            self.threads,
            seconds * 1e6,
            bytes / seconds / 1e9,
            operations / seconds / 1e9,
        );
    }

    fn wants(&self, name: &str) -> bool {
        name.contains(&self.filter)
    }
}

fn noise(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as f32 / (1u32 << 23) as f32 - 1.0
        })
        .collect()
}

/// A weight with several vectors, copies of the weight walked in turn so that the cache of the last level is no help.
fn linear(bench: &Bench, name: &str, rows: usize, cols: usize) {
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::Q8_0] {
        let label = format!("linear {name} {rows}x{cols} {dtype:?}");
        if !bench.wants(&label) {
            continue;
        }
        let data = noise(rows * cols, 1);
        let first = Matrix::from_f32(dtype, rows, cols, &data);
        let copies = (100_000_000 / first.bytes()).clamp(1, 40);
        let weights: Vec<Matrix> = std::iter::once(first)
            .chain((1..copies).map(|_| Matrix::from_f32(dtype, rows, cols, &data)))
            .collect();
        for count in [1, 2, 4, 8] {
            let x = noise(count * cols, 2);
            let mut y = vec![0.0; count * rows];
            let mut turn = 0;
            let operations = 2.0 * (rows * cols * count) as f64;
            bench.line(
                &format!("{label} n={count}"),
                weights[0].bytes() as f64,
                operations,
                || {
                    let vectors = Vectors {
                        data: &x,
                        outer: count,
                        outer_stride: cols,
                        inner: 1,
                        inner_stride: 0,
                    };
                    matmul(
                        &bench.pool,
                        &weights[turn],
                        vectors,
                        black_box(&mut y),
                        Epilogue::default(),
                    );
                    turn = (turn + 1) % weights.len();
                },
            );
        }
    }
}

/// A convolution over time-major data: `steps` outputs for each of `groups` rows of the batch.
fn convolution(
    bench: &Bench,
    name: &str,
    input: usize,
    output: usize,
    kernel: usize,
    stride: usize,
    steps: usize,
) {
    for groups in [1, 4] {
        let label = format!("conv {name} {input}->{output} k{kernel} s{stride} B={groups}");
        if !bench.wants(&label) {
            continue;
        }
        let cols = kernel * input;
        let w = Matrix::from_f32(Dtype::F32, output, cols, &noise(output * cols, 1));
        let time = (steps - 1) * stride + kernel;
        let x = noise(groups * time * input, 2);
        let bias = noise(output, 3);
        let mut y = vec![0.0; groups * steps * output];
        let operations = 2.0 * (output * cols * steps * groups) as f64;
        bench.line(&label, w.bytes() as f64, operations, || {
            let vectors = Vectors {
                data: &x,
                outer: groups,
                outer_stride: time * input,
                inner: steps,
                inner_stride: stride * input,
            };
            let epilogue = Epilogue {
                bias: Some(&bias),
                ..Epilogue::default()
            };
            matmul(&bench.pool, &w, vectors, black_box(&mut y), epilogue);
        });
    }
}

/// One position per row at a full window.
fn attention(bench: &Bench, name: &str, heads: usize, head_dim: usize, cells: usize) {
    for dtype in [KvDtype::F32, KvDtype::Bf16] {
        for rows in [1, 4, 8] {
            let label =
                format!("attend {name} {heads}x{head_dim} {cells} cells {dtype:?} B={rows}");
            if !bench.wants(&label) {
                continue;
            }
            let width = heads * head_dim;
            let mut ring = KvRing::new(dtype, rows, heads, head_dim, cells);
            let rope = Rope::new(head_dim, 10_000.0);
            let qkv = noise(rows * 3 * width, 1);
            let mut out = vec![0.0; rows * width];
            let mut scratch = AttendScratch::new();
            let mut position = 0;
            let mut step = |position: u64| {
                let first = (position + 1).saturating_sub(cells as u64);
                let queries: Vec<Query> = (0..rows)
                    .map(|row| Query {
                        row,
                        position,
                        first,
                        pinned: 0,
                        pinned_rotation: 0,
                    })
                    .collect();
                attend(
                    &bench.pool,
                    &mut ring,
                    Some(&rope),
                    &queries,
                    WriteOrder::EachThenAttend,
                    &qkv,
                    black_box(&mut out),
                    &mut scratch,
                );
            };
            while position < cells as u64 {
                step(position);
                position += 1;
            }
            let element = if dtype == KvDtype::F32 { 4 } else { 2 };
            let elements = (rows * 2 * width * cells) as f64;
            bench.line(
                &label,
                elements * f64::from(element),
                2.0 * elements,
                || {
                    step(position);
                    position += 1;
                },
            );
        }
    }
}

/// A plain loop: for buffers of this size the library's copy goes around the cache.
fn refill(y: &mut [f32], x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = x * 0.5;
    }
}

fn elementwise(bench: &Bench) {
    let len = 1920 * 64;
    let x = noise(len, 1);
    let mut y = vec![0.0; len];
    let per = |name: &str, f: &mut dyn FnMut()| {
        if bench.wants(name) {
            bench.line(name, 8.0 * len as f64, len as f64, f);
        }
    };
    per("elu 122880", &mut || {
        refill(&mut y, &x);
        elu(&bench.pool, black_box(&mut y));
    });
    per("gelu_erf 122880", &mut || {
        refill(&mut y, &x);
        gelu_erf(&bench.pool, black_box(&mut y));
    });
    per("silu_gate 5x11264", &mut || {
        silu_gate(
            &bench.pool,
            &x[..10 * 11_264],
            11_264,
            black_box(&mut y[..5 * 11_264]),
        );
    });
    let (alpha, beta) = (noise(4096, 2), noise(4096, 3));
    per("rms_norm 30x4096", &mut || {
        rms_norm(&x, &alpha, 1e-8, black_box(&mut y))
    });
    per("layer_norm 30x4096", &mut || {
        layer_norm(&x, &alpha, &beta, 1e-5, black_box(&mut y))
    });
}

fn codebook(bench: &Bench) {
    let book = Codebook::new(2048, 256, &noise(2048 * 256, 1));
    for count in [1, 8] {
        let label = format!("codebook 2048x256 n={count}");
        if !bench.wants(&label) {
            continue;
        }
        let (r, mut out, mut scratch) = (noise(count * 256, 2), vec![0; count], Vec::new());
        let size = 2048.0 * 256.0;
        bench.line(&label, size * 4.0, 2.0 * size * count as f64, || {
            book.nearest(&bench.pool, &r, black_box(&mut out), &mut scratch);
        });
    }
}

fn main() {
    // Cargo passes `--bench`; what is left is the filter.
    let filter = std::env::args()
        .skip(1)
        .find(|arg| !arg.starts_with("--"))
        .unwrap_or_default();
    let threads = std::env::var("VIVAVOCE_BENCH_THREADS")
        .ok()
        .and_then(|value| value.parse().ok());
    for threads in threads.map_or(vec![1, 2], |threads| vec![threads]) {
        let bench = Bench {
            filter: filter.clone(),
            threads,
            pool: Pool::new(threads),
        };
        linear(&bench, "7b", 12_288, 4096);
        linear(&bench, "7b", 4096, 4096);
        linear(&bench, "7b", 22_528, 4096);
        linear(&bench, "7b", 4096, 11_264);
        linear(&bench, "depformer", 3072, 1024);
        linear(&bench, "depformer", 5632, 1024);
        linear(&bench, "depformer", 1024, 2816);
        linear(&bench, "codec", 2048, 512);
        linear(&bench, "demo", 384, 128);
        convolution(&bench, "enc0", 1, 64, 7, 1, 1920);
        convolution(&bench, "enc1", 64, 32, 3, 1, 1920);
        convolution(&bench, "enc1b", 32, 64, 1, 1, 1920);
        convolution(&bench, "enc3", 64, 128, 8, 4, 480);
        convolution(&bench, "enc6", 128, 256, 10, 5, 96);
        convolution(&bench, "enc9", 256, 512, 12, 6, 16);
        convolution(&bench, "enc12", 512, 1024, 16, 8, 2);
        convolution(&bench, "dec0", 512, 1024, 7, 1, 2);
        convolution(&bench, "dec8", 256, 1280, 1, 1, 96);
        convolution(&bench, "dec11", 128, 512, 1, 1, 480);
        convolution(&bench, "dec14", 64, 1, 3, 1, 1920);
        convolution(&bench, "demo", 10, 5, 3, 1, 1920);
        attention(&bench, "7b", 32, 128, 3000);
        attention(&bench, "mid", 8, 128, 750);
        attention(&bench, "codec", 8, 64, 250);
        attention(&bench, "depformer", 16, 64, 8);
        codebook(&bench);
        elementwise(&bench);
    }
}
