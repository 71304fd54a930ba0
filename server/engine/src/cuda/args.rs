//! What the kernels are called with: the same structures as in `kernels/*.cu`, field by field.
//!
//! Addresses are numbers: of a GPU's memory, or of the host's. May not live here: who fills them in.

/// An address in a machine's memory; 0: none.
pub type Address = u64;

/// Declares kernels with their argument structures, and the host's builds of them.
macro_rules! kernels {
    ($($kernel:ident $name:ident $args:ident;)*) => {
        /// The kernels.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Kernel { $($kernel,)* }

        impl Kernel {
            /// All of them.
            pub const ALL: [Kernel; [$(Kernel::$kernel,)*].len()] = [$(Kernel::$kernel,)*];

            /// Its name in the source.
            pub fn name(self) -> &'static str {
                match self { $(Kernel::$kernel => stringify!($name),)* }
            }
        }

        pastey::paste! {
            /// The host's builds, one with the threads of a block in order, one backwards.
            pub(super) mod built {
                use std::ffi::{c_ulong, c_void};

                use super::Kernel;

                /// A kernel of the host: arguments, blocks.
                pub type Entry = unsafe extern "C" fn(*const c_void, u32, u32);

                #[allow(unsafe_code)]
                unsafe extern "C" {
                    $(
                        fn [<forward_ $name>](args: *const c_void, blocks_x: u32, blocks_y: u32);
                        fn [<backward_ $name>](args: *const c_void, blocks_x: u32, blocks_y: u32);
                        safe fn [<forward_ $name _args>]() -> c_ulong;
                    )*
                }

                pub fn entry(kernel: Kernel, backward: bool) -> Entry {
                    match (kernel, backward) {
                        $(
                            (Kernel::$kernel, false) => [<forward_ $name>],
                            (Kernel::$kernel, true) => [<backward_ $name>],
                        )*
                    }
                }

                /// Bytes of the arguments as the kernel's own compiler counts them.
                pub fn args_bytes(kernel: Kernel) -> usize {
                    match kernel { $(Kernel::$kernel => [<forward_ $name _args>]() as usize,)* }
                }
            }
        }
    };
}

kernels! {
    RoundBf16 round_bf16 RoundArgs;
    Finish finish FinishArgs;
    SiluGate silu_gate GateArgs;
    Gelu gelu EachArgs;
    Elu elu EachArgs;
    AddTo add_to EachArgs;
    Embed embed EmbedArgs;
    RmsNorm rms_norm NormArgs;
    LayerNorm layer_norm NormArgs;
    Turns turns TurnsArgs;
    WriteF32 write_f32 AttendArgs;
    WriteBf16 write_bf16 AttendArgs;
    WriteFp8 write_fp8 AttendArgs;
    AttendF32 attend_f32 AttendArgs;
    AttendBf16 attend_bf16 AttendArgs;
    AttendFp8 attend_fp8 AttendArgs;
    AttendJoin attend_join AttendArgs;
    Unfold unfold WindowArgs;
    Keep keep WindowArgs;
    Settle settle WindowArgs;
    Upsample upsample UpsampleArgs;
    Nearest nearest NearestArgs;
    EightBit eight_bit EightBitArgs;
    Sample sample SampleArgs;
}

/// Declares an argument structure without gaps.
macro_rules! arguments {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
        pub(super) struct $name { $(pub $field: $kind,)* }
    };
}

arguments! {
    /// See `pointwise.cu`.
    RoundArgs { x: Address, y: Address, count: i64, }
}
arguments! {
    /// See `pointwise.cu`.
    FinishArgs {
        y: Address, product: Address, scale: Address, bias: Address, count: i64, width: i32, add: i32,
    }
}
arguments! {
    /// See `pointwise.cu`.
    GateArgs { ab: Address, y: Address, half: Address, count: i64, hidden: i32, pad: i32, }
}
arguments! {
    /// See `pointwise.cu`.
    EachArgs { from: Address, to: Address, count: i64, }
}
arguments! {
    /// A table as a kernel finds it.
    TableRef { entries: Address, rows: i32, kind: i32, }
}
arguments! {
    /// See `pointwise.cu`.
    EmbedArgs {
        out: Address, ids: Address, tables: Address, board: Address, table_count: i32, dim: i32,
        add: i32, lanes: i32,
    }
}
arguments! {
    /// See `norm.cu`.
    NormArgs { x: Address, y: Address, weight: Address, bias: Address, half: Address, dim: i32, eps: f32, }
}
arguments! {
    /// See `attention.cu`.
    QueryArgs {
        row: i32, active: i32, pinned: i32, pad: i32, position: i64, first: i64, pinned_rotation: i64,
    }
}
arguments! {
    /// See `attention.cu`.
    TurnsArgs { turns: Address, queries: Address, frequencies: Address, pairs: i32, count: i32, }
}
arguments! {
    /// See `attention.cu`.
    AttendArgs {
        qkv: Address, queries: Address, turns: Address, keys: Address, values: Address,
        key_scales: Address, value_scales: Address, peaks: Address, totals: Address, mixed: Address,
        out: Address, half: Address, heads: i32, dim: i32, dim_padded: i32, cells: i32, cells_padded: i32,
        splits: i32, begin: i32, pad: i32,
    }
}
arguments! {
    /// See `codec.cu`.
    WindowArgs {
        x: Address, windows: Address, kept: Address, fresh: Address, active: Address, channels: i32,
        t: i32, columns: i32, taps: i32, stride: i32, dilation: i32, outputs: i32, replicate: i32,
    }
}
arguments! {
    /// See `codec.cu`.
    UpsampleArgs {
        x: Address, y: Address, kept: Address, taps: Address, bias: Address, active: Address,
        channels: i32, t: i32, stride: i32, pad: i32,
    }
}
arguments! {
    /// See `codec.cu`.
    NearestArgs {
        scores: Address, bias: Address, entries: Address, residual: Address, codes: Address,
        count: i32, dim: i32,
    }
}
arguments! {
    /// See `product.cu`.
    EightBitArgs {
        weights: Address, scales: Address, x: Address, y: Address, lanes: i32, outputs: i32,
        inputs: i32, blocks: i32,
    }
}
arguments! {
    /// What one lane wants of [`SampleArgs`]; see `sample.cu`.
    DrawArgs {
        seed: u64, position: i64, stream: u32, top_k: u32, temperature: f32, penalty: f32,
        active: i32, forced: i32,
    }
}
arguments! {
    /// See `sample.cu`.
    SampleArgs {
        logits: Address, draws: Address, recent: Address, recent_count: Address, chosen: Address,
        fed: Address, faults: Address, board: Address, count: i32, lanes: i32,
    }
}

/// How numbers are kept; the kernels' words for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    F32 = 0,
    Bf16 = 1,
}
