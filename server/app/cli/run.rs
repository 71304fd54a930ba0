//! `vivavoce run`: one call offline, as fast as the machine can.
//!
//! Lives here: arguments of the command; sound file in, call, sound file out.
//! May not live here: the engine's work.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::Outcome;
use crate::config::flags::EngineFlags;
use crate::config::{Config, Flags};

/// Make one call offline, from a sound file to a sound file
///
/// The same engine as `serve` hears the input as a caller would be heard, and what the agent says is written to the
/// output, frame by frame aligned with the input. Not bound to real time.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  vivavoce run --input question.wav --output answer.wav
      the demo answers with its default persona and voice
  vivavoce run --input question.wav --output answer.wav --transcript answer.json --greedy
      the same answer every time, with the words and the frames they came in
  vivavoce run --input question.wav --output answer.wav --prompt 'You sell pizza.' --voice NATM0 --seed 7")]
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
pub fn run(_args: RunArgs, _config: Config) -> anyhow::Result<Outcome> {
    anyhow::bail!("`run` is not built into this version yet")
}
