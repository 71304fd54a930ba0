//! What lies in a machine's memory: activations, matrices, tables, and the small inputs of a call.

use half::bf16;
use half::slice::HalfFloatSliceExt;
use slots::engine::EngineError;

use crate::backend::{Data, Done};
use crate::kernels::Dtype;

use super::args::{Address, Kernel, Kind};
use super::machine::Machine;

/// Threads of a block; the kernels' own number.
pub(super) const THREADS: usize = 128;

/// Blocks for `count` threads.
pub(super) fn blocks(count: usize) -> u32 {
    count.div_ceil(THREADS) as u32
}

/// Runs a kernel; nothing happens without blocks.
pub(super) fn run<M: Machine>(
    machine: &mut M,
    kernel: Kernel,
    blocks: [u32; 2],
    args: &impl bytemuck::NoUninit,
) -> Done {
    match blocks.contains(&0) {
        true => Ok(()),
        false => machine.launch(kernel, blocks, bytemuck::bytes_of(args)),
    }
}

/// Activations `[n, width]` in f32, or other numbers of four bytes. Memory grows with the first calls and then stays.
pub struct Buf<M: Machine> {
    memory: Option<M::Memory>,
    capacity: usize,
    len: usize,
    /// The same numbers in bf16, where whoever wrote them rounded them at once.
    half: Option<M::Memory>,
    half_capacity: usize,
    is_half_true: bool,
}

impl<M: Machine> Default for Buf<M> {
    fn default() -> Self {
        Self {
            memory: None,
            capacity: 0,
            len: 0,
            half: None,
            half_capacity: 0,
            is_half_true: false,
        }
    }
}

impl<M: Machine> Buf<M> {
    /// How many numbers.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where they are; 0 while nothing was put in.
    pub(super) fn address(&self) -> Address {
        self.memory.as_ref().map_or(0, M::address)
    }

    /// Makes room for `len` numbers, whose values are unspecified.
    pub(super) fn resize(&mut self, machine: &mut M, len: usize) -> Done {
        if len > self.capacity {
            self.memory = Some(machine.allocate(4 * len)?);
            self.capacity = len;
        }
        self.len = len;
        self.is_half_true = false;
        Ok(())
    }

    /// As [`Buf::resize`], for an operation that writes every number in bf16 as well if `wanted`: where those go; 0 for
    /// nowhere.
    pub(super) fn resize_twice(
        &mut self,
        machine: &mut M,
        len: usize,
        wanted: bool,
    ) -> Result<Address, EngineError> {
        self.resize(machine, len)?;
        if !wanted {
            return Ok(0);
        }
        if len > self.half_capacity {
            self.half = Some(machine.allocate(2 * len)?);
            self.half_capacity = len;
        }
        self.is_half_true = true;
        Ok(self.half.as_ref().map_or(0, M::address))
    }

    /// Where the same numbers are in bf16, if they are.
    pub(super) fn half_address(&self) -> Option<Address> {
        let half = self.half.as_ref().filter(|_| self.is_half_true);
        half.map(M::address)
    }

    /// The numbers are changed in place.
    pub(super) fn changed(&mut self) {
        self.is_half_true = false;
    }
}

/// Bytes in a memory of their own.
pub(super) fn stored<M: Machine>(machine: &mut M, bytes: &[u8]) -> Result<M::Memory, EngineError> {
    let memory = machine.allocate(bytes.len())?;
    machine.write(M::address(&memory), bytes)?;
    Ok(memory)
}

/// Zeros in a memory of their own.
pub(super) fn zeros<M: Machine>(machine: &mut M, bytes: usize) -> Result<M::Memory, EngineError> {
    let memory = machine.allocate(bytes)?;
    machine.zero(M::address(&memory), bytes)?;
    Ok(memory)
}

/// A matrix `[rows, cols]`.
pub struct Weight<M: Machine> {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) numbers: Numbers<M>,
}

/// How a matrix is kept.
pub(super) enum Numbers<M: Machine> {
    F32(M::Memory),
    Bf16(M::Memory),
    /// Signed bytes `[rows, blocks, 32]`, the last block filled up with zeros, and scales `[rows, blocks]`.
    EightBit {
        bytes: M::Memory,
        scales: M::Memory,
        blocks: usize,
    },
}

/// Numbers that share a scale.
const BLOCK: usize = 32;

impl<M: Machine> Weight<M> {
    pub(super) fn new(
        machine: &mut M,
        dtype: Dtype,
        (rows, cols): (usize, usize),
        data: &Data<'_>,
    ) -> Result<Self, EngineError> {
        if data.len() != rows * cols {
            return Err(EngineError {
                what: format!("a matrix of {rows} x {cols} has {} numbers", data.len()),
            });
        }
        let numbers = match dtype {
            Dtype::F32 if !machine.keeps_numbers() => {
                Numbers::F32(machine.allocate(4 * rows * cols)?)
            }
            Dtype::F32 => Numbers::F32(stored(machine, bytemuck::cast_slice(&data.to_f32()))?),
            Dtype::Bf16 => Numbers::Bf16(stored_bf16(machine, data)?),
            Dtype::Q8_0 => eight_bit(machine, rows, cols, data)?,
        };
        Ok(Self {
            rows,
            cols,
            numbers,
        })
    }
}

fn stored_bf16<M: Machine>(machine: &mut M, data: &Data<'_>) -> Result<M::Memory, EngineError> {
    match data {
        data if !machine.keeps_numbers() => machine.allocate(2 * data.len()),
        Data::Bf16(bits) => stored(machine, bytemuck::cast_slice(bits)),
        Data::F32(values) => {
            let mut halves = vec![bf16::ZERO; values.len()];
            halves.convert_from_f32_slice(values);
            let bits: &[u16] = halves.reinterpret_cast();
            stored(machine, bytemuck::cast_slice(bits))
        }
    }
}

/// Row by row, so that only one row is converted at a time.
fn eight_bit<M: Machine>(
    machine: &mut M,
    rows: usize,
    cols: usize,
    data: &Data<'_>,
) -> Result<Numbers<M>, EngineError> {
    let blocks = cols.div_ceil(BLOCK);
    let bytes = machine.allocate(rows * blocks * BLOCK)?;
    let scales = machine.allocate(rows * blocks * 4)?;
    let (mut row_bytes, mut row_scales) = (vec![0i8; blocks * BLOCK], vec![0.0f32; blocks]);
    let rows = if machine.keeps_numbers() {
        0..rows
    } else {
        0..0
    };
    for row in rows {
        let part = data.slice(row * cols..(row + 1) * cols);
        let values = part.to_f32();
        for (block, values) in values.chunks(BLOCK).enumerate() {
            let largest = values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let scale = largest / 127.0;
            let per_scale = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            row_scales[block] = scale;
            for (to, x) in row_bytes[block * BLOCK..].iter_mut().zip(values) {
                *to = (x * per_scale).round_ties_even() as i8;
            }
        }
        let at = (row * blocks * BLOCK) as Address;
        machine.write(M::address(&bytes) + at, bytemuck::cast_slice(&row_bytes))?;
        let at = (row * blocks * 4) as Address;
        machine.write(M::address(&scales) + at, bytemuck::cast_slice(&row_scales))?;
    }
    Ok(Numbers::EightBit {
        bytes,
        scales,
        blocks,
    })
}

/// An embedding table `[rows, dim]`.
pub struct Table<M: Machine> {
    pub(super) entries: M::Memory,
    pub(super) rows: usize,
    pub(super) dim: usize,
    pub(super) kind: Kind,
}

impl<M: Machine> Table<M> {
    /// As the file has it, so that bf16 files take half the memory whatever the matrices are; f32 ones are rounded
    /// with `half`.
    pub(super) fn new(
        machine: &mut M,
        (rows, dim): (usize, usize),
        data: &Data<'_>,
        half: bool,
    ) -> Result<Self, EngineError> {
        let (entries, kind) = match half {
            true => (stored_bf16(machine, data)?, Kind::Bf16),
            false => (
                stored(machine, bytemuck::cast_slice(&data.to_f32()))?,
                Kind::F32,
            ),
        };
        Ok(Self {
            entries,
            rows,
            dim,
            kind,
        })
    }
}

/// A vector of f32.
pub struct Vector<M: Machine> {
    pub(super) memory: M::Memory,
    pub(super) len: usize,
}

impl<M: Machine> Vector<M> {
    pub(super) fn new(machine: &mut M, data: &[f32]) -> Result<Self, EngineError> {
        Ok(Self {
            memory: stored(machine, bytemuck::cast_slice(data))?,
            len: data.len(),
        })
    }

    pub(super) fn address(&self) -> Address {
        M::address(&self.memory)
    }
}

/// Entries of one quantizer layer, with what finds the nearest.
pub struct Codebook<M: Machine> {
    pub(super) entries: M::Memory,
    /// `-|E_j|^2 / 2`: the nearest entry has the largest `r . E_j - |E_j|^2 / 2`.
    pub(super) bias: M::Memory,
    pub(super) codes: usize,
    pub(super) dim: usize,
}

impl<M: Machine> Codebook<M> {
    pub(super) fn new(
        machine: &mut M,
        codes: usize,
        dim: usize,
        entries: &[f32],
    ) -> Result<Self, EngineError> {
        let bias: Vec<f32> = entries
            .chunks_exact(dim)
            .map(|entry| {
                let squares = entry.iter().map(|&v| f64::from(v) * f64::from(v));
                (-0.5 * squares.sum::<f64>()) as f32
            })
            .collect();
        Ok(Self {
            entries: stored(machine, bytemuck::cast_slice(entries))?,
            bias: stored(machine, bytemuck::cast_slice(&bias))?,
            codes,
            dim,
        })
    }
}
