//! A compiler that knows the browser's target: named, active, or made complete by rustup.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::bail;

/// Which rustc compiles the UI.
pub struct Compiler {
    rustc: Option<OsString>,
}

impl Compiler {
    /// In this order: `WASM_RUSTC`; the active one if it has the target's library; the active one after
    /// `rustup target add`.
    ///
    /// # Errors
    /// None of them; the two ways out are named.
    pub fn find(target: &str) -> anyhow::Result<Self> {
        if let Some(rustc) = std::env::var_os("WASM_RUSTC") {
            if !has_target(&rustc, target) {
                bail!("WASM_RUSTC names {rustc:?}, which has no library for {target}");
            }
            return Ok(Self { rustc: Some(rustc) });
        }
        if has_target("rustc".as_ref(), target) {
            return Ok(Self { rustc: None });
        }
        eprintln!("the browser's target is missing: rustup target add {target} (seconds)");
        let added = Command::new("rustup")
            .args(["target", "add", target])
            .stdin(Stdio::null())
            .status();
        if added.is_ok_and(|status| status.success()) && has_target("rustc".as_ref(), target) {
            return Ok(Self { rustc: None });
        }
        bail!(
            "no compiler here can make the UI. Either `rustup target add {target}`, or on Debian \
             `eval \"$(.ci/setup-wasm)\"`, which makes one from Debian's packages and sets WASM_RUSTC; then build again"
        )
    }

    /// To be named to cargo; `None`: cargo's own choice.
    pub fn rustc(&self) -> Option<&OsString> {
        self.rustc.as_ref()
    }
}

fn has_target(rustc: &std::ffi::OsStr, target: &str) -> bool {
    let asked = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", target])
        .stderr(Stdio::null())
        .output();
    let Ok(answer) = asked else { return false };
    let folder = String::from_utf8_lossy(&answer.stdout);
    answer.status.success() && Path::new(folder.trim()).is_dir()
}
