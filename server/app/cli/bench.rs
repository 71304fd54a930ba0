//! `vivavoce bench`: how long a tick takes on this machine.
//!
//! Lives here: arguments of the command, one line per batch size or case.
//! May not live here: the cases themselves.

mod cases;
mod pairs;
mod plan;
mod process;
mod sweep;
mod timing;

use std::io;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::Outcome;
use crate::config::flags::EngineFlags;
use crate::config::values::{Dtype, ThreadCount};
use crate::config::{Config, Flags};

/// Measure how long a tick takes on this machine
///
/// Prints one line per batch size: milliseconds a tick (median and p99), real-time factor per stream (tick time over
/// 80 ms; below 1 is real time), and memory. With --cases it times parts of the network alone, with random weights.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  vivavoce bench --batch 1,2,4,8 --ticks 100
      the demo with 1, 2, 4 and 8 callers
  vivavoce bench --model random --device cuda:0 --batch 1,8,16 --json
      size a GPU without having the published weights
  vivavoce bench --plan --model random --batch 16,32,64 --kv-dtype bf16
      what a tick of the published size asks of a GPU, and the floor on an H200
  vivavoce bench --cases mimi_encode,mimi_decode --batch 1,4,8 --dtype f32
      the codec alone, in its published size
  vivavoce bench --cases lm --preset mid --dtype bf16,q8_0 --threads 2 --boost 1 --json
      the three lm_ cases, two number formats, under real-time scheduling")]
pub struct BenchArgs {
    /// Batch sizes, 1 to 256 each, separated by commas
    #[arg(long, alias = "slots", visible_alias = "slots", value_name = "N,..", value_delimiter = ',',
          default_value = "1,2,4,8", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub batch: Vec<u16>,
    /// Ticks to time, 1 to 1000000
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub ticks: u32,
    /// Ticks to run before timing starts, 0 to 100000
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub warmup: u32,
    /// Stop timing after this many seconds even if fewer ticks have run, 1 to 3600 [default: no limit]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub seconds: Option<u32>,
    /// Time these parts alone, separated by commas; lm stands for the three lm_ cases
    #[arg(long, value_name = "CASE,..", value_delimiter = ',', value_enum)]
    pub cases: Vec<Case>,
    /// Sizes of the network for --cases [default: each case's own]
    #[arg(long, value_name = "mimi|mid|7b", value_enum, requires = "cases")]
    pub preset: Option<Preset>,
    /// 1: time under real-time scheduling (needs the right to); 0: as any other process
    #[arg(long, value_name = "0|1", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub boost: u8,
    /// Count what a tick on a GPU costs instead: launches, bytes and operations of each part, and the floor on a card;
    /// needs no GPU
    #[arg(long, conflicts_with = "cases")]
    pub plan: bool,
    /// How full the windows of the callers are, in percent; not for --cases
    #[arg(long, value_name = "PERCENT", default_value_t = 100, conflicts_with = "cases", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub fill: u8,
    /// For --plan: the card whose memory bandwidth the floor is for
    #[arg(
        long,
        value_name = "CARD",
        default_value = "h200",
        requires = "plan",
        value_enum
    )]
    pub card: Card,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Number formats for --cases, separated by commas; without --cases the first one counts [default: auto]
    #[arg(long, value_name = "auto|f32|bf16|q8_0,..", value_delimiter = ',')]
    pub dtype: Vec<Dtype>,
    /// Which model [default: demo]
    #[arg(long, value_name = "demo|random|DIR|HUBNAME")]
    pub model: Option<crate::config::values::ModelName>,
    /// Where it runs [default: auto]
    #[arg(long, value_name = "auto|cpu|cuda:N")]
    pub device: Option<crate::config::values::DeviceChoice>,
    /// Number format of the attention memory [default: auto]
    #[arg(long, value_name = "auto|f32|bf16|fp8")]
    pub kv_dtype: Option<crate::config::values::KvDtype>,
    /// CPU threads of the engine, 1 to 1024 [default: auto, one per core]
    #[arg(long, value_name = "N|auto")]
    pub threads: Option<ThreadCount>,
    /// Order inside a tick [default: sooner]
    #[arg(long, value_name = "sooner|overlapped")]
    pub order: Option<crate::config::values::Order>,
}

/// A card by what its memory moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Card {
    /// H200: 4.3 TB/s as seen, of 4.8.
    H200,
    /// H100 SXM: 3.35 TB/s.
    H100,
    /// A100 80 GB: 2.0 TB/s.
    A100,
    /// RTX 4090: 1.0 TB/s.
    Rtx4090,
    /// L4: 0.3 TB/s.
    L4,
}

impl Card {
    /// Name, and bytes a second. Source: the makers' data sheets; for the H200 what was seen.
    fn facts(self) -> (&'static str, f64) {
        match self {
            Card::H200 => ("H200", 4.3e12),
            Card::H100 => ("H100", 3.35e12),
            Card::A100 => ("A100", 2.04e12),
            Card::Rtx4090 => ("RTX 4090", 1.01e12),
            Card::L4 => ("L4", 0.3e12),
        }
    }
}

/// A part of the network that can be timed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Case {
    /// Codec, sound to codes.
    MimiEncode,
    /// Codec, codes to sound.
    MimiDecode,
    /// The three `lm_` cases.
    Lm,
    /// Temporal transformer and depformer together.
    LmStep,
    /// Temporal transformer.
    LmTemporal,
    /// Depformer.
    LmDepformer,
    /// One layer of the temporal transformer in its published size, full window.
    TemporalLayer,
    /// Depformer in its published size.
    Depformer,
}

/// Sizes of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// The codec as published.
    Mimi,
    /// A language model of middle size.
    Mid,
    /// The published sizes.
    #[value(name = "7b")]
    SevenB,
}

impl BenchArgs {
    /// The arguments that are settings.
    pub fn flags(&self) -> Flags {
        Flags {
            engine: EngineFlags {
                model: self.model.clone(),
                device: self.device,
                dtype: self.dtype.first().copied(),
                kv_dtype: self.kv_dtype,
                threads: self.threads,
                order: self.order,
                ..EngineFlags::default()
            },
            ..Flags::default()
        }
    }
}

impl BenchArgs {
    /// Batch sizes, each once, in the order they were asked for.
    fn batches(&self) -> Vec<usize> {
        let mut batches = Vec::new();
        for &batch in &self.batch {
            if !batches.contains(&usize::from(batch)) {
                batches.push(usize::from(batch));
            }
        }
        batches
    }

    /// Number formats of the cases.
    fn dtypes(&self) -> &[Dtype] {
        match self.dtype.is_empty() {
            true => &[Dtype::Auto],
            false => &self.dtype,
        }
    }

    fn plan(&self) -> timing::Plan {
        timing::Plan {
            ticks: self.ticks,
            warmup: self.warmup,
            limit: self.seconds.map(|s| Duration::from_secs(s.into())),
        }
    }
}

/// What became of the wish for real-time scheduling.
fn boost_text(boost: &io::Result<process::Boost>) -> String {
    match boost {
        Ok(_) => "on".into(),
        Err(error) => format!("refused: {error}"),
    }
}

/// Measures and prints.
///
/// # Errors
/// One line: what cannot be loaded or does not fit.
pub fn run(args: BenchArgs, config: Config) -> anyhow::Result<Outcome> {
    match args.cases.is_empty() {
        true if args.plan => plan::run(&args, &config),
        true => sweep::run(&args, &config),
        false => cases::run(&args, &config),
    }
}
