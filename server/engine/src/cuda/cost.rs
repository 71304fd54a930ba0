//! What a recorded tick costs: launches, bytes moved, operations, by part.
//!
//! Counted from the operations themselves, so it is what a tick does and not what somebody thinks it does. Bytes are what
//! has to be moved at least once; what caches save or waste is not in it.

use super::args::{
    AttendArgs, EachArgs, EightBitArgs, EmbedArgs, FinishArgs, GateArgs, Kernel, NearestArgs,
    NormArgs, RoundArgs, SampleArgs, UpsampleArgs, WindowArgs,
};
use super::backend::Cuda;
use super::machine::{Machine, Op};

/// A part of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which.
    pub name: &'static str,
    /// Kernels, products and copies.
    pub launches: u64,
    /// Bytes of weights.
    pub weight_bytes: u64,
    /// Bytes of keys and values.
    pub kv_bytes: u64,
    /// Bytes of everything else.
    pub other_bytes: u64,
    /// Multiplications and additions of products and attention.
    pub operations: u64,
}

impl Part {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            launches: 0,
            weight_bytes: 0,
            kv_bytes: 0,
            other_bytes: 0,
            operations: 0,
        }
    }

    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.weight_bytes + self.kv_bytes + self.other_bytes
    }
}

impl<M: Machine> Cuda<M> {
    /// What the recorded tick costs with windows filled to `fill` (0 to 1); nothing before one is recorded.
    pub fn tick_cost(&self, fill: f64) -> Vec<Part> {
        let ops = self.machine.recorded();
        let is =
            |op: &Op, wanted: Kernel| matches!(op, Op::Launch { kernel, .. } if *kernel == wanted);
        // In this order a tick asks: the caller's codes, the temporal transformer up to the text token, the steps of the
        // depformer, the agent's sound.
        let encoder = ops.iter().position(|op| is(op, Kernel::Embed)).unwrap_or(0);
        let text = ops.iter().position(|op| is(op, Kernel::Sample));
        let codes = ops.iter().rposition(|op| is(op, Kernel::Sample));
        let (text, codes) = (
            text.map_or(encoder, |at| at + 1),
            codes.map_or(encoder, |at| at + 1),
        );
        let parts = [
            ("codec, encoder", &ops[..encoder]),
            ("temporal transformer", &ops[encoder..text]),
            ("depformer", &ops[text..codes.max(text)]),
            ("codec, decoder", &ops[codes.max(text)..]),
        ];
        parts
            .into_iter()
            .map(|(name, ops)| {
                let mut part = Part::new(name);
                ops.iter().for_each(|op| add(&mut part, op, fill));
                part
            })
            .collect()
    }
}

fn add(part: &mut Part, op: &Op, fill: f64) {
    part.launches += 1;
    match op {
        Op::Copy(pieces) => part.other_bytes += 2 * (pieces.bytes * pieces.count) as u64,
        Op::Product(product) => {
            let number = if product.half { 2 } else { 4 };
            part.weight_bytes += (number * product.outputs * product.inputs) as u64;
            part.other_bytes +=
                (product.lanes * (number * product.inputs + 4 * product.outputs)) as u64;
            part.operations += 2 * (product.lanes * product.outputs * product.inputs) as u64;
        }
        Op::Launch {
            kernel,
            blocks,
            args,
        } => launch(part, *kernel, *blocks, args, fill),
    }
}

fn launch(part: &mut Part, kernel: Kernel, blocks: [u32; 2], args: &[u8], fill: f64) {
    let rows = u64::from(blocks[1]);
    part.other_bytes += match kernel {
        Kernel::RoundBf16 => 6 * read::<RoundArgs>(args).count as u64,
        Kernel::Finish => {
            let args = read::<FinishArgs>(args);
            (8 + 4 * args.add as u64) * args.count as u64
        }
        Kernel::SiluGate => 12 * read::<GateArgs>(args).count as u64,
        Kernel::Gelu | Kernel::Elu => 8 * read::<EachArgs>(args).count as u64,
        Kernel::AddTo => 12 * read::<EachArgs>(args).count as u64,
        Kernel::Embed => {
            let args = read::<EmbedArgs>(args);
            // At most: ids that stand for nothing read nothing.
            rows * args.dim as u64 * (4 * args.table_count as u64 + 4)
        }
        Kernel::RmsNorm | Kernel::LayerNorm => {
            8 * u64::from(blocks[0]) * read::<NormArgs>(args).dim as u64
        }
        Kernel::Turns => 0,
        Kernel::WriteF32 | Kernel::WriteBf16 | Kernel::WriteFp8 => {
            let args = read::<AttendArgs>(args);
            rows * (args.heads * args.dim) as u64 * (8 + 2 * number_bytes(kernel))
        }
        Kernel::AttendF32 | Kernel::AttendBf16 | Kernel::AttendFp8 => {
            let args = read::<AttendArgs>(args);
            let cells = (f64::from(args.cells) * fill).ceil() as u64;
            let heads = rows * args.heads as u64;
            let scales = if kernel == Kernel::AttendFp8 { 8 } else { 0 };
            let cell = 2 * args.dim_padded as u64 * number_bytes(kernel) + scales;
            part.kv_bytes += heads * cells * cell;
            part.operations += 4 * heads * cells * args.dim as u64;
            4 * heads * args.splits as u64 * (args.dim as u64 + 2)
        }
        Kernel::AttendJoin => {
            let args = read::<AttendArgs>(args);
            4 * rows * args.heads as u64 * (args.splits + 1) as u64 * args.dim as u64
        }
        Kernel::Unfold => {
            let args = read::<WindowArgs>(args);
            8 * rows * (args.outputs * args.taps * args.channels) as u64
        }
        Kernel::Keep => {
            let args = read::<WindowArgs>(args);
            8 * rows * (args.columns * args.channels) as u64
        }
        Kernel::Settle => 0,
        Kernel::Upsample => {
            let args = read::<UpsampleArgs>(args);
            4 * rows * (args.t * args.channels) as u64 * (2 + args.stride) as u64
        }
        Kernel::Nearest => {
            let args = read::<NearestArgs>(args);
            4 * u64::from(blocks[0]) * (args.count + 3 * args.dim) as u64
        }
        Kernel::EightBit => {
            let args = read::<EightBitArgs>(args);
            let (lanes, outputs) = (args.lanes as u64, args.outputs as u64);
            // Once for every sixteen lanes.
            part.weight_bytes += rows * outputs * args.blocks as u64 * (32 + 4);
            part.operations += 2 * lanes * outputs * args.inputs as u64;
            4 * lanes * (args.inputs as u64 + outputs)
        }
        Kernel::Sample => {
            let args = read::<SampleArgs>(args);
            // Once for the largest, eight times for the k-th, once for the race.
            4 * u64::from(blocks[0]) * args.count as u64 * 10
        }
    };
}

/// Bytes of a number that is kept in a ring.
fn number_bytes(kernel: Kernel) -> u64 {
    match kernel {
        Kernel::WriteF32 | Kernel::AttendF32 => 4,
        Kernel::WriteBf16 | Kernel::AttendBf16 => 2,
        _ => 1,
    }
}

fn read<T: bytemuck::AnyBitPattern>(args: &[u8]) -> T {
    bytemuck::pod_read_unaligned(args)
}
