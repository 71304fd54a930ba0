//! Starts the real program with an environment of its own, and reads what it says.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::thread::{self, JoinHandle};

use tempfile::TempDir;

use crate::support::until;

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

/// The program as a server with the demo, ready for callers. Killed when it is dropped.
pub struct Server {
    child: Child,
    pub address: String,
    complaint: JoinHandle<String>,
}

impl Server {
    pub fn start(home: &Home, variables: &[(&str, &str)], args: &[&str]) -> Self {
        let fixed = ["serve", "--device", "cpu", "--listen", "127.0.0.1:0"];
        // How busy this machine is must not decide, unless that is what is tried.
        let admission: &[&str] = match args.contains(&"--admission") {
            true => &[],
            false => &["--admission", "off"],
        };
        let mut child = home.spawn_with(variables, &[&fixed, admission, args].concat());
        let log = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut lines = log.lines().map(|line| line.expect("the log is UTF-8"));
        let mut address = None;
        let mut said = Vec::new();
        for line in &mut lines {
            if let Some((_, rest)) = line.split_once("listening on http://") {
                address = Some(rest.trim().to_owned());
            }
            let ready = line.contains(" ready ");
            said.push(line);
            if ready {
                break;
            }
        }
        let Some(address) = address else {
            panic!("it never said where it listens: {said:#?}");
        };
        // Read on, or a full pipe would stop it.
        let complaint = thread::spawn(move || {
            let complaint = lines.filter(|line| line.starts_with("vivavoce: ")).last();
            complaint.unwrap_or_default()
        });
        Self {
            child,
            address,
            complaint,
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub async fn get(&self, path: &str) -> serde_json::Value {
        let response = reqwest::get(self.url(path)).await.expect("it answers");
        assert!(response.status().is_success(), "{path}: {response:?}");
        response.json().await.expect("it answers JSON")
    }

    /// Ends it at once, as a power cut would.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
    }

    /// Its exit code, once it has ended by itself, and its complaint.
    pub async fn ended(mut self) -> (Option<i32>, String) {
        let child = Mutex::new(&mut self.child);
        until("the program to end", || {
            let ended = child.lock().expect("one thread").try_wait();
            ended.expect("it is ours").is_some()
        })
        .await;
        let code = self.child.wait().expect("it ended").code();
        let complaint = std::mem::replace(&mut self.complaint, thread::spawn(String::new));
        (code, complaint.join().expect("it reads to the end"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
