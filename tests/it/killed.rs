//! A server that is killed in the middle of calls, and its next start.

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use crate::program::{Home, Server};
use crate::support::{Caller, Heard, before_the_next_look, dial_over, within};

/// Calls that run when it happens.
const CALLS: usize = 5;
/// What each of them has in the log by then (1.6 s).
const FRAMES_LOGGED: i64 = 20;

fn start(home: &Home) -> Server {
    Server::start(home, &[], &["--slots", &(CALLS + 1).to_string()])
}

async fn call(server: &Server) -> Caller {
    let stream = TcpStream::connect(&server.address).await.unwrap();
    let mut caller = dial_over(stream, "").await.unwrap();
    caller.until_ready().await;
    caller
}

/// The sessions, as soon as they are as `wanted`.
async fn logged_sessions(server: &Server, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let looking = async {
        loop {
            let mut list = server.get("/api/sessions").await;
            let Value::Array(items) = list["items"].take() else {
                panic!("no list: {list}");
            };
            if wanted(&items) {
                return items;
            }
            before_the_next_look().await;
        }
    };
    within("the log to show it", looking).await
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_the_log_has_finished_calls_whole_and_running_ones_cut_off() {
    let home = Home::new();
    let server = start(&home);
    let client = reqwest::Client::new();
    let policy = json!({"record_audio": true, "recording_days": 30, "keep_transcripts": true, "session_days": 365});
    let change = client.put(server.url("/api/policy"));
    let changed = change
        .header("if-match", "\"1\"")
        .json(&policy)
        .send()
        .await
        .unwrap();
    assert!(changed.status().is_success(), "{changed:?}");
    let before = server.get("/api/personas/export").await;

    let mut finished = call(&server).await;
    finished.talk(15).await;
    finished.send_raw(Message::Close(None)).await;
    let is_over = |session: &Value| session["end_reason"].is_string();
    logged_sessions(&server, |sessions| sessions.iter().any(is_over)).await;

    // They go on talking until their server is gone.
    let mut talking = Vec::new();
    for _ in 0..CALLS {
        let mut caller = call(&server).await;
        talking.push(tokio::spawn(async move {
            while !matches!(caller.next().await, Heard::Lost) {
                caller.say(0.2).await;
            }
        }));
    }
    let has_enough =
        |session: &Value| session["counters"]["frames"].as_i64() >= Some(FRAMES_LOGGED);
    let logged = logged_sessions(&server, |sessions| {
        sessions
            .iter()
            .filter(|session| !is_over(session) && has_enough(session))
            .count()
            == CALLS
    })
    .await;
    server.kill();
    for caller in talking {
        within("the callers to notice", caller).await.unwrap();
    }

    let server = start(&home);
    let sessions = server.get("/api/sessions").await;
    let sessions = sessions["items"].as_array().unwrap();
    assert_eq!(sessions.len(), CALLS + 1);
    for (session, before) in sessions.iter().zip(&logged) {
        assert_eq!(session["id"], before["id"]);
        let id = session["id"].as_i64().unwrap();
        if is_over(before) {
            assert_eq!(session, before, "it was over");
        } else {
            assert_eq!(session["end_reason"], "cut_off");
            assert!(session["ended_at_ms"].as_i64() >= before["live_at_ms"].as_i64());
            let frames = session["counters"]["frames"].as_i64();
            assert!(
                frames >= before["counters"]["frames"].as_i64(),
                "{session} {before}"
            );
        }
        assert!(has_enough(session) || is_over(before), "{session}");
        // What was recorded plays.
        let detail = server.get(&format!("/api/sessions/{id}")).await;
        assert!(detail["recording_seconds"].as_u64() >= Some(1), "{detail}");
        let audio = reqwest::get(server.url(&format!("/api/sessions/{id}/audio")))
            .await
            .unwrap();
        let wav = audio.bytes().await.unwrap();
        let reader = hound::WavReader::new(&wav[..]).unwrap();
        assert_eq!(
            u64::from(reader.duration() / 24_000),
            detail["recording_seconds"].as_u64().unwrap()
        );
    }
    assert_eq!(server.get("/api/personas/export").await, before);
    // Numbers go on where they were.
    let mut caller = call(&server).await;
    caller.send_raw(Message::Close(None)).await;
    let newest = logged_sessions(&server, |sessions| sessions.len() == CALLS + 2).await;
    assert!(newest[0]["id"].as_i64() > logged[0]["id"].as_i64());
}
