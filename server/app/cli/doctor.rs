//! `vivavoce doctor`: what will work on this machine, and what to do about the rest.
//!
//! Lives here: arguments of the command, the report and its two forms.
//! May not live here: the looking itself, see `checks.rs`, `machine.rs`, `safety.rs`.

pub mod checks;
pub mod machine;
pub mod safety;

use std::fmt;

use clap::Args;
use serde::Serialize;

use self::checks::{Check, State};
use super::Outcome;
use crate::config::flags::{EngineFlags, ServerFlags};
use crate::config::{Config, ConfigError, Flags, Setting};

/// Say what will work on this machine, and what to do about the rest
///
/// Takes the same settings as `serve` and checks them without starting anything: processor, memory, GPU, model files,
/// port, data folder, and what browsers ask for before they give a microphone. Prints every setting with its value
/// and where it came from; secrets print as stars.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  vivavoce doctor
      would `vivavoce serve` work here?
  vivavoce doctor --model nvidia/personaplex-7b-v1 --device cuda:0
      and with the published model on the first GPU?
  vivavoce doctor --json | jq .checks
      for programs

Exit codes: 0 serve would work with these settings; 1 it would not, 2 a setting cannot be used (the first reason is on \
the error stream).")]
pub struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// How the engine computes.
    #[command(flatten)]
    pub engine: EngineFlags,
    /// How callers are served.
    #[command(flatten)]
    pub server: ServerFlags,
}

impl DoctorArgs {
    /// The arguments that are settings.
    pub fn flags(&self) -> Flags {
        Flags {
            engine: self.engine.clone(),
            server: self.server.clone(),
            ..Flags::default()
        }
    }
}

/// Longer values push their source to the right, instead of all sources.
const VALUE_WIDTH_MAX: usize = 48;

/// Everything `doctor` has to say; also its JSON form.
#[derive(Serialize)]
struct Report {
    /// `serve` would work.
    ok: bool,
    version: &'static str,
    checks: Vec<Check>,
    settings: Vec<SettingLine>,
}

#[derive(Serialize)]
struct SettingLine {
    key: String,
    value: String,
    source: String,
}

impl From<Setting> for SettingLine {
    fn from(setting: Setting) -> Self {
        let Setting { key, value, source } = setting;
        let source = source.to_string();
        Self { key, value, source }
    }
}

/// Looks at the machine and prints. Settings that cannot be used are findings, not the end: the other checks go on with
/// defaults in their place.
///
/// # Errors
/// Only when the report cannot be printed.
pub fn run(
    args: DoctorArgs,
    config: Config,
    problems: Vec<ConfigError>,
) -> anyhow::Result<Outcome> {
    let cure = "correct it or take it out; the checks go on with the default";
    let settings = problems
        .iter()
        .map(|problem| Check::fail("settings", problem.to_string(), cure));
    let mut checks: Vec<Check> = settings.collect();
    checks.extend([machine::cpu(), machine::memory()]);
    checks.extend(checks::all(&config));
    let first_failure = checks.iter().find(|check| check.state == State::Fail);
    let complaint = first_failure.map(|check| format!("{}: {}", check.name, check.finding));
    let report = Report {
        ok: complaint.is_none(),
        version: env!("CARGO_PKG_VERSION"),
        checks,
        settings: config.settings.into_iter().map(SettingLine::from).collect(),
    };
    match args.json {
        true => super::tell(serde_json::to_string_pretty(&report)?),
        false => super::tell(&report),
    }
    Ok(match complaint {
        None => Outcome::Done,
        Some(complaint) => {
            super::complain(&complaint);
            match problems.is_empty() {
                true => Outcome::Refused,
                false => Outcome::WrongSettings,
            }
        }
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "vivavoce {}\n", self.version)?;
        for check in &self.checks {
            writeln!(
                f,
                "{:<4}  {:<12} {}",
                check.state, check.name, check.finding
            )?;
            if let Some(cure) = &check.cure {
                writeln!(f, "{:19}-> {cure}", "")?;
            }
        }
        let widths = self.settings.iter().map(|line| line.value.len());
        let width = widths.max().unwrap_or(0).min(VALUE_WIDTH_MAX);
        writeln!(f, "\nsettings")?;
        for SettingLine { key, value, source } in &self.settings {
            writeln!(f, "  {key:<14} {value:<width$}  ({source})")?;
        }
        let verdict = if self.ok { "would" } else { "would not" };
        write!(f, "\nserve {verdict} work with these settings")
    }
}
