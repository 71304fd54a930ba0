//! [`Cuda`] as a [`Backend`]: each operation as launches and products of a machine.

use std::ops::Range;

use slots::engine::EngineError;

use crate::backend::KvDtype;
use crate::backend::{
    Backend, ConvShape, ConvTrShape, Data, Done, Heads, Lanes, Query, WriteOrder,
};
use crate::kernels::Dtype;

use super::args::{
    Address, EachArgs, EightBitArgs, EmbedArgs, FinishArgs, GateArgs, Kernel, NearestArgs,
    NormArgs, RoundArgs, TableRef,
};
use super::buffers::{Buf, Codebook, Feed, Numbers, Table, Vector, Weight, blocks, run, stored};
use super::convolve::{Carry, Conv, ConvTr};
use super::machine::{Machine, Product};
use super::queries::Queries;
use super::ring::{self, Ring, RingPart, Splits};

/// Lanes that one block of the 8-bit product computes. Source: `product.cu`.
const EIGHT_BIT_LANES: usize = 8;

/// The network on kernels of our own, on a machine that runs them.
pub struct Cuda<M: Machine> {
    pub(super) machine: M,
    dtype: Dtype,
    kv_dtype: KvDtype,
    feed: Feed<M>,
    queries: Queries<M>,
    splits: Splits<M>,
    /// Lists of tables, as kernels find them.
    tables: Vec<(Vec<Address>, M::Memory)>,
    /// Which lanes took part last, and where the machine has it.
    mask: (Vec<bool>, Buf<M>),
    /// Inputs of a product, rounded.
    rounded: Buf<M>,
    /// A product that is still to be added or scaled.
    raw: Buf<M>,
    pub(super) window_buf: Buf<M>,
    scores: Buf<M>,
    codes: Buf<M>,
}

impl<M: Machine> Cuda<M> {
    /// The transformers' matrices kept as `dtype`, their keys and values as `kv_dtype`; the codec is f32.
    pub fn new(machine: M, dtype: Dtype, kv_dtype: KvDtype) -> Self {
        Self {
            machine,
            dtype,
            kv_dtype,
            feed: Feed::new(),
            queries: Queries::new(),
            splits: Splits::default(),
            tables: Vec::new(),
            mask: (Vec::new(), Buf::default()),
            rounded: Buf::default(),
            raw: Buf::default(),
            window_buf: Buf::default(),
            scores: Buf::default(),
            codes: Buf::default(),
        }
    }

    /// `y = [y +] scale ⊙ (x Wᵀ) + bias`.
    pub(super) fn product(
        &mut self,
        w: &Weight<M>,
        x: &Buf<M>,
        scale: Option<&Vector<M>>,
        bias: Option<&Vector<M>>,
        add: bool,
        y: &mut Buf<M>,
    ) -> Done {
        let lanes = x.len() / w.cols;
        let count = lanes * w.rows;
        let plain = scale.is_none() && bias.is_none() && !add;
        if !add {
            y.resize(&mut self.machine, count)?;
        }
        if y.len() != count || lanes * w.cols != x.len() {
            return Err(EngineError {
                what: format!(
                    "a product of {} numbers with {} x {} does not give {}",
                    x.len(),
                    w.rows,
                    w.cols,
                    y.len()
                ),
            });
        }
        let to = match plain {
            true => y.address(),
            false => {
                self.raw.resize(&mut self.machine, count)?;
                self.raw.address()
            }
        };
        self.raw_product(w, x, lanes, to)?;
        if plain {
            return Ok(());
        }
        let args = FinishArgs {
            y: y.address(),
            product: to,
            scale: scale.map_or(0, Vector::address),
            bias: bias.map_or(0, Vector::address),
            count: count as i64,
            width: w.rows as i32,
            add: add.into(),
        };
        run(&mut self.machine, Kernel::Finish, [blocks(count), 1], &args)
    }

    fn raw_product(&mut self, w: &Weight<M>, x: &Buf<M>, lanes: usize, y: Address) -> Done {
        let (outputs, inputs) = (w.rows, w.cols);
        let product = |weights: &M::Memory, x, half| Product {
            weights: M::address(weights),
            x,
            y,
            lanes,
            outputs,
            inputs,
            half,
        };
        match &w.numbers {
            Numbers::F32(weights) => self.machine.product(product(weights, x.address(), false)),
            Numbers::Bf16(weights) => {
                // Two bytes each in room for four.
                self.rounded
                    .resize(&mut self.machine, x.len().div_ceil(2))?;
                let args = RoundArgs {
                    x: x.address(),
                    y: self.rounded.address(),
                    count: x.len() as i64,
                };
                run(
                    &mut self.machine,
                    Kernel::RoundBf16,
                    [blocks(x.len()), 1],
                    &args,
                )?;
                self.machine
                    .product(product(weights, self.rounded.address(), true))
            }
            Numbers::EightBit {
                bytes,
                scales,
                blocks,
            } => {
                let args = EightBitArgs {
                    weights: M::address(bytes),
                    scales: M::address(scales),
                    x: x.address(),
                    y,
                    lanes: lanes as i32,
                    outputs: outputs as i32,
                    inputs: inputs as i32,
                    blocks: *blocks as i32,
                };
                let grid = [outputs as u32, lanes.div_ceil(EIGHT_BIT_LANES) as u32];
                run(&mut self.machine, Kernel::EightBit, grid, &args)
            }
        }
    }

    /// Where the machine has which lanes take part.
    pub(super) fn mask(&mut self, active: &[bool]) -> Result<Address, EngineError> {
        if self.mask.0 != active {
            let bytes: Vec<i32> = active.iter().map(|&active| active.into()).collect();
            self.mask
                .1
                .put(&mut self.machine, bytemuck::cast_slice(&bytes))?;
            self.mask.0 = active.to_vec();
        }
        Ok(self.mask.1.address())
    }

    fn embed(&mut self, tables: &[&Table<M>], ids: &[i32], out: &mut Buf<M>, add: bool) -> Done {
        let dim = tables[0].dim;
        for ids in ids.chunks_exact(tables.len()) {
            let beyond = ids
                .iter()
                .zip(tables)
                .find(|(id, table)| **id >= table.rows as i32);
            if let Some((id, table)) = beyond {
                return Err(EngineError {
                    what: format!("id {id} is out of range, the table has {}", table.rows),
                });
            }
        }
        let key: Vec<Address> = tables
            .iter()
            .map(|table| M::address(&table.entries))
            .collect();
        let list = match self.tables.iter().find(|(known, _)| *known == key) {
            Some((_, memory)) => M::address(memory),
            None => {
                let refs: Vec<TableRef> = tables
                    .iter()
                    .map(|table| TableRef {
                        entries: M::address(&table.entries),
                        rows: table.rows as i32,
                        kind: table.kind as i32,
                    })
                    .collect();
                let memory = stored(&mut self.machine, bytemuck::cast_slice(&refs))?;
                let address = M::address(&memory);
                self.tables.push((key, memory));
                address
            }
        };
        let n = ids.len() / tables.len();
        if !add {
            out.resize(&mut self.machine, n * dim)?;
        }
        let args = EmbedArgs {
            out: out.address(),
            ids: self
                .feed
                .put(&mut self.machine, bytemuck::cast_slice(ids))?,
            tables: list,
            table_count: tables.len() as i32,
            dim: dim as i32,
            add: add.into(),
            pad: 0,
        };
        let grid = [blocks(dim), n as u32];
        run(&mut self.machine, Kernel::Embed, grid, &args)
    }

    fn norm(
        &mut self,
        kernel: Kernel,
        x: &Buf<M>,
        (weight, bias): (&Vector<M>, Option<&Vector<M>>),
        eps: f32,
        y: &mut Buf<M>,
    ) -> Done {
        y.resize(&mut self.machine, x.len())?;
        let args = NormArgs {
            x: x.address(),
            y: y.address(),
            weight: weight.address(),
            bias: bias.map_or(0, Vector::address),
            dim: weight.len as i32,
            eps,
        };
        let vectors = (x.len() / weight.len) as u32;
        run(&mut self.machine, kernel, [vectors, 1], &args)
    }

    fn each(&mut self, kernel: Kernel, from: Address, to: &Buf<M>) -> Done {
        let args = EachArgs {
            from,
            to: to.address(),
            count: to.len() as i64,
        };
        run(&mut self.machine, kernel, [blocks(to.len()), 1], &args)
    }
}

impl<M: Machine> Backend for Cuda<M> {
    type Buf = Buf<M>;
    type Weight = Weight<M>;
    type Vector = Vector<M>;
    type Table = Table<M>;
    type Ring = Ring<M>;
    type RingPart = RingPart<M>;
    type Conv = Conv<M>;
    type ConvTr = ConvTr<M>;
    type Carry = Carry<M>;
    type Codebook = Codebook<M>;

    fn padded(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        let machine = self.machine.describe();
        format!("{machine}, weights {}, kv {}", self.dtype, self.kv_dtype)
    }

    fn synchronize(&mut self) -> Done {
        self.machine.synchronize()
    }

    fn weight(
        &mut self,
        rows: usize,
        cols: usize,
        data: Data<'_>,
    ) -> Result<Weight<M>, EngineError> {
        Weight::new(&mut self.machine, self.dtype, (rows, cols), &data)
    }

    fn weight_f32(
        &mut self,
        rows: usize,
        cols: usize,
        data: Data<'_>,
    ) -> Result<Weight<M>, EngineError> {
        Weight::new(&mut self.machine, Dtype::F32, (rows, cols), &data)
    }

    fn vector(&mut self, data: &[f32]) -> Result<Vector<M>, EngineError> {
        Vector::new(&mut self.machine, data)
    }

    fn table(&mut self, rows: usize, dim: usize, data: Data<'_>) -> Result<Table<M>, EngineError> {
        let half = matches!(data, Data::Bf16(_)) || self.dtype == Dtype::Bf16;
        Table::new(&mut self.machine, (rows, dim), &data, half)
    }

    fn table_f32(
        &mut self,
        rows: usize,
        dim: usize,
        data: Data<'_>,
    ) -> Result<Table<M>, EngineError> {
        Table::new(&mut self.machine, (rows, dim), &data, false)
    }

    fn conv(
        &mut self,
        shape: ConvShape,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<Conv<M>, EngineError> {
        Conv::new(&mut self.machine, shape, weight, bias)
    }

    fn conv_tr(
        &mut self,
        shape: ConvTrShape,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<ConvTr<M>, EngineError> {
        ConvTr::new(&mut self.machine, shape, weight, bias)
    }

    fn codebook(
        &mut self,
        codes: usize,
        dim: usize,
        entries: &[f32],
    ) -> Result<Codebook<M>, EngineError> {
        Codebook::new(&mut self.machine, codes, dim, entries)
    }

    fn ring(
        &mut self,
        rows: usize,
        heads: Heads,
        cells: usize,
        codec: bool,
    ) -> Result<Ring<M>, EngineError> {
        let kept = if codec { KvDtype::F32 } else { self.kv_dtype };
        Ring::new(&mut self.machine, rows, heads, cells, kept)
    }

    fn ring_save(
        &mut self,
        ring: &Ring<M>,
        row: usize,
        cells: Range<usize>,
    ) -> Result<RingPart<M>, EngineError> {
        ring.save(&mut self.machine, row, cells)
    }

    fn ring_load(&mut self, ring: &mut Ring<M>, row: usize, part: &RingPart<M>) -> Done {
        ring.load(&mut self.machine, row, part)
    }

    fn ring_part_bytes(part: &RingPart<M>) -> usize {
        part.bytes()
    }

    fn carry(&mut self, rows: usize, conv: &Conv<M>) -> Result<Carry<M>, EngineError> {
        let ConvShape {
            channels_in,
            replicate,
            ..
        } = conv.shape;
        let columns = conv.shape.carry();
        Carry::new(&mut self.machine, rows, columns, channels_in, replicate)
    }

    fn carry_tr(&mut self, rows: usize, conv: &ConvTr<M>) -> Result<Carry<M>, EngineError> {
        Carry::new(&mut self.machine, rows, 1, conv.shape.channels_in, false)
    }

    fn carry_reset(&mut self, carry: &mut Carry<M>, row: usize) -> Done {
        carry.reset(&mut self.machine, row)
    }

    fn upload(&mut self, data: &[f32], _width: usize, out: &mut Buf<M>) -> Done {
        out.put(&mut self.machine, bytemuck::cast_slice(data))
    }

    fn download(&mut self, buf: &Buf<M>, out: &mut Vec<f32>) -> Done {
        if buf.address() == 0 {
            return Err(EngineError {
                what: "a buffer was read before it was written".into(),
            });
        }
        out.clear();
        out.resize(buf.len(), 0.0);
        self.machine
            .read(buf.address(), bytemuck::cast_slice_mut(out))
    }

    fn embed_sum(&mut self, tables: &[&Table<M>], ids: &[i32], out: &mut Buf<M>) -> Done {
        self.embed(tables, ids, out, false)
    }

    fn embed_add(&mut self, table: &Table<M>, ids: &[i32], inout: &mut Buf<M>) -> Done {
        self.embed(&[table], ids, inout, true)
    }

    fn linear(&mut self, w: &Weight<M>, x: &Buf<M>, y: &mut Buf<M>) -> Done {
        self.product(w, x, None, None, false, y)
    }

    fn linear_add(
        &mut self,
        w: &Weight<M>,
        x: &Buf<M>,
        scale: Option<&Vector<M>>,
        y: &mut Buf<M>,
    ) -> Done {
        self.product(w, x, scale, None, true, y)
    }

    fn rms_norm(&mut self, x: &Buf<M>, alpha: &Vector<M>, eps: f32, y: &mut Buf<M>) -> Done {
        self.norm(Kernel::RmsNorm, x, (alpha, None), eps, y)
    }

    fn layer_norm(
        &mut self,
        x: &Buf<M>,
        weight: &Vector<M>,
        bias: &Vector<M>,
        eps: f32,
        y: &mut Buf<M>,
    ) -> Done {
        self.norm(Kernel::LayerNorm, x, (weight, Some(bias)), eps, y)
    }

    fn attend(
        &mut self,
        ring: &mut Ring<M>,
        queries: &[Query],
        order: WriteOrder,
        qkv: &Buf<M>,
        out: &mut Buf<M>,
    ) -> Done {
        let Self {
            machine,
            queries: plans,
            splits,
            ..
        } = self;
        ring::attend(machine, plans, splits, ring, queries, order, qkv, out)
    }

    fn silu_gate(&mut self, ab: &Buf<M>, hidden: usize, y: &mut Buf<M>) -> Done {
        let count = ab.len() / 2;
        y.resize(&mut self.machine, count)?;
        let args = GateArgs {
            ab: ab.address(),
            y: y.address(),
            count: count as i64,
            hidden: hidden as i32,
            pad: 0,
        };
        run(
            &mut self.machine,
            Kernel::SiluGate,
            [blocks(count), 1],
            &args,
        )
    }

    fn gelu(&mut self, x: &mut Buf<M>) -> Done {
        self.each(Kernel::Gelu, x.address(), x)
    }

    fn elu(&mut self, x: &mut Buf<M>) -> Done {
        self.each(Kernel::Elu, x.address(), x)
    }

    fn add(&mut self, from: &Buf<M>, to: &mut Buf<M>) -> Done {
        self.each(Kernel::AddTo, from.address(), to)
    }

    fn copy(&mut self, from: &Buf<M>, to: &mut Buf<M>) -> Done {
        to.resize(&mut self.machine, from.len())?;
        let bytes = 4 * from.len();
        self.machine.copy(super::machine::Pieces {
            from: from.address(),
            from_stride: bytes,
            to: to.address(),
            to_stride: bytes,
            bytes,
            count: 1,
        })
    }

    fn conv_step(
        &mut self,
        conv: &Conv<M>,
        carry: &mut Carry<M>,
        lanes: &Lanes,
        x: &Buf<M>,
        y: &mut Buf<M>,
        add: bool,
    ) -> Done {
        self.convolve(conv, carry, lanes, x, y, add)
    }

    fn conv_tr_step(
        &mut self,
        conv: &ConvTr<M>,
        carry: &mut Carry<M>,
        lanes: &Lanes,
        x: &Buf<M>,
        y: &mut Buf<M>,
    ) -> Done {
        self.convolve_tr(conv, carry, lanes, x, y)
    }

    fn quantize(
        &mut self,
        book: &Codebook<M>,
        residual: &mut Buf<M>,
        codes: &mut Vec<u32>,
    ) -> Done {
        let n = residual.len() / book.dim;
        self.scores.resize(&mut self.machine, n * book.codes)?;
        self.codes.resize(&mut self.machine, n)?;
        self.machine.product(Product {
            weights: M::address(&book.entries),
            x: residual.address(),
            y: self.scores.address(),
            lanes: n,
            outputs: book.codes,
            inputs: book.dim,
            half: false,
        })?;
        let args = NearestArgs {
            scores: self.scores.address(),
            bias: M::address(&book.bias),
            entries: M::address(&book.entries),
            residual: residual.address(),
            codes: self.codes.address(),
            count: book.codes as i32,
            dim: book.dim as i32,
        };
        run(&mut self.machine, Kernel::Nearest, [n as u32, 1], &args)?;
        codes.clear();
        codes.resize(n, 0);
        self.machine
            .read(self.codes.address(), bytemuck::cast_slice_mut(codes))
    }
}
