//! How the whole process ends when its device fails, or hangs.

use std::io::{BufRead, BufReader};
use std::sync::mpsc;
use std::thread;

use tokio::net::TcpStream;

use crate::program::Home;
use crate::support::{Heard, dial_over, until};

/// Ends the program if a test fails before it has ended itself.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the program with `fault` ahead of it, lets one caller talk, and gives what the caller heard last, the exit
/// code, and the program's own complaint.
async fn end_of(fault: &str) -> (Vec<String>, Option<i32>, String) {
    let home = Home::new();
    let args = [
        "serve",
        "--device",
        "cpu",
        "--slots",
        "1",
        "--listen",
        "127.0.0.1:0",
        "--watchdog",
        "2s",
        "--admission",
        "off",
    ];
    let mut child = Running(home.spawn_with(&[("VIVAVOCE_TEST_FAULT", fault)], &args));
    let log = BufReader::new(child.0.stderr.take().expect("it is piped"));
    let (tx, rx) = mpsc::channel();
    let reading = thread::spawn(move || {
        let mut complaint = String::new();
        for line in log.lines().map(|line| line.expect("the log is UTF-8")) {
            if let Some((_, address)) = line.split_once("listening on http://") {
                let _ = tx.send(address.trim().to_owned());
            }
            if line.contains(" ready ") {
                let _ = tx.send("ready".to_owned());
            }
            if line.starts_with("vivavoce: ") {
                complaint = line;
            }
        }
        complaint
    });
    let address = rx.recv().expect("it says where it listens");
    assert_eq!(rx.recv().expect("it becomes ready"), "ready");
    let stream = TcpStream::connect(&address).await.expect("it listens");
    let mut caller = dial_over(stream, "").await.expect("it takes callers");
    let mut errors = Vec::new();
    loop {
        match caller.next().await {
            Heard::Error(text) => errors.push(text),
            Heard::Closed { .. } | Heard::Lost => break,
            Heard::Audio(_) => caller.say(0.2).await,
            _ => {}
        }
    }
    let child = std::cell::RefCell::new(child);
    until("the program to end", || {
        let ended = child.borrow_mut().0.try_wait();
        ended.expect("it is ours").is_some()
    })
    .await;
    let code = child.borrow_mut().0.wait().expect("it ended").code();
    (errors, code, reading.join().expect("it reads to the end"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_device_ends_the_process_with_3_after_the_caller_was_told() {
    let (errors, code, complaint) = end_of("fail 10").await;
    assert_eq!(code, Some(3), "{complaint}");
    assert!(
        errors.iter().any(|text| text.contains("engine")),
        "{errors:?}"
    );
    assert!(complaint.contains("as planned"), "{complaint}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_device_ends_the_process_with_4() {
    let (_, code, complaint) = end_of("hang 10").await;
    assert_eq!(code, Some(4), "{complaint}");
    assert!(
        complaint.contains("tick") && complaint.contains("hangs"),
        "{complaint}"
    );
}
