//! Convolutions of the CPU backend as products over overlapping windows, with what each row keeps between calls.
//!
//! Lives here: the layout of weights and windows. May not live here: the product itself (`kernels`).

use crate::backend::{ConvShape, ConvTrShape, Lanes};
use crate::kernels::{self, Dtype, Epilogue, Matrix, Pool, Vectors};

/// Working memory of all convolutions.
#[derive(Default)]
pub(super) struct Windows {
    /// Input of a convolution with its past in front, `[lanes, carry + t, channels]`.
    past: Vec<f32>,
    /// Windows of a dilated convolution, gathered.
    gathered: Vec<f32>,
}

/// A convolution as a product over windows `[kernel, channels_in]`.
pub struct NativeConv {
    shape: ConvShape,
    weight: Matrix,
    bias: Option<Vec<f32>>,
}

/// A transposed convolution as a product over two neighbouring inputs, giving `stride` outputs at once.
pub struct NativeConvTr {
    shape: ConvTrShape,
    kind: ConvTrKind,
}

enum ConvTrKind {
    Full {
        weight: Matrix,
        bias: Option<Vec<f32>>,
    },
    /// `[2 * stride, channels]`.
    Depthwise {
        taps: Vec<f32>,
        bias: Option<Vec<f32>>,
    },
}

/// The last columns of every row, `[rows, columns, channels]`.
pub struct NativeCarry {
    columns: usize,
    channels: usize,
    replicate: bool,
    data: Vec<f32>,
    fresh: Vec<bool>,
}

impl NativeCarry {
    fn new(rows: usize, columns: usize, channels: usize, replicate: bool) -> Self {
        let data = vec![0.0; rows * columns * channels];
        Self {
            columns,
            channels,
            replicate,
            data,
            fresh: vec![true; rows],
        }
    }

    pub(super) fn reset(&mut self, row: usize) {
        let past = self.columns * self.channels;
        self.data[row * past..][..past].fill(0.0);
        self.fresh[row] = true;
    }

    /// Lays out `[lanes, columns + t, channels]`: each lane's past, then its input; keeps the new past.
    fn splice(&mut self, pool: &Pool, lanes: &Lanes, x: &[f32], window: &mut Vec<f32>) -> usize {
        let past = self.columns * self.channels;
        let input = x.len() / lanes.len();
        let width = past + input;
        if self.replicate {
            for (x, &row) in x.chunks_exact(input).zip(&lanes.rows) {
                let fresh = self.fresh[row];
                let carry = self.data[row * past..][..past].chunks_exact_mut(self.channels);
                carry
                    .filter(|_| fresh)
                    .for_each(|column| column.copy_from_slice(&x[..self.channels]));
            }
        }
        window.resize(lanes.len() * width, 0.0);
        pool.pieces(window, self.channels, &|start, mut window| {
            let mut at = start;
            while !window.is_empty() {
                let (lane, offset) = (at / width, at % width);
                let from = if offset < past {
                    &self.data[lanes.rows[lane] * past..][offset..past]
                } else {
                    &x[lane * input..][offset - past..input]
                };
                let (now, later) = window.split_at_mut(window.len().min(from.len()));
                now.copy_from_slice(&from[..now.len()]);
                at += now.len();
                window = later;
            }
        });
        for (window, &row) in window.chunks_exact(width).zip(&lanes.rows) {
            self.data[row * past..][..past].copy_from_slice(&window[width - past..]);
            self.fresh[row] = false;
        }
        input / self.channels
    }
}

impl NativeConv {
    pub(super) fn new(shape: ConvShape, weight: &[f32], bias: Option<&[f32]>) -> Self {
        let (taps, width) = (shape.kernel, shape.channels_in);
        // [out, in, kernel] -> [out, kernel, in], the order of a time-major window.
        let mut windows = vec![0.0; weight.len()];
        for (out, weight) in weight.chunks_exact(taps * width).enumerate() {
            for channel in 0..width {
                for tap in 0..taps {
                    windows[(out * taps + tap) * width + channel] = weight[channel * taps + tap];
                }
            }
        }
        let weight = Matrix::from_f32(Dtype::F32, shape.channels_out, taps * width, &windows);
        Self {
            shape,
            weight,
            bias: bias.map(<[f32]>::to_vec),
        }
    }

    pub(super) fn carry(&self, rows: usize) -> NativeCarry {
        let shape = self.shape;
        NativeCarry::new(rows, shape.carry(), shape.channels_in, shape.replicate)
    }

    #[allow(clippy::too_many_arguments)] // as many as the operation of the backend has
    pub(super) fn step(
        &self,
        pool: &Pool,
        windows: &mut Windows,
        carry: &mut NativeCarry,
        lanes: &Lanes,
        x: &[f32],
        y: &mut Vec<f32>,
        add: bool,
    ) {
        let shape = self.shape;
        let (channels, taps) = (shape.channels_in, shape.kernel);
        let t = carry.splice(pool, lanes, x, &mut windows.past);
        let columns = t / shape.stride;
        let width = (carry.columns + t) * channels;
        let (n, out) = (lanes.len(), shape.channels_out);
        y.resize(n * columns * out, 0.0);
        let x = if shape.dilation == 1 {
            Vectors {
                data: &windows.past,
                outer: n,
                outer_stride: width,
                inner: columns,
                inner_stride: shape.stride * channels,
            }
        } else {
            windows.gathered.resize(n * columns * taps * channels, 0.0);
            let (gathered, past) = (&mut windows.gathered, &windows.past);
            pool.pieces(gathered, channels, &|start, gathered| {
                let columns_out = gathered.chunks_exact_mut(channels).enumerate();
                for (at, column) in columns_out {
                    let (at, tap) = (
                        (start / channels + at) / taps,
                        (start / channels + at) % taps,
                    );
                    let from = at / columns * width
                        + (at % columns * shape.stride + tap * shape.dilation) * channels;
                    column.copy_from_slice(&past[from..][..channels]);
                }
            });
            Vectors {
                data: &windows.gathered,
                outer: 1,
                outer_stride: 0,
                inner: n * columns,
                inner_stride: taps * channels,
            }
        };
        let epilogue = Epilogue {
            bias: self.bias.as_deref(),
            scale: None,
            add,
        };
        kernels::matmul(pool, &self.weight, x, y, epilogue);
    }
}

impl NativeConvTr {
    pub(super) fn new(shape: ConvTrShape, weight: &[f32], bias: Option<&[f32]>) -> Self {
        let (stride, inputs, outputs) = (shape.stride, shape.channels_in, shape.channels_out);
        let kernel = 2 * stride;
        let kind = if shape.depthwise {
            let mut taps = vec![0.0; kernel * inputs];
            for channel in 0..inputs {
                for tap in 0..kernel {
                    taps[tap * inputs + channel] = weight[channel * kernel + tap];
                }
            }
            ConvTrKind::Depthwise {
                taps,
                bias: bias.map(<[f32]>::to_vec),
            }
        } else {
            // Output j of step t is x[t-1] * w[j + stride] + x[t] * w[j]: one row for each (j, out channel).
            let mut rows = vec![0.0; stride * outputs * 2 * inputs];
            for j in 0..stride {
                for out in 0..outputs {
                    let row = &mut rows[(j * outputs + out) * 2 * inputs..][..2 * inputs];
                    for input in 0..inputs {
                        let weight = &weight[(input * outputs + out) * kernel..][..kernel];
                        row[input] = weight[j + stride];
                        row[inputs + input] = weight[j];
                    }
                }
            }
            ConvTrKind::Full {
                weight: Matrix::from_f32(Dtype::F32, stride * outputs, 2 * inputs, &rows),
                bias: bias.map(|bias| bias.repeat(stride)),
            }
        };
        Self { shape, kind }
    }

    pub(super) fn carry(&self, rows: usize) -> NativeCarry {
        NativeCarry::new(rows, 1, self.shape.channels_in, false)
    }

    pub(super) fn step(
        &self,
        pool: &Pool,
        windows: &mut Windows,
        carry: &mut NativeCarry,
        lanes: &Lanes,
        x: &[f32],
        y: &mut Vec<f32>,
    ) {
        let shape = self.shape;
        let (channels, stride) = (shape.channels_in, shape.stride);
        let t = carry.splice(pool, lanes, x, &mut windows.past);
        let width = (t + 1) * channels;
        y.resize(lanes.len() * t * stride * shape.channels_out, 0.0);
        match &self.kind {
            ConvTrKind::Full { weight, bias } => {
                let x = Vectors {
                    data: &windows.past,
                    outer: lanes.len(),
                    outer_stride: width,
                    inner: t,
                    inner_stride: channels,
                };
                let epilogue = Epilogue {
                    bias: bias.as_deref(),
                    scale: None,
                    add: false,
                };
                kernels::matmul(pool, weight, x, y, epilogue);
            }
            ConvTrKind::Depthwise { taps, bias } => {
                let past = &windows.past;
                pool.pieces(y, stride * channels, &|start, y| {
                    let first = start / (stride * channels);
                    for (at, out) in y.chunks_exact_mut(stride * channels).enumerate() {
                        let at = first + at;
                        let from = at / t * width + at % t * channels;
                        let (before, now) = past[from..][..2 * channels].split_at(channels);
                        for (j, out) in out.chunks_exact_mut(channels).enumerate() {
                            let first = &taps[j * channels..][..channels];
                            let second = &taps[(j + stride) * channels..][..channels];
                            for c in 0..channels {
                                let bias = bias.as_ref().map_or(0.0, |bias| bias[c]);
                                out[c] = now[c] * first[c] + before[c] * second[c] + bias;
                            }
                        }
                    }
                });
            }
        }
    }
}
