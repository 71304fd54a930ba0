//! Convolutions over several calls, with rows that pause, start again and hold nonsense.

use super::{Numbers, SAME, assert_close, bits, down, gpu, native, up};
use crate::backend::{Backend, ConvShape, ConvTrShape, Lanes};

const ROWS: usize = 3;

fn plain(channels_in: usize, channels_out: usize, kernel: usize, stride: usize) -> ConvShape {
    ConvShape {
        channels_in,
        channels_out,
        kernel,
        stride,
        dilation: 1,
        replicate: false,
    }
}

/// One call: which rows take part, and which are reset before it.
struct Call {
    live: &'static [usize],
    reset: &'static [usize],
}

const CALLS: [Call; 6] = [
    Call {
        live: &[0, 2],
        reset: &[],
    },
    Call {
        live: &[0, 1, 2],
        reset: &[],
    },
    Call {
        live: &[1],
        reset: &[],
    },
    Call {
        live: &[0, 1, 2],
        reset: &[2],
    },
    Call {
        live: &[0],
        reset: &[0, 1],
    },
    Call {
        live: &[0, 1, 2],
        reset: &[],
    },
];

/// Lanes of one call, and its input: nonsense in idle lanes, where there are such.
fn input<B: Backend>(b: &B, call: &Call, numbers: &mut Numbers, width: usize) -> (Lanes, Vec<f32>) {
    let mut lanes = Lanes::default();
    lanes.set(call.live, ROWS, b.padded());
    let all = numbers.take(ROWS * width);
    let lane = |(&row, &active): (&usize, &bool)| match active {
        true => all[row * width..][..width].to_vec(),
        false => vec![f32::NAN; width],
    };
    let x = lanes
        .rows
        .iter()
        .zip(&lanes.active)
        .flat_map(lane)
        .collect();
    (lanes, x)
}

/// Output of the lanes that take part.
fn kept(lanes: &Lanes, y: &[f32]) -> Vec<f32> {
    let width = y.len() / lanes.len();
    let active = y
        .chunks_exact(width)
        .zip(&lanes.active)
        .filter(|(_, active)| **active);
    active.flat_map(|(y, _)| y.to_vec()).collect()
}

fn conv<B: Backend>(b: &mut B, shape: ConvShape, t: usize, add: bool) -> Vec<Vec<f32>> {
    let mut numbers = Numbers(shape.kernel as u64 + 100 * shape.stride as u64);
    let weight = numbers.take(shape.channels_out * shape.channels_in * shape.kernel);
    let bias = numbers.take(shape.channels_out);
    let conv = b.conv(shape, &weight, Some(&bias)).expect("conv");
    let mut carry = b.carry(ROWS, &conv).expect("carry");
    let mut outputs = Vec::new();
    for call in &CALLS {
        for &row in call.reset {
            b.carry_reset(&mut carry, row).expect("reset");
        }
        let (lanes, x) = input(b, call, &mut numbers, t * shape.channels_in);
        let x = up(b, &x, shape.channels_in);
        let before = vec![0.5; lanes.len() * t / shape.stride * shape.channels_out];
        let mut y = up(b, &before, shape.channels_out);
        b.conv_step(&conv, &mut carry, &lanes, &x, &mut y, add)
            .expect("conv_step");
        outputs.push(kept(&lanes, &down(b, &y)));
    }
    outputs
}

fn conv_tr<B: Backend>(b: &mut B, shape: ConvTrShape, t: usize, biased: bool) -> Vec<Vec<f32>> {
    let mut numbers = Numbers(shape.stride as u64);
    let outputs_each = if shape.depthwise {
        1
    } else {
        shape.channels_out
    };
    let weight = numbers.take(shape.channels_in * outputs_each * 2 * shape.stride);
    let bias = numbers.take(shape.channels_out);
    let conv = b
        .conv_tr(shape, &weight, biased.then_some(&bias[..]))
        .expect("conv_tr");
    let mut carry = b.carry_tr(ROWS, &conv).expect("carry");
    let mut outputs = Vec::new();
    for call in &CALLS {
        for &row in call.reset {
            b.carry_reset(&mut carry, row).expect("reset");
        }
        let (lanes, x) = input(b, call, &mut numbers, t * shape.channels_in);
        let x = up(b, &x, shape.channels_in);
        let mut y = B::Buf::default();
        b.conv_tr_step(&conv, &mut carry, &lanes, &x, &mut y)
            .expect("conv_tr_step");
        outputs.push(kept(&lanes, &down(b, &y)));
    }
    outputs
}

#[test]
fn convolutions_give_the_cpu_kernels_numbers_whoever_takes_part() {
    let cases = [
        ("first of the encoder", plain(1, 6, 7, 1), 12, false),
        ("wide part of a block", plain(6, 3, 3, 1), 12, false),
        ("narrow part of a block, added", plain(3, 6, 1, 1), 12, true),
        (
            "dilated",
            ConvShape {
                dilation: 2,
                ..plain(4, 5, 3, 1)
            },
            6,
            false,
        ),
        ("downsampling by 4", plain(5, 7, 8, 4), 12, false),
        ("a single output", plain(4, 4, 10, 5), 5, false),
        (
            "replicating",
            ConvShape {
                replicate: true,
                ..plain(4, 4, 4, 2)
            },
            2,
            false,
        ),
    ];
    for (what, shape, t, add) in cases {
        let expected = conv(&mut native(), shape, t, add);
        for (found, expected) in conv(&mut gpu(), shape, t, add).iter().zip(&expected) {
            assert_close(found, expected, SAME, what);
        }
    }
}

#[test]
fn transposed_convolutions_give_the_cpu_kernels_numbers_whoever_takes_part() {
    let full = ConvTrShape {
        channels_in: 6,
        channels_out: 3,
        stride: 4,
        depthwise: false,
    };
    let each = ConvTrShape {
        channels_in: 5,
        channels_out: 5,
        stride: 2,
        depthwise: true,
    };
    let cases = [
        ("full", full, 3, true),
        ("depthwise", each, 1, false),
        ("biased depthwise", each, 4, true),
    ];
    for (what, shape, t, biased) in cases {
        let expected = conv_tr(&mut native(), shape, t, biased);
        for (found, expected) in conv_tr(&mut gpu(), shape, t, biased).iter().zip(&expected) {
            assert_close(found, expected, SAME, what);
        }
    }
}

#[test]
fn what_a_row_gets_does_not_depend_on_the_others_to_the_bit() {
    let shape = ConvShape {
        replicate: true,
        ..plain(5, 7, 4, 2)
    };
    let mut numbers = Numbers(1);
    let (weight, mine) = (numbers.take(7 * 5 * 4), numbers.take(4 * 8 * 5));
    let mut with_others = |others: &[bool]| {
        let mut b = gpu();
        let conv = b.conv(shape, &weight, None).expect("conv");
        let mut carry = b.carry(ROWS, &conv).expect("carry");
        let mut outputs = Vec::new();
        for (call, mine) in mine.chunks_exact(8 * 5).enumerate() {
            let other = others[call];
            let live: &[usize] = if other { &[0, 1, 2] } else { &[1] };
            let mut lanes = Lanes::default();
            lanes.set(live, ROWS, true);
            let mut x = if other {
                numbers.take(ROWS * 40)
            } else {
                vec![0.0; ROWS * 40]
            };
            x[40..80].copy_from_slice(mine);
            let x = up(&mut b, &x, 5);
            let mut y = Default::default();
            b.conv_step(&conv, &mut carry, &lanes, &x, &mut y, false)
                .expect("conv_step");
            outputs.extend_from_slice(&down(&mut b, &y)[28..56]);
        }
        bits(&outputs)
    };
    let alone = with_others(&[false; 4]);
    assert_eq!(with_others(&[true; 4]), alone);
    assert_eq!(with_others(&[true, false, false, true]), alone);
}

#[test]
fn lanes_that_are_not_all_rows_are_refused() {
    let mut b = gpu();
    let conv = b.conv(plain(1, 1, 2, 1), &[1.0, 1.0], None).expect("conv");
    let mut carry = b.carry(ROWS, &conv).expect("carry");
    let lanes = Lanes {
        rows: vec![1],
        active: vec![true],
    };
    let x = up(&mut b, &[1.0], 1);
    assert!(
        b.conv_step(
            &conv,
            &mut carry,
            &lanes,
            &x,
            &mut Default::default(),
            false
        )
        .is_err()
    );
}
