//! The whole switchboard with the demo model, and callers that speak `/api/chat` with Opus to it.
//!
//! Lives here: [`Switchboard`], whose tick waits until every caller has done its part; [`Caller`].
//! May not live here: what the agent should say.
//!
//! Nothing here depends on how fast the machine is: a tick comes when all frames of the one before it were heard and
//! what callers said next has arrived, so that caller frame `n` always meets tick `n` of its call.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use audio::opus_read::OpusReader;
use audio::opus_write::OpusWriter;
use engine::backend::KvDtype;
use engine::kernels::Dtype;
use engine::native::Native;
use engine::prepare::{CallMaker, DEMO_PERSONAS};
use engine::voice_model::{EngineOptions, VoiceCall, VoiceModel};
use engine::weights::Checkpoint;
use futures_util::{SinkExt, StreamExt};
use slots::engine::EngineError;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};
use vivavoce::sessions::limits::SessionLimits;
use vivavoce::stepper::board::{Board, Loss, SlotPhase};
use vivavoce::stepper::clock::Clock;
use vivavoce::stepper::handle::StepperHandle;
use vivavoce::stepper::{Options, StepperThread, spawn};
use vivavoce::store::Store;
use vivavoce::web::{self, AppState, WebSettings};
use wire::notice::Notice;
use wire::socket::{Downlink, Uplink};

use crate::behaviour::{Conversation, Heard};

/// The longest a caller waits for one message. Only a failing test ever does.
const PATIENCE: Duration = Duration::from_secs(60);
/// Frames a caller is ahead of what it hears: one is there in time for the next tick, the other waits behind it, as
/// many as the tick lets stand.
const FRAMES_AHEAD: usize = 2;

/// A clock whose time moves by a tick when a test says so, and stands still meanwhile.
struct TickClock {
    // Locked by the test and by the threads that tell the time, for a few instructions.
    state: Mutex<TickState>,
    moved: Condvar,
}

#[derive(Default)]
struct TickState {
    now_us: u64,
    ticks_allowed: u64,
    /// Sleeps begun: all that was to be done in as many ticks is done.
    sleeps: u64,
    free: bool,
}

impl TickClock {
    fn new() -> Self {
        Self {
            state: Mutex::default(),
            moved: Condvar::new(),
        }
    }

    /// Lets one tick happen and returns when it is over.
    fn tick(&self) {
        let mut state = self.state.lock().expect("nobody panics with it");
        state.ticks_allowed += 1;
        let over = state.ticks_allowed + 1;
        self.moved.notify_all();
        while state.sleeps < over {
            state = self.moved.wait(state).expect("nobody panics with it");
        }
    }

    /// Lets the thread run on its own, so that it can end.
    fn run_free(&self) {
        self.state.lock().expect("nobody panics with it").free = true;
        self.moved.notify_all();
    }
}

impl Clock for TickClock {
    fn now_us(&self) -> u64 {
        self.state.lock().expect("nobody panics with it").now_us
    }

    fn sleep_until_us(&self, due_us: u64) {
        let mut state = self.state.lock().expect("nobody panics with it");
        state.sleeps += 1;
        self.moved.notify_all();
        while !state.free && state.ticks_allowed < state.sleeps {
            state = self.moved.wait(state).expect("nobody panics with it");
        }
        state.now_us = state.now_us.max(due_us);
    }
}

/// A running switchboard. It stops when it is dropped.
pub struct Switchboard {
    address: SocketAddr,
    clock: Arc<TickClock>,
    stepper: StepperHandle<VoiceCall>,
    _thread: StepperThread,
}

impl Drop for Switchboard {
    fn drop(&mut self) {
        self.stepper.stop();
        self.clock.run_free();
    }
}

/// A call that is to be made.
pub struct Plan {
    pub query: String,
    pub line: Vec<Vec<f32>>,
    /// Ticks after the beginning in which it is dialled at the earliest.
    pub after_ticks: usize,
    /// Not one message is sent: the agent hears what stands for missing frames.
    pub mute: bool,
}

impl Plan {
    /// The call of `talk`, greedy, with a quiet line of this loudness.
    pub fn of(talk: &Conversation, noise_rms: f32) -> Self {
        let query = greedy_query(&talk.prompt, &talk.voice) + "&ext=1";
        Self {
            query,
            line: talk.user_line(noise_rms),
            after_ticks: 0,
            mute: false,
        }
    }

    pub fn after_ticks(mut self, ticks: usize) -> Self {
        self.after_ticks = ticks;
        self
    }
}

/// The query of a call that always takes the most probable token.
pub fn greedy_query(prompt: &str, voice: &str) -> String {
    let prompt = prompt.replace(' ', "%20");
    format!("text_temperature=0&audio_temperature=0&voice_prompt={voice}.pt&text_prompt={prompt}")
}

struct Talk {
    index: usize,
    plan: Plan,
    caller: Caller,
}

impl Switchboard {
    /// Starts with nothing read ahead. Without bytes for snapshots every prompt is read anew.
    pub async fn start(slots: usize, prompt_cache_bytes: usize) -> Self {
        let demo = Arc::new(Checkpoint::demo().expect("the demo is part of the program"));
        let maker = Arc::new(CallMaker::new(Arc::clone(&demo), &DEMO_PERSONAS));
        let clock = Arc::new(TickClock::new());
        let options = Options {
            clock: clock.clone(),
            admission: false,
            ..Options::new(slots)
        };
        let load = move || {
            let backend = Native::new(Dtype::F32, KvDtype::F32, 1);
            let options = EngineOptions {
                prompt_cache_bytes,
                ..EngineOptions::serving(demo.config(), slots)
            };
            VoiceModel::load(backend, &demo, options, &mut |_, _| {}).map_err(|error| EngineError {
                what: error.to_string(),
            })
        };
        let (stepper, mut thread) = spawn(load, options).expect("a thread");
        thread.ready().await.expect("the demo is loaded");
        let limits = SessionLimits {
            // Every frame that arrives is told.
            phase_every: Duration::ZERO,
            ..SessionLimits::default()
        };
        let state = AppState::open(
            WebSettings {
                limits,
                ..WebSettings::default()
            },
            Store::in_memory().await.unwrap(),
        )
        .await
        .unwrap();
        state
            .set_loaded(stepper.clone(), maker)
            .expect("the first engine");
        let listener = web::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        tokio::spawn(web::serve(
            listener,
            web::router(state),
            std::future::pending(),
        ));
        Self {
            address,
            clock,
            stepper,
            _thread: thread,
        }
    }

    pub fn board(&self) -> &Board {
        self.stepper.board()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://localhost:{}{path}", self.address.port())
    }

    /// Frames that were lost on the way, or made up, by cause; those of callers who hang up are none of them.
    pub fn frames_lost(&self) -> u64 {
        let causes = [
            Loss::MicFull,
            Loss::MicBacklog,
            Loss::MicQuiet,
            Loss::Deficit,
        ];
        causes
            .iter()
            .map(|&cause| self.board().losses().get(cause))
            .sum()
    }

    /// The value of a metric, as `/metrics` tells it.
    pub async fn metric(&self, name: &str) -> f64 {
        metric(self.address, name).await
    }

    fn tick(&self) {
        tokio::task::block_in_place(|| self.clock.tick());
    }

    /// Makes all calls, each as soon as it may be and a slot is free. What the agents said, in the order of `plans`.
    pub async fn hold(&self, plans: Vec<Plan>) -> Vec<Vec<Heard>> {
        let mut heard = vec![Vec::new(); plans.len()];
        let mut waiting: VecDeque<(usize, Plan)> = plans.into_iter().enumerate().collect();
        let mut dialled: Option<Talk> = None;
        let mut live: Vec<Talk> = Vec::new();
        for tick in 0.. {
            let free = self.board().slots_in(SlotPhase::Free) > 0;
            if free
                && dialled.is_none()
                && waiting
                    .front()
                    .is_some_and(|(_, plan)| plan.after_ticks <= tick)
                && let Some((index, plan)) = waiting.pop_front()
            {
                let caller = Caller::dial(self.address, &plan.query).await;
                dialled = Some(Talk {
                    index,
                    plan,
                    caller,
                });
            }
            if live.is_empty() && dialled.is_none() && waiting.is_empty() {
                break;
            }
            let joined = self.board().joined();
            self.tick();
            for talk in &mut live {
                talk.caller.hear().await;
                if !talk.plan.mute {
                    talk.caller.say_next(&talk.plan.line).await;
                }
            }
            while let Some(at) = live
                .iter()
                .position(|talk| talk.caller.has_heard(&talk.plan.line))
            {
                let talk = live.swap_remove(at);
                heard[talk.index] = talk.caller.hang_up().await;
            }
            // Whoever was seated is live by the end of the same tick, since time stands still while its prompt is read.
            if self.board().joined() > joined
                && let Some(mut talk) = dialled.take()
            {
                talk.caller.until_ready().await;
                if !talk.plan.mute {
                    talk.caller.begin(&talk.plan.line).await;
                }
                live.push(talk);
            }
        }
        heard
    }
}

/// One connected caller.
pub struct Caller {
    socket: WebSocketStream<TcpStream>,
    writer: OpusWriter,
    headers: [Vec<u8>; 2],
    reader: OpusReader,
    /// Whether it says nothing more until it knows that a frame has arrived.
    waits: bool,
    /// Messages that came while that was waited for.
    unread: VecDeque<Vec<u8>>,
    said: usize,
    heard: Vec<Heard>,
}

impl Caller {
    pub async fn dial(address: SocketAddr, query: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("the port is open");
        stream.set_nodelay(true).expect("a socket");
        let url = format!("ws://localhost:{}/api/chat?{query}", address.port());
        let (socket, _) = client_async(url, stream).await.expect("a call is taken");
        let (writer, headers) = OpusWriter::begin().expect("memory");
        Self {
            socket,
            writer,
            headers,
            reader: OpusReader::begin().expect("memory"),
            waits: query.contains("ext=1"),
            unread: VecDeque::new(),
            said: 0,
            heard: Vec::new(),
        }
    }

    /// Waits until the agent is there.
    pub async fn until_ready(&mut self) {
        while !matches!(Downlink::parse(&self.next().await), Ok(Downlink::Ready(_))) {}
    }

    /// Says the first frames.
    pub async fn begin(&mut self, line: &[Vec<f32>]) {
        for header in self.headers.clone() {
            self.send(&header).await;
        }
        for _ in 0..FRAMES_AHEAD {
            self.say_next(line).await;
        }
    }

    /// Says the next frame of `line`; after its end, silence.
    pub async fn say_next(&mut self, line: &[Vec<f32>]) {
        let silence = vec![0.0; line[0].len()];
        let page = self
            .writer
            .page(line.get(self.said).unwrap_or(&silence))
            .expect("a whole frame");
        self.said += 1;
        self.send(&page).await;
        if self.waits {
            self.handed_over().await;
        }
    }

    /// Waits until the frame just said lies before the tick: a client with `ext=1` is told.
    async fn handed_over(&mut self) {
        loop {
            let message = self.message().await;
            match Downlink::parse(&message) {
                Ok(Downlink::Metadata(json)) if is_phase(json) => return,
                _ => self.unread.push_back(message),
            }
        }
    }

    /// Hears one more frame. Its text comes after it, so only the frame before it is complete.
    pub async fn hear(&mut self) {
        loop {
            if let Some(pcm) = self
                .reader
                .next_frame()
                .expect("the server speaks Ogg-Opus")
            {
                let pcm = pcm.to_vec();
                return self.heard.push(Heard {
                    text: String::new(),
                    pcm,
                });
            }
            let message = self.next().await;
            match Downlink::parse(&message).expect("a message of the protocol") {
                Downlink::Audio(ogg) => self.reader.push(ogg),
                Downlink::Text(text) => self
                    .heard
                    .last_mut()
                    .expect("text follows its frame")
                    .text
                    .push_str(text),
                Downlink::Ping | Downlink::Metadata(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Whether the answers to the whole of `line` have come, with their texts.
    pub fn has_heard(&self, line: &[Vec<f32>]) -> bool {
        self.heard.len() > line.len()
    }

    pub async fn hang_up(mut self) -> Vec<Heard> {
        // The server may have ended the call; what was heard counts.
        let _ = self.socket.close(None).await;
        self.heard.pop();
        self.heard
    }

    async fn send(&mut self, ogg: &[u8]) {
        let message = Message::Binary(Uplink::Audio(ogg).to_bytes().into());
        self.socket.send(message).await.expect("the call goes on");
    }

    async fn next(&mut self) -> Vec<u8> {
        if let Some(message) = self.unread.pop_front() {
            return message;
        }
        self.message().await
    }

    async fn message(&mut self) -> Vec<u8> {
        loop {
            let message = tokio::time::timeout(PATIENCE, self.socket.next()).await;
            match message.expect("a message within a minute") {
                Some(Ok(Message::Binary(bytes))) => return bytes.to_vec(),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("the call ended: {other:?}"),
            }
        }
    }
}

fn is_phase(json: &str) -> bool {
    matches!(serde_json::from_str(json), Ok(Notice::Phase { .. }))
}

/// The value of a metric, given as it stands in the text, labels included.
pub async fn metric(address: SocketAddr, name: &str) -> f64 {
    let url = format!("http://localhost:{}/metrics", address.port());
    let response = reqwest::get(url).await.expect("metrics");
    let text = response.text().await.expect("metrics");
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")));
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {text}"))
}
