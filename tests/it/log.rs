//! What the program does when nobody reads its log any more.

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
