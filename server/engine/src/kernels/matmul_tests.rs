//! What the products promise, on every level of this machine.

use proptest::prelude::*;

use super::lanes::Level;
use super::matmul::{Epilogue, Vectors, matmul_at};
use super::matrix::{Dtype, Matrix};
use super::pool::Pool;

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::Q8_0];
/// Sums of f32 products against sums of f64 ones, relative to the sum of magnitudes.
const F32_TOLERANCE: f64 = 1e-6;
/// Weights and inputs are each off by up to half of 1/127 of the largest in their block; errors do not line up.
const Q8_TOLERANCE: f64 = 1e-2;

/// Reproducible numbers in -1..1.
pub(super) fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

fn plain(data: &[f32], count: usize, cols: usize) -> Vectors<'_> {
    Vectors {
        data,
        outer: 1,
        outer_stride: 0,
        inner: count,
        inner_stride: cols,
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn product(level: Level, threads: usize, w: &Matrix, x: Vectors<'_>, e: Epilogue<'_>) -> Vec<f32> {
    let mut y = noise(x.count() * w.rows(), 5);
    matmul_at(level, &Pool::new(threads), w, x, &mut y, e);
    y
}

#[test]
fn products_agree_with_sums_in_double_precision() {
    let shapes = [
        (1, 7, 5),
        (5, 30, 9),
        (10, 5, 1),
        (16, 32, 2),
        (33, 100, 3),
        (70, 257, 4),
        (100, 64, 13),
        (64, 1031, 6),
        (3, 3, 30),
    ];
    for level in Level::available() {
        for dtype in DTYPES {
            for (rows, cols, count) in shapes {
                let (weights, x) = (noise(rows * cols, 1), noise(count * cols, 2));
                let (bias, scale) = (noise(rows, 3), noise(rows, 4));
                let rounded: Vec<f32> = match dtype {
                    Dtype::Bf16 => weights
                        .iter()
                        .map(|w| half::bf16::from_f32(*w).to_f32())
                        .collect(),
                    _ => weights.clone(),
                };
                let e = Epilogue {
                    bias: Some(&bias),
                    scale: Some(&scale),
                    add: true,
                };
                let before = noise(count * rows, 5);
                let w = Matrix::from_f32(dtype, rows, cols, &weights);
                let y = product(level, 2, &w, plain(&x, count, cols), e);
                let tolerance = match dtype {
                    Dtype::Q8_0 => Q8_TOLERANCE,
                    _ => F32_TOLERANCE,
                };
                for (at, y) in y.iter().enumerate() {
                    let (vector, row) = (at / rows, at % rows);
                    let terms = (0..cols).map(|k| {
                        f64::from(rounded[row * cols + k]) * f64::from(x[vector * cols + k])
                    });
                    let (sum, size) = terms.fold((0.0, 0.0), |(s, m), t| (s + t, m + t.abs()));
                    let expected = f64::from(before[at])
                        + f64::from(scale[row]) * (sum + f64::from(bias[row]));
                    let error = (f64::from(*y) - expected).abs();
                    assert!(
                        error <= tolerance * (size + 2.0),
                        "{level:?} {dtype:?} {rows}x{cols} vector {vector} row {row}: {y} for {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_convolution_over_time_is_a_product_with_overlapping_vectors() {
    let (channels, kernel, stride, steps, groups) = (3, 4, 2, 11, 2);
    let (rows, cols) = (5, channels * kernel);
    let time = (steps - 1) * stride + kernel;
    let (weights, x) = (noise(rows * cols, 1), noise(groups * time * channels, 2));
    let mut copied = Vec::new();
    for group in 0..groups {
        for step in 0..steps {
            let at = (group * time + step * stride) * channels;
            copied.extend_from_slice(&x[at..at + cols]);
        }
    }
    let overlapping = Vectors {
        data: &x,
        outer: groups,
        outer_stride: time * channels,
        inner: steps,
        inner_stride: stride * channels,
    };
    for level in Level::available() {
        for dtype in DTYPES {
            let w = Matrix::from_f32(dtype, rows, cols, &weights);
            let one = product(level, 1, &w, overlapping, Epilogue::default());
            let other = plain(&copied, groups * steps, cols);
            let other = product(level, 1, &w, other, Epilogue::default());
            assert_eq!(bits(&one), bits(&other), "{level:?} {dtype:?}");
        }
    }
}

#[test]
fn weights_from_bf16_bits_are_the_weights_of_the_same_values() {
    let values: Vec<f32> = noise(21 * 37, 1)
        .iter()
        .map(|v| half::bf16::from_f32(*v).to_f32())
        .collect();
    let bits16: Vec<u16> = values.iter().map(|v| (v.to_bits() >> 16) as u16).collect();
    let x = noise(37 * 2, 2);
    for dtype in DTYPES {
        let one = Matrix::from_f32(dtype, 21, 37, &values);
        let other = Matrix::from_bf16_bits(dtype, 21, 37, &bits16);
        assert_eq!(one.data.bytes(), other.data.bytes(), "{dtype:?}");
        assert_eq!(one.scales.bytes(), other.scales.bytes(), "{dtype:?}");
    }
    let level = Level::best();
    let f32_product = product(
        level,
        1,
        &Matrix::from_f32(Dtype::F32, 21, 37, &values),
        plain(&x, 2, 37),
        Epilogue::default(),
    );
    let bf16_product = product(
        level,
        1,
        &Matrix::from_f32(Dtype::Bf16, 21, 37, &values),
        plain(&x, 2, 37),
        Epilogue::default(),
    );
    assert_eq!(bits(&f32_product), bits(&bf16_product));
}

#[test]
fn extreme_blocks_survive_8_bits() {
    let cases: [(&str, f32, f32); 4] = [
        ("zeros", 0.0, 1.0),
        ("tiny weights", 1e-30, 1.0),
        ("huge weights", 1e30, 1e3),
        ("tiny inputs", 1.0, 1e-30),
    ];
    for (name, weight, input) in cases {
        let (weights, x) = ([weight; 16 * 64], [input; 64]);
        let w = Matrix::from_f32(Dtype::Q8_0, 16, 64, &weights);
        for level in Level::available() {
            let y = product(level, 1, &w, plain(&x, 1, 64), Epilogue::default());
            let expected = 64.0 * weight * input;
            for y in y {
                assert!(
                    (y - expected).abs() <= 0.01 * expected.abs(),
                    "{name}: {y} for {expected}"
                );
            }
        }
    }
}

#[test]
#[should_panic(expected = "a vector reaches past the data")]
fn a_vector_that_reaches_past_the_data_is_refused() {
    let w = Matrix::from_f32(Dtype::F32, 1, 4, &[1.0; 4]);
    let x = Vectors {
        data: &[1.0; 11],
        outer: 2,
        outer_stride: 4,
        inner: 2,
        inner_stride: 4,
    };
    product(Level::best(), 1, &w, x, Epilogue::default());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_bits_of_a_vector_depend_on_nothing_but_itself(
        rows in 1usize..150, cols in 1usize..200, count in 1usize..10, threads in 1usize..4,
        seed in 0u64..1000, spoilt in 0usize..10,
    ) {
        let (weights, mut x) = (noise(rows * cols, seed), noise(count * cols, seed + 1));
        let reference: Vec<Vec<f32>> = x.chunks(cols).map(<[f32]>::to_vec).collect();
        let spoilt = (spoilt < count).then_some(spoilt);
        if let Some(spoilt) = spoilt {
            x[spoilt * cols] = f32::NAN;
        }
        for dtype in DTYPES {
            let w = Matrix::from_f32(dtype, rows, cols, &weights);
            let mut first_level: Option<Vec<Vec<u32>>> = None;
            for level in Level::available() {
                let alone: Vec<Vec<u32>> = reference
                    .iter()
                    .map(|x| bits(&product(level, 1, &w, plain(x, 1, cols), Epilogue::default())))
                    .collect();
                let together = product(level, threads, &w, plain(&x, count, cols), Epilogue::default());
                for (index, together) in together.chunks(rows).enumerate() {
                    if spoilt == Some(index) {
                        prop_assert!(together.iter().all(|y| y.is_nan()), "{:?} {:?}", level, dtype);
                    } else {
                        prop_assert_eq!(&bits(together), &alone[index], "{:?} {:?}", level, dtype);
                    }
                }
                prop_assert_eq!(first_level.get_or_insert(alone.clone()), &alone, "{:?} {:?}", level, dtype);
            }
        }
    }

    #[test]
    fn long_vectors_in_great_number_are_still_one_chain_of_sums(
        rows in 1usize..150, cols in 250usize..1100, count in 5usize..60, threads in 1usize..4, seed in 0u64..1000,
    ) {
        let (weights, x) = (noise(rows * cols, seed), noise(count * cols, seed + 1));
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let rounded = |w: &f32| match dtype {
                Dtype::Bf16 => half::bf16::from_f32(*w).to_f32(),
                _ => *w,
            };
            let chains: Vec<f32> = x
                .chunks(cols)
                .flat_map(|x| weights.chunks(cols).map(move |w| (x, w)))
                .map(|(x, w)| x.iter().zip(w).fold(0.0, |sum, (x, w)| x.mul_add(rounded(w), sum)))
                .collect();
            let w = Matrix::from_f32(dtype, rows, cols, &weights);
            for level in Level::available() {
                let together = product(level, threads, &w, plain(&x, count, cols), Epilogue::default());
                prop_assert_eq!(bits(&together), bits(&chains), "{:?} {:?}", level, dtype);
            }
        }
    }

    #[test]
    fn many_vectors_and_threads_change_no_bit(
        rows in 1usize..40, cols in 1usize..60, count in 90usize..260, seed in 0u64..1000,
    ) {
        let (weights, x) = (noise(rows * cols, seed), noise(count * cols, seed + 1));
        let level = Level::best();
        for dtype in DTYPES {
            let w = Matrix::from_f32(dtype, rows, cols, &weights);
            let alone: Vec<f32> = x
                .chunks(cols)
                .flat_map(|x| product(level, 1, &w, plain(x, 1, cols), Epilogue::default()))
                .collect();
            let together = product(level, 3, &w, plain(&x, count, cols), Epilogue::default());
            prop_assert_eq!(bits(&together), bits(&alone), "{:?}", dtype);
        }
    }
}
