//! `vivavoce load` against stand-in servers: what it sends, what it counts, what it says of a refusal.
//!
//! The stand-ins never keep time: they send everything at once or not at all, so that nothing here depends on how busy
//! the machine is.

use std::sync::mpsc::{Receiver, sync_channel};

use audio::opus_read::OpusReader;
use audio::opus_write::OpusWriter;
use axum::Router;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::Value;
use wire::socket::{Downlink, Uplink};

use crate::program::{Finished, Home};

/// What a stand-in does with a caller.
#[derive(Clone, Copy, Debug)]
enum Script {
    /// Ready, then this many frames at once.
    Speak(usize),
    /// Refused before the upgrade, in plain text.
    NoUpgrade,
    /// Refused before the upgrade, with our own error body.
    BadQuery,
    /// Accepted, refused with a message, closed with 1013.
    Full,
    /// A waiting place, then ready and enough frames.
    Queue,
    /// Ready, one frame, then the end.
    Drop,
}

/// What one caller said.
#[derive(Debug)]
struct Said {
    query: String,
    authorization: String,
    frames: usize,
    loudest: f32,
}

struct Server {
    url: String,
    said: Receiver<Said>,
    _runtime: tokio::runtime::Runtime,
}

#[derive(Clone)]
struct Stage {
    script: Script,
    said: std::sync::mpsc::SyncSender<Said>,
}

impl Server {
    fn start(script: Script) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let (said_tx, said) = sync_channel(64);
        let stage = Stage {
            script,
            said: said_tx,
        };
        let app = Router::new()
            .route("/api/chat", get(chat))
            .with_state(stage);
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self {
            url,
            said,
            _runtime: runtime,
        }
    }
}

async fn chat(
    State(stage): State<Stage>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    if matches!(stage.script, Script::NoUpgrade) {
        return (StatusCode::BAD_REQUEST, "there is no voice \"X\"\nmore").into_response();
    }
    if matches!(stage.script, Script::BadQuery) {
        let body = r#"{"error":{"code":"unknown_voice","message":"there is no voice \"X\""}}"#;
        return (StatusCode::BAD_REQUEST, body).into_response();
    }
    let authorization = headers
        .get("authorization")
        .and_then(|value| value.to_str().ok());
    let said = Said {
        query: query.unwrap_or_default(),
        authorization: authorization.unwrap_or_default().to_owned(),
        frames: 0,
        loudest: 0.0,
    };
    upgrade.on_upgrade(move |socket| answer(socket, stage, said))
}

async fn answer(mut socket: WebSocket, stage: Stage, mut said: Said) {
    let frames = match stage.script {
        Script::Speak(frames) => frames,
        Script::Drop => 1,
        _ => 10,
    };
    // A caller that is gone is seen by the loop below.
    for message in greeting(stage.script, frames) {
        let _ = socket.send(message).await;
    }
    if matches!(stage.script, Script::Drop) {
        return;
    }
    let mut reader = OpusReader::begin().expect("memory");
    while let Some(Ok(message)) = socket.recv().await {
        let Message::Binary(bytes) = message else {
            continue;
        };
        if let Ok(Uplink::Audio(page)) = Uplink::parse(&bytes) {
            reader.push(page);
        }
        while let Some(frame) = reader.next_frame().expect("callers send Ogg-Opus") {
            said.frames += 1;
            said.loudest = frame
                .iter()
                .fold(said.loudest, |loudest, s| loudest.max(s.abs()));
        }
    }
    stage.said.send(said).expect("the test listens");
}

fn greeting(script: Script, frames: usize) -> Vec<Message> {
    let message = |downlink: Downlink<'_>| Message::binary(downlink.to_bytes());
    if matches!(script, Script::Full) {
        let reason = "all 4 slots are taken";
        let close = CloseFrame {
            code: 1013,
            reason: reason.into(),
        };
        return vec![
            message(Downlink::Error(reason)),
            Message::Close(Some(close)),
        ];
    }
    let mut messages = Vec::new();
    if matches!(script, Script::Queue) {
        messages.push(message(Downlink::Metadata(
            r#"{"type":"queued","place":3}"#,
        )));
        messages.push(message(Downlink::Metadata(
            r#"{"type":"queued","place":1}"#,
        )));
        messages.push(message(Downlink::Ping));
    }
    messages.push(message(Downlink::Ready(None)));
    let (mut writer, headers) = OpusWriter::begin().expect("memory");
    messages.extend(headers.iter().map(|page| message(Downlink::Audio(page))));
    for _ in 0..frames {
        let page = writer.page(&[0.0; 1_920]).expect("a whole frame");
        messages.push(message(Downlink::Audio(&page)));
    }
    messages
}

fn load(server: &Server, args: &[&str]) -> (Finished, Value) {
    let args = [
        &["load", "--json", "--url", &server.url, "--frames", "10"],
        args,
    ]
    .concat();
    let finished = Home::new().run(&args);
    let report = serde_json::from_str(&finished.stdout).expect("load prints JSON");
    (finished, report)
}

#[test]
fn callers_that_get_every_frame_end_well() {
    let server = Server::start(Script::Speak(10));
    let args = [
        "--sessions",
        "3",
        "--voice",
        "NATF0",
        "--prompt",
        "You sell ice.",
        "--token",
        "sesame",
    ];
    let (finished, report) = load(&server, &args);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert_eq!(
        (&report["ok"], &report["refused"]),
        (&true.into(), &0.into())
    );
    let sessions = report["sessions"].as_array().expect("a list");
    assert_eq!(sessions.len(), 3);
    for session in sessions {
        assert_eq!(session["frames"], 10, "{session}");
        assert_eq!(session["deficit_frames"], 0, "{session}");
        assert_eq!(session["reason"], Value::Null, "{session}");
        assert!(
            session["ready_ms"].is_f64() && session["first_audio_ms"].is_f64(),
            "{session}"
        );
        assert!(session["gap_ms"]["p99"].is_f64(), "{session}");
        assert!(session["send_late_ms"]["max"].is_f64(), "{session}");
    }
    for _ in 0..3 {
        let said = server.said.recv().expect("a caller");
        assert_eq!(
            said.query,
            "text_prompt=You%20sell%20ice.&voice_prompt=NATF0"
        );
        assert_eq!(said.authorization, "Bearer sesame");
        // A decoder holds back its first few milliseconds, so the last frame may still be open.
        assert!((9..=10).contains(&said.frames), "{said:?}");
        assert!(said.loudest > 0.05, "callers can be heard: {said:?}");
    }
    assert!(!format!("{finished:?}").contains("sesame"));
}

#[test]
fn a_real_question_can_be_asked() {
    let server = Server::start(Script::Speak(10));
    let wav = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/demo/user_question1.wav"
    );
    let (finished, _) = load(&server, &["--input", wav]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let said = server.said.recv().expect("a caller");
    assert!(said.frames >= 9, "{said:?}");
}

#[test]
fn the_deficit_decides() {
    for (frames, deficit, code) in [(6, 4, 0), (5, 5, 1), (0, 10, 1)] {
        let (finished, report) = load(&Server::start(Script::Speak(frames)), &[]);
        assert_eq!(finished.code, Some(code), "{frames}: {finished:?}");
        assert_eq!(report["sessions"][0]["deficit_frames"], deficit, "{report}");
        assert_eq!(report["ok"], code == 0);
    }
}

#[test]
fn a_refusal_is_told_in_the_servers_words() {
    let cases = [
        (Script::NoUpgrade, "HTTP 400: there is no voice \"X\""),
        (Script::BadQuery, "HTTP 400: there is no voice \"X\""),
        (Script::Full, "all 4 slots are taken (closed 1013)"),
    ];
    for (script, reason) in cases {
        let (finished, report) = load(&Server::start(script), &["--sessions", "2"]);
        assert_eq!(finished.code, Some(1), "{finished:?}");
        assert_eq!(
            (&report["refused"], &report["sessions"][1]["reason"]),
            (&2.into(), &reason.into())
        );
        let complaint = format!("2 of 2 sessions refused: {reason}");
        assert_eq!(finished.complaint(), complaint);
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
    }
}

#[test]
fn a_caller_that_may_wait_waits() {
    let server = Server::start(Script::Queue);
    let (finished, report) = load(&server, &["--ext"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert_eq!(report["sessions"][0]["waited_at"], 3, "{report}");
    assert_eq!(server.said.recv().expect("a caller").query, "ext=1");
}

#[test]
fn a_call_that_the_server_ends_counts_as_behind() {
    let (finished, report) = load(&Server::start(Script::Drop), &[]);
    assert_eq!(finished.code, Some(1), "{finished:?}");
    let session = &report["sessions"][0];
    // Its one frame may be lost with the connection.
    let deficit = session["deficit_frames"].as_u64().expect("a number");
    assert!((9..=10).contains(&deficit), "{session}");
    assert!(
        session["reason"]
            .as_str()
            .is_some_and(|reason| !reason.is_empty()),
        "{session}"
    );
}

#[test]
fn a_table_has_a_line_for_every_session() {
    let server = Server::start(Script::Speak(10));
    let args = [
        "load",
        "--url",
        &server.url,
        "--frames",
        "10",
        "--sessions",
        "2",
    ];
    let finished = Home::new().run(&args);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let lines: Vec<_> = finished.stdout.lines().collect();
    assert_eq!(lines.len(), 5, "{finished:?}");
    assert!(
        lines[2].contains("ok") && lines[3].contains("ok"),
        "{finished:?}"
    );
    assert_eq!(lines[4], "2 of 2 sessions within 4 frames");
}

#[test]
fn strangers_are_not_loaded_by_accident() {
    let finished = Home::new().run(&["load", "--url", "http://192.0.2.1:8998"]);
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert!(finished.complaint().contains("--any-host"), "{finished:?}");
    // Nothing listens on port 9 of this machine.
    let finished = Home::new().run(&["load", "--url", "http://127.0.0.1:9"]);
    assert_eq!(finished.code, Some(1), "{finished:?}");
    let expected = "1 of 1 sessions failed: nothing answers at http://127.0.0.1:9; does `vivavoce serve` run there?";
    assert_eq!(finished.complaint(), expected);
    let line = finished.stdout.lines().nth(2).expect("a line for it");
    let cells: Vec<_> = line.split_whitespace().take(9).collect();
    assert_eq!(
        cells,
        ["0", "failed", "-", "-", "-", "-", "-", "-", "-"],
        "{line}"
    );
}
