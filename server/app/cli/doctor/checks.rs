//! What the settings ask for, held against the machine.
//!
//! Lives here: one function per check. May not live here: printing.

use std::fmt;
use std::net::TcpListener;

use engine::device::{self, Choice, Resolved, Target};
use serde::Serialize;

use super::machine::Memory;
use crate::cli::disk::{bytes_text, check_writable, free_bytes};
use crate::cli::model_files::ModelFiles;
use crate::config::Config;
use crate::config::values::{DeviceChoice, ModelName};

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
    let mut checks = vec![
        gpu(config),
        model(config),
        data_dir(config),
        port(config),
        microphone(config),
    ];
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
    let choice = match config.device {
        DeviceChoice::Auto => Choice::Auto,
        DeviceChoice::Cpu => Choice::Cpu,
        DeviceChoice::Cuda(number) => Choice::Cuda(number as usize),
    };
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
        Err(err) => {
            let finding = format!("--device {}: {err}", config.device);
            Check::fail(NAME, finding, "see the message, or use --device cpu")
        }
    }
}

fn model(config: &Config) -> Check {
    const NAME: &str = "model";
    let dir = match config.model_dir() {
        Ok(Some(dir)) => dir,
        Ok(None) if config.model == ModelName::Random => {
            return Check::note(
                NAME,
                "random weights of the published size",
                "for measuring; it speaks noise",
            );
        }
        Ok(None) => return Check::ok(NAME, "demo, inside the program"),
        Err(err) => return Check::fail(NAME, err.to_string(), "see the message"),
    };
    let found = ModelFiles::inspect(&dir);
    if let Some(problem) = found.problems.first() {
        let cure = match &config.model {
            ModelName::Hub(name) => format!("run `vivavoce fetch {name}` again"),
            _ => "copy the folder again, whole".to_owned(),
        };
        return Check::fail(NAME, problem.to_string(), cure);
    }
    let finding = format!("{}: {}", dir.display(), found.summary());
    let available = Memory::read("/proc".as_ref(), "/sys/fs/cgroup".as_ref());
    // The engine weighs a GPU's own memory when it loads.
    let is_on_cpu = !cfg!(feature = "cuda") || config.device == DeviceChoice::Cpu;
    match available.map(Memory::available) {
        // 8-bit weights take a little over half of the published 16-bit ones.
        Some(available) if is_on_cpu && available < found.bytes() / 2 => Check::fail(
            NAME,
            format!(
                "{finding}: even as 8-bit weights about {} of memory, {} are available",
                bytes_text(found.bytes() / 2),
                bytes_text(available)
            ),
            "a machine with more memory, or a GPU",
        ),
        _ => Check::ok(NAME, finding),
    }
}

fn data_dir(config: &Config) -> Check {
    let dir = &config.data_dir;
    let state = if dir.is_dir() {
        "writable"
    } else {
        "can be made"
    };
    let free = free_bytes(dir).map(|free| format!(", {} free", bytes_text(free)));
    match check_writable(dir) {
        Ok(()) => {
            let free = free.unwrap_or_default();
            Check::ok("data folder", format!("{} {state}{free}", dir.display()))
        }
        Err(err) => Check::fail(
            "data folder",
            format!("{}: {err}", dir.display()),
            "give this user the right to write there, or another folder with --data-dir DIR",
        ),
    }
}

fn port(config: &Config) -> Check {
    const NAME: &str = "port";
    if let Err(err) = config.check_listen() {
        return Check::fail(NAME, err.to_string(), "see the message");
    }
    let listen = config.listen;
    match TcpListener::bind(listen) {
        Ok(_) if listen.port() == 0 => Check::ok(NAME, format!("{listen}: any free port")),
        Ok(_) => Check::ok(NAME, format!("{listen} is free")),
        Err(err) => {
            let cure = match err.kind() {
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
            };
            Check::fail(NAME, format!("{listen}: {err}"), cure)
        }
    }
}

/// Browsers give a microphone only to pages from https or from the machine itself.
fn microphone(config: &Config) -> Check {
    const NAME: &str = "microphone";
    let port = config.listen.port();
    match config.listen.ip().to_canonical().is_loopback() {
        true => Check::note(
            NAME,
            format!("browsers on this machine give it to http://localhost:{port}"),
            format!(
                "from another machine, forward the port (ssh -L {port}:127.0.0.1:{port} THIS_HOST) and open \
                 http://localhost:{port} there, or put a proxy with https in front"
            ),
        ),
        false => Check::note(
            NAME,
            "browsers on other machines refuse it to plain http, whatever the address",
            "put a proxy with https (Caddy, nginx, Traefik) in front; this build has no TLS of its own",
        ),
    }
}
