//! `vivavoce verify`: this build and device against recorded outputs of the reference.
//!
//! Lives here: arguments of the command, the table.
//! May not live here: the comparisons.

use std::fmt;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueHint};
use engine::backend::Backend;
use engine::verify::{Check, Measure, Report, VerifyError, verify, verify_kernels, verify_rows};
use engine::weights::Checkpoint;
use slots::engine::EngineError;

use super::engine::{WithBackend, number_formats, provoke_fault, with_backend};
use super::{Outcome, note, tell};
use crate::config::flags::EngineFlags;
use crate::config::values::{DeviceChoice, Dtype, KvDtype, ThreadCount};
use crate::config::{Config, Flags};

/// Compare this build and device with recorded outputs of the reference
///
/// Prints one line per check: topic, what is compared and how, the worst value, its tolerance, pass or FAIL. Computes
/// in f32 unless --dtype says otherwise; bf16 is compared by relative RMS where inputs are given, q8_0 is only reported.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  vivavoce verify --reference server/engine/tests/fixtures/tiny2
      everything in the recordings that come with the sources, on the default device
  vivavoce verify --reference reference --device cuda:0 --dtype bf16 --json
      a GPU in the format it serves in, as JSON

Exit codes: 0 every check within its tolerance, 1 one or more outside, or nothing to compare.")]
pub struct VerifyArgs {
    /// Folder that holds `checkpoint/` and `goldens/`
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub reference: PathBuf,
    /// Instead of comparing with recordings: check that a call's bits do not depend on other rows
    #[arg(long)]
    pub rows: bool,
    /// Instead of comparing with recordings: check every operation of the device against the CPU's
    #[arg(long, conflicts_with = "rows")]
    pub kernels: bool,
    /// Instead of comparing: make the GPU fail, and see that it is noticed; nothing of it outlives this command
    #[arg(long, conflicts_with_all = ["rows", "kernels"])]
    pub fault: bool,
    /// Number format of the weights
    #[arg(long, value_name = "f32|bf16|q8_0", default_value = "f32")]
    pub dtype: Dtype,
    /// Number format of the attention memory; auto is f32 beside f32 weights, else bf16 [default: auto]
    #[arg(long, value_name = "auto|f32|bf16|fp8")]
    pub kv_dtype: Option<KvDtype>,
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
                kv_dtype: self.kv_dtype,
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
pub fn run(args: VerifyArgs, config: Config) -> anyhow::Result<Outcome> {
    if args.fault {
        let words = provoke_fault(&config)?;
        tell(format_args!("the fault was noticed: {words}"));
        return Ok(Outcome::Done);
    }
    let checkpoint = Arc::new(Checkpoint::open(&args.reference.join("checkpoint"))?);
    let (dtype, kv_dtype) = number_formats(&config, &checkpoint)?;
    let report = with_backend(
        &config,
        &checkpoint,
        Compare {
            args: &args,
            checkpoint: &checkpoint,
            dtype,
            kv_dtype,
        },
    )??;
    match args.json {
        true => tell(serde_json::to_string_pretty(&json(&report))?),
        false => tell(Table(&report)),
    }
    Ok(if report.passed() {
        Outcome::Done
    } else {
        Outcome::Refused
    })
}

struct Compare<'a> {
    args: &'a VerifyArgs,
    checkpoint: &'a Arc<Checkpoint>,
    dtype: engine::kernels::Dtype,
    kv_dtype: engine::backend::KvDtype,
}

impl WithBackend for Compare<'_> {
    type Output = Result<Report, VerifyError>;

    fn with<B: Backend>(
        self,
        make: impl Fn() -> Result<B, EngineError> + Send + Sync + 'static,
    ) -> Self::Output {
        let terminal = std::io::stderr().is_terminal();
        let mut make = || make();
        let mut progress = |topic: &str| {
            if terminal {
                note(format_args!("comparing {topic}"));
            }
        };
        if self.args.kernels {
            verify_kernels(self.dtype, self.kv_dtype, &mut make, &mut progress)
        } else if self.args.rows {
            verify_rows(self.checkpoint, &mut make, &mut progress)
        } else {
            verify(&self.args.reference, self.dtype, &mut make, &mut progress)
        }
    }
}

fn measure(check: &Check) -> &'static str {
    match check.measure {
        Measure::Absolute => "largest difference",
        Measure::RelativeRms => "relative rms",
        Measure::Differing => "values that differ",
    }
}

/// The checks for people: one line each, and the sum of them.
struct Table<'a>(&'a Report);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = &self.0.checks;
        let width = |head: &str, of: fn(&Check) -> &String| {
            let widths = checks.iter().map(|check| of(check).len());
            widths.max().unwrap_or(0).max(head.len())
        };
        let (topic, what) = (width("topic", |c| &c.topic), width("check", |c| &c.what));
        if !checks.is_empty() {
            writeln!(
                f,
                "{:topic$}  {:what$}  {:18}  {:>9}  {:>8}  result",
                "topic", "check", "measure", "worst", "limit"
            )?;
        }
        for check in checks {
            let limit = check
                .tolerance
                .map_or("-".into(), |tolerance| format!("{tolerance:.1e}"));
            let verdict = match (check.passed(), check.tolerance) {
                (true, None) => "reported",
                (true, Some(_)) => "pass",
                (false, _) => "FAIL",
            };
            writeln!(
                f,
                "{:topic$}  {:what$}  {:18}  {:>9.2e}  {limit:>8}  {verdict}",
                check.topic,
                check.what,
                measure(check),
                check.worst,
            )?;
        }
        let failed = checks.iter().filter(|check| !check.passed()).count();
        match (checks.len(), failed) {
            (0, _) => write!(f, "nothing to compare: no recorded topic was found"),
            (all, 0) => write!(f, "all {all} checks passed"),
            (all, failed) => write!(f, "{failed} of {all} checks FAILED"),
        }
    }
}

fn json(report: &Report) -> serde_json::Value {
    let checks = report.checks.iter().map(|check| {
        serde_json::json!({
            "topic": check.topic,
            "what": check.what,
            "measure": measure(check),
            // JSON has no NaN; a comparison that gave one has failed.
            "worst": check.worst.is_finite().then_some(check.worst),
            "tolerance": check.tolerance,
            "passed": check.passed(),
        })
    });
    serde_json::json!({ "passed": report.passed(), "checks": checks.collect::<Vec<_>>() })
}
