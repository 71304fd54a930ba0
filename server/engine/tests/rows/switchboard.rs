//! An engine with its rows, stepped by hand, and what each row gave.

use std::sync::{Arc, Mutex};

use engine::backend::{Backend, KvDtype};
use engine::kernels::Dtype;
use engine::native::Native;
use engine::voice_model::{CallTrace, EngineOptions, Probe, VoiceModel};
use engine::weights::Checkpoint;
use slots::engine::{Engine, FrameKind, FrameOutput, Readiness, TickPlan};
use slots::units::{FRAME_SAMPLES, SlotId};

use crate::callers::Caller;

/// How the CPU computes.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    pub dtype: Dtype,
    pub kv_dtype: KvDtype,
    pub threads: usize,
}

impl Machine {
    pub const fn f32(threads: usize) -> Self {
        Self {
            dtype: Dtype::F32,
            kv_dtype: KvDtype::F32,
            threads,
        }
    }
}

/// One frame as the caller gets it; samples as bits, so that equal means equal.
#[derive(Clone, PartialEq, Eq)]
pub struct Heard {
    pub kind: FrameKind,
    pub text: String,
    pub pcm_bits: Vec<u32>,
}

impl Heard {
    fn of(out: &FrameOutput) -> Self {
        Self {
            kind: out.kind,
            text: out.text.as_str().into(),
            pcm_bits: out.pcm.iter().map(|sample| sample.to_bits()).collect(),
        }
    }

    pub fn pcm(&self) -> impl Iterator<Item = f32> + '_ {
        self.pcm_bits.iter().map(|&bits| f32::from_bits(bits))
    }
}

/// Everything a caller got.
pub type Call = Vec<Heard>;

/// The engine, and which caller sits in which row.
pub struct Switchboard<B: Backend = Native> {
    pub model: VoiceModel<B>,
    seats: Vec<Option<Seated>>,
    mic: Vec<f32>,
    out: Vec<FrameOutput>,
}

struct Seated {
    caller: Caller,
    /// Frames spoken so far.
    frames: usize,
    call: Call,
}

impl Switchboard<Native> {
    pub fn new(checkpoint: &Checkpoint, machine: Machine, rows: usize) -> Self {
        Self::with(checkpoint, machine, rows, |_| {})
    }

    /// With other options than serving uses.
    pub fn with(
        checkpoint: &Checkpoint,
        machine: Machine,
        rows: usize,
        change: impl FnOnce(&mut EngineOptions),
    ) -> Self {
        let backend = Native::new(machine.dtype, machine.kv_dtype, machine.threads);
        Self::on(backend, checkpoint, rows, change)
    }
}

impl<B: Backend> Switchboard<B> {
    /// With a backend of one's own.
    pub fn on(
        backend: B,
        checkpoint: &Checkpoint,
        rows: usize,
        change: impl FnOnce(&mut EngineOptions),
    ) -> Self {
        let mut options = EngineOptions::serving(checkpoint.config(), rows);
        // The windows of these models are too small for a live call with a role.
        options.positions_max = usize::MAX;
        change(&mut options);
        let model = VoiceModel::load(backend, checkpoint, options, &mut |_, _| {})
            .expect("the model is whole");
        Self {
            model,
            seats: (0..rows).map(|_| None).collect(),
            mic: vec![0.0; rows * FRAME_SAMPLES],
            out: (0..rows).map(|_| FrameOutput::idle()).collect(),
        }
    }

    /// Seats a caller, whoever sat there before.
    pub fn seat(&mut self, row: usize, caller: &Caller) -> Readiness {
        self.seats[row] = Some(Seated {
            caller: caller.clone(),
            frames: 0,
            call: Call::new(),
        });
        self.model
            .seat(slot(row), caller.voice_call())
            .expect("the prompt is short enough")
    }

    /// One chunk of the row's prompt.
    pub fn prefill(&mut self, row: usize) -> Readiness {
        self.model.prefill(slot(row)).expect("the device works")
    }

    /// Seats a caller and reads the whole prompt; how often the engine was asked to read.
    pub fn join(&mut self, row: usize, caller: &Caller) -> u32 {
        let mut ready = self.seat(row, caller);
        let mut reads = 0;
        while ready != Readiness::Live {
            ready = self.prefill(row);
            reads += 1;
        }
        reads
    }

    /// Frees the row; what its caller got.
    pub fn leave(&mut self, row: usize) -> Call {
        self.model.vacate(slot(row));
        self.seats[row].take().map_or_else(Call::new, |s| s.call)
    }

    /// One tick of `rows`, ascending. Rows that are left out must stay idle; a row that is named but not live does too.
    pub fn tick(&mut self, rows: &[usize]) {
        self.step(rows);
        for (row, out) in self.out.iter().enumerate() {
            match &mut self.seats[row] {
                Some(seated) if out.kind != FrameKind::Idle && rows.contains(&row) => {
                    seated.call.push(Heard::of(out));
                }
                _ => {
                    assert_eq!(out.kind, FrameKind::Idle, "row {row} took no part");
                    assert!(out.text.is_empty() && out.pcm.iter().all(|&v| v == 0.0));
                }
            }
        }
    }

    /// As [`Switchboard::tick`], without keeping what came out.
    pub fn step(&mut self, rows: &[usize]) {
        // Nobody may read the microphone of a row that takes no part.
        self.mic.fill(f32::MAX);
        for &row in rows {
            if let Some(seated) = &self.seats[row] {
                let mic = &mut self.mic[row * FRAME_SAMPLES..][..FRAME_SAMPLES];
                seated.caller.speak(seated.frames, mic);
            }
        }
        let plan = TickPlan {
            live: rows.iter().map(|&row| slot(row)).collect(),
        };
        self.model
            .step(&plan, &self.mic, &mut self.out)
            .expect("the device works");
        for (seat, out) in self.seats.iter_mut().zip(&self.out) {
            if let Some(seated) = seat {
                seated.frames += usize::from(out.kind != FrameKind::Idle);
            }
        }
    }

    /// Ticks of one row alone.
    pub fn ticks(&mut self, row: usize, frames: usize) {
        (0..frames).for_each(|_| self.tick(&[row]));
    }

    /// A whole call of `frames` frames in `row`, nobody else speaking.
    pub fn whole_call(&mut self, row: usize, caller: &Caller, frames: usize) -> Call {
        self.join(row, caller);
        self.ticks(row, frames);
        self.leave(row)
    }

    /// What the row gave in the last tick.
    pub fn last(&self, row: usize) -> &FrameOutput {
        &self.out[row]
    }
}

pub fn slot(row: usize) -> SlotId {
    SlotId::new(row).expect("tests have few rows")
}

/// What differs first between two calls, if anything does.
pub fn difference(found: &[Heard], expected: &[Heard]) -> Option<String> {
    for (frame, (found, expected)) in found.iter().zip(expected).enumerate() {
        if found.kind != expected.kind {
            let (found, expected) = (found.kind, expected.kind);
            return Some(format!("frame {frame} is {found:?}, not {expected:?}"));
        }
        if found.text != expected.text {
            let (found, expected) = (&found.text, &expected.text);
            return Some(format!("frame {frame} says {found:?}, not {expected:?}"));
        }
        let mut samples = found.pcm_bits.iter().zip(&expected.pcm_bits);
        if let Some(sample) = samples.position(|(a, b)| a != b) {
            return Some(format!("sample {sample} of frame {frame} differs"));
        }
    }
    let lengths = (found.len(), expected.len());
    (lengths.0 != lengths.1).then(|| format!("{} frames, not {}", lengths.0, lengths.1))
}

/// Stops with what differs first.
#[track_caller]
pub fn assert_same(found: &[Heard], expected: &[Heard], what: &str) {
    if let Some(difference) = difference(found, expected) {
        panic!("{what}: {difference}");
    }
}

/// The text of a call.
pub fn text(call: &[Heard]) -> String {
    call.iter().map(|heard| heard.text.as_str()).collect()
}

/// All samples of a call.
pub fn pcm(call: &[Heard]) -> Vec<f32> {
    call.iter().flat_map(Heard::pcm).collect()
}

/// Keeps what happens inside.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<CallTrace>>>);

impl Probe for Recorder {
    fn call(&mut self, trace: CallTrace) {
        self.0.lock().unwrap().push(trace);
    }
}

/// A whole call in row 0 of `board`, with what each position of the prompt and of the conversation gave inside.
pub fn traced_call(
    mut board: Switchboard,
    caller: &Caller,
    frames: usize,
) -> (Call, Vec<CallTrace>) {
    let recorder = Recorder::default();
    board.model.set_probe(Box::new(recorder.clone()));
    let call = board.whole_call(0, caller, frames);
    let traces = std::mem::take(&mut *recorder.0.lock().unwrap());
    (call, traces)
}

/// The text tokens of a conversation, call by call; under the default order the first one belongs to the frame that is
/// not sent.
pub fn text_tokens(board: Switchboard, caller: &Caller, frames: usize) -> Vec<u32> {
    let (_, traces) = traced_call(board, caller, frames);
    let live = &traces[caller.prompt.positions()..];
    live.iter().map(|trace| trace.text).collect()
}
