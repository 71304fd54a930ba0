//! Every operation of a backend against the CPU's own kernels, on numbers of published widths and at the edges of
//! windows: what is asked of a GPU before whole networks are.
//!
//! May not live here: recordings, networks.

use slots::call::Sampling;
use slots::engine::EngineError;

use crate::backend::{
    Backend, Board, ConvShape, ConvTrShape, Data, Done, Draw, Heads, KvDtype, Lanes, Query,
    WriteOrder,
};
use crate::kernels::Dtype;
use crate::model::{RingRule, Window};
use crate::native::Native;
use crate::sampling::{RowSampler, Scratch, philox, uniform};

use super::{Report, VerifyError};

/// Relative root mean square of f32 sums in another order.
const SAME: f64 = 2e-6;
/// The same with inputs and weights of 8 bits of mantissa.
const HALF: f64 = 6e-3;
/// The same with keys and values of 3 bits of mantissa.
const EIGHTH: f64 = 6e-2;

const ROWS: usize = 3;

/// Compares backend `make()` with the CPU's kernels in f32.
///
/// # Errors
/// [`VerifyError`]: the device failed; a difference is a failed check.
pub fn verify_kernels<B: Backend>(
    dtype: Dtype,
    kv_dtype: KvDtype,
    make: &mut dyn FnMut() -> Result<B, EngineError>,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, VerifyError> {
    let mut found = Bench(make()?, Noise(0));
    let mut right = Bench(Native::new(Dtype::F32, KvDtype::F32, 1), Noise(0));
    let mut report = Report::default();
    let weights = match dtype {
        Dtype::F32 => SAME,
        _ => HALF,
    };
    let window = match kv_dtype {
        KvDtype::F32 => SAME,
        KvDtype::Bf16 => HALF,
        KvDtype::Fp8 => EIGHTH,
    };
    progress("products");
    for (n, cols, rows) in [
        (1, 96, 40),
        (8, 4_096, 1_024),
        (64, 1_024, 3_072),
        (13, 352, 513),
    ] {
        let what = format!("{n} x {cols} by {rows}");
        report.close(
            "product",
            &what,
            found.linear(n, cols, rows)?,
            right.linear(n, cols, rows)?,
            weights,
        );
    }
    progress("norms and activations");
    for width in [32, 512, 4_096] {
        for ((what, found), (_, right)) in found.plain(width)?.into_iter().zip(right.plain(width)?)
        {
            report.close(what, &format!("{width} wide"), found, right, SAME);
        }
    }
    progress("attention");
    for (heads, dim) in [(4, 128), (2, 64), (3, 20)] {
        for pinned in [0, 7] {
            let what = format!("{heads} heads of {dim}, {pinned} pinned");
            let found = found.attend(heads, dim, pinned)?;
            report.close(
                "attention",
                &what,
                found,
                right.attend(heads, dim, pinned)?,
                window,
            );
        }
    }
    progress("convolutions");
    for ((what, found), (_, right)) in found.convolutions()?.into_iter().zip(right.convolutions()?)
    {
        report.close("convolution", what, found, right, SAME);
    }
    progress("nearest codes");
    report.equal(
        "nearest code",
        "2,048 of 256",
        &found.codes()?,
        &right.codes()?,
    );
    if found.0.deferred() {
        progress("draws");
        for (what, found, right) in found.draws()? {
            report.equal("draw", what, &found, &right);
        }
    }
    Ok(report)
}

impl Report {
    fn close(&mut self, topic: &str, what: &str, found: Vec<f32>, right: Vec<f32>, most: f64) {
        self.relative(topic, what, &found, &right, Some(most));
    }
}

/// The same numbers for everybody, in -1..1.
struct Noise(u32);

impl Noise {
    fn take(&mut self, count: usize) -> Vec<f32> {
        self.0 += 1;
        (0..count as u32)
            .map(|at| 2.0 * uniform(philox([at, self.0, 0, 0], [3, 4])[0]) - 1.0)
            .collect()
    }
}

/// A backend and what it is fed.
struct Bench<B: Backend>(B, Noise);

impl<B: Backend> Bench<B> {
    fn up(&mut self, count: usize, width: usize) -> Result<B::Buf, EngineError> {
        let data = self.1.take(count * width);
        let mut buf = B::Buf::default();
        self.0.upload(&data, width, &mut buf)?;
        Ok(buf)
    }

    fn down(&mut self, buf: &B::Buf) -> Result<Vec<f32>, EngineError> {
        let mut data = Vec::new();
        self.0.download(buf, &mut data)?;
        Ok(data)
    }

    /// A product, and one that is added.
    fn linear(&mut self, n: usize, cols: usize, rows: usize) -> Result<Vec<f32>, EngineError> {
        let weight = self.1.take(rows * cols);
        let weight = self.0.weight(rows, cols, Data::F32(weight.into()))?;
        let x = self.up(n, cols)?;
        let mut y = self.up(n, rows)?;
        self.0.linear_add(&weight, &x, None, &mut y)?;
        let mut all = self.down(&y)?;
        self.0.linear(&weight, &x, &mut y)?;
        all.extend(self.down(&y)?);
        Ok(all)
    }

    fn plain(&mut self, width: usize) -> Result<Vec<(&'static str, Vec<f32>)>, EngineError> {
        let x = self.up(5, width)?;
        let (weight, bias) = (self.1.take(width), self.1.take(width));
        let (weight, bias) = (self.0.vector(&weight)?, self.0.vector(&bias)?);
        let mut y = B::Buf::default();
        let mut all = Vec::new();
        self.0.rms_norm(&x, &weight, 1e-8, &mut y)?;
        all.push(("rms norm", self.down(&y)?));
        self.0.layer_norm(&x, &weight, &bias, 1e-5, &mut y)?;
        all.push(("layer norm", self.down(&y)?));
        self.0.gelu(&mut y)?;
        all.push(("gelu", self.down(&y)?));
        self.0.elu(&mut y)?;
        all.push(("elu", self.down(&y)?));
        let both = self.up(5, 2 * width)?;
        self.0.silu_gate(&both, width, &mut y)?;
        all.push(("gate", self.down(&y)?));
        Ok(all)
    }

    /// Rows at the edges of a window of several blocks: the first positions, the ends of blocks, a full ring, a wrapped
    /// one.
    fn attend(&mut self, heads: usize, dim: usize, pinned: usize) -> Result<Vec<f32>, EngineError> {
        const CELLS: usize = 600;
        let shape = Heads {
            count: heads,
            dim,
            rope_max_period: Some(10_000.0),
        };
        let window = Window {
            context: CELLS,
            rule: RingRule::Full,
        };
        let mut ring = self.0.ring(1, shape, CELLS, false)?;
        let mut out = B::Buf::default();
        let mut all = Vec::new();
        for position in 0..2 * CELLS as u64 + 9 {
            let edges = [0, 1, 31, 255, 256, 257, CELLS as u64 - 1, CELLS as u64];
            let qkv = self.up(1, 3 * heads * dim)?;
            let query: Query = window.pinned_query(0, position, pinned);
            let order = WriteOrder::AllThenAttend;
            self.0.attend(&mut ring, &[query], order, &qkv, &mut out)?;
            if edges.contains(&position) || position > 2 * CELLS as u64 {
                all.extend(self.down(&out)?);
            }
        }
        Ok(all)
    }

    fn convolutions(&mut self) -> Result<Vec<(&'static str, Vec<f32>)>, EngineError> {
        let plain = |channels_in, channels_out, kernel, stride| ConvShape {
            channels_in,
            channels_out,
            kernel,
            stride,
            dilation: 1,
            replicate: false,
        };
        let shapes = [
            ("seven taps", plain(1, 64, 7, 1), 1_920),
            ("eight strides", plain(64, 128, 8, 4), 96),
            (
                "downsampling",
                ConvShape {
                    replicate: true,
                    ..plain(512, 512, 4, 2)
                },
                2,
            ),
            (
                "dilated",
                ConvShape {
                    dilation: 3,
                    ..plain(64, 32, 3, 1)
                },
                40,
            ),
            ("one tap", plain(32, 64, 1, 1), 40),
        ];
        let mut all = Vec::new();
        for (what, shape, t) in shapes {
            let weight = self
                .1
                .take(shape.channels_out * shape.channels_in * shape.kernel);
            let bias = self.1.take(shape.channels_out);
            let conv = self.0.conv(shape, &weight, Some(&bias))?;
            let mut carry = self.0.carry(ROWS, &conv)?;
            let run = |bench: &mut Self, lanes: &Lanes, x: &B::Buf, y: &mut B::Buf| {
                bench.0.conv_step(&conv, &mut carry, lanes, x, y, false)
            };
            all.push((what, self.steps(shape.channels_in, t, run)?));
        }
        for (what, channels_in, channels_out, stride, depthwise) in [
            ("transposed", 128, 64, 8, false),
            ("upsampling", 512, 512, 2, true),
        ] {
            let shape = ConvTrShape {
                channels_in,
                channels_out,
                stride,
                depthwise,
            };
            let weight = channels_in * if depthwise { 1 } else { channels_out } * 2 * stride;
            let weight = self.1.take(weight);
            let conv = self.0.conv_tr(shape, &weight, None)?;
            let mut carry = self.0.carry_tr(ROWS, &conv)?;
            let run = |bench: &mut Self, lanes: &Lanes, x: &B::Buf, y: &mut B::Buf| {
                bench.0.conv_tr_step(&conv, &mut carry, lanes, x, y)
            };
            all.push((what, self.steps(channels_in, 5, run)?));
        }
        Ok(all)
    }

    /// Some steps of rows that take turns; what the active ones got.
    fn steps(
        &mut self,
        channels: usize,
        t: usize,
        mut run: impl FnMut(&mut Self, &Lanes, &B::Buf, &mut B::Buf) -> Done,
    ) -> Result<Vec<f32>, EngineError> {
        let mut all = Vec::new();
        for live in [&[0, 1, 2][..], &[1], &[0, 2], &[0, 1, 2]] {
            let frames = self.1.take(ROWS * t * channels);
            let mut lanes = Lanes::default();
            lanes.set(live, ROWS, self.0.padded());
            let mut x = Vec::new();
            for &row in &lanes.rows {
                x.extend_from_slice(&frames[row * t * channels..][..t * channels]);
            }
            let (mut input, mut y) = (B::Buf::default(), B::Buf::default());
            self.0.upload(&x, channels, &mut input)?;
            self.0.set_lanes(&lanes)?;
            run(self, &lanes, &input, &mut y)?;
            let y = self.down(&y)?;
            let width = y.len() / lanes.len();
            let active = y.chunks_exact(width).zip(&lanes.active);
            all.extend(
                active
                    .filter(|(_, active)| **active)
                    .flat_map(|(y, _)| y.to_vec()),
            );
        }
        Ok(all)
    }

    fn codes(&mut self) -> Result<Vec<u32>, EngineError> {
        let entries = self.1.take(2_048 * 256);
        let book = self.0.codebook(2_048, 256, &entries)?;
        let mut residual = self.up(24, 256)?;
        let (mut all, mut codes) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            self.0.quantize(&book, &mut residual, &mut codes)?;
            all.extend_from_slice(&codes);
        }
        Ok(all)
    }

    /// What the device draws from logits of the published sizes, and what the CPU draws from the same.
    #[allow(clippy::type_complexity)]
    fn draws(&mut self) -> Result<Vec<(&'static str, Vec<i32>, Vec<i32>)>, EngineError> {
        const LANES: usize = 16;
        let mut all = Vec::new();
        let mut scratch = Scratch::default();
        for (what, count, top_k, temperature) in [
            ("text", 32_000, 25, 0.7),
            ("code", 2_048, 250, 0.8),
            ("greedy", 2_048, 1, 0.0),
            ("every code", 2_048, 2_048, 1.5),
        ] {
            let mut logits = self.1.take(LANES * count);
            // Coarse, so that many tie.
            logits
                .iter_mut()
                .for_each(|logit| *logit = (*logit * 40.0).round() / 4.0);
            let row = |lane: usize| {
                RowSampler::new(Sampling {
                    text_temperature: temperature,
                    text_top_k: top_k,
                    seed: 77 + lane as u64,
                    ..Sampling::default()
                })
            };
            let position = |lane: usize| 1_000 * lane as u64;
            let mut right = Vec::new();
            for (lane, logits) in logits.chunks_exact(count).enumerate() {
                let drawn = row(lane).text(position(lane), logits, &mut scratch);
                right.push(drawn.map_or(-1, |token| token as i32));
            }
            let draws: Vec<Draw<'_>> = (0..LANES)
                .map(|lane| Draw {
                    active: true,
                    seed: 77 + lane as u64,
                    position: position(lane),
                    stream: 0,
                    temperature,
                    top_k,
                    penalty: 1.0,
                    recent: &[],
                    forced: None,
                })
                .collect();
            let mut buf = B::Buf::default();
            self.0.upload(&logits, count, &mut buf)?;
            self.0.choose_to(&draws, &buf, 0)?;
            let mut board = Board::default();
            self.0.read_board(&mut board)?;
            let found = (0..LANES).map(|lane| board.chosen(0, lane)).collect();
            all.push((what, found, right));
        }
        Ok(all)
    }
}
