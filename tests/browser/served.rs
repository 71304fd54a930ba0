//! The real program with the demo model, on a port of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// A server that is ready. Killed when dropped.
pub struct Served {
    child: Child,
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    _home: TempDir,
}

impl Served {
    /// With `args` beside `serve`, a free port and no admission control: how busy this machine is must not decide.
    pub fn start(args: &[&str]) -> Self {
        let home = TempDir::new().expect("a temp folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_vivavoce"));
        command
            .env_clear()
            .env("HOME", home.path())
            .current_dir(home.path())
            .args(["serve", "--listen", "127.0.0.1:0", "--admission", "off"])
            .args(args);
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let log = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut lines = log.lines().map_while(Result::ok);
        let mut said = Vec::new();
        let mut line_with = |words: &str| {
            let line = lines.by_ref().find(|line| {
                said.push(line.clone());
                line.contains(words)
            });
            line.unwrap_or_else(|| panic!("the server ended before it said {words:?}: {said:#?}"))
        };
        let listening = line_with("listening on ");
        let (_, url) = listening.split_once("listening on ").expect("it was found");
        let url = url
            .split_whitespace()
            .next()
            .expect("an address")
            .to_owned();
        line_with("ready");
        // What follows is read and forgotten, or the server would stand still at a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            child,
            url,
            _home: home,
        }
    }

    /// Waits until it has ended by itself; its exit code.
    pub fn ended(&mut self) -> Option<i32> {
        self.child.wait().expect("a child").code()
    }

    pub fn page(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
