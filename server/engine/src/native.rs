//! The CPU backend: the operations of a tick on our own kernels, over plain vectors.
//!
//! Lives here: [`Native`], which lays activations and carries out for `kernels`. Only active rows are computed.
//! May not live here: the arithmetic itself (`kernels`), how a convolution becomes a product (`conv.rs`), tensor names,
//! tokens.

mod conv;

use std::ops::Range;
use std::sync::Arc;

use slots::engine::EngineError;

use crate::backend::{
    Backend, ConvShape, ConvTrShape, Data, Done, Heads, KvDtype, Lanes, Query, WriteOrder,
};
use crate::kernels::{
    self, AttendScratch, Codebook, Dtype, Epilogue, KvRing, Matrix, Pool, RingPart, Rope, Table,
    Vectors,
};

/// The network on the CPU.
pub struct Native {
    pool: Pool,
    dtype: Dtype,
    kv_dtype: KvDtype,
    attend: AttendScratch,
    queries: Vec<kernels::Query>,
    windows: Windows,
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

use conv::Windows;
pub use conv::{NativeCarry, NativeConv, NativeConvTr};

impl Native {
    /// Matrices of the transformers kept as `dtype`, their keys and values as `kv_dtype`, on `threads` threads.
    pub fn new(dtype: Dtype, kv_dtype: KvDtype, threads: usize) -> Self {
        Self {
            pool: Pool::new(threads),
            dtype,
            kv_dtype,
            attend: AttendScratch::new(),
            queries: Vec::new(),
            windows: Windows::default(),
            nearest: Vec::new(),
        }
    }

    fn matrix(&self, dtype: Dtype, rows: usize, cols: usize, data: &Data<'_>) -> Matrix {
        match data {
            Data::F32(data) => Matrix::from_f32_on(&self.pool, dtype, rows, cols, data),
            Data::Bf16(bits) => Matrix::from_bf16_bits_on(&self.pool, dtype, rows, cols, bits),
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
            "cpu, {} threads, weights {}, kv {}",
            self.pool.threads(),
            self.dtype,
            self.kv_dtype
        )
    }

    fn synchronize(&mut self) -> Done {
        Ok(())
    }

    fn weight(&mut self, rows: usize, cols: usize, data: Data<'_>) -> Result<Matrix, EngineError> {
        Ok(self.matrix(self.dtype, rows, cols, &data))
    }

    fn weight_f32(
        &mut self,
        rows: usize,
        cols: usize,
        data: Data<'_>,
    ) -> Result<Matrix, EngineError> {
        Ok(self.matrix(Dtype::F32, rows, cols, &data))
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
        Ok(NativeConv::new(shape, weight, bias))
    }

    fn conv_tr(
        &mut self,
        shape: ConvTrShape,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<NativeConvTr, EngineError> {
        Ok(NativeConvTr::new(shape, weight, bias))
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
        let kept = match dtype {
            KvDtype::F32 => kernels::KvDtype::F32,
            KvDtype::Bf16 => kernels::KvDtype::Bf16,
            KvDtype::Fp8 => {
                return Err(EngineError {
                    what: "keys and values in fp8 need a GPU; use bf16 or f32 on the CPU".into(),
                });
            }
        };
        let ring = KvRing::new(kept, rows, heads.count, heads.dim, cells);
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
        Ok(conv.carry(rows))
    }

    fn carry_tr(&mut self, rows: usize, conv: &NativeConvTr) -> Result<NativeCarry, EngineError> {
        Ok(conv.carry(rows))
    }

    fn carry_reset(&mut self, carry: &mut NativeCarry, row: usize) -> Done {
        carry.reset(row);
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
        kernels::silu_gate(&self.pool, ab, hidden, y);
        Ok(())
    }

    fn gelu(&mut self, x: &mut Vec<f32>) -> Done {
        kernels::gelu_erf(&self.pool, x);
        Ok(())
    }

    fn elu(&mut self, x: &mut Vec<f32>) -> Done {
        kernels::elu(&self.pool, x);
        Ok(())
    }

    fn add(&mut self, from: &Vec<f32>, to: &mut Vec<f32>) -> Done {
        self.pool.pieces(to, 1, &|start, to| {
            to.iter_mut()
                .zip(&from[start..])
                .for_each(|(to, from)| *to += from);
        });
        Ok(())
    }

    fn copy(&mut self, from: &Vec<f32>, to: &mut Vec<f32>) -> Done {
        to.resize(from.len(), 0.0);
        self.pool.pieces(to, 1, &|start, to| {
            to.copy_from_slice(&from[start..][..to.len()]);
        });
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
        conv.step(&self.pool, &mut self.windows, carry, lanes, x, y, add);
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
        conv.step(&self.pool, &mut self.windows, carry, lanes, x, y);
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
