//! What several operations of [`Cuda`] are made of: products with what follows them, sums of entries, the nearest code,
//! norms, the board.

use slots::engine::EngineError;

use crate::backend::{Backend, Board, Done, Lanes, board_slot};

use crate::kernels::Dtype;

use super::args::{
    Address, EachArgs, EightBitArgs, EmbedArgs, FinishArgs, Kernel, NearestArgs, NormArgs,
    RoundArgs, TableRef,
};
use super::backend::Cuda;
use super::buffers::{Buf, Codebook, Numbers, Table, Vector, Weight, blocks, run, stored};
use super::machine::{Machine, Pieces, Product};
use super::tape::Tape;

/// Slots of the board: a frame's codes of the caller, the text, the codes of the agent, and those of all steps.
const BOARD_SLOTS: usize = 64;
/// Lanes that one block of the 8-bit product computes. Source: `product.cu`.
const EIGHT_BIT_LANES: usize = 16;

impl<M: Machine> Cuda<M> {
    /// `y = [y +] scale ⊙ (x Wᵀ) + bias`.
    pub(super) fn product(
        &mut self,
        w: &Weight<Tape<M>>,
        x: &Buf<Tape<M>>,
        scale: Option<&Vector<Tape<M>>>,
        bias: Option<&Vector<Tape<M>>>,
        add: bool,
        y: &mut Buf<Tape<M>>,
    ) -> Done {
        let lanes = x.len() / w.cols;
        let count = lanes * w.rows;
        // A product can add by itself.
        let plain = scale.is_none()
            && bias.is_none()
            && !(add && matches!(w.numbers, Numbers::EightBit { .. }));
        match add {
            true => y.changed(),
            false => y.resize(&mut self.machine, count)?,
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
        self.raw_product(w, x, lanes, to, add && plain)?;
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

    pub(super) fn raw_product(
        &mut self,
        w: &Weight<Tape<M>>,
        x: &Buf<Tape<M>>,
        lanes: usize,
        y: Address,
        add: bool,
    ) -> Done {
        let (outputs, inputs) = (w.rows, w.cols);
        let product = |weights: &M::Memory, x, half| Product {
            weights: M::address(weights),
            x,
            y,
            lanes,
            outputs,
            inputs,
            half,
            add,
        };
        match &w.numbers {
            Numbers::F32(weights) => self.machine.product(product(weights, x.address(), false)),
            Numbers::Bf16(weights) => {
                if let Some(half) = x.half_address() {
                    return self.machine.product(product(weights, half, true));
                }
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
    pub(super) fn mask(&mut self, lanes: &Lanes) -> Result<Address, EngineError> {
        if self.mask.0 != lanes.active {
            self.set_lanes(lanes)?;
        }
        Ok(self.mask.1)
    }

    /// Where the board has a slot for `lanes` lanes.
    pub(super) fn board_slot(&mut self, slot: usize, lanes: usize) -> Result<Address, EngineError> {
        if slot >= BOARD_SLOTS {
            return Err(EngineError {
                what: format!("the board has {BOARD_SLOTS} slots, not {}", slot + 1),
            });
        }
        if self.board_lanes != lanes {
            let count = BOARD_SLOTS * Board::PLANES * lanes;
            self.board.resize(&mut self.machine, count)?;
            self.board_lanes = lanes;
        }
        Ok(self.board.address() + (4 * slot * Board::PLANES * lanes) as Address)
    }

    /// Scores of all entries; the nearest one's index goes to `codes`.
    pub(super) fn nearest(
        &mut self,
        book: &Codebook<Tape<M>>,
        residual: &mut Buf<Tape<M>>,
        codes: Address,
    ) -> Done {
        let n = residual.len() / book.dim;
        self.scores.resize(&mut self.machine, n * book.codes)?;
        self.machine.product(Product {
            weights: M::address(&book.entries),
            x: residual.address(),
            y: self.scores.address(),
            lanes: n,
            outputs: book.codes,
            inputs: book.dim,
            half: false,
            add: false,
        })?;
        let args = NearestArgs {
            scores: self.scores.address(),
            bias: M::address(&book.bias),
            entries: M::address(&book.entries),
            residual: residual.address(),
            codes,
            count: book.codes as i32,
            dim: book.dim as i32,
        };
        run(&mut self.machine, Kernel::Nearest, [n as u32, 1], &args)
    }

    pub(super) fn embed(
        &mut self,
        tables: &[&Table<Tape<M>>],
        ids: &[i32],
        out: &mut Buf<Tape<M>>,
        add: bool,
    ) -> Done {
        let dim = tables[0].dim;
        for ids in ids.chunks_exact(tables.len()) {
            let beyond = ids
                .iter()
                .zip(tables)
                .find(|(id, table)| **id >= table.rows as i32);
            let unwritten = ids.iter().any(|&id| {
                board_slot(id).is_some_and(|slot| slot >= BOARD_SLOTS || self.board_lanes == 0)
            });
            if unwritten {
                return Err(EngineError {
                    what: format!("{ids:?} names what the board does not have"),
                });
            }
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
        match add {
            true => out.changed(),
            false => out.resize(&mut self.machine, n * dim)?,
        }
        let args = EmbedArgs {
            out: out.address(),
            ids: self.machine.control(bytemuck::cast_slice(ids))?,
            tables: list,
            board: self.board.address(),
            table_count: tables.len() as i32,
            dim: dim as i32,
            add: add.into(),
            lanes: self.board_lanes as i32,
        };
        let grid = [blocks(dim), n as u32];
        run(&mut self.machine, Kernel::Embed, grid, &args)
    }

    pub(super) fn copy_bytes(&mut self, from: Address, to: Address, bytes: usize) -> Done {
        self.machine.copy(Pieces {
            from,
            from_stride: bytes,
            to,
            to_stride: bytes,
            bytes,
            count: 1,
        })
    }

    pub(super) fn norm(
        &mut self,
        kernel: Kernel,
        x: &Buf<Tape<M>>,
        (weight, bias): (&Vector<Tape<M>>, Option<&Vector<Tape<M>>>),
        eps: f32,
        y: &mut Buf<Tape<M>>,
    ) -> Done {
        let half = kernel == Kernel::RmsNorm && self.dtype == Dtype::Bf16;
        let half = y.resize_twice(&mut self.machine, x.len(), half)?;
        let args = NormArgs {
            x: x.address(),
            y: y.address(),
            weight: weight.address(),
            bias: bias.map_or(0, Vector::address),
            half,
            dim: weight.len as i32,
            eps,
        };
        let vectors = (x.len() / weight.len) as u32;
        run(&mut self.machine, kernel, [vectors, 1], &args)
    }

    pub(super) fn each(&mut self, kernel: Kernel, from: Address, to: &mut Buf<Tape<M>>) -> Done {
        to.changed();
        let args = EachArgs {
            from,
            to: to.address(),
            count: to.len() as i64,
        };
        run(&mut self.machine, kernel, [blocks(to.len()), 1], &args)
    }
}
