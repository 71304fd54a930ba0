//! `vivavoce run`: one call offline, as fast as the machine can.
//!
//! Lives here: arguments of the command; sound file in, call, sound file out.
//! May not live here: the engine's work.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueHint};
use engine::backend::Backend;
use engine::prepare::CallMaker;
use engine::voice_model::{VoiceCall, VoiceModel};
use engine::weights::Checkpoint;
use serde::Serialize;
use slots::call::{CallSpec, PrepareCall, Sampling};
use slots::engine::{Engine, EngineError, FrameKind, FrameOutput, Readiness, TickPlan};
use slots::units::{FRAME_MS, FRAME_SAMPLES, SlotId};

use super::engine::{
    WithBackend, call_maker, check_memory, engine_options, open_checkpoint, with_backend,
};
use super::progress::Progress;
use super::{Outcome, note, sound_file, tell};
use crate::config::flags::EngineFlags;
use crate::config::{Config, Flags};

/// Make one call offline, from a sound file to a sound file
///
/// The same engine as `serve` hears the input as a caller would be heard, and what the agent says is written to the
/// output, frame by frame aligned with the input. Not bound to real time. A caller who falls silent must stay on the
/// line to hear an answer: give more --frames than the input has.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  vivavoce run --input question.wav --output answer.wav --frames 150
      a call of 12 s; the demo speaks with its default persona and voice
  vivavoce run --input question.wav --output answer.wav --frames 150 --transcript answer.json --greedy
      no randomness, and the words with the frames they came in
  vivavoce run --input question.wav --output answer.wav --frames 150 \\
      --prompt 'You sell pizza.' --voice NATM0 --seed 7
      another role, voice and seed")]
pub struct RunArgs {
    /// What the caller says: a WAV file, any rate, mono or stereo (mixed)
    #[arg(long, value_name = "FILE.wav", value_hint = ValueHint::FilePath)]
    pub input: PathBuf,
    /// Where to write what the agent says: 24 kHz, mono, 16 bit
    #[arg(long, value_name = "FILE.wav", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Where to write what the agent says in words: JSON with the frame of every piece
    #[arg(long, value_name = "FILE.json", value_hint = ValueHint::FilePath)]
    pub transcript: Option<PathBuf>,
    /// The agent's role [default: the default persona's]
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// The agent's voice, by name [default: the default persona's]
    #[arg(long, value_name = "NAME")]
    pub voice: Option<String>,
    /// Names the random choices: the same seed gives the same call
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Always take the most probable token; temperatures and seed are then without effect
    #[arg(long)]
    pub greedy: bool,
    /// Stop after this many frames of 80 ms, 1 to 1000000; a shorter input is followed by silence [default: the
    /// input's length]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub frames: Option<u32>,
    /// How the engine computes.
    #[command(flatten)]
    pub engine: EngineFlags,
}

impl RunArgs {
    /// The arguments that are settings.
    pub fn flags(&self) -> Flags {
        Flags {
            engine: self.engine.clone(),
            ..Flags::default()
        }
    }
}

/// Makes the call.
///
/// # Errors
/// One line: the file that cannot be read or written, the model that cannot be loaded, the voice that is not there.
pub fn run(args: RunArgs, config: Config) -> anyhow::Result<Outcome> {
    let mut samples = sound_file::read(&args.input)?;
    let frames = match args.frames {
        Some(frames) => frames as usize,
        None => samples.len().div_ceil(FRAME_SAMPLES),
    };
    anyhow::ensure!(
        frames > 0,
        "{}: there is no sound in it",
        args.input.display()
    );
    samples.resize(frames * FRAME_SAMPLES, 0.0);
    let checkpoint = open_checkpoint(&config)?;
    check_memory(&config, &checkpoint, 1)?;
    let sampling = match args.greedy {
        true => Sampling {
            seed: args.seed,
            ..Sampling::greedy()
        },
        false => CallMaker::sampling(checkpoint.config(), args.seed),
    };
    let spec = CallSpec {
        text_prompt: args.prompt.clone(),
        voice: args.voice.clone(),
        sampling,
    };
    let call = call_maker(&config, &checkpoint).prepare(&spec)?;
    let voice = call.prompt.voice.clone();
    let offline = Offline {
        config: &config,
        checkpoint: &checkpoint,
        call,
        samples: &samples,
    };
    let spoken = with_backend(&config, &checkpoint, offline)??;
    sound_file::write(&args.output, &spoken.samples)?;
    let text: String = spoken.pieces.iter().map(|p| p.text.as_str()).collect();
    if let Some(path) = &args.transcript {
        let transcript = Transcript {
            text: text.clone(),
            frames,
            order: config.order.to_string(),
            voice,
            seed: args.seed,
            pieces: spoken.pieces,
        };
        let json = serde_json::to_vec_pretty(&transcript)?;
        fs::write(path, json).with_context(|| format!("writing {}", path.display()))?;
    }
    let seconds = frames as f64 * f64::from(FRAME_MS) / 1_000.0;
    tell(format_args!(
        "{}: {seconds:.1} s of sound",
        args.output.display()
    ));
    if let Some(path) = &args.transcript {
        tell(format_args!("{}: the words", path.display()));
    }
    match text.trim() {
        "" => note(format_args!(
            "the agent said nothing within {frames} frames ({seconds:.1} s); give it time to answer with more --frames"
        )),
        text => tell(format_args!("the agent said: {text}")),
    }
    Ok(Outcome::Done)
}

/// What the agent said, in words.
#[derive(Debug, Serialize)]
struct Transcript {
    /// All pieces joined.
    text: String,
    /// Length of the call in frames of 80 ms.
    frames: usize,
    /// `sooner` or `overlapped`: under `overlapped` everything comes one frame later.
    order: String,
    voice: Option<String>,
    seed: u64,
    pieces: Vec<Piece>,
}

/// One piece of text.
#[derive(Debug, Serialize)]
struct Piece {
    /// Frame of input and output, counted from 0.
    frame: usize,
    /// Where that frame begins.
    time_s: f64,
    text: String,
}

/// The call, once the backend is chosen.
struct Offline<'a> {
    config: &'a Config,
    checkpoint: &'a Checkpoint,
    call: VoiceCall,
    samples: &'a [f32],
}

/// Sound and words.
struct Spoken {
    samples: Vec<f32>,
    pieces: Vec<Piece>,
}

impl WithBackend for Offline<'_> {
    type Output = anyhow::Result<Spoken>;

    fn with<B: Backend>(
        self,
        make: impl Fn() -> Result<B, EngineError> + Send + Sync + 'static,
    ) -> Self::Output {
        let options = engine_options(self.config, self.checkpoint.config(), 1);
        let mut model = VoiceModel::load(make()?, self.checkpoint, options, &mut |_, _| {})?;
        let slot = SlotId::new(0).context("the first slot")?;
        let mut ready = model.seat(slot, self.call)?;
        while let Readiness::Prefill { .. } = ready {
            ready = model.prefill(slot)?;
        }
        let frames = self.samples.len() / FRAME_SAMPLES;
        let progress = Progress::new(frames as u64, "frames");
        let plan = TickPlan { live: vec![slot] };
        let mut out = [FrameOutput::idle()];
        let mut spoken = Spoken {
            samples: Vec::with_capacity(self.samples.len()),
            pieces: Vec::new(),
        };
        for (frame, mic) in self.samples.chunks_exact(FRAME_SAMPLES).enumerate() {
            model.step(&plan, mic, &mut out)?;
            if let FrameKind::Fault(fault) = out[0].kind {
                anyhow::bail!("frame {frame}: {fault}");
            }
            spoken.samples.extend_from_slice(&out[0].pcm);
            if !out[0].text.is_empty() {
                let time_s = frame as f64 * f64::from(FRAME_MS) / 1_000.0;
                spoken.pieces.push(Piece {
                    frame,
                    time_s,
                    text: out[0].text.to_string(),
                });
            }
            progress.add(1);
        }
        progress.done();
        Ok(spoken)
    }
}
