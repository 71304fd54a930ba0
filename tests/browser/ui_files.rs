//! The files of the UI: development builds read them from `ui/dist` when they are asked for.

use std::path::Path;
use std::process::Command;
use std::sync::Once;

/// Makes them once for all tests, from the sources as they are now. Minutes from nothing, seconds when nothing changed.
pub fn make() {
    static MADE: Once = Once::new();
    MADE.call_once(|| {
        if std::env::var_os("UI_DIST").is_some() {
            return;
        }
        eprintln!("making the UI for the browser tests (minutes from nothing)");
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["run", "--quiet", "--locked", "-p", "ui-bundle"])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
        let status = cargo.status().expect("cargo starts");
        assert!(status.success(), "the UI cannot be made: {status}");
    });
}
