//! Causal convolutions over time as products, with what each row keeps from one call to the next.
//!
//! Activations are time-major, `[lanes, t, channels]`, so a window of a convolution is a run of neighbouring numbers.

use candle_core::{DType, Device, Result, Tensor};

use crate::backend::{ConvShape, ConvTrShape, Lanes};

use super::byte_mask;

/// A convolution as a product over windows `[kernel, channels_in]`.
pub struct TensorConv {
    pub(super) shape: ConvShape,
    /// `[kernel * channels_in, channels_out]`, a transposed view.
    weight: Tensor,
    bias: Option<Tensor>,
}

/// A transposed convolution as a product over two neighbouring inputs, giving `stride` outputs at once.
pub struct TensorConvTr {
    pub(super) shape: ConvTrShape,
    kind: TransposedKind,
}

enum TransposedKind {
    /// `[2 * channels_in, stride * channels_out]`, a transposed view.
    Full {
        weight: Tensor,
        bias: Option<Tensor>,
    },
    /// `[1, 1, stride, channels]` each: weights of the input at hand and of the one before.
    Depthwise {
        now: Tensor,
        before: Tensor,
        bias: Option<Tensor>,
    },
}

/// The last columns of every row, `[rows, columns, channels]`; nothing where a convolution needs no past.
pub struct TensorCarry {
    data: Option<Tensor>,
    replicate: bool,
    fresh: Vec<bool>,
}

/// Index tensors that lay out the windows of a convolution.
#[derive(Default)]
pub(super) struct Gathers(Vec<((ConvShape, usize), Tensor)>);

impl Gathers {
    /// `[t / stride * kernel]`: which column of time each tap of each output reads.
    fn get(&mut self, shape: ConvShape, t: usize, device: &Device) -> Result<Tensor> {
        if let Some((_, gather)) = self.0.iter().find(|(key, _)| *key == (shape, t)) {
            return Ok(gather.clone());
        }
        let tap = |at: usize| {
            (at / shape.kernel * shape.stride + at % shape.kernel * shape.dilation) as u32
        };
        let columns: Vec<u32> = (0..t / shape.stride * shape.kernel).map(tap).collect();
        let gather = Tensor::from_vec(columns, t / shape.stride * shape.kernel, device)?;
        self.0.push(((shape, t), gather.clone()));
        Ok(gather)
    }
}

impl TensorCarry {
    pub(super) fn new(
        rows: usize,
        columns: usize,
        channels: usize,
        replicate: bool,
        device: &Device,
    ) -> Result<Self> {
        let data = match columns {
            0 => None,
            _ => Some(Tensor::zeros(
                (rows, columns, channels),
                DType::F32,
                device,
            )?),
        };
        Ok(Self {
            data,
            replicate,
            fresh: vec![true; rows],
        })
    }

    pub(super) fn reset(&mut self, row: usize) -> Result<()> {
        self.fresh[row] = true;
        match &self.data {
            Some(data) => data.slice_set(&data.narrow(0, row, 1)?.zeros_like()?, 0, row),
            None => Ok(()),
        }
    }

    /// `[lanes, columns + t, channels]`: each lane's past, then its input `x` `[lanes, t, channels]`. Keeps the new past
    /// of the lanes that take part; `active` is `[lanes, 1, 1]`.
    fn splice(&mut self, lanes: &Lanes, active: &Tensor, x: &Tensor) -> Result<Tensor> {
        let all_rows = lanes.len() == self.fresh.len()
            && lanes
                .rows
                .iter()
                .enumerate()
                .all(|(lane, &row)| lane == row);
        if !all_rows {
            candle_core::bail!("lanes must be all {} rows in order", self.fresh.len());
        }
        let fresh: Vec<bool> = self
            .fresh
            .iter()
            .zip(&lanes.active)
            .map(|(&fresh, &active)| fresh && active)
            .collect();
        self.fresh
            .iter_mut()
            .zip(&lanes.active)
            .for_each(|(fresh, &active)| *fresh &= !active);
        let Some(data) = &self.data else {
            return Ok(x.clone());
        };
        let columns = data.dim(1)?;
        let past = if self.replicate && fresh.contains(&true) {
            let copies = x.narrow(1, 0, 1)?.broadcast_as(data.shape())?;
            byte_mask(&fresh, data.device())?
                .broadcast_as(data.shape())?
                .where_cond(&copies, data)?
        } else {
            data.clone()
        };
        let window = Tensor::cat(&[&past, x], 1)?;
        let new = window.narrow(1, window.dim(1)? - columns, columns)?;
        // A choice, not a product: an idle lane may hold anything, and its past must keep its bits.
        data.slice_set(
            &active.broadcast_as(data.shape())?.where_cond(&new, data)?,
            0,
            0,
        )?;
        Ok(window)
    }
}

impl TensorConv {
    /// `weight` is `[out, in, kernel]`.
    pub(super) fn new(
        shape: ConvShape,
        weight: &[f32],
        bias: Option<&[f32]>,
        device: &Device,
    ) -> Result<Self> {
        let (out, taps, channels) = (shape.channels_out, shape.kernel, shape.channels_in);
        // [out, in, kernel] to [out, kernel, in], the order of a time-major window.
        let weight = Tensor::from_slice(weight, (out, channels, taps), device)?
            .transpose(1, 2)?
            .contiguous()?
            .reshape((out, taps * channels))?;
        Ok(Self {
            shape,
            weight: weight.t()?,
            bias: row(bias, device)?,
        })
    }

    /// `x` is `[lanes * t, channels_in]`, the answer `[lanes * t / stride, channels_out]`.
    pub(super) fn step(
        &self,
        carry: &mut TensorCarry,
        gathers: &mut Gathers,
        lanes: &Lanes,
        active: &Tensor,
        x: &Tensor,
    ) -> Result<Tensor> {
        let shape = self.shape;
        let t = x.dim(0)? / lanes.len();
        let window = carry.splice(
            lanes,
            active,
            &x.reshape((lanes.len(), t, shape.channels_in))?,
        )?;
        let window = if shape.kernel == 1 && shape.stride == 1 {
            window
        } else {
            window.index_select(&gathers.get(shape, t, x.device())?, 1)?
        };
        let windows = window.reshape((
            lanes.len() * (t / shape.stride),
            shape.kernel * shape.channels_in,
        ))?;
        add_bias(windows.matmul(&self.weight)?, self.bias.as_ref())
    }
}

impl TensorConvTr {
    /// `weight` is `[in, out, 2 * stride]`, or `[in, 1, 2 * stride]` when depthwise.
    pub(super) fn new(
        shape: ConvTrShape,
        weight: &[f32],
        bias: Option<&[f32]>,
        device: &Device,
    ) -> Result<Self> {
        let (stride, inputs, outputs) = (shape.stride, shape.channels_in, shape.channels_out);
        let kind = if shape.depthwise {
            let taps = Tensor::from_slice(weight, (inputs, 2 * stride), device)?
                .t()?
                .contiguous()?;
            let half = |start| {
                taps.narrow(0, start, stride)?
                    .reshape((1, 1, stride, inputs))
            };
            let bias = row(bias, device)?;
            TransposedKind::Depthwise {
                now: half(0)?,
                before: half(stride)?,
                bias,
            }
        } else {
            // Output j of step t is x[t-1] * w[j + stride] + x[t] * w[j]: one row for each (j, out channel).
            let taps = Tensor::from_slice(weight, (inputs, outputs, 2 * stride), device)?
                .permute((2, 1, 0))?;
            let rows = |start| {
                taps.narrow(0, start, stride)?
                    .contiguous()?
                    .reshape((stride * outputs, inputs))
            };
            let weight = Tensor::cat(&[&rows(stride)?, &rows(0)?], 1)?;
            let bias = bias.map(|bias| bias.repeat(stride));
            TransposedKind::Full {
                weight: weight.t()?,
                bias: row(bias.as_deref(), device)?,
            }
        };
        Ok(Self { shape, kind })
    }

    /// `x` is `[lanes * t, channels_in]`, the answer `[lanes * t * stride, channels_out]`.
    pub(super) fn step(
        &self,
        carry: &mut TensorCarry,
        lanes: &Lanes,
        active: &Tensor,
        x: &Tensor,
    ) -> Result<Tensor> {
        let shape = self.shape;
        let (n, t) = (lanes.len(), x.dim(0)? / lanes.len());
        let window = carry.splice(lanes, active, &x.reshape((n, t, shape.channels_in))?)?; // [n, 1 + t, in]
        let (before, now) = (window.narrow(1, 0, t)?, window.narrow(1, 1, t)?);
        let outputs = (n * t * shape.stride, shape.channels_out);
        match &self.kind {
            TransposedKind::Full { weight, bias } => {
                let pairs =
                    Tensor::cat(&[&before, &now], 2)?.reshape((n * t, 2 * shape.channels_in))?;
                add_bias(pairs.matmul(weight)?, bias.as_ref())?.reshape(outputs)
            }
            TransposedKind::Depthwise {
                now: first,
                before: second,
                bias,
            } => {
                let taps = |x: &Tensor, taps: &Tensor| x.unsqueeze(2)?.broadcast_mul(taps); // [n, t, stride, channels]
                let sum = (taps(&now, first)? + taps(&before, second)?)?;
                add_bias(sum.reshape(outputs)?, bias.as_ref())
            }
        }
    }
}

/// A bias as a row `[1, width]`.
fn row(bias: Option<&[f32]>, device: &Device) -> Result<Option<Tensor>> {
    bias.map(|bias| Tensor::from_slice(bias, (1, bias.len()), device))
        .transpose()
}

fn add_bias(x: Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    match bias {
        Some(bias) => x.broadcast_add(bias),
        None => Ok(x),
    }
}
