//! Causal convolutions as products over windows, with what each row keeps in the machine.

use slots::engine::EngineError;

use crate::backend::{ConvShape, ConvTrShape, Data, Done, Lanes};
use crate::kernels::Dtype;

use super::args::{Address, Kernel, UpsampleArgs, WindowArgs};
use super::backend::Cuda;
use super::buffers::{Buf, Vector, Weight, blocks, run, zeros};
use super::machine::Machine;
use super::tape::Tape;

/// A convolution; its weight is `[out, kernel, in]`.
pub struct Conv<M: Machine> {
    pub(super) shape: ConvShape,
    weight: Weight<M>,
    bias: Option<Vector<M>>,
}

/// A transposed convolution as a product over two neighbouring inputs, giving `stride` outputs at once.
pub struct ConvTr<M: Machine> {
    pub(super) shape: ConvTrShape,
    kind: ConvTrKind<M>,
}

enum ConvTrKind<M: Machine> {
    /// The bias is repeated for each of the outputs.
    Full {
        weight: Weight<M>,
        bias: Option<Vector<M>>,
    },
    /// `[2 * stride, channels]`.
    Depthwise {
        taps: Vector<M>,
        bias: Option<Vector<M>>,
    },
}

/// The last columns of every row, `[rows, columns, channels]`, and which rows are fresh.
pub struct Carry<M: Machine> {
    kept: M::Memory,
    fresh: M::Memory,
    rows: usize,
    columns: usize,
    channels: usize,
    replicate: bool,
}

impl<M: Machine> Carry<M> {
    pub(super) fn new(
        machine: &mut M,
        rows: usize,
        columns: usize,
        channels: usize,
        replicate: bool,
    ) -> Result<Self, EngineError> {
        let fresh = machine.allocate(4 * rows)?;
        machine.write(M::address(&fresh), bytemuck::cast_slice(&vec![1i32; rows]))?;
        Ok(Self {
            kept: zeros(machine, 4 * rows * columns * channels)?,
            fresh,
            rows,
            columns,
            channels,
            replicate,
        })
    }

    pub(super) fn reset(&mut self, machine: &mut M, row: usize) -> Done {
        let bytes = 4 * self.columns * self.channels;
        machine.zero(M::address(&self.kept) + (row * bytes) as Address, bytes)?;
        machine.write(
            M::address(&self.fresh) + 4 * row as Address,
            bytemuck::bytes_of(&1i32),
        )
    }
}

impl<M: Machine> Conv<M> {
    pub(super) fn new(
        machine: &mut M,
        shape: ConvShape,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<Self, EngineError> {
        let (out, taps, channels) = (shape.channels_out, shape.kernel, shape.channels_in);
        let mut rows = vec![0.0; weight.len()];
        for (row, weight) in rows
            .chunks_exact_mut(taps * channels)
            .zip(weight.chunks_exact(taps * channels))
        {
            for channel in 0..channels {
                for tap in 0..taps {
                    row[tap * channels + channel] = weight[channel * taps + tap];
                }
            }
        }
        let data = Data::F32(rows.into());
        Ok(Self {
            shape,
            weight: Weight::new(machine, Dtype::F32, (out, taps * channels), &data)?,
            bias: bias.map(|bias| Vector::new(machine, bias)).transpose()?,
        })
    }
}

impl<M: Machine> ConvTr<M> {
    pub(super) fn new(
        machine: &mut M,
        shape: ConvTrShape,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<Self, EngineError> {
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
                taps: Vector::new(machine, &taps)?,
                bias: bias.map(|bias| Vector::new(machine, bias)).transpose()?,
            }
        } else {
            // Output j of step t is x[t-1] * w[j + stride] + x[t] * w[j]: one row for each (j, out channel).
            let mut rows = vec![0.0; stride * outputs * 2 * inputs];
            for (index, row) in rows.chunks_exact_mut(2 * inputs).enumerate() {
                let (j, out) = (index / outputs, index % outputs);
                let (before, now) = row.split_at_mut(inputs);
                for input in 0..inputs {
                    let weight = &weight[(input * outputs + out) * kernel..][..kernel];
                    before[input] = weight[j + stride];
                    now[input] = weight[j];
                }
            }
            let data = Data::F32(rows.into());
            let bias = bias.map(|bias| bias.repeat(stride));
            ConvTrKind::Full {
                weight: Weight::new(machine, Dtype::F32, (stride * outputs, 2 * inputs), &data)?,
                bias: bias.map(|bias| Vector::new(machine, &bias)).transpose()?,
            }
        };
        Ok(Self { shape, kind })
    }
}

impl<M: Machine> Cuda<M> {
    pub(super) fn convolve(
        &mut self,
        conv: &Conv<Tape<M>>,
        carry: &mut Carry<Tape<M>>,
        lanes: &Lanes,
        x: &Buf<Tape<M>>,
        y: &mut Buf<Tape<M>>,
        add: bool,
    ) -> Done {
        let shape = conv.shape;
        let window = Window {
            taps: shape.kernel,
            stride: shape.stride,
            dilation: shape.dilation,
        };
        let bias = conv.bias.as_ref();
        if shape.kernel == 1 && shape.stride == 1 {
            return self.product(&conv.weight, x, None, bias, add, y);
        }
        let windows = self.windows(carry, lanes, x, window)?;
        let done = self.product(&conv.weight, &windows, None, bias, add, y);
        self.window_buf = windows;
        done
    }

    pub(super) fn convolve_tr(
        &mut self,
        conv: &ConvTr<Tape<M>>,
        carry: &mut Carry<Tape<M>>,
        lanes: &Lanes,
        x: &Buf<Tape<M>>,
        y: &mut Buf<Tape<M>>,
    ) -> Done {
        let window = Window {
            taps: 2,
            stride: 1,
            dilation: 1,
        };
        match &conv.kind {
            ConvTrKind::Full { weight, bias } => {
                let windows = self.windows(carry, lanes, x, window)?;
                let done = self.product(weight, &windows, None, bias.as_ref(), false, y);
                self.window_buf = windows;
                done
            }
            ConvTrKind::Depthwise { taps, bias } => {
                let args = self.window_args(carry, lanes, x, window)?;
                let (channels, t) = (args.channels as usize, args.t as usize);
                let size = t * conv.shape.stride * channels;
                y.resize(&mut self.machine, lanes.len() * size)?;
                let upsample = UpsampleArgs {
                    x: x.address(),
                    y: y.address(),
                    kept: args.kept,
                    taps: taps.address(),
                    bias: bias.as_ref().map_or(0, Vector::address),
                    active: args.active,
                    channels: args.channels,
                    t: args.t,
                    stride: conv.shape.stride as i32,
                    pad: 0,
                };
                let grid = [blocks(size), lanes.len() as u32];
                run(&mut self.machine, Kernel::Upsample, grid, &upsample)?;
                self.keep(carry, lanes, &args)
            }
        }
    }

    /// The windows of each output, `[lanes * outputs, taps * channels]`; keeps what the next call needs.
    fn windows(
        &mut self,
        carry: &mut Carry<Tape<M>>,
        lanes: &Lanes,
        x: &Buf<Tape<M>>,
        window: Window,
    ) -> Result<Buf<Tape<M>>, EngineError> {
        let mut args = self.window_args(carry, lanes, x, window)?;
        let size = (args.outputs * args.taps * args.channels) as usize;
        let mut windows = std::mem::take(&mut self.window_buf);
        windows.resize(&mut self.machine, lanes.len() * size)?;
        args.windows = windows.address();
        let grid = [blocks(size), lanes.len() as u32];
        run(&mut self.machine, Kernel::Unfold, grid, &args)?;
        self.keep(carry, lanes, &args)?;
        Ok(windows)
    }

    fn window_args(
        &mut self,
        carry: &Carry<Tape<M>>,
        lanes: &Lanes,
        x: &Buf<Tape<M>>,
        window: Window,
    ) -> Result<WindowArgs, EngineError> {
        let all_rows = lanes.len() == carry.rows
            && lanes
                .rows
                .iter()
                .enumerate()
                .all(|(lane, &row)| lane == row);
        let t = x.len() / (lanes.len().max(1) * carry.channels);
        if !all_rows || t * lanes.len() * carry.channels != x.len() {
            return Err(EngineError {
                what: format!(
                    "lanes must be all {} rows in order, with whole columns",
                    carry.rows
                ),
            });
        }
        Ok(WindowArgs {
            x: x.address(),
            windows: 0,
            kept: M::address(&carry.kept),
            fresh: M::address(&carry.fresh),
            active: self.mask(lanes)?,
            channels: carry.channels as i32,
            t: t as i32,
            columns: carry.columns as i32,
            taps: window.taps as i32,
            stride: window.stride as i32,
            dilation: window.dilation as i32,
            outputs: (t / window.stride) as i32,
            replicate: carry.replicate.into(),
        })
    }

    fn keep(&mut self, carry: &Carry<Tape<M>>, lanes: &Lanes, args: &WindowArgs) -> Done {
        if carry.columns > 0 {
            let grid = [blocks(carry.channels), lanes.len() as u32];
            run(&mut self.machine, Kernel::Keep, grid, args)?;
        }
        if carry.replicate {
            let args = WindowArgs {
                outputs: lanes.len() as i32,
                ..*args
            };
            run(
                &mut self.machine,
                Kernel::Settle,
                [blocks(lanes.len()), 1],
                &args,
            )?;
        }
        Ok(())
    }
}

/// Which columns an output sees.
#[derive(Clone, Copy)]
struct Window {
    taps: usize,
    stride: usize,
    dilation: usize,
}
