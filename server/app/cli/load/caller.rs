//! One call: dial, wait for ready, speak and listen in step with the clock, hang up.
//!
//! Lives here: the client side of `/api/chat`. May not live here: what the numbers mean.

use std::fmt;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use slots::units::FRAME_MS;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, Uri};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};
use wire::socket::{Downlink, Uplink};

use super::measure::{Figures, Measure, ms, packet_samples};
use super::speech::Speech;
use crate::config::values::Secret;
use audio::ogg_read::OggReader;

/// How long the upgrade may take.
const DIAL: Duration = Duration::from_secs(10);
/// How long saying goodbye may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// The server to call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    authority: String,
    host: String,
    /// Path it is served under, without a slash at the end; often empty.
    path: String,
}

impl FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "it must be http://HOST:PORT (https is not offered yet)".to_owned();
        let uri: Uri = text.parse().map_err(|_| expected())?;
        match (uri.scheme_str(), uri.host(), uri.query()) {
            (Some("http" | "ws"), Some(host), None) => Ok(Self {
                authority: format!("{host}:{}", uri.port_u16().unwrap_or(80)),
                host: host.trim_matches(['[', ']']).to_owned(),
                path: uri.path().trim_end_matches('/').to_owned(),
            }),
            _ => Err(expected()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

impl Target {
    /// Whether it can only be this machine.
    pub fn is_loopback(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        self.host == "localhost" || address.is_ok_and(|a| a.to_canonical().is_loopback())
    }
}

/// What all callers of one run have in common.
pub struct Call {
    /// Whom to call.
    pub target: Target,
    /// With which wishes.
    pub query: String,
    /// Sent as a bearer token.
    pub token: Option<Secret>,
    /// How long to stay, in frames.
    pub frames: u32,
    /// How long to wait for the ready message.
    pub ready_within: Duration,
    /// What to say.
    pub speech: Speech,
}

/// What became of one call.
#[derive(Clone, Debug)]
pub struct Session {
    /// From dialling to the ready message.
    pub ready_ms: Option<f64>,
    /// Largest waiting place that was named.
    pub waited_at: Option<u32>,
    /// What was measured; all of it due and nothing delivered if it never began.
    pub figures: Figures,
    /// Why it ended before its time.
    pub end: Option<End>,
}

/// Why a session ended before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The server said so, in these words.
    Told(String),
    /// Nobody said anything: no connection, a broken one, no answer in time.
    Lost(String),
}

impl End {
    /// In words.
    pub fn reason(&self) -> &str {
        match self {
            Self::Told(reason) | Self::Lost(reason) => reason,
        }
    }
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

impl Call {
    /// Makes the call, to its end or to the server's.
    pub async fn run(&self) -> Session {
        let mut session = Session {
            ready_ms: None,
            waited_at: None,
            figures: Measure::default().figures(self.frames.into()),
            end: None,
        };
        let dialled = Instant::now();
        let ready = timeout(self.ready_within, async {
            let mut socket = self.dial().await?;
            wait_for_ready(&mut socket, &mut session.waited_at).await?;
            Ok(socket)
        });
        let mut socket = match ready.await {
            Ok(Ok(socket)) => socket,
            Ok(Err(end)) => {
                session.end = Some(end);
                return session;
            }
            Err(_) => {
                let reason = format!("not ready within {} s", self.ready_within.as_secs());
                session.end = Some(End::Lost(reason));
                return session;
            }
        };
        session.ready_ms = Some(ms(dialled.elapsed()));
        let mut measure = Measure::default();
        let ended = self.talk(&mut socket, &mut measure).await;
        session.end = ended.err();
        session.figures = measure.figures(self.frames.into());
        // Politely, but the numbers are in: a server that does not answer changes nothing.
        let _ = timeout(GOODBYE, socket.close(None)).await;
        session
    }

    async fn dial(&self) -> Result<Socket, End> {
        let Target {
            authority, path, ..
        } = &self.target;
        let url = format!("ws://{authority}{path}/api/chat?{}", self.query);
        let lost = |err: WsError| End::Lost(err.to_string());
        let mut request = url.into_client_request().map_err(lost)?;
        if let Some(token) = &self.token {
            let value = HeaderValue::from_str(&format!("Bearer {}", token.expose()));
            let value = value.map_err(|_| {
                End::Lost("the token has characters no header can carry".to_owned())
            })?;
            request.headers_mut().insert("authorization", value);
        }
        // Without delay: a frame must leave when it is due, not when the network has more to carry.
        let dialled = timeout(DIAL, connect_async_with_config(request, None, true)).await;
        match dialled {
            Ok(Ok((socket, _))) => Ok(socket),
            Ok(Err(WsError::Http(answer))) => {
                let body = answer.body().as_deref().unwrap_or_default();
                let status = answer.status().as_u16();
                Err(End::Told(format!("HTTP {status}: {}", message_of(body))))
            }
            Ok(Err(WsError::Io(err))) if err.kind() == ErrorKind::ConnectionRefused => {
                Err(End::Lost(format!(
                    "nothing answers at {}; does `vivavoce serve` run there?",
                    self.target
                )))
            }
            Ok(Err(err)) => Err(lost(err)),
            Err(_) => Err(End::Lost(format!("no answer within {} s", DIAL.as_secs()))),
        }
    }

    /// Speaks and listens until the last frame is due. Error: the server ended it, and why.
    async fn talk(&self, socket: &mut Socket, measure: &mut Measure) -> Result<(), End> {
        let mut ear = Ear {
            ready: Instant::now(),
            pages: OggReader::new(),
            complaint: None,
            measure,
        };
        let due = |frame: u32| Duration::from_millis(u64::from(FRAME_MS) * u64::from(frame));
        let mut stream = self.speech.stream();
        for header in stream.headers() {
            ear.say(socket, &header).await?;
        }
        for frame in 0..=self.frames {
            let next = ear.ready + due(frame);
            loop {
                tokio::select! {
                    biased;
                    () = sleep_until(next) => break,
                    message = socket.next() => ear.hear(message)?,
                }
            }
            if frame < self.frames {
                let at = ear.ready.elapsed();
                ear.measure.sent(due(frame), at);
                ear.say(socket, &stream.next_page()).await?;
            }
        }
        Ok(())
    }
}

/// The listening side of a live call.
struct Ear<'a> {
    ready: Instant,
    pages: OggReader,
    /// The server's error message: it comes before the close that ends the call.
    complaint: Option<String>,
    measure: &'a mut Measure,
}

impl Ear<'_> {
    /// Takes one message. Error: it was the last one.
    fn hear(&mut self, message: Option<Result<Message, WsError>>) -> Result<(), End> {
        let at = self.ready.elapsed();
        if let Some(page) = heard(message, &mut self.complaint)? {
            self.pages.push(&page);
            let mut samples = 0;
            while let Some(packet) = self.pages.next_packet() {
                samples += packet_samples(packet.data);
            }
            self.measure.heard(at, samples);
        }
        Ok(())
    }

    /// Sends one page. If that fails, what the server said before it left is heard first.
    async fn say(&mut self, socket: &mut Socket, page: &[u8]) -> Result<(), End> {
        let message = Message::binary(Uplink::Audio(page).to_bytes());
        let Err(broken) = socket.send(message).await else {
            return Ok(());
        };
        loop {
            match timeout(GOODBYE, socket.next()).await {
                Ok(message) => self.hear(message)?,
                Err(_) => return Err(End::Lost(format!("the connection broke: {broken}"))),
            }
        }
    }
}

async fn wait_for_ready(socket: &mut Socket, waited_at: &mut Option<u32>) -> Result<(), End> {
    let mut complaint = None;
    loop {
        let message = socket.next().await;
        if let Some(Ok(Message::Binary(bytes))) = &message {
            match Downlink::parse(bytes) {
                Ok(Downlink::Ready(_)) => return Ok(()),
                Ok(Downlink::Metadata(json)) => {
                    if let Ok(wire::notice::Notice::Queued { place }) = serde_json::from_str(json) {
                        *waited_at = Some(waited_at.map_or(place, |before| before.max(place)));
                    }
                }
                _ => {}
            }
        }
        heard(message, &mut complaint)?;
    }
}

/// Sorts one message: a piece of audio, nothing of interest, or the end. An error message is kept in `complaint`.
fn heard(
    message: Option<Result<Message, WsError>>,
    complaint: &mut Option<String>,
) -> Result<Option<Vec<u8>>, End> {
    match message {
        Some(Ok(Message::Binary(bytes))) => match Downlink::parse(&bytes) {
            Ok(Downlink::Audio(page)) => Ok(Some(page.to_vec())),
            Ok(Downlink::Error(what)) => {
                *complaint = Some(first_line(what.as_bytes()));
                Ok(None)
            }
            Ok(_) => Ok(None),
            Err(err) => Err(End::Lost(format!(
                "the server sent what is no message: {err}"
            ))),
        },
        Some(Ok(Message::Close(frame))) => {
            let (code, reason) = match &frame {
                Some(frame) => (u16::from(frame.code).to_string(), frame.reason.as_str()),
                None => ("without a code".to_owned(), ""),
            };
            Err(End::Told(match complaint.take() {
                // The close repeats the message, as far as it has room.
                Some(what) if what.starts_with(reason) => format!("{what} (closed {code})"),
                Some(what) => format!("{what} (closed {code}: {reason})"),
                None => format!("closed {code}: {reason}"),
            }))
        }
        Some(Ok(_)) => Ok(None),
        Some(Err(err)) => Err(told_or_lost(
            complaint,
            format!("the connection broke: {err}"),
        )),
        None => Err(told_or_lost(complaint, "the connection ended".to_owned())),
    }
}

fn told_or_lost(complaint: &mut Option<String>, lost: String) -> End {
    complaint.take().map_or(End::Lost(lost), End::Told)
}

/// What a refusal before the upgrade says: the message of our own error body, else its first line.
fn message_of(body: &[u8]) -> String {
    match serde_json::from_slice::<wire::api::ErrorBody>(body) {
        Ok(body) => first_line(body.error.message.as_bytes()),
        Err(_) => first_line(body),
    }
}

/// The first line of what a server says, cut to a length that fits a table.
fn first_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("no reason given");
    line.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        let cases = [
            ("http://127.0.0.1:8998", true),
            ("http://127.9.9.9:1", true),
            ("http://localhost:8998/", true),
            ("http://[::1]:8998", true),
            ("http://[::ffff:127.0.0.1]:8998", true),
            ("http://192.168.1.2:8998", false),
            ("http://localhost.example:8998", false),
            ("http://127.0.0.1.example", false),
            ("http://[2001:db8::1]:8998", false),
            ("http://user@example.com:80", false),
        ];
        for (url, is_loopback) in cases {
            assert_eq!(
                url.parse::<Target>().map(|t| t.is_loopback()),
                Ok(is_loopback),
                "{url}"
            );
        }
    }

    #[test]
    fn an_address_is_taken_apart() {
        let cases = [
            ("http://127.0.0.1:8998", Some("http://127.0.0.1:8998")),
            ("http://localhost", Some("http://localhost:80")),
            ("ws://localhost:1/voice/", Some("http://localhost:1/voice")),
            ("https://localhost:1", None),
            ("localhost:8998", None),
            ("http://localhost:1/?a=b", None),
            ("", None),
        ];
        for (url, shown) in cases {
            let target = url.parse::<Target>().map(|target| target.to_string()).ok();
            assert_eq!(target.as_deref(), shown, "{url}");
        }
    }
}
