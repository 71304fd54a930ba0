//! The CPU backend: the operations of a tick on our own kernels, over plain vectors.
//!
//! Lives here: [`Native`], which lays activations and carries out for `kernels`. Only active rows are computed.
//! May not live here: the arithmetic itself (`kernels`), tensor names, tokens.

use std::ops::Range;
use std::sync::Arc;

use slots::engine::EngineError;

use crate::backend::{
    Backend, ConvShape, ConvTrShape, Data, Done, Heads, Lanes, Query, WriteOrder,
};
use crate::kernels::{
    self, AttendScratch, Codebook, Dtype, Epilogue, KvDtype, KvRing, Matrix, Pool, RingPart, Rope,
    Table, Vectors,
};

/// The network on the CPU.
pub struct Native {
    pool: Pool,
    dtype: Dtype,
    kv_dtype: KvDtype,
    attend: AttendScratch,
    queries: Vec<kernels::Query>,
    /// Input of a convolution with its past in front, `[lanes, carry + t, channels]`.
    window: Vec<f32>,
    /// Windows of a dilated convolution, gathered.
    gathered: Vec<f32>,
    nearest: Vec<f32>,
}

/// Keys and values of one layer with the angles they are turned by.
pub struct NativeRing {
    ring: KvRing,
    rope: Option<Rope>,
    /// Key and value of all heads at one position.
    cell_bytes: usize,
}

/// Cells of one row, saved; cloning shares them.
#[derive(Clone)]
pub struct NativePart {
    cells: Arc<RingPart>,
    bytes: usize,
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

    /// Lays out `[lanes, columns + t, channels]`: each lane's past, then its input; keeps the new past.
    fn splice(&mut self, lanes: &Lanes, x: &[f32], window: &mut Vec<f32>) -> usize {
        let past = self.columns * self.channels;
        let t = x.len() / lanes.len() / self.channels;
        let width = past + t * self.channels;
        window.resize(lanes.len() * width, 0.0);
        for (lane, &row) in lanes.rows.iter().enumerate() {
            let input = &x[lane * t * self.channels..][..t * self.channels];
            let carry = &mut self.data[row * past..][..past];
            if self.fresh[row] && self.replicate {
                for column in carry.chunks_exact_mut(self.channels) {
                    column.copy_from_slice(&input[..self.channels]);
                }
            }
            self.fresh[row] = false;
            let window = &mut window[lane * width..][..width];
            window[..past].copy_from_slice(carry);
            window[past..].copy_from_slice(input);
            carry.copy_from_slice(&window[width - past..]);
        }
        t
    }
}

impl Native {
    /// Matrices of the transformers kept as `dtype`, their keys and values as `kv_dtype`, on `threads` threads.
    pub fn new(dtype: Dtype, kv_dtype: KvDtype, threads: usize) -> Self {
        Self {
            pool: Pool::new(threads),
            dtype,
            kv_dtype,
            attend: AttendScratch::new(),
            queries: Vec::new(),
            window: Vec::new(),
            gathered: Vec::new(),
            nearest: Vec::new(),
        }
    }

    fn matrix(dtype: Dtype, rows: usize, cols: usize, data: &Data<'_>) -> Matrix {
        match data {
            Data::F32(data) => Matrix::from_f32(dtype, rows, cols, data),
            Data::Bf16(bits) => Matrix::from_bf16_bits(dtype, rows, cols, bits),
        }
    }

    fn product(&self, w: &Matrix, x: &[f32], y: &mut [f32], epilogue: Epilogue<'_>) {
        let n = x.len() / w.cols();
        let x = Vectors {
            data: x,
            outer: 1,
            outer_stride: 0,
            inner: n,
            inner_stride: w.cols(),
        };
        kernels::matmul(&self.pool, w, x, y, epilogue);
    }
}

/// Plain product: nothing added, nothing scaled.
const PLAIN: Epilogue<'static> = Epilogue {
    bias: None,
    scale: None,
    add: false,
};

impl Backend for Native {
    type Buf = Vec<f32>;
    type Weight = Matrix;
    type Vector = Vec<f32>;
    type Table = Table;
    type Ring = NativeRing;
    type RingPart = NativePart;
    type Conv = NativeConv;
    type ConvTr = NativeConvTr;
    type Carry = NativeCarry;
    type Codebook = Codebook;

    fn padded(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        format!(
            "cpu, {} threads, weights {:?}, kv {:?}",
            self.pool.threads(),
            self.dtype,
            self.kv_dtype
        )
    }

    fn synchronize(&mut self) -> Done {
        Ok(())
    }

    fn weight(&mut self, rows: usize, cols: usize, data: Data<'_>) -> Result<Matrix, EngineError> {
        Ok(Self::matrix(self.dtype, rows, cols, &data))
    }

    fn weight_f32(
        &mut self,
        rows: usize,
        cols: usize,
        data: Data<'_>,
    ) -> Result<Matrix, EngineError> {
        Ok(Self::matrix(Dtype::F32, rows, cols, &data))
    }

    fn vector(&mut self, data: &[f32]) -> Result<Vec<f32>, EngineError> {
        Ok(data.to_vec())
    }

    fn table(&mut self, rows: usize, dim: usize, data: Data<'_>) -> Result<Table, EngineError> {
        Ok(match (data, self.dtype) {
            (Data::Bf16(bits), _) => Table::from_bf16_bits(rows, dim, &bits),
            (Data::F32(data), _) => Table::from_f32(rows, dim, &data),
        })
    }

    fn table_f32(&mut self, rows: usize, dim: usize, data: Data<'_>) -> Result<Table, EngineError> {
        Ok(Table::from_f32(rows, dim, &data.to_f32()))
    }

    fn conv(
        &mut self,
        shape: ConvShape,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<NativeConv, EngineError> {
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
        Ok(NativeConv {
            shape,
            weight,
            bias: bias.map(<[f32]>::to_vec),
        })
    }

    fn conv_tr(
        &mut self,
        shape: ConvTrShape,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<NativeConvTr, EngineError> {
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
        Ok(NativeConvTr { shape, kind })
    }

    fn codebook(
        &mut self,
        codes: usize,
        dim: usize,
        entries: &[f32],
    ) -> Result<Codebook, EngineError> {
        Ok(Codebook::new(codes, dim, entries))
    }

    fn ring(
        &mut self,
        rows: usize,
        heads: Heads,
        cells: usize,
        codec: bool,
    ) -> Result<NativeRing, EngineError> {
        let dtype = if codec { KvDtype::F32 } else { self.kv_dtype };
        let ring = KvRing::new(dtype, rows, heads.count, heads.dim, cells);
        let rope = heads
            .rope_max_period
            .map(|period| Rope::new(heads.dim, period));
        let number_bytes = if dtype == KvDtype::F32 { 4 } else { 2 };
        Ok(NativeRing {
            ring,
            rope,
            cell_bytes: 2 * heads.count * heads.dim * number_bytes,
        })
    }

    fn ring_save(
        &mut self,
        ring: &NativeRing,
        row: usize,
        cells: Range<usize>,
    ) -> Result<NativePart, EngineError> {
        let bytes = ring.cell_bytes * cells.len();
        Ok(NativePart {
            cells: Arc::new(ring.ring.save(row, cells)),
            bytes,
        })
    }

    fn ring_load(&mut self, ring: &mut NativeRing, row: usize, part: &NativePart) -> Done {
        ring.ring.load(row, &part.cells);
        Ok(())
    }

    fn ring_part_bytes(part: &NativePart) -> usize {
        part.bytes
    }

    fn carry(&mut self, rows: usize, conv: &NativeConv) -> Result<NativeCarry, EngineError> {
        Ok(NativeCarry::new(
            rows,
            conv.shape.carry(),
            conv.shape.channels_in,
            conv.shape.replicate,
        ))
    }

    fn carry_tr(&mut self, rows: usize, conv: &NativeConvTr) -> Result<NativeCarry, EngineError> {
        Ok(NativeCarry::new(rows, 1, conv.shape.channels_in, false))
    }

    fn carry_reset(&mut self, carry: &mut NativeCarry, row: usize) -> Done {
        let past = carry.columns * carry.channels;
        carry.data[row * past..][..past].fill(0.0);
        carry.fresh[row] = true;
        Ok(())
    }

    fn upload(&mut self, data: &[f32], _width: usize, out: &mut Vec<f32>) -> Done {
        out.clear();
        out.extend_from_slice(data);
        Ok(())
    }

    fn download(&mut self, buf: &Vec<f32>, out: &mut Vec<f32>) -> Done {
        out.clear();
        out.extend_from_slice(buf);
        Ok(())
    }

    fn embed_sum(&mut self, tables: &[&Table], ids: &[i32], out: &mut Vec<f32>) -> Done {
        let dim = tables[0].dim();
        out.clear();
        out.resize(ids.len() / tables.len() * dim, 0.0);
        for (ids, sum) in ids
            .chunks_exact(tables.len())
            .zip(out.chunks_exact_mut(dim))
        {
            for (table, &id) in tables.iter().zip(ids) {
                if let Ok(id) = usize::try_from(id) {
                    table.add_row(id, sum);
                }
            }
        }
        Ok(())
    }

    fn embed_add(&mut self, table: &Table, ids: &[i32], inout: &mut Vec<f32>) -> Done {
        for (&id, sum) in ids.iter().zip(inout.chunks_exact_mut(table.dim())) {
            if let Ok(id) = usize::try_from(id) {
                table.add_row(id, sum);
            }
        }
        Ok(())
    }

    fn linear(&mut self, w: &Matrix, x: &Vec<f32>, y: &mut Vec<f32>) -> Done {
        y.resize(x.len() / w.cols() * w.rows(), 0.0);
        self.product(w, x, y, PLAIN);
        Ok(())
    }

    fn linear_add(
        &mut self,
        w: &Matrix,
        x: &Vec<f32>,
        scale: Option<&Vec<f32>>,
        y: &mut Vec<f32>,
    ) -> Done {
        let scale = scale.map(Vec::as_slice);
        self.product(
            w,
            x,
            y,
            Epilogue {
                bias: None,
                scale,
                add: true,
            },
        );
        Ok(())
    }

    fn rms_norm(&mut self, x: &Vec<f32>, alpha: &Vec<f32>, eps: f32, y: &mut Vec<f32>) -> Done {
        y.resize(x.len(), 0.0);
        kernels::rms_norm(x, alpha, eps, y);
        Ok(())
    }

    fn layer_norm(
        &mut self,
        x: &Vec<f32>,
        weight: &Vec<f32>,
        bias: &Vec<f32>,
        eps: f32,
        y: &mut Vec<f32>,
    ) -> Done {
        y.resize(x.len(), 0.0);
        kernels::layer_norm(x, weight, bias, eps, y);
        Ok(())
    }

    fn attend(
        &mut self,
        ring: &mut NativeRing,
        queries: &[Query],
        order: WriteOrder,
        qkv: &Vec<f32>,
        out: &mut Vec<f32>,
    ) -> Done {
        self.queries.clear();
        self.queries
            .extend(queries.iter().map(|query| kernels::Query {
                row: query.row,
                position: query.position,
                first: query.first,
                pinned: query.pinned,
                pinned_rotation: query.pinned_rotation,
            }));
        let order = match order {
            WriteOrder::EachThenAttend => kernels::WriteOrder::EachThenAttend,
            WriteOrder::AllThenAttend => kernels::WriteOrder::AllThenAttend,
        };
        out.resize(qkv.len() / 3, 0.0);
        let NativeRing { ring, rope, .. } = ring;
        kernels::attend(
            &self.pool,
            ring,
            rope.as_ref(),
            &self.queries,
            order,
            qkv,
            out,
            &mut self.attend,
        );
        Ok(())
    }

    fn silu_gate(&mut self, ab: &Vec<f32>, hidden: usize, y: &mut Vec<f32>) -> Done {
        y.resize(ab.len() / 2, 0.0);
        kernels::silu_gate(ab, hidden, y);
        Ok(())
    }

    fn gelu(&mut self, x: &mut Vec<f32>) -> Done {
        kernels::gelu_erf(x);
        Ok(())
    }

    fn elu(&mut self, x: &mut Vec<f32>) -> Done {
        kernels::elu(x);
        Ok(())
    }

    fn add(&mut self, from: &Vec<f32>, to: &mut Vec<f32>) -> Done {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        Ok(())
    }

    fn copy(&mut self, from: &Vec<f32>, to: &mut Vec<f32>) -> Done {
        to.clone_from(from);
        Ok(())
    }

    fn conv_step(
        &mut self,
        conv: &NativeConv,
        carry: &mut NativeCarry,
        lanes: &Lanes,
        x: &Vec<f32>,
        y: &mut Vec<f32>,
        add: bool,
    ) -> Done {
        let shape = conv.shape;
        let (channels, taps) = (shape.channels_in, shape.kernel);
        let t = carry.splice(lanes, x, &mut self.window);
        let columns = t / shape.stride;
        let width = (carry.columns + t) * channels;
        let (n, out) = (lanes.len(), shape.channels_out);
        y.resize(n * columns * out, 0.0);
        let x = if shape.dilation == 1 {
            Vectors {
                data: &self.window,
                outer: n,
                outer_stride: width,
                inner: columns,
                inner_stride: shape.stride * channels,
            }
        } else {
            self.gathered.resize(n * columns * taps * channels, 0.0);
            for (at, window) in self.gathered.chunks_exact_mut(taps * channels).enumerate() {
                let start = at / columns * width + at % columns * shape.stride * channels;
                for (tap, column) in window.chunks_exact_mut(channels).enumerate() {
                    let from = start + tap * shape.dilation * channels;
                    column.copy_from_slice(&self.window[from..][..channels]);
                }
            }
            Vectors {
                data: &self.gathered,
                outer: 1,
                outer_stride: 0,
                inner: n * columns,
                inner_stride: taps * channels,
            }
        };
        let epilogue = Epilogue {
            bias: conv.bias.as_deref(),
            scale: None,
            add,
        };
        kernels::matmul(&self.pool, &conv.weight, x, y, epilogue);
        Ok(())
    }

    fn conv_tr_step(
        &mut self,
        conv: &NativeConvTr,
        carry: &mut NativeCarry,
        lanes: &Lanes,
        x: &Vec<f32>,
        y: &mut Vec<f32>,
    ) -> Done {
        let shape = conv.shape;
        let (channels, stride) = (shape.channels_in, shape.stride);
        let t = carry.splice(lanes, x, &mut self.window);
        let width = (t + 1) * channels;
        y.resize(lanes.len() * t * stride * shape.channels_out, 0.0);
        match &conv.kind {
            ConvTrKind::Full { weight, bias } => {
                let x = Vectors {
                    data: &self.window,
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
                kernels::matmul(&self.pool, weight, x, y, epilogue);
            }
            ConvTrKind::Depthwise { taps, bias } => {
                for (at, out) in y.chunks_exact_mut(stride * channels).enumerate() {
                    let start = at / t * width + at % t * channels;
                    let (before, now) = self.window[start..][..2 * channels].split_at(channels);
                    for (j, out) in out.chunks_exact_mut(channels).enumerate() {
                        let first = &taps[j * channels..][..channels];
                        let second = &taps[(j + stride) * channels..][..channels];
                        for c in 0..channels {
                            let bias = bias.as_ref().map_or(0.0, |bias| bias[c]);
                            out[c] = now[c] * first[c] + before[c] * second[c] + bias;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn quantize(&mut self, book: &Codebook, residual: &mut Vec<f32>, codes: &mut Vec<u32>) -> Done {
        codes.resize(residual.len() / book.dim(), 0);
        book.nearest(&self.pool, residual, codes, &mut self.nearest);
        for (residual, &code) in residual.chunks_exact_mut(book.dim()).zip(codes.iter()) {
            for (value, entry) in residual.iter_mut().zip(book.entry(code as usize)) {
                *value -= entry;
            }
        }
        Ok(())
    }
}
