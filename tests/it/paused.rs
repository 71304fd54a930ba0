//! The whole process is stopped for a while and goes on: a machine that slept, a frozen container, a debugger.

use std::process::Command;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::program::{Home, Server};
use crate::support::dial_over;

/// What the caller says while nobody listens: 3.2 s, more than a stall may take before the tick starts anew.
const FRAMES_UNHEARD: u64 = 40;
/// What may remain of it: the newest 200 ms, and what was under way at both ends.
const FRAMES_KEPT: u64 = 6;
/// Where it may be dropped, and is counted.
const DROPPED: [&str; 4] = [
    "vivavoce_burst_frames_dropped_total ",
    "vivavoce_ahead_messages_dropped_total ",
    "vivavoce_mic_frames_lost_total{cause=\"mic_full\"}",
    "vivavoce_mic_frames_lost_total{cause=\"mic_backlog\"}",
];

fn signal(name: &str, server: &Server) {
    let sent = Command::new("kill")
        .args([name, &server.id().to_string()])
        .status();
    assert!(sent.is_ok_and(|status| status.success()), "kill {name}");
}

/// The sum over all lines of /metrics that begin with one of `names`.
async fn counted(server: &Server, names: &[&str]) -> u64 {
    let body = reqwest::get(server.url("/metrics")).await.unwrap();
    let body = body.text().await.unwrap();
    let values = body
        .lines()
        .filter(|line| names.iter().any(|name| line.starts_with(name)));
    let values: Vec<u64> = values
        .filter_map(|line| line.rsplit_once(' ')?.1.parse().ok())
        .collect();
    assert!(values.len() >= names.len(), "{names:?} in {body}");
    values.iter().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_of_the_process_costs_the_caller_the_past_and_not_the_call() {
    let home = Home::new();
    let server = Server::start(&home, &[], &["--slots", "1"]);
    let stream = TcpStream::connect(&server.address).await.unwrap();
    let mut caller = dial_over(stream, "").await.unwrap();
    caller.until_ready().await;
    caller.talk(10).await;
    let resyncs = counted(&server, &["vivavoce_resyncs_total "]).await;

    signal("-STOP", &server);
    let mut frame_time = tokio::time::interval(Duration::from_millis(80));
    for _ in 0..FRAMES_UNHEARD {
        frame_time.tick().await;
        caller.say(0.3).await;
    }
    signal("-CONT", &server);

    // It is the same call, and the clock started anew instead of running after what it missed.
    caller.talk(20).await;
    assert!(counted(&server, &["vivavoce_resyncs_total "]).await > resyncs);
    let unheard = counted(&server, &DROPPED).await;
    assert!(unheard + FRAMES_KEPT >= FRAMES_UNHEARD, "{unheard}");
}
