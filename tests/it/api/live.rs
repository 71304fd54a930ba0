//! The live switchboard: events for open pages, hanging up, listening in, draining.

use std::collections::VecDeque;

use futures_util::StreamExt;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use slots::testing::{ScriptedEngine, Speech};
use slots::units::FRAME_SAMPLES;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_tungstenite::{WebSocketStream, client_async};
use wire::notice::{EndReason, Notice};

use super::Asking;
use super::log::{ended, newest};
use super::safety::{PASSWORD, sign_in};
use crate::support::{Heard, Setup, TestApp, small_ear, until, within};

/// An open page's stream of events.
struct Page {
    response: Response,
    text: String,
    due: VecDeque<Value>,
}

impl Page {
    async fn open(app: &TestApp) -> Self {
        Self::of(Asking::of(app)).await
    }

    async fn open_with(app: &TestApp, name: &'static str, value: &str) -> Self {
        Self::of(Asking::with(app, name, value)).await
    }

    async fn of(asking: Asking<'_>) -> Self {
        let request = asking.request(Method::GET, "/api/events");
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        Self {
            response,
            text: String::new(),
            due: VecDeque::new(),
        }
    }

    /// The next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(event) = self.due.pop_front() {
                return Some(event);
            }
            let chunk = within("the next event", self.response.chunk());
            let chunk = chunk.await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let line = |head: &str| event.lines().find_map(|line| line.strip_prefix(head));
                if let Some(data) = line("data: ") {
                    let data: Value = serde_json::from_str(data).unwrap();
                    assert_eq!(line("event: "), data["type"].as_str());
                    self.due.push_back(data);
                }
                self.text = rest.to_owned();
            }
        }
    }

    /// The first event from now on that is as `wanted`. Boards never stop coming, so the wait has an end of its own.
    async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        let looking = async {
            loop {
                let event = self.next().await.expect("the stream goes on");
                if wanted(&event) {
                    return event;
                }
            }
        };
        within("the event that is wanted", looking).await
    }
}

fn is(event: &Value, kind: &str) -> bool {
    event["type"] == kind
}

/// Whether an event says that `what` has changed.
fn changed(what: &'static str) -> impl Fn(&Value) -> bool {
    move |event| is(event, "changed") && event["what"] == what
}

/// The first slot with a call. Which one it is is not said: a persona that was just saved is read in a slot too.
fn taken(board: &Value) -> &Value {
    let slots = board["slots"].as_array().map_or(&[][..], Vec::as_slice);
    let taken = slots.iter().find(|slot| slot["call"].is_object());
    taken.unwrap_or(&Value::Null)
}

/// Its call.
fn call(board: &Value) -> &Value {
    &taken(board)["call"]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_sees_the_last_minutes_then_the_board_then_what_moves() {
    let engine = ScriptedEngine::new(Speech::Voice).saying(" word", 1);
    let app = Setup::of(engine).start().await;
    let draft = json!({"name": "Ada", "role_text": "You are Ada."});
    Asking::of(&app).post("/api/personas", draft).await.good();
    let mut caller = app.live("").await;
    let mut page = Page::open(&app).await;
    let history = page.next().await.unwrap();
    assert!(is(&history, "history") && history["seconds"].is_array());
    let board = page.next().await.unwrap();
    assert!(is(&board, "board"), "{board}");
    assert_eq!(board["slots"].as_array().unwrap().len(), 4);
    assert_eq!(board["state"], "ready");
    let talking = tokio::spawn(async move {
        loop {
            caller.frame().await;
            caller.say(0.3).await;
            if caller.socket.get_ref().peer_addr().is_err() {
                return;
            }
        }
    });
    let board = page
        .until(|event| {
            is(event, "board")
                && call(event)["caller_level"].as_u64() > Some(0)
                && call(event)["agent_level"].as_u64() > Some(0)
        })
        .await;
    let ada = call(&board);
    assert_eq!(
        (&ada["persona"], &ada["voice"], &ada["caller"]),
        (&json!("Ada"), &json!("NATF0"), &json!("local"))
    );
    assert!(ada["words"].as_str().unwrap().contains("word"), "{ada}");
    assert!(ada["words"].as_str().unwrap().chars().count() <= 120);
    assert_eq!(
        (&taken(&board)["phase"], &ada["listeners"]),
        (&json!("live"), &json!(0))
    );
    assert!(board["totals"]["joined"].as_u64() >= Some(1), "{board}");
    assert!(
        board["device"]["process_bytes"].as_u64() > Some(1_000_000),
        "{board}"
    );
    let second = page.until(|event| is(event, "second")).await;
    assert_eq!(second["live"], 1);
    assert!(
        second["max_us"].as_u64() >= second["mean_us"].as_u64(),
        "{second}"
    );
    // A page that opens later knows of it.
    let mut other = Page::open(&app).await;
    let history = other.next().await.unwrap();
    let seconds = history["seconds"].as_array().unwrap();
    assert!(seconds.contains(&{
        let mut kept = second.clone();
        kept.as_object_mut().unwrap().remove("type");
        kept
    }));
    talking.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_minutes_are_kept_while_nobody_looks() {
    let app = Setup::echo().start().await;
    let looking = async {
        loop {
            let history = Page::open(&app).await.next().await.unwrap();
            let seconds = history["seconds"].as_array().unwrap().clone();
            if seconds.len() >= 2 {
                return seconds;
            }
            tokio::task::yield_now().await;
        }
    };
    let seconds = within("two seconds", looking).await;
    let at = |n: usize| seconds[n]["at_s"].as_i64().unwrap();
    assert!(at(0) < at(1), "{seconds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_told_what_has_changed_once_it_can_be_read() {
    let app = Setup::echo().start().await;
    let mut page = Page::open(&app).await;
    let draft = json!({"name": "Ada", "role_text": ""});
    Asking::of(&app).post("/api/personas", draft).await.good();
    page.until(changed("personas")).await;
    let caller = app.live("").await;
    page.until(changed("sessions")).await;
    drop(caller);
    page.until(|event| is(event, "board") && call(event).is_null())
        .await;
    page.until(changed("sessions")).await;
    let list = Asking::of(&app).get("/api/sessions").await.good();
    assert!(ended(&list["items"][0]), "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_told_of_a_call_that_nobody_saw_running() {
    let app = Setup::echo().slots(1).start().await;
    let _holder = app.live("").await;
    newest(&app, |session| session["live_at_ms"].is_i64()).await;
    let mut page = Page::open(&app).await;
    let mut refused = app.call("").await;
    refused.ending().await;
    let listed = async {
        loop {
            page.until(changed("sessions")).await;
            let list = Asking::of(&app).get("/api/sessions").await.good();
            if list["items"][0]["end_reason"] == "full" {
                return;
            }
        }
    };
    within("news of the refused caller", listed).await;
}

/// How an operator asks, and what ends that.
enum Ends {
    SignOut,
    PasswordChange,
    TokenDeleted,
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_operate_any_more_sees_and_hears_nothing_more() {
    for ends in [Ends::SignOut, Ends::PasswordChange, Ends::TokenDeleted] {
        let app = Setup::echo().start().await;
        let cookie = sign_in(&app).await;
        let operator = Asking::with(&app, "cookie", cookie.clone());
        let wish = json!({"name": "desk", "scopes": ["operate"]});
        let made = operator.post("/api/tokens", wish).await.good();
        let token = made["token"].as_str().unwrap();
        let _caller = app.live(&format!("token={token}")).await;
        let (name, value) = match ends {
            Ends::TokenDeleted => ("authorization", format!("Bearer {token}")),
            _ => ("cookie", cookie.clone()),
        };
        let mut page = Page::open_with(&app, name, &value).await;
        page.next().await.unwrap();
        app.state.desk().journal().flush().await;
        let session = operator.get("/api/sessions").await.good()["items"][0]["id"].clone();
        let stream = TcpStream::connect(app.address).await.unwrap();
        let proof = Some((name, &*value));
        let mut ear = listen_as(&app, session.as_i64().unwrap(), stream, proof)
            .await
            .unwrap();
        // Another operator's line stays.
        let second = operator
            .post("/api/account/sign-in", json!({"password": PASSWORD}))
            .await;
        let second = second.cookie.unwrap().split(';').next().unwrap().to_owned();
        let mut other = Page::open_with(&app, "cookie", &second).await;
        other.next().await.unwrap();
        match ends {
            Ends::SignOut => {
                let out = operator.post("/api/account/sign-out", json!({})).await;
                assert_eq!(out.status, 204);
            }
            Ends::PasswordChange => {
                let change = Asking::with(&app, "cookie", second.clone());
                let change = change.request(Method::PUT, "/api/account/password");
                let change = change.json(&json!({"current": PASSWORD, "new": "another horse"}));
                assert_eq!(change.send().await.unwrap().status(), 200);
            }
            Ends::TokenDeleted => {
                let gone = operator
                    .delete(&format!("/api/tokens/{}", made["id"]))
                    .await;
                assert_eq!(gone.status, 204);
            }
        }
        let over = async {
            while page.next().await.is_some() {}
            while ear.next().await.is_some_and(|message| message.is_ok()) {}
        };
        within("the end of both lines", over).await;
        if !matches!(ends, Ends::PasswordChange) {
            other.until(|event| is(event, "second")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_closed_when_the_server_stops() {
    let app = Setup::echo().start().await;
    let mut page = Page::open(&app).await;
    page.next().await.unwrap();
    app.state.desk().close_pages();
    while page.next().await.is_some() {}
    // One that comes too late ends as well, instead of holding the server up.
    let mut late = Page::open(&app).await;
    while late.next().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_ends_a_call_and_may_do_so_twice() {
    let app = Setup::echo().start().await;
    let mut caller = app.live("ext=1").await;
    let other = app.live("").await;
    let list = newest(&app, |session| session["live_at_ms"].is_i64()).await;
    assert_eq!(list["id"], 2);
    let asking = Asking::of(&app);
    let ended = asking.post("/api/live/1/hang-up", json!({})).await;
    assert_eq!(ended.status, 204);
    let heard = caller
        .until(|heard| matches!(heard, Heard::Closed { .. }))
        .await;
    let told = heard.iter().any(|heard| {
        matches!(heard, Heard::Notice(Notice::Ended { reason, .. }) if *reason == EndReason::ClosedByOperator)
    });
    assert!(told, "{heard:?}");
    until("its slot to be free", || app.free_slots() == 3).await;
    app.state.desk().journal().flush().await;
    let again = asking.post("/api/live/1/hang-up", json!({})).await;
    assert_eq!(again.status, 204);
    let unknown = asking.post("/api/live/77/hang-up", json!({})).await;
    assert_eq!((unknown.status, unknown.code()), (404, "not_found"));
    let session = asking.get("/api/sessions/1").await.good();
    assert_eq!(session["end_reason"], "closed_by_operator");
    drop(other);
}

type Ear = WebSocketStream<TcpStream>;

async fn listen(app: &TestApp, session: i64, stream: TcpStream) -> Result<Ear, u16> {
    listen_as(app, session, stream, None).await
}

/// With a header that says who asks.
async fn listen_as(
    app: &TestApp,
    session: i64,
    stream: TcpStream,
    proof: Option<(&'static str, &str)>,
) -> Result<Ear, u16> {
    let url = format!(
        "ws://localhost:{}/api/live/{session}/listen",
        app.address.port()
    );
    let mut request = url.into_client_request().unwrap();
    if let Some((name, value)) = proof {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    match client_async(request, stream).await {
        Ok((socket, _)) => Ok(socket),
        Err(WsError::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

async fn listen_in(app: &TestApp, session: i64) -> Result<Ear, u16> {
    let stream = TcpStream::connect(app.address).await.unwrap();
    listen(app, session, stream).await
}

/// Loudest sample of caller and agent in one message.
fn peaks(message: &[u8]) -> [i16; 2] {
    let samples = message.chunks_exact(2);
    let samples = samples.map(|bytes| i16::from_le_bytes([bytes[0], bytes[1]]));
    let mut peaks = [0; 2];
    for (at, sample) in samples.enumerate() {
        let side = &mut peaks[at % 2];
        *side = (*side).max(sample.saturating_abs());
    }
    peaks
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_hears_both_sides_until_the_call_ends() {
    let app = Setup::of(ScriptedEngine::new(Speech::Voice)).start().await;
    let mut caller = app.live("").await;
    let mut ear = listen_in(&app, 1).await.unwrap();
    until("the ear to count", || {
        app.state
            .desk()
            .journal()
            .live()
            .get(1)
            .unwrap()
            .listeners()
            == 1
    })
    .await;
    let mut heard = [0; 2];
    // Opus takes a frame or two to become loud.
    while heard[0] < 3_000 || heard[1] < 100 {
        caller.talk(1).await;
        let message = within("a frame", ear.next()).await.unwrap().unwrap();
        let bytes = message.into_data();
        assert_eq!(bytes.len(), 2 * 2 * FRAME_SAMPLES);
        heard = peaks(&bytes);
    }
    drop(caller);
    let mut last = None;
    while let Some(Ok(message)) = within("the end", ear.next()).await {
        last = Some(message);
    }
    assert!(matches!(last, Some(Message::Close(_))), "{last:?}");
    assert_eq!(listen_in(&app, 1).await.err(), Some(404), "it is over");
    let plain = Asking::of(&app).get("/api/live/1/listen").await;
    assert_eq!(plain.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ear_that_does_not_read_holds_up_no_call() {
    let app = Setup::of(ScriptedEngine::new(Speech::Voice)).start().await;
    let mut caller = app.live("").await;
    let deaf = small_ear(app.address).await;
    let _deaf = listen(&app, 1, deaf).await.unwrap();
    let mut ear = listen_in(&app, 1).await.unwrap();
    // Far more than all buffers on the way to the deaf ear take (7.7 kB a frame).
    for _ in 0..150 {
        caller.talk(1).await;
        within("a frame", ear.next()).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_server_takes_nobody_and_ends_when_the_last_call_does() {
    let mut app = Setup::echo().start().await;
    let mut caller = app.live("").await;
    let mut page = Page::open(&app).await;
    let drained = Asking::of(&app).post("/api/drain", json!({})).await;
    assert_eq!(drained.status, 202);
    page.until(|event| is(event, "board") && event["state"] == "draining")
        .await;
    let mut refused = app.call("ext=1").await;
    let heard = refused
        .until(|heard| matches!(heard, Heard::Closed { .. }))
        .await;
    assert!(
        heard.iter().any(|heard| matches!(heard, Heard::Notice(Notice::Ended { reason, .. }) if *reason == EndReason::Draining)),
        "{heard:?}"
    );
    caller.talk(5).await;
    drop(caller);
    within("the tick to end", app.thread.stopped())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_model_loads_a_page_waits_and_nothing_can_be_drained() {
    use crate::support::{TestPrepare, listen};
    use vivavoce::store::Store;
    use vivavoce::web::{AppState, WebSettings};
    let store = Store::in_memory().await.unwrap();
    let state = AppState::<TestPrepare>::open(WebSettings::default(), store).await;
    let (address, _stop) = listen(&state.unwrap());
    let url = |path: &str| format!("http://127.0.0.1:{}{path}", address.port());
    let response = reqwest::get(url("/api/events")).await.unwrap();
    let mut page = Page {
        response,
        text: String::new(),
        due: VecDeque::new(),
    };
    let board = page.until(|event| is(event, "board")).await;
    assert_eq!(board["state"], "loading");
    let drain = reqwest::Client::new().post(url("/api/drain")).send().await;
    assert_eq!(drain.unwrap().status(), 503);
}
