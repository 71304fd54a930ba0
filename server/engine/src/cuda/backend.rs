//! [`Cuda`] as a [`Backend`]: each operation as launches and products of a machine.

use std::ops::Range;

use slots::engine::EngineError;

use crate::backend::KvDtype;
use crate::backend::{
    Backend, Board, ConvShape, ConvTrShape, Data, Done, Draw, Heads, Lanes, Query, WriteOrder,
};
use crate::kernels::Dtype;

use super::args::{Address, GateArgs, Kernel, SampleArgs};
use super::buffers::{Buf, Codebook, Table, Vector, Weight, blocks, run};
use super::convolve::{Carry, Conv, ConvTr};
use super::machine::Machine;
use super::queries::Queries;
use super::ring::{self, Ring, RingPart, Splits};
use super::sample;
use super::tape::{Tape, TapeCounts};

/// The network on kernels of our own, on a machine that runs them.
pub struct Cuda<M: Machine> {
    pub(super) machine: Tape<M>,
    pub(super) dtype: Dtype,
    pub(super) kv_dtype: KvDtype,
    /// `[slots, planes, lanes]`.
    pub(super) board: Buf<Tape<M>>,
    pub(super) board_lanes: usize,
    pub(super) draws: sample::Scratch,
    pub(super) queries: Queries<M>,
    pub(super) splits: Splits<Tape<M>>,
    /// Lists of tables, as kernels find them.
    pub(super) tables: Vec<(Vec<Address>, M::Memory)>,
    /// Which lanes took part last, and where the machine has it.
    pub(super) mask: (Vec<bool>, Address),
    /// Inputs of a product, rounded.
    pub(super) rounded: Buf<Tape<M>>,
    /// A product that is still to be added or scaled.
    pub(super) raw: Buf<Tape<M>>,
    pub(super) window_buf: Buf<Tape<M>>,
    pub(super) scores: Buf<Tape<M>>,
    pub(super) codes: Buf<Tape<M>>,
    /// The board and what else a tick gives, and the same on the host.
    gathered: Buf<Tape<M>>,
    read: Vec<i32>,
}

impl<M: Machine> Cuda<M> {
    /// The transformers' matrices kept as `dtype`, their keys and values as `kv_dtype`; the codec is f32.
    pub fn new(machine: M, dtype: Dtype, kv_dtype: KvDtype) -> Self {
        Self {
            machine: Tape::new(machine),
            dtype,
            kv_dtype,
            board: Buf::default(),
            board_lanes: 0,
            draws: sample::Scratch::default(),
            queries: Queries::new(),
            splits: Splits::default(),
            tables: Vec::new(),
            mask: (Vec::new(), 0),
            rounded: Buf::default(),
            raw: Buf::default(),
            window_buf: Buf::default(),
            scores: Buf::default(),
            codes: Buf::default(),
            gathered: Buf::default(),
            read: Vec::new(),
        }
    }

    /// Launches every operation by itself from now on.
    pub fn without_graph(mut self) -> Self {
        self.machine.never_record();
        self
    }

    /// What became of the ticks so far.
    pub fn ticks(&self) -> TapeCounts {
        self.machine.counts()
    }
}

impl<M: Machine> Backend for Cuda<M> {
    type Buf = Buf<Tape<M>>;
    type Weight = Weight<Tape<M>>;
    type Vector = Vector<Tape<M>>;
    type Table = Table<Tape<M>>;
    type Ring = Ring<Tape<M>>;
    type RingPart = RingPart<Tape<M>>;
    type Conv = Conv<Tape<M>>;
    type ConvTr = ConvTr<Tape<M>>;
    type Carry = Carry<Tape<M>>;
    type Codebook = Codebook<Tape<M>>;

    fn padded(&self) -> bool {
        true
    }

    fn deferred(&self) -> bool {
        true
    }

    fn begin_tick(&mut self) -> Done {
        self.queries.begin_tick();
        // Small inputs of the tick before are gone.
        self.mask.0.clear();
        self.machine.begin_tick()
    }

    fn end_tick(&mut self) -> Done {
        self.queries.end_tick();
        self.mask.0.clear();
        self.machine.end_tick()
    }

    fn set_lanes(&mut self, lanes: &Lanes) -> Done {
        let active: Vec<i32> = lanes.active.iter().map(|&active| active.into()).collect();
        self.mask.1 = self.machine.control(bytemuck::cast_slice(&active))?;
        self.mask.0.clone_from(&lanes.active);
        Ok(())
    }

    fn quantize_to(
        &mut self,
        book: &Codebook<Tape<M>>,
        residual: &mut Buf<Tape<M>>,
        slot: usize,
    ) -> Done {
        let codes = self.board_slot(slot, residual.len() / book.dim)?;
        self.nearest(book, residual, codes)
    }

    fn choose_to(&mut self, draws: &[Draw<'_>], logits: &Buf<Tape<M>>, slot: usize) -> Done {
        let lanes = draws.len();
        let to = self.board_slot(slot, lanes)?;
        let plane = (4 * lanes) as Address;
        let args = sample::place(&mut self.machine, &mut self.draws, draws, logits)?;
        let args = SampleArgs {
            fed: to,
            chosen: to + plane,
            faults: to + 2 * plane,
            board: self.board.address(),
            ..args
        };
        run(&mut self.machine, Kernel::Sample, [lanes as u32, 1], &args)
    }

    fn read_board(&mut self, board: &mut Board) -> Done {
        board.lanes = self.board_lanes;
        board.values.clear();
        board.values.resize(self.board.len(), 0);
        if self.board.len() == 0 {
            return Ok(());
        }
        self.machine.read(
            self.board.address(),
            bytemuck::cast_slice_mut(&mut board.values),
        )
    }

    fn gather(&mut self, values: &Buf<Tape<M>>) -> Done {
        let (board, count) = (self.board.len(), values.len());
        self.gathered.resize(&mut self.machine, board + count)?;
        let to = self.gathered.address();
        self.copy_bytes(self.board.address(), to, 4 * board)?;
        self.copy_bytes(values.address(), to + 4 * board as Address, 4 * count)
    }

    fn read_gathered(&mut self, board: &mut Board, values: &mut Vec<f32>) -> Done {
        let mut all = std::mem::take(&mut self.read);
        all.resize(self.gathered.len(), 0);
        let done = match all.is_empty() {
            true => Ok(()),
            false => self
                .machine
                .read(self.gathered.address(), bytemuck::cast_slice_mut(&mut all)),
        };
        let (tokens, numbers) = all.split_at(self.board.len().min(all.len()));
        board.lanes = self.board_lanes;
        board.values.clear();
        board.values.extend_from_slice(tokens);
        values.clear();
        values.extend_from_slice(bytemuck::cast_slice(numbers));
        self.read = all;
        done
    }

    fn describe(&self) -> String {
        let machine = self.machine.describe();
        let ticks = match self.machine.records() {
            true => ", ticks as one graph",
            false => ", ticks operation by operation",
        };
        format!(
            "{machine}, weights {}, kv {}{ticks}",
            self.dtype, self.kv_dtype
        )
    }

    fn synchronize(&mut self) -> Done {
        self.machine.synchronize()
    }

    fn weight(
        &mut self,
        rows: usize,
        cols: usize,
        data: Data<'_>,
    ) -> Result<Weight<Tape<M>>, EngineError> {
        Weight::new(&mut self.machine, self.dtype, (rows, cols), &data)
    }

    fn weight_f32(
        &mut self,
        rows: usize,
        cols: usize,
        data: Data<'_>,
    ) -> Result<Weight<Tape<M>>, EngineError> {
        Weight::new(&mut self.machine, Dtype::F32, (rows, cols), &data)
    }

    fn vector(&mut self, data: &[f32]) -> Result<Vector<Tape<M>>, EngineError> {
        Vector::new(&mut self.machine, data)
    }

    fn table(
        &mut self,
        rows: usize,
        dim: usize,
        data: Data<'_>,
    ) -> Result<Table<Tape<M>>, EngineError> {
        let half = matches!(data, Data::Bf16(_)) || self.dtype == Dtype::Bf16;
        Table::new(&mut self.machine, (rows, dim), &data, half)
    }

    fn table_f32(
        &mut self,
        rows: usize,
        dim: usize,
        data: Data<'_>,
    ) -> Result<Table<Tape<M>>, EngineError> {
        Table::new(&mut self.machine, (rows, dim), &data, false)
    }

    fn conv(
        &mut self,
        shape: ConvShape,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<Conv<Tape<M>>, EngineError> {
        Conv::new(&mut self.machine, shape, weight, bias)
    }

    fn conv_tr(
        &mut self,
        shape: ConvTrShape,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<ConvTr<Tape<M>>, EngineError> {
        ConvTr::new(&mut self.machine, shape, weight, bias)
    }

    fn codebook(
        &mut self,
        codes: usize,
        dim: usize,
        entries: &[f32],
    ) -> Result<Codebook<Tape<M>>, EngineError> {
        Codebook::new(&mut self.machine, codes, dim, entries)
    }

    fn ring(
        &mut self,
        rows: usize,
        heads: Heads,
        cells: usize,
        codec: bool,
    ) -> Result<Ring<Tape<M>>, EngineError> {
        let kept = if codec { KvDtype::F32 } else { self.kv_dtype };
        Ring::new(&mut self.machine, rows, heads, cells, (kept, !codec))
    }

    fn ring_save(
        &mut self,
        ring: &Ring<Tape<M>>,
        row: usize,
        cells: Range<usize>,
    ) -> Result<RingPart<Tape<M>>, EngineError> {
        ring.save(&mut self.machine, row, cells)
    }

    fn ring_load(
        &mut self,
        ring: &mut Ring<Tape<M>>,
        row: usize,
        part: &RingPart<Tape<M>>,
    ) -> Done {
        ring.load(&mut self.machine, row, part)
    }

    fn ring_part_bytes(part: &RingPart<Tape<M>>) -> usize {
        part.bytes()
    }

    fn carry(&mut self, rows: usize, conv: &Conv<Tape<M>>) -> Result<Carry<Tape<M>>, EngineError> {
        let ConvShape {
            channels_in,
            replicate,
            ..
        } = conv.shape;
        let columns = conv.shape.carry();
        Carry::new(&mut self.machine, rows, columns, channels_in, replicate)
    }

    fn carry_tr(
        &mut self,
        rows: usize,
        conv: &ConvTr<Tape<M>>,
    ) -> Result<Carry<Tape<M>>, EngineError> {
        Carry::new(&mut self.machine, rows, 1, conv.shape.channels_in, false)
    }

    fn carry_reset(&mut self, carry: &mut Carry<Tape<M>>, row: usize) -> Done {
        carry.reset(&mut self.machine, row)
    }

    fn upload(&mut self, data: &[f32], _width: usize, out: &mut Buf<Tape<M>>) -> Done {
        out.resize(&mut self.machine, data.len())?;
        let from = self.machine.control(bytemuck::cast_slice(data))?;
        self.copy_bytes(from, out.address(), 4 * data.len())
    }

    fn download(&mut self, buf: &Buf<Tape<M>>, out: &mut Vec<f32>) -> Done {
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

    fn embed_sum(
        &mut self,
        tables: &[&Table<Tape<M>>],
        ids: &[i32],
        out: &mut Buf<Tape<M>>,
    ) -> Done {
        self.embed(tables, ids, out, false)
    }

    fn embed_add(&mut self, table: &Table<Tape<M>>, ids: &[i32], inout: &mut Buf<Tape<M>>) -> Done {
        self.embed(&[table], ids, inout, true)
    }

    fn linear(&mut self, w: &Weight<Tape<M>>, x: &Buf<Tape<M>>, y: &mut Buf<Tape<M>>) -> Done {
        self.product(w, x, None, None, false, y)
    }

    fn linear_add(
        &mut self,
        w: &Weight<Tape<M>>,
        x: &Buf<Tape<M>>,
        scale: Option<&Vector<Tape<M>>>,
        y: &mut Buf<Tape<M>>,
    ) -> Done {
        self.product(w, x, scale, None, true, y)
    }

    fn rms_norm(
        &mut self,
        x: &Buf<Tape<M>>,
        alpha: &Vector<Tape<M>>,
        eps: f32,
        y: &mut Buf<Tape<M>>,
    ) -> Done {
        self.norm(Kernel::RmsNorm, x, (alpha, None), eps, y)
    }

    fn layer_norm(
        &mut self,
        x: &Buf<Tape<M>>,
        weight: &Vector<Tape<M>>,
        bias: &Vector<Tape<M>>,
        eps: f32,
        y: &mut Buf<Tape<M>>,
    ) -> Done {
        self.norm(Kernel::LayerNorm, x, (weight, Some(bias)), eps, y)
    }

    fn attend(
        &mut self,
        ring: &mut Ring<Tape<M>>,
        queries: &[Query],
        order: WriteOrder,
        qkv: &Buf<Tape<M>>,
        out: &mut Buf<Tape<M>>,
    ) -> Done {
        let Self {
            machine,
            queries: plans,
            splits,
            ..
        } = self;
        // The codec's attention is followed by a product in f32.
        let half = self.dtype == Dtype::Bf16 && ring.feeds_half;
        ring::attend(
            machine,
            plans,
            splits,
            ring,
            queries,
            order,
            qkv,
            (out, half),
        )
    }

    fn silu_gate(&mut self, ab: &Buf<Tape<M>>, hidden: usize, y: &mut Buf<Tape<M>>) -> Done {
        let count = ab.len() / 2;
        let half = self.dtype == Dtype::Bf16;
        let half = y.resize_twice(&mut self.machine, count, half)?;
        let args = GateArgs {
            ab: ab.address(),
            y: y.address(),
            half,
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

    fn gelu(&mut self, x: &mut Buf<Tape<M>>) -> Done {
        let from = x.address();
        self.each(Kernel::Gelu, from, x)
    }

    fn elu(&mut self, x: &mut Buf<Tape<M>>) -> Done {
        let from = x.address();
        self.each(Kernel::Elu, from, x)
    }

    fn add(&mut self, from: &Buf<Tape<M>>, to: &mut Buf<Tape<M>>) -> Done {
        self.each(Kernel::AddTo, from.address(), to)
    }

    fn copy(&mut self, from: &Buf<Tape<M>>, to: &mut Buf<Tape<M>>) -> Done {
        to.resize(&mut self.machine, from.len())?;
        self.copy_bytes(from.address(), to.address(), 4 * from.len())
    }

    fn conv_step(
        &mut self,
        conv: &Conv<Tape<M>>,
        carry: &mut Carry<Tape<M>>,
        lanes: &Lanes,
        x: &Buf<Tape<M>>,
        y: &mut Buf<Tape<M>>,
        add: bool,
    ) -> Done {
        self.convolve(conv, carry, lanes, x, y, add)
    }

    fn conv_tr_step(
        &mut self,
        conv: &ConvTr<Tape<M>>,
        carry: &mut Carry<Tape<M>>,
        lanes: &Lanes,
        x: &Buf<Tape<M>>,
        y: &mut Buf<Tape<M>>,
    ) -> Done {
        self.convolve_tr(conv, carry, lanes, x, y)
    }

    fn quantize(
        &mut self,
        book: &Codebook<Tape<M>>,
        residual: &mut Buf<Tape<M>>,
        codes: &mut Vec<u32>,
    ) -> Done {
        let n = residual.len() / book.dim;
        self.codes.resize(&mut self.machine, n)?;
        let found = self.codes.address();
        self.nearest(book, residual, found)?;
        codes.clear();
        codes.resize(n, 0);
        self.machine
            .read(self.codes.address(), bytemuck::cast_slice_mut(codes))
    }
}
