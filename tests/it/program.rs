//! Starts the real program with an environment of its own, and reads what it says.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// A home of its own for as many starts of the program as a test needs.
pub struct Home(TempDir);

/// How one start ended.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Home {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temp folder"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The data folder that the program finds by itself.
    pub fn data(&self) -> PathBuf {
        self.path().join("data/vivavoce")
    }

    /// The program, with nothing of the test's own environment.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vivavoce"));
        command.args(args).env_clear().current_dir(self.path());
        command
            .env("HOME", self.path())
            .env("XDG_DATA_HOME", self.path().join("data"));
        command
    }

    pub fn run(&self, args: &[&str]) -> Finished {
        self.run_with(&[], args)
    }

    pub fn run_with(&self, variables: &[(&str, &str)], args: &[&str]) -> Finished {
        let output = self.command(args).envs(variables.iter().copied()).output();
        output.expect("the program starts").into()
    }

    /// Starts the program and does not wait.
    pub fn spawn_with(&self, variables: &[(&str, &str)], args: &[&str]) -> Child {
        let mut command = self.command(args);
        command
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().expect("the program starts")
    }
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("the program speaks UTF-8");
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

impl Finished {
    /// The last line on the error stream, which must be the program's own complaint.
    pub fn complaint(&self) -> &str {
        let line = self.stderr.lines().last().unwrap_or_default();
        line.strip_prefix("vivavoce: ")
            .unwrap_or_else(|| panic!("no complaint in {self:?}"))
    }
}
