//! The command line: what can be asked for, and how answers become exit codes.
//!
//! Lives here: the list of commands, one-line errors, exit codes. One command, one file.
//! May not live here: the work of a command.

pub mod bench;
mod calibrate;
pub mod disk;
pub mod doctor;
mod door;
pub mod engine;
mod facts;
#[cfg(debug_assertions)]
mod fault;
pub mod fetch;
pub mod load;
pub mod model_files;
pub mod password;
mod presets;
pub mod progress;
pub mod run;
pub mod serve;
pub mod sound_file;
pub mod verify;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::flags::PlaceFlags;
use crate::config::sources::Environment;
use crate::config::{Config, ConfigError, Flags};

/// Switchboard of full-duplex speech agents: many callers, one box, one binary
#[derive(Debug, Parser)]
#[command(
    name = "vivavoce",
    version,
    max_term_width = 110,
    disable_help_subcommand = true,
    after_help = SETTINGS_HELP,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Where things are.
    #[command(flatten)]
    pub place: PlaceFlags,
}

const SETTINGS_HELP: &str = "\
Examples:
  vivavoce serve
      the built-in demo, on http://localhost:8998
  vivavoce doctor
      what will work on this machine, and what to do about the rest
  vivavoce fetch nvidia/personaplex-7b-v1 && vivavoce serve --model nvidia/personaplex-7b-v1
      the published model

Every setting can be given as a flag (--slots 8), in the environment (VIVAVOCE_SLOTS=8) or in the
settings file (slots = 8); the first of these that has it counts.

Exit codes: 0 done, 1 refused or failed, 2 wrong arguments, 3 the device failed, 4 a tick hung.";

/// One command, with its arguments.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant)] // made once in the life of the process
#[allow(missing_docs)] // a text here would replace the longer one that stands with the command
pub enum Command {
    Serve(serve::ServeArgs),
    Run(run::RunArgs),
    Bench(bench::BenchArgs),
    Load(load::LoadArgs),
    Verify(verify::VerifyArgs),
    Fetch(fetch::FetchArgs),
    Doctor(doctor::DoctorArgs),
    Password(password::PasswordArgs),
}

/// How a command ended, when it ended in an orderly way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything asked for was done.
    Done,
    /// A check failed or something was refused; the command has said what.
    Refused,
    /// A setting cannot be used; the command has said which.
    WrongSettings,
    /// The device failed.
    DeviceFailed,
    /// A tick hung and the watchdog ended it.
    Hung,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        ExitCode::from(match outcome {
            Outcome::Done => 0,
            Outcome::Refused => 1,
            Outcome::WrongSettings => USAGE,
            Outcome::DeviceFailed => 3,
            Outcome::Hung => HUNG,
        })
    }
}

/// Exit code of a hung tick, also where the watchdog ends the process by itself.
pub(crate) const HUNG: u8 = 4;
/// Exit code for wrong arguments and wrong settings.
const USAGE: u8 = 2;

/// The whole program: parses the process's arguments, runs the command, and says in one line why it did not work.
pub fn main() -> ExitCode {
    match parse(std::env::args_os()) {
        Ok(cli) => match dispatch(cli, &Environment::of_process()) {
            Ok(outcome) => outcome.into(),
            Err(err) => {
                complain(&with_causes(&err));
                let config = err.downcast_ref::<ConfigError>();
                ExitCode::from(if config.is_some_and(ConfigError::is_usage) {
                    USAGE
                } else {
                    1
                })
            }
        },
        Err(err) if !err.use_stderr() => {
            // Help or version was asked for; a reader that went away early is not an error.
            let _ = err.print();
            ExitCode::SUCCESS
        }
        Err(err) if err.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = err.print();
            ExitCode::from(USAGE)
        }
        Err(err) => {
            complain(&one_line(&err));
            ExitCode::from(USAGE)
        }
    }
}

/// Parses a command line.
///
/// # Errors
/// clap's error, which is also how help and version come out.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let matches = Cli::command().try_get_matches_from(args)?;
    Cli::from_arg_matches(&matches)
}

fn dispatch(cli: Cli, environment: &Environment) -> anyhow::Result<Outcome> {
    let place = cli.place;
    let with_place = |flags: Flags| Flags {
        place: place.clone(),
        ..flags
    };
    let load = |flags: Flags| Config::load(&with_place(flags), environment);
    match cli.command {
        Command::Serve(args) => {
            let config = load(args.flags())?;
            serve::run(args, config)
        }
        Command::Password(args) => password::run(args, load(Flags::default())?),
        Command::Run(args) => {
            let config = load(args.flags())?;
            run::run(args, config)
        }
        Command::Bench(args) => {
            let config = load(args.flags())?;
            bench::run(args, config)
        }
        Command::Load(args) => load::run(args, load(Flags::default())?),
        Command::Verify(args) => {
            let config = load(args.flags())?;
            verify::run(args, config)
        }
        Command::Fetch(args) => fetch::run(args, load(Flags::default())?),
        Command::Doctor(args) => {
            let (config, problems) = Config::read(&with_place(args.flags()), environment);
            doctor::run(args, config, problems)
        }
    }
}

/// The error and what is behind it, in one line. Many errors name their cause in their own text; it is said once.
pub(crate) fn with_causes(err: &anyhow::Error) -> String {
    let causes = err.chain().skip(1).map(ToString::to_string);
    causes.fold(err.to_string(), |said, cause| match said.contains(&cause) {
        true => said,
        false => format!("{said}: {cause}"),
    })
}

/// Prints one line for people on the error stream.
pub(crate) fn complain(line: &str) {
    // Nobody is left to tell when the error stream is closed.
    let _ = writeln!(std::io::stderr(), "vivavoce: {line}");
}

/// Prints one or more lines of a result. A reader that went away early (`| head`) is not an error.
pub(crate) fn tell(lines: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{lines}");
}

/// Prints one line of news on the error stream.
pub(crate) fn note(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// clap's message without its usage block: what is wrong, and its tip if it has one, in one line.
fn one_line(err: &clap::Error) -> String {
    let text = err.to_string();
    let paragraphs = text.split("\n\n").map(|paragraph| {
        let words = paragraph
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty());
        words.collect::<Vec<_>>().join(" ")
    });
    let is_kept = |p: &String| !p.starts_with("Usage:") && !p.starts_with("For more information");
    let message = paragraphs.filter(is_kept).collect::<Vec<_>>().join("; ");
    let message = message
        .strip_prefix("error: ")
        .unwrap_or(&message)
        .to_owned();
    format!("{message} (see --help)")
}
