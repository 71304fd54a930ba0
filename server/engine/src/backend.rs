//! The seam between the network and the device: the operations one tick is made of, over buffers the device owns.
//!
//! Lives here: the trait [`Backend`] and the small types its operations speak. The network (`codec`, `model`) is
//! written once against it; `native` computes it with our own kernels on the CPU, `cuda` with our own on a GPU, `tensor`
//! with candle, as a witness.
//! May not live here: which tensor of a checkpoint goes where, tokens, sampling, rows of callers.
//!
//! All activations are row-major `[n, width]`. For audio a row of the batch contributes `t` consecutive rows (time-major
//! `[lanes, t, channels]`), so that a convolution is a product over overlapping windows.

use std::borrow::Cow;
use std::ops::Range;

use slots::engine::EngineError;

mod board;

pub use board::{Board, Draw, board_slot, on_board};

/// How a backend answers: the device failed, or nothing to say.
pub type Done = Result<(), EngineError>;

/// Numbers of one stored tensor, as the file has them.
#[derive(Clone, Debug)]
pub enum Data<'a> {
    /// 32-bit floats.
    F32(Cow<'a, [f32]>),
    /// The upper halves of 32-bit floats.
    Bf16(Cow<'a, [u16]>),
}

impl Data<'_> {
    /// How many numbers.
    pub fn len(&self) -> usize {
        match self {
            Data::F32(data) => data.len(),
            Data::Bf16(bits) => bits.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers `range`.
    pub fn slice(&self, range: Range<usize>) -> Data<'_> {
        match self {
            Data::F32(data) => Data::F32(Cow::Borrowed(&data[range])),
            Data::Bf16(bits) => Data::Bf16(Cow::Borrowed(&bits[range])),
        }
    }

    /// The numbers as 32-bit floats; exact.
    pub fn to_f32(&self) -> Cow<'_, [f32]> {
        match self {
            Data::F32(data) => Cow::Borrowed(data),
            Data::Bf16(bits) => Cow::Owned(
                bits.iter()
                    .map(|&b| f32::from_bits(u32::from(b) << 16))
                    .collect(),
            ),
        }
    }
}

/// Which rows of the batch take part in an operation, and where their activations lie.
///
/// A backend that pads has one lane for each row of the batch, some of them idle; any other has lanes for the active
/// rows alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    /// Row of the batch behind lane `i`.
    pub rows: Vec<usize>,
    /// Whether lane `i` takes part. An idle lane's output is never used and its row's state must not move.
    pub active: Vec<bool>,
}

impl Lanes {
    /// Lanes for the rows `live` (ascending) out of `capacity`.
    pub fn set(&mut self, live: &[usize], capacity: usize, padded: bool) {
        self.rows.clear();
        self.active.clear();
        if padded {
            self.rows.extend(0..capacity);
            self.active
                .extend((0..capacity).map(|row| live.binary_search(&row).is_ok()));
        } else {
            self.rows.extend_from_slice(live);
            self.active.resize(live.len(), true);
        }
    }

    /// Number of lanes.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no row takes part.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// One position that attends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Row of the ring.
    pub row: usize,
    /// Position of this query, its key and its value; counts from 0 since the row was cleared.
    pub position: u64,
    /// Oldest visible position of the sliding part.
    pub first: u64,
    /// How many of the first positions stay in the ring for good; 0: none, the ring is a plain ring.
    pub pinned: usize,
    /// Rotation of the query when pinned keys are scored.
    pub pinned_rotation: u64,
    /// An idle query writes nothing into the ring and its output is never used.
    pub active: bool,
}

/// When keys and values enter the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOrder {
    /// As if query by query: each sees the ring as the ones before it left it (a prompt chunk of one row).
    EachThenAttend,
    /// All queries write, then all attend (one step of many rows; the two positions of a codec frame).
    AllThenAttend,
}

/// Shape of a causal convolution over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvShape {
    /// Channels in.
    pub channels_in: usize,
    /// Channels out.
    pub channels_out: usize,
    /// Taps.
    pub kernel: usize,
    /// Steps of time from one output to the next.
    pub stride: usize,
    /// Steps of time from one tap to the next.
    pub dilation: usize,
    /// What stands before the first input of a fresh row: its copies, or zeros.
    pub replicate: bool,
}

impl ConvShape {
    /// Columns of the past that the next call needs: `(kernel - 1) * dilation + 1 - stride`.
    pub fn carry(&self) -> usize {
        (self.kernel - 1) * self.dilation + 1 - self.stride
    }
}

/// Shape of a causal transposed convolution with `kernel = 2 * stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvTrShape {
    /// Channels in.
    pub channels_in: usize,
    /// Channels out; for a depthwise one the same as in.
    pub channels_out: usize,
    /// Outputs for each input.
    pub stride: usize,
    /// Every channel for itself.
    pub depthwise: bool,
}

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvDtype {
    /// 32-bit floats.
    F32,
    /// The upper half of a 32-bit float, rounded to nearest even.
    Bf16,
    /// Eight bits (E4M3), with one scale for each key and value of a head; on a GPU only.
    Fp8,
}

/// In the words of the command line.
impl std::fmt::Display for KvDtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            KvDtype::F32 => "f32",
            KvDtype::Bf16 => "bf16",
            KvDtype::Fp8 => "fp8",
        })
    }
}

/// Attention heads of one transformer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heads {
    /// Heads.
    pub count: usize,
    /// Width of one head.
    pub dim: usize,
    /// Base of the rotary angles; `None`: no rotation.
    pub rope_max_period: Option<f32>,
}

fn not_deferred() -> Done {
    Err(EngineError {
        what: "this backend keeps no tokens on its device".into(),
    })
}

/// The operations of one tick. State that outlives a call (rings, carries) is per row of the batch; an operation moves
/// the state of active lanes only, and what a lane gets depends on that lane alone, to the bit.
pub trait Backend: Sized + Send + 'static {
    /// Activations `[n, width]`.
    type Buf: Default + Send;
    /// A matrix `[out, in]`.
    type Weight: Send;
    /// A vector of f32 (norm, bias, scale).
    type Vector: Send;
    /// An embedding table `[ids, width]`.
    type Table: Send;
    /// Keys and values of one layer, for all rows.
    type Ring: Send;
    /// Cells of one row of a ring, saved.
    type RingPart: Send + Sync + Clone;
    /// Weight of a convolution.
    type Conv: Send;
    /// Weight of a transposed convolution.
    type ConvTr: Send;
    /// What a convolution keeps from one call to the next, for all rows.
    type Carry: Send;
    /// Entries of one quantizer layer.
    type Codebook: Send;

    /// Whether lanes are all rows of the batch (see [`Lanes`]).
    fn padded(&self) -> bool;
    /// Whether tokens that a tick chooses stay on the device until the tick ends, so that nothing waits in between. Such
    /// a backend pads, and has the operations from [`Backend::begin_tick`] to [`Backend::read_board`].
    fn deferred(&self) -> bool {
        false
    }
    /// From here to [`Backend::end_tick`] the same operations are expected every time, and may be put off.
    fn begin_tick(&mut self) -> Done {
        not_deferred()
    }
    /// Carries out what was put off.
    fn end_tick(&mut self) -> Done {
        not_deferred()
    }
    /// Which lanes take part in the convolutions that follow.
    fn set_lanes(&mut self, _lanes: &Lanes) -> Done {
        Ok(())
    }
    /// As [`Backend::quantize`]; the codes go to a slot of the board.
    fn quantize_to(
        &mut self,
        _book: &Self::Codebook,
        _residual: &mut Self::Buf,
        _slot: usize,
    ) -> Done {
        not_deferred()
    }
    /// Chooses a token of each lane from `logits` `[lanes, count]`; they go to a slot of the board.
    fn choose_to(&mut self, _draws: &[Draw<'_>], _logits: &Self::Buf, _slot: usize) -> Done {
        not_deferred()
    }
    /// What the board holds.
    fn read_board(&mut self, _board: &mut Board) -> Done {
        not_deferred()
    }
    /// Puts what the board holds now and `values` in one place, to be read at once.
    fn gather(&mut self, _values: &Self::Buf) -> Done {
        not_deferred()
    }
    /// What was gathered last.
    fn read_gathered(&mut self, _board: &mut Board, _values: &mut Vec<f32>) -> Done {
        not_deferred()
    }
    /// One line for logs: device and storage type.
    fn describe(&self) -> String;
    /// Waits until everything asked so far is done; for clocks and checks.
    fn synchronize(&mut self) -> Done;

    /// A matrix `[rows, cols]`.
    fn weight(
        &mut self,
        rows: usize,
        cols: usize,
        data: Data<'_>,
    ) -> Result<Self::Weight, EngineError>;
    /// A codec matrix `[rows, cols]`, always kept in f32.
    fn weight_f32(
        &mut self,
        rows: usize,
        cols: usize,
        data: Data<'_>,
    ) -> Result<Self::Weight, EngineError>;
    /// A vector.
    fn vector(&mut self, data: &[f32]) -> Result<Self::Vector, EngineError>;
    /// A table `[rows, dim]`.
    fn table(
        &mut self,
        rows: usize,
        dim: usize,
        data: Data<'_>,
    ) -> Result<Self::Table, EngineError>;
    /// A codec table `[rows, dim]`, always kept in f32.
    fn table_f32(
        &mut self,
        rows: usize,
        dim: usize,
        data: Data<'_>,
    ) -> Result<Self::Table, EngineError>;
    /// A convolution; `weight` is `[out, in, kernel]`.
    fn conv(
        &mut self,
        shape: ConvShape,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<Self::Conv, EngineError>;
    /// A transposed convolution; `weight` is `[in, out, 2 * stride]`, or `[in, 1, 2 * stride]` when depthwise.
    fn conv_tr(
        &mut self,
        shape: ConvTrShape,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<Self::ConvTr, EngineError>;
    /// A codebook `[codes, dim]`.
    fn codebook(
        &mut self,
        codes: usize,
        dim: usize,
        entries: &[f32],
    ) -> Result<Self::Codebook, EngineError>;

    /// A ring of `cells` for each of `rows` rows, all zero. `codec`: always kept in f32.
    fn ring(
        &mut self,
        rows: usize,
        heads: Heads,
        cells: usize,
        codec: bool,
    ) -> Result<Self::Ring, EngineError>;
    /// Saves cells of one row.
    fn ring_save(
        &mut self,
        ring: &Self::Ring,
        row: usize,
        cells: Range<usize>,
    ) -> Result<Self::RingPart, EngineError>;
    /// Puts saved cells back, into any row, bit for bit.
    fn ring_load(&mut self, ring: &mut Self::Ring, row: usize, part: &Self::RingPart) -> Done;
    /// Bytes of a saved part.
    fn ring_part_bytes(part: &Self::RingPart) -> usize;
    /// Fresh carries of `rows` rows.
    fn carry(&mut self, rows: usize, conv: &Self::Conv) -> Result<Self::Carry, EngineError>;
    /// Fresh carries of `rows` rows.
    fn carry_tr(&mut self, rows: usize, conv: &Self::ConvTr) -> Result<Self::Carry, EngineError>;
    /// Makes one row's carry as good as new.
    fn carry_reset(&mut self, carry: &mut Self::Carry, row: usize) -> Done;

    /// `out` becomes `data`, `[n, width]`.
    fn upload(&mut self, data: &[f32], width: usize, out: &mut Self::Buf) -> Done;
    /// `out` becomes the values of `buf`.
    fn download(&mut self, buf: &Self::Buf, out: &mut Vec<f32>) -> Done;

    /// `out[i] = sum over tables k of tables[k][ids[i][k]]`, in the order of the tables; id -1 adds nothing.
    /// `ids` is `[n, tables]`; with [`Backend::deferred`] they may be [`on_board`].
    fn embed_sum(&mut self, tables: &[&Self::Table], ids: &[i32], out: &mut Self::Buf) -> Done;
    /// `inout[i] += table[ids[i]]`.
    fn embed_add(&mut self, table: &Self::Table, ids: &[i32], inout: &mut Self::Buf) -> Done;
    /// `y = x Wᵀ`.
    fn linear(&mut self, w: &Self::Weight, x: &Self::Buf, y: &mut Self::Buf) -> Done;
    /// `y += scale ⊙ (x Wᵀ)`; no scale: 1.
    fn linear_add(
        &mut self,
        w: &Self::Weight,
        x: &Self::Buf,
        scale: Option<&Self::Vector>,
        y: &mut Self::Buf,
    ) -> Done;
    /// Root mean square norm in f32.
    fn rms_norm(
        &mut self,
        x: &Self::Buf,
        alpha: &Self::Vector,
        eps: f32,
        y: &mut Self::Buf,
    ) -> Done;
    /// Layer norm in f32.
    fn layer_norm(
        &mut self,
        x: &Self::Buf,
        weight: &Self::Vector,
        bias: &Self::Vector,
        eps: f32,
        y: &mut Self::Buf,
    ) -> Done;
    /// Rotates, writes and attends; `qkv` is `[n, 3 * heads * dim]`, `out` `[n, heads * dim]`.
    fn attend(
        &mut self,
        ring: &mut Self::Ring,
        queries: &[Query],
        order: WriteOrder,
        qkv: &Self::Buf,
        out: &mut Self::Buf,
    ) -> Done;
    /// `y = silu(a) ⊙ b` for rows `ab = [a | b]`, each half `hidden` wide.
    fn silu_gate(&mut self, ab: &Self::Buf, hidden: usize, y: &mut Self::Buf) -> Done;
    /// Exact (erf) GELU in place.
    fn gelu(&mut self, x: &mut Self::Buf) -> Done;
    /// ELU with alpha 1 in place.
    fn elu(&mut self, x: &mut Self::Buf) -> Done;
    /// `to += from`.
    fn add(&mut self, from: &Self::Buf, to: &mut Self::Buf) -> Done;
    /// `to` becomes a copy of `from`.
    fn copy(&mut self, from: &Self::Buf, to: &mut Self::Buf) -> Done;

    /// Causal convolution; `x` is `[lanes * t, channels_in]`, `y` `[lanes * t / stride, channels_out]`.
    /// `add`: onto what `y` holds.
    #[allow(clippy::too_many_arguments)]
    fn conv_step(
        &mut self,
        conv: &Self::Conv,
        carry: &mut Self::Carry,
        lanes: &Lanes,
        x: &Self::Buf,
        y: &mut Self::Buf,
        add: bool,
    ) -> Done;
    /// Causal transposed convolution; `x` is `[lanes * t, channels_in]`, `y` `[lanes * t * stride, channels_out]`.
    fn conv_tr_step(
        &mut self,
        conv: &Self::ConvTr,
        carry: &mut Self::Carry,
        lanes: &Lanes,
        x: &Self::Buf,
        y: &mut Self::Buf,
    ) -> Done;
    /// For each row of `residual`: the nearest entry's index into `codes`, the lowest on a tie; then takes that entry
    /// off the residual.
    fn quantize(
        &mut self,
        book: &Self::Codebook,
        residual: &mut Self::Buf,
        codes: &mut Vec<u32>,
    ) -> Done;
}
