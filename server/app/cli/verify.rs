//! `vivavoce verify`: this build and device against recorded outputs of the reference.
//!
//! Lives here: arguments of the command, the table.
//! May not live here: the comparisons.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::Outcome;
use crate::config::flags::EngineFlags;
use crate::config::values::{DeviceChoice, Dtype, ThreadCount};
use crate::config::{Config, Flags};

/// Compare this build and device with recorded outputs of the reference
///
/// Prints one line per topic: worst difference, tolerance, pass or fail. Computes in f32 unless --dtype says otherwise;
/// bf16 is compared by relative RMS where inputs are given, q8_0 is only reported.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  vivavoce verify --reference reference
      every topic, on the default device
  vivavoce verify --reference reference --device cuda:0 --dtype bf16 --json
      a GPU in the format it serves in, as JSON

Exit codes: 0 every topic within its tolerance, 1 one or more outside, or nothing to compare.")]
pub struct VerifyArgs {
    /// Folder that holds `checkpoint/` and `goldens/`
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub reference: PathBuf,
    /// Number format of the weights
    #[arg(long, value_name = "f32|bf16|q8_0", default_value = "f32")]
    pub dtype: Dtype,
    /// Where it runs [default: auto]
    #[arg(long, value_name = "auto|cpu|cuda:N")]
    pub device: Option<DeviceChoice>,
    /// CPU threads of the engine, 1 to 1024 [default: auto, one per core]
    #[arg(long, value_name = "N|auto")]
    pub threads: Option<ThreadCount>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl VerifyArgs {
    /// The arguments that are settings.
    pub fn flags(&self) -> Flags {
        Flags {
            engine: EngineFlags {
                dtype: Some(self.dtype),
                device: self.device,
                threads: self.threads,
                ..EngineFlags::default()
            },
            ..Flags::default()
        }
    }
}

/// Compares and prints.
///
/// # Errors
/// One line: what cannot be read.
pub fn run(_args: VerifyArgs, _config: Config) -> anyhow::Result<Outcome> {
    anyhow::bail!("`verify` is not built into this version yet")
}
