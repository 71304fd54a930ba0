//! Makes the UI: compiles the crate `ui` for the browser and writes `ui/dist`, ready to be embedded.
//!
//! `cargo run -p ui-bundle` from anywhere in the repository. Release builds of the server run it by themselves.
//! Lives here: the order of the steps. May not live here: finding a compiler (`compiler`), names and compression (`dist`).

mod compiler;
mod dist;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use compiler::Compiler;
use wasm_bindgen_cli_support::Bindgen;

const TARGET: &str = "wasm32-unknown-unknown";
/// Of the root manifest: small rather than fast.
const PROFILE: &str = "ui";

fn main() -> anyhow::Result<()> {
    let ui = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("this crate lies inside ui")?;
    let root = ui.parent().context("ui lies inside the repository")?;
    let target_dir = match std::env::var_os("UI_TARGET_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => root.join("target/ui"),
    };
    let module = compile(root, &target_dir)?;
    let mut bindgen = Bindgen::new();
    bindgen
        .input_path(&module)
        .web(true)?
        .typescript(false)
        .remove_name_section(true)
        .remove_producers_section(true);
    let made = target_dir.join("bindgen");
    if made.exists() {
        std::fs::remove_dir_all(&made)?;
    }
    bindgen
        .generate(&made)
        .with_context(|| format!("{} cannot be bound to JavaScript", module.display()))?;
    dist::write(ui, &made)
}

/// Compiles the crate with a cargo of its own: own target folder, since the outer cargo may hold the lock of the shared
/// one, and none of the outer cargo's environment, which speaks of another target.
fn compile(root: &Path, target_dir: &Path) -> anyhow::Result<PathBuf> {
    let compiler = Compiler::find(TARGET)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let outer = name.starts_with("CARGO") || name.starts_with("RUST");
        let kept = [
            "CARGO_HOME",
            "RUSTUP_HOME",
            "RUSTUP_TOOLCHAIN",
            "CARGO_NET_OFFLINE",
        ];
        if outer
            && !kept.contains(&&*name)
            && !name.starts_with("CARGO_REGISTR")
            && !name.starts_with("CARGO_HTTP")
        {
            build.env_remove(&*name);
        }
    }
    build
        .current_dir(root)
        .args(["build", "--locked", "--package", "ui", "--profile", PROFILE])
        .args(["--target", TARGET])
        .arg("--target-dir")
        .arg(target_dir)
        .env("RUSTFLAGS", remapped(root));
    if let Some(rustc) = compiler.rustc() {
        build.env("RUSTC", rustc);
    }
    let status = build.status().context("cargo does not start")?;
    if !status.success() {
        bail!("the UI does not compile: {status}");
    }
    let module = target_dir.join(TARGET).join(PROFILE).join("ui.wasm");
    Ok(module)
}

/// Flags that keep this machine's folders out of the module.
fn remapped(root: &Path) -> String {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| {
            let home = std::env::var_os("HOME")?;
            Some(Path::new(&home).join(".cargo"))
        });
    let mut flags = format!("--remap-path-prefix={}=vivavoce", root.display());
    if let Some(home) = home {
        flags.push_str(&format!(" --remap-path-prefix={}=cargo", home.display()));
    }
    flags
}
