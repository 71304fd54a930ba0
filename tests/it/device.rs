//! How the whole process ends when its device fails, or hangs.

use tokio::net::TcpStream;

use crate::program::{Home, Server};
use crate::support::{Heard, dial_over};

/// Starts the program with `fault` ahead of it and lets one caller talk; gives the errors that the caller was told, the
/// exit code, and the program's complaint.
async fn end_of(fault: &str) -> (Vec<String>, Option<i32>, String) {
    let home = Home::new();
    let variables = [("VIVAVOCE_TEST_FAULT", fault)];
    let server = Server::start(&home, &variables, &["--slots", "1", "--watchdog", "2s"]);
    let stream = TcpStream::connect(&server.address)
        .await
        .expect("it listens");
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
    let (code, complaint) = server.ended().await;
    (errors, code, complaint)
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
