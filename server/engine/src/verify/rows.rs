//! What a caller is promised whatever other rows do, on the device at hand: one call alone, beside others, on a recycled
//! row, and from a snapshot, compared bit for bit.

use std::sync::Arc;

use slots::call::{CallSpec, PrepareCall, Sampling};
use slots::engine::{Engine, EngineError, FrameKind, FrameOutput, Readiness, TickPlan};
use slots::units::{FRAME_SAMPLES, SlotId};

use crate::backend::Backend;
use crate::prepare::{CallMaker, TEACHER};
use crate::voice_model::{EngineOptions, VoiceCall, VoiceModel};
use crate::weights::Checkpoint;

use super::{Report, VerifyError};

/// Rows of the batch; the watched call sits in row 2.
const ROWS: usize = 4;
const WATCHED: usize = 2;
/// Frames of the watched call: the fixtures' rings wrap in it.
const FRAMES: usize = 60;

/// Bits of the samples and the text of every frame.
type Heard = Vec<(Vec<u32>, String)>;

/// Compares the watched call in four situations on fresh engines of the same size.
///
/// # Errors
/// [`VerifyError`]: the network cannot be built or the device failed; a difference is a failed check.
pub fn verify_rows<B: Backend>(
    checkpoint: &Arc<Checkpoint>,
    make: &mut dyn FnMut() -> Result<B, EngineError>,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, VerifyError> {
    let maker = CallMaker::new(Arc::clone(checkpoint), &[TEACHER]);
    let mut report = Report::default();
    progress("alone");
    let mut bench = Bench::new(checkpoint, &maker, make)?;
    bench.join(WATCHED, 0)?;
    let alone = bench.listen(&mut |_, _| Ok(()))?;

    progress("beside others");
    let mut bench = Bench::new(checkpoint, &maker, make)?;
    bench.join(0, 1)?;
    bench.run(7)?;
    bench.join(WATCHED, 0)?;
    let beside = bench.listen(&mut |bench, frame| match frame {
        5 => bench.join(1, 2),
        20 => {
            bench.leave(0);
            bench.join(3, 3)
        }
        33 => bench.join(0, 4),
        47 => {
            bench.leave(1);
            Ok(())
        }
        _ => Ok(()),
    })?;
    report.equal("rows", "beside others that come and go", &beside, &alone);

    progress("recycled");
    bench.leave(WATCHED);
    bench.join(WATCHED, 5)?;
    bench.run(9)?;
    bench.leave(WATCHED);
    bench.join(WATCHED, 0)?;
    let recycled = bench.listen(&mut |_, _| Ok(()))?;
    report.equal(
        "rows",
        "on a recycled row, from a snapshot",
        &recycled,
        &alone,
    );
    let hits = bench.model.counters().prompt_cache_hits.min(1);
    report.equal("rows", "the snapshot was used", &[hits], &[1]);
    Ok(report)
}

struct Bench<'a, B: Backend> {
    model: VoiceModel<B>,
    maker: &'a CallMaker,
    /// Callers by row.
    callers: [Option<Caller>; ROWS],
    out: Vec<FrameOutput>,
}

#[derive(Clone, Copy)]
struct Caller {
    number: u64,
    frame: u64,
}

impl<'a, B: Backend> Bench<'a, B> {
    fn new(
        checkpoint: &Checkpoint,
        maker: &'a CallMaker,
        make: &mut dyn FnMut() -> Result<B, EngineError>,
    ) -> Result<Self, VerifyError> {
        let options = EngineOptions {
            positions_max: usize::MAX,
            ..EngineOptions::serving(checkpoint.config(), ROWS)
        };
        let model = VoiceModel::load(make()?, checkpoint, options, &mut |_, _| {})?;
        let out = (0..ROWS).map(|_| FrameOutput::idle()).collect();
        Ok(Self {
            model,
            maker,
            callers: [None; ROWS],
            out,
        })
    }

    /// Seats caller `number`, whose seed, role and voice follow from it.
    fn join(&mut self, row: usize, number: u64) -> Result<(), VerifyError> {
        let voices = self.maker.voice_facts();
        let voice = voices.get(number as usize % voices.len().max(1));
        let voice = voice.map(|voice| voice.name.clone());
        let spec = CallSpec {
            text_prompt: (number > 0).then(|| "Hm. ".repeat(number as usize)),
            voice,
            sampling: Sampling {
                seed: number,
                ..Sampling::default()
            },
        };
        let slot = SlotId::new(row).expect("below the limit");
        let unseated = |what: String| VerifyError::Conversation { what };
        let call = self.prepare(&spec)?;
        let mut ready = self
            .model
            .seat(slot, call)
            .map_err(|error| unseated(error.to_string()))?;
        while let Readiness::Prefill { .. } = ready {
            ready = self.model.prefill(slot)?;
        }
        self.callers[row] = Some(Caller { number, frame: 0 });
        Ok(())
    }

    /// A small model's window may be too small for a live call with this role; the comparison holds all the same.
    fn prepare(&self, spec: &CallSpec) -> Result<VoiceCall, VerifyError> {
        self.maker
            .prepare_within(spec, usize::MAX)
            .map_err(|error| VerifyError::Conversation {
                what: error.to_string(),
            })
    }

    fn leave(&mut self, row: usize) {
        self.model
            .vacate(SlotId::new(row).expect("below the limit"));
        self.callers[row] = None;
    }

    fn run(&mut self, frames: usize) -> Result<(), VerifyError> {
        (0..frames).try_for_each(|_| self.tick())
    }

    fn tick(&mut self) -> Result<(), VerifyError> {
        let mut mic = vec![0.0; ROWS * FRAME_SAMPLES];
        let mut plan = TickPlan::default();
        for (row, caller) in self.callers.iter_mut().enumerate() {
            let Some(caller) = caller else { continue };
            plan.live.push(SlotId::new(row).expect("below the limit"));
            for (at, sample) in mic[row * FRAME_SAMPLES..][..FRAME_SAMPLES]
                .iter_mut()
                .enumerate()
            {
                *sample = murmur(
                    caller.number,
                    caller.frame * FRAME_SAMPLES as u64 + at as u64,
                );
            }
            caller.frame += 1;
        }
        Ok(self.model.step(&plan, &mic, &mut self.out)?)
    }

    /// Runs the watched call; `meanwhile` lets others come and go before a frame.
    fn listen(
        &mut self,
        meanwhile: &mut dyn FnMut(&mut Self, usize) -> Result<(), VerifyError>,
    ) -> Result<Heard, VerifyError> {
        let mut heard = Vec::new();
        for frame in 0..FRAMES {
            meanwhile(self, frame)?;
            self.tick()?;
            let out = &self.out[WATCHED];
            if let FrameKind::Fault(fault) = out.kind {
                return Err(VerifyError::Conversation {
                    what: fault.to_string(),
                });
            }
            heard.push((
                out.pcm.iter().map(|v| v.to_bits()).collect(),
                out.text.to_string(),
            ));
        }
        Ok(heard)
    }
}

/// Something like a voice: a tone that comes and goes, with noise; a function of caller and time alone.
fn murmur(caller: u64, sample: u64) -> f32 {
    let time_s = sample as f32 / 24_000.0;
    let hash = (sample ^ (caller << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let noise = (hash >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
    let pitch_hz = 110.0 + 30.0 * caller as f32;
    let loudness = 0.2 * (0.5 + 0.5 * (time_s * 4.0).sin());
    loudness * (time_s * pitch_hz * std::f32::consts::TAU).sin() + 0.02 * noise
}
