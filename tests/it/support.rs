//! A whole switchboard with a scripted engine, and a caller that speaks `wire` to it.
//!
//! Lives here: [`TestApp`], [`Caller`], clocks for tests. Waiting is always for an event, with a generous limit.
//! May not live here: assertions about behaviour.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use audio::opus_read::OpusReader;
use audio::opus_write::OpusWriter;
use futures_util::{SinkExt, StreamExt};
use slots::call::{AddVoiceError, CallSpec, PrepareCall, PrepareError, PromptFacts, VoiceFacts};
use slots::testing::{EngineLog, ScriptedCall, ScriptedEngine, ScriptedPrepare};
use slots::units::{FRAME_MS, FRAME_SAMPLES};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_tungstenite::{WebSocketStream, client_async};
use vivavoce::sessions::limits::SessionLimits;
use vivavoce::stepper::board::{Board, SlotPhase};
use vivavoce::stepper::clock::{Clock, HandClock};
use vivavoce::stepper::handle::StepperHandle;
use vivavoce::stepper::{Options, StepperThread, spawn};
use vivavoce::store::Store;
use vivavoce::web::{self, AppState, WebSettings};
use wire::api::{ErrorFacts, Health};
use wire::notice::Notice;
use wire::socket::{Downlink, Uplink};

/// The longest any test waits for anything. Only a failing test ever does.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Real time, but several times as fast.
pub struct FastClock {
    began: Instant,
    haste: u64,
}

impl FastClock {
    /// 20 ms for a tick: a session task may stand still for half a second before its listener counts as slow.
    pub fn new() -> Arc<Self> {
        Self::with_haste(4)
    }

    pub fn with_haste(haste: u64) -> Arc<Self> {
        let began = Instant::now();
        Arc::new(Self { began, haste })
    }
}

impl Clock for FastClock {
    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64 * self.haste
    }

    fn sleep_until_us(&self, due_us: u64) {
        let left_us = due_us.saturating_sub(self.now_us()).div_ceil(self.haste);
        std::thread::park_timeout(Duration::from_micros(left_us));
    }
}

/// Takes any prompt, knows two voices, and remembers what was asked for.
pub struct TestPrepare {
    pub inner: ScriptedPrepare,
    pub asked: Mutex<Vec<CallSpec>>,
}

impl PrepareCall for TestPrepare {
    type Call = ScriptedCall;

    fn prepare(&self, spec: &CallSpec) -> Result<ScriptedCall, PrepareError> {
        self.asked.lock().unwrap().push(spec.clone());
        let short = CallSpec {
            text_prompt: None,
            ..spec.clone()
        };
        self.inner.prepare(&short)
    }

    fn model_id(&self) -> String {
        self.inner.model_id()
    }

    fn prompt_facts(&self, spec: &CallSpec) -> Result<PromptFacts, PrepareError> {
        self.inner.prompt_facts(spec)
    }

    fn voice_facts(&self) -> Vec<VoiceFacts> {
        self.inner.voice_facts()
    }

    fn add_voice(
        &self,
        name: &str,
        file: &str,
        bundle: &[u8],
    ) -> Result<VoiceFacts, AddVoiceError> {
        self.inner.add_voice(name, file, bundle)
    }

    fn remove_voice(&self, name: &str) {
        self.inner.remove_voice(name);
    }

    fn restore_voice(&self, name: &str) -> bool {
        self.inner.restore_voice(name)
    }

    fn convert_bundle(&self, file: &str, bundle: &[u8]) -> Result<Vec<u8>, AddVoiceError> {
        self.inner.convert_bundle(file, bundle)
    }

    fn recording_frames_max(&self) -> usize {
        self.inner.recording_frames_max()
    }

    fn memory_frames(&self) -> usize {
        self.inner.memory_frames()
    }

    fn voice_from_recording(&self, pcm: &[f32]) -> Result<Vec<u8>, AddVoiceError> {
        self.inner.voice_from_recording(pcm)
    }
}

/// What a test wants of its switchboard.
pub struct Setup {
    pub engine: ScriptedEngine,
    pub slots: usize,
    pub clock: Arc<dyn Clock>,
    pub prepare: ScriptedPrepare,
    pub limits: SessionLimits,
    /// The data folder; without one the store is in memory and nothing is recorded.
    pub data: Option<PathBuf>,
}

impl Setup {
    /// Four rows that say what they hear, on a fast clock.
    pub fn echo() -> Self {
        Self::of(ScriptedEngine::echo())
    }

    pub fn of(engine: ScriptedEngine) -> Self {
        Self {
            engine,
            slots: 4,
            clock: FastClock::new(),
            prepare: ScriptedPrepare::default(),
            limits: SessionLimits::default(),
            data: None,
        }
    }

    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    pub fn chunks(mut self, chunks: u32) -> Self {
        self.prepare.chunks = chunks;
        self
    }

    pub fn limits(mut self, change: impl FnOnce(&mut SessionLimits)) -> Self {
        change(&mut self.limits);
        self
    }

    /// Keeps what it keeps in `folder`.
    pub fn data(mut self, folder: &Path) -> Self {
        self.data = Some(folder.to_owned());
        self
    }

    pub async fn start(self) -> TestApp {
        let mut options = Options::new(self.slots);
        options.clock = self.clock;
        options.admission = false;
        let engine = self.engine.with_capacity(self.slots);
        let log = engine.log();
        let (stepper, mut thread) = spawn(move || Ok(engine), options).unwrap();
        thread.ready().await.unwrap();
        let settings = WebSettings {
            limits: self.limits,
            recordings: self.data.as_deref().map(|data| data.join("recordings")),
            ..WebSettings::default()
        };
        let store = match &self.data {
            Some(data) => Store::open(&data.join("vivavoce.db")).await,
            None => Store::in_memory().await,
        };
        let state = AppState::open(settings, store.unwrap()).await.unwrap();
        let prepare = Arc::new(TestPrepare {
            inner: self.prepare,
            asked: Mutex::default(),
        });
        web::load_voices(state.desk().store(), &*prepare)
            .await
            .unwrap();
        state.set_loaded(stepper.clone(), prepare.clone()).unwrap();
        let (address, stop) = listen(&state);
        TestApp {
            address,
            state,
            stepper,
            prepare,
            log,
            thread,
            _stop: stop,
        }
    }
}

/// Opens a port for `state`; it closes when the sender is dropped.
pub fn listen(state: &AppState<TestPrepare>) -> (SocketAddr, oneshot::Sender<()>) {
    let listener = web::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async {
        let _ = stopped.await;
    };
    tokio::spawn(web::serve(listener, web::router(state.clone()), shutdown));
    (address, stop)
}

/// A running switchboard. Everything stops when it is dropped.
pub struct TestApp {
    pub address: SocketAddr,
    pub state: AppState<TestPrepare>,
    pub stepper: StepperHandle<ScriptedCall>,
    pub prepare: Arc<TestPrepare>,
    pub log: Arc<EngineLog>,
    pub thread: StepperThread,
    _stop: oneshot::Sender<()>,
}

impl TestApp {
    pub fn board(&self) -> &Board {
        self.stepper.board()
    }

    pub fn free_slots(&self) -> usize {
        self.board().slots_in(SlotPhase::Free)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.address.port())
    }

    /// A caller; the upgrade must work.
    pub async fn call(&self, query: &str) -> Caller {
        self.dial(query).await.unwrap()
    }

    pub async fn dial(&self, query: &str) -> Result<Caller, Refused> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        dial_over(stream, query).await
    }

    pub async fn live(&self, query: &str) -> Caller {
        let mut caller = self.call(query).await;
        caller.until_ready().await;
        caller
    }

    pub async fn health(&self) -> (u16, Health) {
        let response = reqwest::get(self.url("/readyz")).await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// The value of a metric, given as it stands in the text, labels included.
    pub async fn metric(&self, name: &str) -> f64 {
        let text = reqwest::get(self.url("/metrics"))
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}"))
            .parse()
            .unwrap()
    }

    /// Waits until `name` has reached `least`.
    pub async fn metric_reaches(&self, name: &str, least: f64) {
        let reached = async {
            while self.metric(name).await < least {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        within(&format!("{name} >= {least}"), reached).await;
    }

    pub async fn all_slots_free(&self) {
        let capacity = self.board().capacity();
        until("all slots free", || self.free_slots() == capacity).await;
    }
}

/// A refusal before the upgrade.
#[derive(Debug)]
pub struct Refused {
    pub status: u16,
    pub retry_after: Option<String>,
    pub error: ErrorFacts,
}

/// What a caller hears.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    Ready(Vec<u8>),
    /// The bytes of one audio message.
    Audio(Vec<u8>),
    Text(String),
    Notice(Notice),
    Error(String),
    Ping,
    Closed {
        code: u16,
        reason: String,
    },
    /// Without a close message.
    Lost,
}

/// One connected caller.
pub struct Caller {
    pub socket: WebSocketStream<TcpStream>,
    writer: OpusWriter,
    headers: Option<[Vec<u8>; 2]>,
    reader: OpusReader,
    said: usize,
    over: bool,
}

pub async fn dial_over(stream: TcpStream, query: &str) -> Result<Caller, Refused> {
    stream.set_nodelay(true).unwrap();
    let port = stream.peer_addr().unwrap().port();
    let url = format!("ws://localhost:{port}/api/chat?{query}");
    match client_async(url, stream).await {
        Ok((socket, _)) => {
            let (writer, headers) = OpusWriter::begin().unwrap();
            Ok(Caller {
                socket,
                writer,
                headers: Some(headers),
                reader: OpusReader::begin().unwrap(),
                said: 0,
                over: false,
            })
        }
        Err(WsError::Http(response)) => {
            let body = response.body().as_deref().unwrap_or_default();
            let body: wire::api::ErrorBody = serde_json::from_slice(body)
                .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(body)));
            let retry_after = response.headers().get("retry-after");
            Err(Refused {
                status: response.status().as_u16(),
                retry_after: retry_after.map(|value| value.to_str().unwrap().to_owned()),
                error: body.error,
            })
        }
        Err(error) => panic!("{error}"),
    }
}

/// A connection whose system buffers little of what nobody reads.
pub async fn small_ear(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(address).await.unwrap()
}

impl Caller {
    pub async fn send(&mut self, uplink: Uplink<'_>) {
        self.send_raw(Message::Binary(uplink.to_bytes().into()))
            .await;
    }

    /// Sends what may no longer arrive: the server may have ended the call.
    pub async fn send_raw(&mut self, message: Message) {
        let _ = within("a message to be sent", self.socket.send(message)).await;
    }

    /// The next frame of a tone of this loudness, as Ogg pages; the first time with the headers in front.
    pub fn pages(&mut self, loudness: f32) -> Vec<Vec<u8>> {
        let at = self.said * FRAME_SAMPLES;
        self.said += 1;
        let tone = |sample: usize| ((at + sample) as f32 * 0.0571).sin() * loudness;
        let frame: Vec<f32> = (0..FRAME_SAMPLES).map(tone).collect();
        let mut pages = self.headers.take().map(Vec::from).unwrap_or_default();
        pages.push(self.writer.page(&frame).unwrap());
        pages
    }

    pub async fn say(&mut self, loudness: f32) {
        for page in self.pages(loudness) {
            self.send(Uplink::Audio(&page)).await;
        }
    }

    /// The next message. After the end of the call there is none, and asking twice is a mistake of the test.
    pub async fn next(&mut self) -> Heard {
        assert!(!self.over, "the call is over");
        let heard = self.hear().await;
        self.over = matches!(heard, Heard::Closed { .. } | Heard::Lost);
        heard
    }

    async fn hear(&mut self) -> Heard {
        loop {
            let message = within("the next message", self.socket.next()).await;
            return match message {
                None | Some(Err(_)) => Heard::Lost,
                Some(Ok(Message::Close(frame))) => {
                    let none = CloseFrame {
                        code: 1005.into(),
                        reason: "".into(),
                    };
                    let frame = frame.unwrap_or(none);
                    Heard::Closed {
                        code: frame.code.into(),
                        reason: frame.reason.to_string(),
                    }
                }
                Some(Ok(Message::Binary(bytes))) => match Downlink::parse(&bytes).unwrap() {
                    Downlink::Ready(_) => Heard::Ready(bytes.to_vec()),
                    Downlink::Audio(ogg) => Heard::Audio(ogg.to_vec()),
                    Downlink::Text(text) => Heard::Text(text.to_owned()),
                    Downlink::Metadata(json) => Heard::Notice(serde_json::from_str(json).unwrap()),
                    Downlink::Error(text) => Heard::Error(text.to_owned()),
                    Downlink::Ping => Heard::Ping,
                    other => panic!("{other:?}"),
                },
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                Some(Ok(other)) => panic!("{other:?}"),
            };
        }
    }

    /// Everything up to and with the first message that `wanted` takes.
    pub async fn until(&mut self, wanted: impl Fn(&Heard) -> bool) -> Vec<Heard> {
        let mut all = Vec::new();
        loop {
            all.push(self.next().await);
            if wanted(&all[all.len() - 1]) {
                return all;
            }
            let over = matches!(all[all.len() - 1], Heard::Closed { .. } | Heard::Lost);
            assert!(!over, "the call ended: {all:?}");
        }
    }

    pub async fn until_ready(&mut self) -> Vec<Heard> {
        self.until(|heard| matches!(heard, Heard::Ready(_))).await
    }

    /// The next whole frame of what the agent says. Other messages are skipped.
    pub async fn frame(&mut self) -> Vec<f32> {
        loop {
            if let Some(frame) = self.reader.next_frame().unwrap() {
                return frame.to_vec();
            }
            match self.next().await {
                Heard::Audio(ogg) => self.reader.push(&ogg),
                Heard::Closed { code, reason } => panic!("the call ended: {code} {reason}"),
                Heard::Lost => panic!("the call was lost"),
                _ => {}
            }
        }
    }

    /// The errors that were told, and the close code; audio and text before that are skipped.
    pub async fn ending(&mut self) -> (Vec<String>, u16) {
        let mut errors = Vec::new();
        loop {
            match self.next().await {
                Heard::Error(text) => errors.push(text),
                Heard::Closed { code, .. } => return (errors, code),
                Heard::Lost => panic!("no close message; errors: {errors:?}"),
                _ => {}
            }
        }
    }

    /// Hears and says one frame for each frame heard, `n` times.
    pub async fn talk(&mut self, n: usize) {
        for _ in 0..n {
            self.frame().await;
            self.say(0.2).await;
        }
    }
}

/// Root mean square.
pub fn loudness(frame: &[f32]) -> f32 {
    (frame.iter().map(|sample| sample * sample).sum::<f32>() / frame.len() as f32).sqrt()
}

pub async fn within<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(value) => value,
        Err(_) => panic!("waited {PATIENCE:?} for {what}"),
    }
}

/// Waits until `is_so`. Looks again every few milliseconds; how fast decides nothing.
pub async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(what, waiting).await;
}

/// As [`until`], for tests without a runtime.
pub fn block_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Lets one tick happen.
pub fn one_tick(clock: &HandClock) {
    clock.allow_us(u64::from(FRAME_MS) * 1_000);
}

/// A pause between two looks at something that a test waits for.
pub async fn before_the_next_look() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}
