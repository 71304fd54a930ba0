//! Stopping the server when what it reads or writes does not answer.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::Command;

use crate::program::Home;

#[cfg(unix)]
#[test]
fn a_server_whose_log_is_no_longer_read_stops_in_order() {
    let home = Home::new();
    for format in ["text", "json"] {
        let args = [
            "serve",
            "--device",
            "cpu",
            "--slots",
            "1",
            "--listen",
            "127.0.0.1:0",
            "--log-format",
            format,
        ];
        let mut server = home.spawn_with(&[], &args);
        let log = BufReader::new(server.stderr.take().expect("it is piped"));
        let mut lines = log.lines().map(|line| line.expect("the log is UTF-8"));
        assert!(lines.any(|line| line.contains("\"ready\"") || line.contains(" ready ")));
        drop(lines);
        let id = server.id().to_string();
        // It logs that it stops, into a pipe that is gone.
        let asked = Command::new("kill").args(["-TERM", &id]).status();
        assert!(asked.is_ok_and(|status| status.success()));
        assert_eq!(server.wait().expect("it ends").code(), Some(0), "{format}");
    }
}

#[cfg(unix)]
#[test]
fn a_server_stops_while_a_file_of_its_model_does_not_answer() {
    let home = Home::new();
    let config = home.path().join("config.json");
    let made = Command::new("mkfifo").arg(&config).status();
    assert!(made.is_ok_and(|status| status.success()));
    let model = home.path().display().to_string();
    let args = ["serve", "--listen", "127.0.0.1:0", "--model", &model];
    let mut server = home.spawn_with(&[], &args);
    // Opens when the server has opened its end, which then waits for bytes.
    let pipe = File::options().write(true).open(&config);
    let pipe = pipe.expect("the server reads it");
    let id = server.id().to_string();
    let asked = Command::new("kill").args(["-TERM", &id]).status();
    assert!(asked.is_ok_and(|status| status.success()));
    assert_eq!(server.wait().expect("it ends").code(), Some(0));
    drop(pipe);
}
