//! What the settings ask for, held against the machine.
//!
//! Lives here: one function per check. May not live here: printing.

use std::fmt;
use std::net::TcpListener;

use engine::device::{self, Resolved, Target};
use serde::Serialize;

use super::safety;
use crate::cli::disk::{DATA_DIR_CURE, bytes_text, check_writable, free_bytes};
use crate::cli::engine::{device_choice, open_checkpoint, slots};
use crate::cli::model_files::{ModelFiles, PUBLISHED_BYTES};
use crate::cli::with_causes;
use crate::config::Config;
use crate::config::values::ModelName;

/// Weights that a CPU can hope to step in real time: a tick reads each of them once, and 80 ms at the 50 GB/s of a
/// good desktop are 4 GB.
const CPU_BYTES_MAX: u64 = 4_000_000_000;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Ok,
    /// Worth knowing; `serve` works all the same.
    Note,
    /// `serve` would not work.
    Fail,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Fail => "FAIL",
        })
    }
}

/// One line of the report.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it came out.
    pub state: State,
    /// What was found.
    pub finding: String,
    /// What to do, or to know.
    pub cure: Option<String>,
}

impl Check {
    /// Nothing to do.
    pub fn ok(name: &'static str, finding: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Ok,
            finding: finding.into(),
            cure: None,
        }
    }

    /// Something to know.
    pub fn note(name: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Note,
            finding: finding.into(),
            cure: Some(advice.into()),
        }
    }

    /// Something to mend, from a message of the form "what is wrong; what to do"; `cure` if it does not say what to do.
    pub fn refusal(name: &'static str, message: &str, cure: &str) -> Self {
        let (finding, cure) = message.rsplit_once("; ").unwrap_or((message, cure));
        Self::fail(name, finding, cure)
    }

    /// Something to mend.
    pub fn fail(name: &'static str, finding: impl Into<String>, cure: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Fail,
            finding: finding.into(),
            cure: Some(cure.into()),
        }
    }
}

/// Every check that depends on settings.
pub fn all(config: &Config) -> Vec<Check> {
    let mut checks = vec![gpu(config), model(config, model_fits)];
    checks.extend(data_dir(config));
    checks.push(port(config));
    checks.extend(surroundings(config));
    checks
}

/// The same for a server that runs with these settings: it holds the port and the model's memory itself.
pub fn while_running(config: &Config) -> Vec<Check> {
    let mut checks = vec![gpu(config), model(config, |_, finding| Ok(finding))];
    checks.extend(data_dir(config));
    checks.extend(surroundings(config));
    checks
}

fn surroundings(config: &Config) -> Vec<Check> {
    let mut checks = safety::all(config);
    if config.offline {
        let advice = "`fetch` uses only what is on this machine";
        checks.push(Check::note("network", "downloads are switched off", advice));
    }
    if !config.unknown_variables.is_empty() {
        let names = config.unknown_variables.join(", ");
        let advice = "no setting has this name; see `vivavoce serve --help`";
        checks.push(Check::note(
            "environment",
            format!("{names}: not known"),
            advice,
        ));
    }
    checks
}

/// Where the engine would run. The engine looks for driver and libraries; nothing is started on a device.
fn gpu(config: &Config) -> Check {
    const NAME: &str = "gpu";
    let choice = device_choice(config);
    let info = match device::resolve(choice) {
        Ok(Resolved {
            target: Target::Cuda(number),
            ..
        }) => device::info(number),
        Ok(Resolved {
            instead_of_gpu: Some(err),
            ..
        }) if cfg!(feature = "cuda") => {
            return Check::note(NAME, "the engine would run on the CPU", err.to_string());
        }
        Ok(_) => return Check::ok(NAME, "the engine would run on the CPU"),
        Err(err) => Err(err),
    };
    match info {
        Ok(info) => Check::ok(
            NAME,
            format!(
                "cuda:{} {}, {} free of {}, driver {}, CUDA up to {}.{}, compute capability {}.{}",
                info.number,
                info.name,
                bytes_text(info.memory_free_bytes),
                bytes_text(info.memory_total_bytes),
                info.driver.as_deref().unwrap_or("of unknown version"),
                info.cuda_version.0,
                info.cuda_version.1,
                info.capability.0,
                info.capability.1,
            ),
        ),
        Err(err) => Check::refusal(
            NAME,
            &format!("--device {}: {err}", config.device),
            "compute on the CPU with --device cpu",
        ),
    }
}

const MODEL: &str = "model";
const OTHER_MODEL: &str = "give another model with --model";

/// The model's files, and what `fits` says of the model in them.
fn model(config: &Config, fits: impl FnOnce(&Config, String) -> Result<String, Check>) -> Check {
    const NAME: &str = MODEL;
    const CURE: &str = OTHER_MODEL;
    let mut lacks = None;
    let (finding, bytes) = match config.model_dir() {
        Ok(Some(dir)) => {
            let found = ModelFiles::inspect(&dir);
            let (harmless, problems): (Vec<_>, Vec<_>) = found
                .problems
                .iter()
                .partition(|problem| problem.is_harmless());
            if let Some(problem) = problems.first() {
                return Check::fail(NAME, problem.to_string(), problem.cure(&config.model));
            }
            lacks = harmless.first().map(|problem| problem.to_string());
            let finding = format!("{}: {}", dir.display(), found.summary());
            (finding, found.bytes())
        }
        Ok(None) if config.model == ModelName::Random => (
            "random weights of the published size, for measuring; it speaks noise".to_owned(),
            PUBLISHED_BYTES,
        ),
        Ok(None) => ("demo, inside the program".to_owned(), 0),
        Err(err) => return Check::refusal(NAME, &err.to_string(), CURE),
    };
    let finding = match fits(config, finding) {
        Ok(finding) => finding,
        Err(check) => return check,
    };
    let Ok(resolved) = device::resolve(device_choice(config)) else {
        return Check::ok(NAME, finding); // `gpu` has said what is wrong.
    };
    match (lacks, resolved.target) {
        (Some(lacks), _) => Check::note(NAME, lacks, "callers get no voice prompt"),
        (None, Target::Cpu) if bytes > CPU_BYTES_MAX => Check::note(
            NAME,
            finding,
            "a CPU is far from real time with weights of this size: for trying and measuring only; serve callers from \
             a GPU",
        ),
        (None, _) => Check::ok(NAME, finding),
    }
}

/// Whether the model can be opened and its slots fit: the same questions that `serve` asks before it opens the port.
fn model_fits(config: &Config, finding: String) -> Result<String, Check> {
    let checkpoint = open_checkpoint(config)
        .map_err(|err| Check::refusal(MODEL, &with_causes(&err), OTHER_MODEL))?;
    if device::resolve(device_choice(config)).is_ok()
        && let Err(err) = slots(config, &checkpoint)
    {
        let finding = format!("{finding}: {}", with_causes(&err));
        return Err(Check::refusal(
            MODEL,
            &finding,
            "a machine with more memory",
        ));
    }
    Ok(finding)
}

fn data_dir(config: &Config) -> Option<Check> {
    const NAME: &str = "data folder";
    let dir = &config.data_dir;
    if dir.as_os_str().is_empty() {
        return None; // `settings` has said that there is none.
    }
    if let Err(err) = check_writable(dir) {
        return Some(Check::fail(
            NAME,
            format!("{}: {err}", dir.display()),
            DATA_DIR_CURE,
        ));
    }
    let state = if dir.is_dir() {
        "writable"
    } else {
        "can be made"
    };
    let finding = format!("{} {state}", dir.display());
    Some(match free_bytes(dir) {
        None => Check::ok(NAME, finding),
        Some(free) => {
            let published = bytes_text(PUBLISHED_BYTES);
            let finding = format!("{finding}, {} free", bytes_text(free));
            match free < PUBLISHED_BYTES {
                true => Check::note(
                    NAME,
                    finding,
                    format!("not enough to `fetch` the published model ({published})"),
                ),
                false => Check::ok(
                    NAME,
                    format!("{finding} (the published model takes {published})"),
                ),
            }
        }
    })
}

fn port(config: &Config) -> Check {
    const NAME: &str = "port";
    let listen = config.listen;
    match TcpListener::bind(listen) {
        Ok(_) if listen.port() == 0 => Check::ok(NAME, format!("{listen}: any free port")),
        Ok(_) => Check::ok(NAME, format!("{listen} is free")),
        Err(err) => Check::fail(NAME, format!("{listen}: {err}"), bind_cure(&err)),
    }
}

/// What to do where the port cannot be opened; also for `serve`.
pub fn bind_cure(err: &std::io::Error) -> &'static str {
    match err.kind() {
        std::io::ErrorKind::AddrInUse => {
            "another program has it (another vivavoce?): end that one, or choose another port with --listen"
        }
        std::io::ErrorKind::PermissionDenied => {
            "ports below 1024 need a right this user has not: choose a higher one with --listen"
        }
        std::io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address: use 127.0.0.1, or one that it has"
        }
        _ => "choose another address with --listen",
    }
}
