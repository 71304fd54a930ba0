//! Makes the UI for release builds, or takes one that was made elsewhere (`UI_DIST`). Development builds read `ui/dist`
//! when they run, and do without it when it is not there.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

fn main() {
    for name in ["UI_DIST", "WASM_RUSTC"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    for path in [
        "ui/src",
        "ui/worklets",
        "ui/images",
        "ui/bundle/src",
        "ui/index.html",
        "ui/style.css",
        "ui/Cargo.toml",
        "server/wire/src",
        "Cargo.lock",
    ] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    let made_elsewhere = env::var_os("UI_DIST").map(PathBuf::from);
    let release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let dist = match made_elsewhere {
        Some(dist) => dist.canonicalize().unwrap_or(dist),
        None => {
            if release {
                make(&root);
            }
            root.join("ui/dist")
        }
    };
    if release && !dist.join("index.html").is_file() {
        fail(&format!("{} holds no index.html", dist.display()));
    }
    println!("cargo::rustc-env=UI_FILES={}", dist.display());
}

/// Runs the bundler with a target folder of its own, since this cargo holds the lock of the shared one.
fn make(root: &Path) {
    let target = root.join("target/ui");
    let mut bundle = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    bundle
        .current_dir(root)
        .args(["run", "--locked", "--package", "ui-bundle", "--target-dir"])
        .arg(target.join("bundle"))
        .env("UI_TARGET_DIR", &target);
    // The outer build's flags and wrappers are not meant for the bundler.
    for name in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_TARGET_DIR",
        "RUSTC",
        "RUSTDOC",
    ] {
        bundle.env_remove(name);
    }
    match bundle.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            for line in said
                .lines()
                .rev()
                .take(40)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
            {
                println!("cargo::warning={line}");
            }
            fail(
                "the UI could not be made (see above). Its compiler: `rustup target add wasm32-unknown-unknown`, or on \
                 Debian `eval \"$(.ci/setup-wasm)\"`. Or set UI_DIST to a folder made elsewhere",
            );
        }
        Err(error) => fail(&format!("cargo does not start: {error}")),
    }
}

fn fail(why: &str) -> ! {
    println!("cargo::error={why}");
    exit(1)
}
