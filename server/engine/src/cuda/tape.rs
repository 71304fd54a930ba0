//! A machine whose ticks are recorded once and then launched whole.
//!
//! Lives here: [`Tape`], which stands between the backend and its machine. The first ticks go through as they come. Then
//! one is recorded: every launch, product and copy with its arguments, made into one graph. From then on the backend
//! still asks for every operation, in the same order; nothing is launched, each is compared with the recording, and at
//! the end of the tick small inputs go over in one write and the graph is launched. A tick that asks for anything else is
//! carried out as it comes, and recorded anew later: a recording saves time and never changes a result.
//! May not live here: what an operation computes.

use slots::engine::EngineError;

use crate::backend::Done;

use super::args::{Address, Kernel};
use super::machine::{Machine, Op, Pieces, Product};

/// Room for the small inputs of one tick: mostly the callers' frames.
const CONTROL_BYTES: usize = 8 << 20;
const CONTROL_ALIGNMENT: usize = 64;
/// Ticks that go through before one is recorded: buffers have grown, libraries have chosen.
const WARM_TICKS: u32 = 2;

/// A machine and the recording of its tick.
pub struct Tape<M: Machine> {
    machine: M,
    /// Where small inputs go; made with the first one.
    control: Option<M::Memory>,
    control_at: usize,
    /// Small inputs of the tick at hand that have not gone over yet.
    staged: Vec<u8>,
    mode: Mode,
    ops: Vec<Op>,
    graph: Option<M::Graph>,
    ticks: u32,
    records: bool,
    counts: TapeCounts,
}

/// What became of the ticks so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapeCounts {
    /// Launched operation by operation.
    pub plain: u64,
    /// Launched as one graph.
    pub whole: u64,
    /// Begun as a graph and continued operation by operation, since they asked for something else.
    pub broken: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Operations are carried out.
    Through,
    /// Operations are noted, and carried out at the end.
    Record,
    /// Operations are compared with the recording; so many agreed.
    Follow { agreed: usize },
}

impl<M: Machine> Tape<M> {
    pub(super) fn new(machine: M) -> Self {
        Self {
            machine,
            control: None,
            control_at: 0,
            staged: Vec::new(),
            mode: Mode::Through,
            ops: Vec::new(),
            graph: None,
            ticks: 0,
            records: true,
            counts: TapeCounts::default(),
        }
    }

    /// Carries everything out as it comes from now on.
    pub(super) fn never_record(&mut self) {
        self.records = false;
        self.graph = None;
    }

    pub(super) fn counts(&self) -> TapeCounts {
        self.counts
    }

    /// Whether ticks are launched whole, as far as is known.
    pub(super) fn records(&self) -> bool {
        self.records
    }

    /// The operations of the recorded tick.
    pub(super) fn recorded(&self) -> &[Op] {
        match self.graph {
            Some(_) => &self.ops,
            None => &[],
        }
    }

    /// From here to [`Tape::end_tick`] the same operations are expected every time.
    pub(super) fn begin_tick(&mut self) -> Done {
        self.control_at = 0;
        self.staged.clear();
        self.ticks = self.ticks.saturating_add(1);
        self.mode = match (&self.graph, self.records && self.ticks > WARM_TICKS) {
            (Some(_), _) => Mode::Follow { agreed: 0 },
            (None, true) => {
                self.ops.clear();
                Mode::Record
            }
            (None, false) => Mode::Through,
        };
        Ok(())
    }

    /// Carries out what was put off.
    pub(super) fn end_tick(&mut self) -> Done {
        match std::mem::replace(&mut self.mode, Mode::Through) {
            Mode::Through => {
                self.counts.plain += 1;
                Ok(())
            }
            Mode::Record => self.end_record(),
            Mode::Follow { agreed } if agreed == self.ops.len() => {
                self.flush()?;
                self.counts.whole += 1;
                match &self.graph {
                    Some(graph) => self.machine.replay(graph),
                    None => Ok(()),
                }
            }
            // It asked for less.
            Mode::Follow { agreed } => self.fall_back(agreed),
        }
    }

    fn end_record(&mut self) -> Done {
        self.flush()?;
        match self.machine.capture(&self.ops) {
            Ok(graph) => {
                self.counts.whole += 1;
                self.machine.replay(&graph)?;
                self.graph = Some(graph);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "a tick cannot be recorded; every operation is launched by itself");
                self.records = false;
                self.counts.plain += 1;
                perform(&mut self.machine, &self.ops)
            }
        }
    }

    /// The tick goes another way than the recorded one: does what was agreed so far.
    fn fall_back(&mut self, agreed: usize) -> Done {
        self.mode = Mode::Through;
        self.counts.broken += 1;
        self.graph = None;
        self.ticks = 0;
        self.flush()?;
        perform(&mut self.machine, &self.ops[..agreed])
    }

    /// Sends the small inputs that were put off.
    fn flush(&mut self) -> Done {
        let staged = std::mem::take(&mut self.staged);
        let done = match &self.control {
            Some(control) if !staged.is_empty() => self.machine.write(M::address(control), &staged),
            _ => Ok(()),
        };
        self.staged = staged;
        self.staged.clear();
        done
    }

    /// Where `bytes` will be once the operations that follow are carried out. Their place is taken again after a while,
    /// when these have used them, since a machine does things in order.
    pub(super) fn control(&mut self, bytes: &[u8]) -> Result<Address, EngineError> {
        if bytes.len() > CONTROL_BYTES {
            return Err(EngineError {
                what: format!("{} bytes are no small input", bytes.len()),
            });
        }
        let control = match &mut self.control {
            Some(control) => control,
            none => none.insert(self.machine.allocate(CONTROL_BYTES)?),
        };
        let base = M::address(control);
        if self.control_at + bytes.len() > CONTROL_BYTES {
            if self.mode != Mode::Through {
                return Err(EngineError {
                    what: format!("a tick has more than {CONTROL_BYTES} bytes of small inputs"),
                });
            }
            self.control_at = 0;
        }
        let at = self.control_at;
        self.control_at = (at + bytes.len()).next_multiple_of(CONTROL_ALIGNMENT);
        match self.mode {
            Mode::Through => self.machine.write(base + at as Address, bytes)?,
            Mode::Record | Mode::Follow { .. } => {
                self.staged.resize(at, 0);
                self.staged.extend_from_slice(bytes);
            }
        }
        Ok(base + at as Address)
    }

    /// Takes one operation, in whatever way the tick at hand is.
    fn take(&mut self, op: Op) -> Done {
        match self.mode {
            Mode::Through => perform(&mut self.machine, &[op]),
            Mode::Record => {
                self.ops.push(op);
                Ok(())
            }
            Mode::Follow { agreed } if self.ops.get(agreed) == Some(&op) => {
                self.mode = Mode::Follow { agreed: agreed + 1 };
                Ok(())
            }
            Mode::Follow { agreed } => {
                self.fall_back(agreed)?;
                perform(&mut self.machine, &[op])
            }
        }
    }

    /// Something that has to be done now: whatever was put off is done first.
    fn catch_up(&mut self) -> Done {
        match self.mode {
            Mode::Through => Ok(()),
            Mode::Follow { agreed } => self.fall_back(agreed),
            Mode::Record => {
                self.mode = Mode::Through;
                self.flush()?;
                let ops = std::mem::take(&mut self.ops);
                perform(&mut self.machine, &ops)
            }
        }
    }
}

/// Carries out operations one by one.
pub(super) fn perform<M: Machine>(machine: &mut M, ops: &[Op]) -> Done {
    for op in ops {
        match op {
            Op::Launch {
                kernel,
                blocks,
                args,
            } => machine.launch(*kernel, *blocks, args)?,
            Op::Product(product) => machine.product(*product)?,
            Op::Copy(pieces) => machine.copy(*pieces)?,
        }
    }
    Ok(())
}

impl<M: Machine> Machine for Tape<M> {
    type Memory = M::Memory;
    type Graph = M::Graph;

    fn describe(&self) -> String {
        self.machine.describe()
    }

    fn keeps_numbers(&self) -> bool {
        self.machine.keeps_numbers()
    }

    fn allocate(&mut self, bytes: usize) -> Result<M::Memory, EngineError> {
        self.machine.allocate(bytes)
    }

    fn address(memory: &M::Memory) -> Address {
        M::address(memory)
    }

    fn zero(&mut self, at: Address, bytes: usize) -> Done {
        self.catch_up()?;
        self.machine.zero(at, bytes)
    }

    fn write(&mut self, at: Address, bytes: &[u8]) -> Done {
        self.catch_up()?;
        self.machine.write(at, bytes)
    }

    fn read(&mut self, at: Address, out: &mut [u8]) -> Done {
        self.catch_up()?;
        self.machine.read(at, out)
    }

    fn copy(&mut self, pieces: Pieces) -> Done {
        self.take(Op::Copy(pieces))
    }

    fn launch(&mut self, kernel: Kernel, blocks: [u32; 2], args: &[u8]) -> Done {
        let is_next = |op: &Op| match op {
            Op::Launch {
                kernel: next,
                blocks: their_blocks,
                args: their_args,
            } => *next == kernel && *their_blocks == blocks && **their_args == *args,
            _ => false,
        };
        match self.mode {
            Mode::Through => self.machine.launch(kernel, blocks, args),
            Mode::Follow { agreed } if self.ops.get(agreed).is_some_and(is_next) => {
                self.mode = Mode::Follow { agreed: agreed + 1 };
                Ok(())
            }
            _ => self.take(Op::Launch {
                kernel,
                blocks,
                args: args.into(),
            }),
        }
    }

    fn product(&mut self, product: Product) -> Done {
        self.take(Op::Product(product))
    }

    fn capture(&mut self, ops: &[Op]) -> Result<M::Graph, EngineError> {
        self.machine.capture(ops)
    }

    fn replay(&mut self, graph: &M::Graph) -> Done {
        self.machine.replay(graph)
    }

    fn synchronize(&mut self) -> Done {
        self.catch_up()?;
        self.machine.synchronize()
    }
}
