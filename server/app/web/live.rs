//! The live switchboard: events, hanging up, listening in, draining.
//!
//! Lives here: the routes. One sampler serves all pages (`live/sample.rs`); with no page open it only keeps the last ten
//! minutes of ticks.

mod right;
mod sample;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::api::ErrorBody;
use wire::api::live::{Changed, LiveEvent, TickSecond};

use super::desk::Desk;
use super::error::ApiError;
use super::identity::Operator;
use crate::journal::LiveCall;
use crate::sessions::host::limited;

use right::Right;

pub(super) use sample::sample;

/// Events that may wait for a page that does not read; beyond that it is told to ask for its lists anew.
const EVENTS_MAX: usize = 64;
/// Seconds of ticks that are kept.
const HISTORY_SECONDS: usize = 600;
/// The longest a listener's message may take.
const SEND_WITHIN: Duration = Duration::from_secs(5);

/// What open pages are told.
pub(super) struct Feed {
    events: broadcast::Sender<Told>,
    // Locked once a second, and when a page opens.
    history: Mutex<VecDeque<TickSecond>>,
    /// Memory of the device in use and in all, as last asked.
    device_bytes: Mutex<Option<(u64, u64)>>,
    closed: watch::Sender<bool>,
    /// Told when somebody may have lost a right.
    rights: watch::Sender<()>,
}

/// An event as it goes out: its name and its JSON, made once for all pages.
#[derive(Clone, Debug)]
struct Told {
    name: &'static str,
    json: Arc<str>,
}

impl Told {
    fn of(event: &LiveEvent) -> Self {
        let name = match event {
            LiveEvent::Board(_) => "board",
            LiveEvent::History { .. } => "history",
            LiveEvent::Second(_) => "second",
            LiveEvent::Changed { .. } => "changed",
        };
        // Numbers and strings: they always have a JSON form.
        let json = serde_json::to_string(event).unwrap_or_default().into();
        Self { name, json }
    }
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            events: broadcast::Sender::new(EVENTS_MAX),
            history: Mutex::default(),
            device_bytes: Mutex::default(),
            closed: watch::Sender::new(false),
            rights: watch::Sender::new(()),
        }
    }
}

impl Feed {
    fn tell(&self, event: &LiveEvent) {
        // No page is open: fine.
        let _ = self.events.send(Told::of(event));
    }

    /// Ends every stream of events.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Whoever watches is asked anew what lets them in.
    pub(super) fn look_at_rights(&self) {
        self.rights.send_replace(());
    }

    fn pages(&self) -> usize {
        self.events.receiver_count()
    }

    fn keep(&self, second: TickSecond) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if history.len() == HISTORY_SECONDS {
            history.pop_front();
        }
        history.push_back(second);
    }

    fn tell_everything_changed(&self) {
        for told in everything_changed() {
            let _ = self.events.send(told);
        }
    }

    fn device_bytes(&self) -> Option<(u64, u64)> {
        *self.lock_device()
    }

    fn set_device_bytes(&self, bytes: Option<(u64, u64)>) {
        *self.lock_device() = bytes;
    }

    fn lock_device(&self) -> MutexGuard<'_, Option<(u64, u64)>> {
        self.device_bytes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn history(&self) -> Vec<TickSecond> {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.iter().copied().collect()
    }
}

/// The routes of this resource.
pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(events))
        .routes(routes!(hang_up))
        .routes(routes!(listen))
        .routes(routes!(drain))
}

/// What happens, as server-sent events: each carries a `LiveEvent`
#[utoipa::path(get, path = "/api/events", tag = "live",
    responses((status = 200, content_type = "text/event-stream", body = LiveEvent),
        (status = "default", body = ErrorBody)))]
async fn events(
    _: Operator,
    State(desk): State<Desk>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let feed = desk.feed();
    let news = feed.events.subscribe();
    let mut closed = feed.closed.subscribe();
    let right = Right::of(&desk, uri, headers);
    let until_closed = async move {
        tokio::select! {
            _ = closed.wait_for(|&closed| closed) => {}
            () = right.ends() => {}
        }
    };
    let seconds = feed.history();
    let first = [
        Told::of(&LiveEvent::History { seconds }),
        Told::of(&sample::board_event(&desk)),
    ];
    let stream = stream::unfold(
        (VecDeque::from(first), news),
        async |(mut due, mut news)| {
            if due.is_empty() {
                match news.recv().await {
                    Ok(told) => due.push_back(told),
                    Err(RecvError::Lagged(_)) => due.extend(everything_changed()),
                    Err(RecvError::Closed) => return None,
                }
            }
            let told = due.pop_front()?;
            let event = Event::default().event(told.name).data(&*told.json);
            Some((Ok::<_, Infallible>(event), (due, news)))
        },
    );
    let mut response = Sse::new(stream.take_until(Box::pin(until_closed)))
        .keep_alive(KeepAlive::default())
        .into_response();
    // nginx would collect events until its buffer is full.
    let unbuffered = HeaderName::from_static("x-accel-buffering");
    response
        .headers_mut()
        .insert(unbuffered, HeaderValue::from_static("no"));
    Ok(response)
}

fn everything_changed() -> impl Iterator<Item = Told> {
    Changed::ALL
        .into_iter()
        .map(|what| Told::of(&LiveEvent::Changed { what }))
}

fn running(desk: &Desk, session: i64) -> Result<Arc<LiveCall>, ApiError> {
    let call = desk.journal().live().get(session);
    call.ok_or_else(|| ApiError::Missing {
        what: format!("running session {session}"),
    })
}

/// Ends a call; one that is over by now is fine
#[utoipa::path(post, path = "/api/live/{session}/hang-up", tag = "live", params(("session" = i64, Path)),
    responses((status = 204), (status = "default", body = ErrorBody)))]
async fn hang_up(
    Operator(by): Operator,
    State(desk): State<Desk>,
    Path(session): Path<i64>,
) -> Result<StatusCode, ApiError> {
    match running(&desk, session) {
        Ok(call) => {
            tracing::info!(session, by = by.label, "an operator ends a call");
            call.hang_up();
        }
        Err(error) => {
            // Unknown is an error, over is not.
            desk.store().session(session).await.map_err(|_| error)?;
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Listens in, over a WebSocket: binary messages of 1,920 interleaved stereo samples (16 bits, little endian, 24 kHz;
/// caller left, agent right)
#[utoipa::path(get, path = "/api/live/{session}/listen", tag = "live", params(("session" = i64, Path)),
    responses((status = 101), (status = "default", body = ErrorBody)))]
async fn listen(
    Operator(by): Operator,
    State(desk): State<Desk>,
    Path(session): Path<i64>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let call = running(&desk, session)?;
    let upgrade = upgrade.map_err(|_| ApiError::NotAnUpgrade)?;
    tracing::info!(session, by = by.label, "an operator listens in");
    let tap = call.listen_in();
    // The call must be able to end while somebody listens.
    drop(call);
    let right = Right::of(&desk, uri, headers);
    Ok(limited(upgrade).on_upgrade(async move |socket| pass_on(socket, tap, right).await))
}

async fn pass_on(mut socket: WebSocket, mut tap: broadcast::Receiver<Arc<[i16]>>, right: Right) {
    let mut over = pin!(right.ends());
    loop {
        let frame = tokio::select! {
            frame = tap.recv() => frame,
            () = &mut over => break,
            // Whatever comes is of no meaning but its end.
            message = socket.recv() => match message {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => continue,
            },
        };
        let frame = match frame {
            Ok(frame) => frame,
            // A listener that is behind goes on with the newest.
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => break,
        };
        let bytes: Vec<u8> = frame
            .iter()
            .flat_map(|sample| sample.to_le_bytes())
            .collect();
        let sent =
            tokio::time::timeout(SEND_WITHIN, socket.send(Message::Binary(bytes.into()))).await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
    let _ = socket.send(Message::Close(None)).await;
}

/// Takes no new callers; running calls may finish; then the process ends
#[utoipa::path(post, path = "/api/drain", tag = "live",
    responses((status = 202), (status = "default", body = ErrorBody)))]
async fn drain(Operator(by): Operator, State(desk): State<Desk>) -> Result<StatusCode, ApiError> {
    tracing::info!(
        by = by.label,
        "an operator drains the server: no new callers"
    );
    desk.room()?.drain();
    Ok(StatusCode::ACCEPTED)
}
