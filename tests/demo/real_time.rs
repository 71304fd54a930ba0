//! The program as a person starts it, at the pace of the clock on the wall.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::behaviour::{Behaviour, Conversation, Heard, OPUS_SLACK, Order};
use crate::switchboard::{Caller, greedy_query, metric};
use crate::user::ROOM_RMS;

/// `vivavoce serve`; it ends with the test.
struct Served {
    child: Child,
    address: SocketAddr,
    _home: TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    /// Starts it and waits for the line that says it is ready.
    fn start() -> Self {
        let home = TempDir::new().expect("a temp folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_vivavoce"));
        command
            .env_clear()
            .env("HOME", home.path())
            .current_dir(home.path());
        // Without admission: how busy this machine is must not decide.
        command.args(["serve", "--listen", "127.0.0.1:0", "--admission", "off"]);
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut log = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let mut line_with = |words: &str| {
            let line = log
                .by_ref()
                .map(|line| line.expect("a log"))
                .find(|line| line.contains(words));
            line.unwrap_or_else(|| panic!("the server ended before it said {words:?}"))
        };
        let listening = line_with("listening on http://");
        let (_, address) = listening.split_once("http://").expect("it was found");
        let address = address.trim().parse().expect("an address");
        line_with("ready");
        // What follows is read and forgotten, or the server would stand still at a full pipe.
        std::thread::spawn(move || log.for_each(drop));
        Self {
            child,
            address,
            _home: home,
        }
    }
}

/// Says a frame for each frame heard.
async fn call(address: SocketAddr, talk: &Conversation) -> Vec<Heard> {
    let line = talk.user_line(ROOM_RMS);
    let mut caller = Caller::dial(address, &greedy_query(&talk.prompt, &talk.voice)).await;
    caller.until_ready().await;
    caller.begin(&line).await;
    while !caller.has_heard(&line) {
        caller.hear().await;
        caller.say_next(&line).await;
    }
    caller.hang_up().await
}

#[tokio::test(flavor = "multi_thread")]
async fn three_callers_of_the_served_demo_have_their_conversations_at_once() {
    let served = Served::start();
    let mut talks = Behaviour::of_the_demo().conversations;
    let all: Vec<usize> = ["turns", "barge_in", "silence"]
        .iter()
        .map(|name| {
            talks
                .iter()
                .position(|talk| talk.name == *name)
                .expect("there is one")
        })
        .collect();
    let (a, b, c) = tokio::join!(
        call(served.address, &talks[all[0]]),
        call(served.address, &talks[all[1]]),
        call(served.address, &talks[all[2]]),
    );
    let hits = metric(served.address, "vivavoce_prompt_cache_hits_total").await;
    assert_eq!(hits, 3.0, "the known personas were read ahead");
    let mut faults = Vec::new();
    for (talk, heard) in all.iter().zip([a, b, c]) {
        let talk = &mut talks[*talk];
        faults.extend(
            talk.judge(&heard, Order::Sooner, OPUS_SLACK)
                .into_iter()
                .map(|fault| format!("{}: {fault}", talk.title())),
        );
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
