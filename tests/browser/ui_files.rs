//! The files of the UI: development builds read them from `ui/dist` when they are asked for.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Makes them once for all tests, from the sources as they are now: minutes from nothing, seconds when nothing changed.
/// False, and said loudly, where no compiler for the browser can be had.
pub fn made(test: &str) -> bool {
    static MADE: OnceLock<bool> = OnceLock::new();
    let made = *MADE.get_or_init(|| {
        if std::env::var_os("UI_DIST").is_some() {
            return true;
        }
        eprintln!("making the UI for the browser tests (minutes from nothing)");
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["run", "--quiet", "--locked", "-p", "ui-bundle"])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
        cargo.status().is_ok_and(|status| status.success())
    });
    if !made {
        let required = std::env::var("VIVAVOCE_BROWSER").is_ok_and(|value| value == "required");
        assert!(!required, "{test}: the UI cannot be made");
        eprintln!(
            "\n*** LEFT OUT: {test}\n*** The UI cannot be made here. To run it: rustup target add wasm32-unknown-unknown\n"
        );
    }
    made
}
