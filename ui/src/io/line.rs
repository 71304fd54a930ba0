//! The line of a call: obeys the call's commands with a socket and sound, and tells it what happens.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use audio::opus_read::OpusReader;
use audio::opus_write::OpusWriter;
use gloo_timers::callback::{Interval, Timeout};
use leptos::prelude::*;
use leptos::task::spawn_local;
use slots::loudness::{QUIET_POWER, level, mean_square};
use slots::units::{FRAME_MS, FRAME_SAMPLES, SAMPLE_RATE_HZ};
use ui::model::call::{Call, Command, Event, MicrophoneProblem, Phase, SILENCE_MOST_MS};
use ui::model::health::Health;
use ui::model::transcript::Transcript;
use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use web_sys::{BinaryType, CloseEvent, MessageEvent, WebSocket};
use wire::notice::Notice;
use wire::socket::{CLOSE_LINE_LOST, Downlink, Uplink};

use super::page::{is_secure, now_ms, socket_address};
use super::sound::{Buffer, Sound, Wishes};

/// Levels that are shown: about five seconds.
pub const LEVELS: usize = 64;
/// How long a room rings after the loudspeaker.
const ECHO_MS: f64 = 200.0;
/// Frames shall come this long before the tick takes them.
const MARGIN_US: u32 = 12_000;

/// What a page sees of a call.
#[derive(Clone, Copy)]
pub struct Shown {
    pub call: RwSignal<Call>,
    pub transcript: RwSignal<Transcript>,
    /// Caller and agent, the newest last.
    pub levels: RwSignal<Vec<(u8, u8)>>,
    pub elapsed_ms: RwSignal<f64>,
    pub buffer: RwSignal<Buffer>,
    pub health: RwSignal<Health>,
    pub muted: RwSignal<bool>,
    pub wishes: RwSignal<Wishes>,
}

impl Shown {
    fn new() -> Self {
        Self {
            call: RwSignal::new(Call::default()),
            transcript: RwSignal::new(Transcript::default()),
            levels: RwSignal::new(vec![(0, 0); LEVELS]),
            elapsed_ms: RwSignal::new(0.0),
            buffer: RwSignal::new(Buffer::default()),
            health: RwSignal::new(Health::default()),
            muted: RwSignal::new(false),
            wishes: RwSignal::new(Wishes::default()),
        }
    }
}

/// A line that can be called on many times. Dropping it hangs up.
pub struct Line {
    inner: Rc<Inner>,
}

struct Inner {
    shown: Shown,
    /// Parameters of the next call.
    query: RefCell<String>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    socket: Option<Socket>,
    sound: Option<Sound>,
    writer: Option<OpusWriter>,
    reader: Option<OpusReader>,
    /// Until when the loudspeaker may be heard in the room.
    agent_until_ms: f64,
    /// Microphone samples that are not a frame yet.
    pending: Vec<f32>,
    caller_level: u8,
    /// Samples to leave out when it is quiet, so that frames come shortly before the tick.
    to_drop: usize,
    live_at_ms: Option<f64>,
    /// When the last message came, or the socket was opened.
    heard_at_ms: f64,
    retry: Option<Timeout>,
    clock: Option<Interval>,
}

struct Socket {
    socket: WebSocket,
    /// What the server is told when it is dropped: that the caller hung up, or that the call goes on elsewhere.
    code: u16,
    _message: Closure<dyn Fn(MessageEvent)>,
    _close: Closure<dyn Fn(CloseEvent)>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.socket.set_onmessage(None);
        self.socket.set_onclose(None);
        let _ = self.socket.close_with_code(self.code);
    }
}

impl Line {
    pub fn new() -> Self {
        let inner = Inner {
            shown: Shown::new(),
            query: RefCell::default(),
            state: RefCell::default(),
        };
        Self {
            inner: Rc::new(inner),
        }
    }

    pub fn shown(&self) -> Shown {
        self.inner.shown
    }

    /// The one button. `query` names persona, voice and the like for a new call.
    pub fn press(&self, query: String) {
        if !self.inner.shown.call.with_untracked(Call::is_on) {
            *self.inner.query.borrow_mut() = query;
            self.inner.shown.transcript.set(Transcript::default());
            self.inner.shown.levels.set(vec![(0, 0); LEVELS]);
            self.inner.shown.elapsed_ms.set(0.0);
            self.inner.shown.buffer.set(Buffer::default());
            self.inner.shown.health.set(Health::default());
        }
        Inner::tell(&self.inner, Event::Pressed);
    }

    /// The page goes away.
    pub fn leave(&self) {
        Inner::tell(&self.inner, Event::Left);
    }

    /// The page is seen again.
    pub fn seen(&self) {
        if let Some(sound) = &self.inner.state.borrow().sound {
            sound.wake();
        }
    }

    /// The wishes about the microphone changed while the call goes on.
    pub fn change_sound(&self) {
        if self.inner.state.borrow().sound.is_some() {
            Inner::open_sound(&self.inner, false);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut state = self.inner.state.borrow_mut();
        *state = State::default();
    }
}

impl Inner {
    fn tell(this: &Rc<Self>, event: Event) {
        let mut commands = Vec::new();
        this.shown
            .call
            .update(|call| commands = call.on(event, now_ms()));
        for command in commands {
            Self::obey(this, command);
        }
    }

    fn obey(this: &Rc<Self>, command: Command) {
        match command {
            Command::AskForMicrophone if !is_secure() => {
                Self::tell(this, Event::MicrophoneFailed(MicrophoneProblem::Insecure));
            }
            Command::AskForMicrophone => Self::open_sound(this, true),
            Command::Open { resume } => Self::open_socket(this, resume.as_deref()),
            Command::Close => {
                let socket = this.state.borrow_mut().socket.take();
                drop(socket);
            }
            Command::StartSound => Self::start_sound(this),
            Command::StopSound => {
                let mut state = this.state.borrow_mut();
                let socket = state.socket.take();
                *state = State::default();
                drop(state);
                drop(socket);
            }
            Command::RetryAfter { ms } => {
                let weak = Rc::downgrade(this);
                let retry = Timeout::new(ms, move || Self::later(&weak, Event::RetryDue));
                let mut state = this.state.borrow_mut();
                if let Some(socket) = &mut state.socket {
                    socket.code = CLOSE_LINE_LOST;
                }
                state.socket = None;
                state.retry = Some(retry);
            }
        }
    }

    fn later(weak: &Weak<Self>, event: Event) {
        if let Some(this) = weak.upgrade() {
            Self::tell(&this, event);
        }
    }

    /// Asks for the microphone, for a new call or in place of the present one.
    fn open_sound(this: &Rc<Self>, is_new: bool) {
        let weak = Rc::downgrade(this);
        let wishes = this.shown.wishes.get_untracked();
        spawn_local(async move {
            let hearing = weak.clone();
            let heard = move |pcm: &[f32]| {
                if let Some(this) = hearing.upgrade() {
                    this.heard(pcm);
                }
            };
            let buffering = weak.clone();
            let buffer = move |buffer| {
                if let Some(this) = buffering.upgrade() {
                    this.buffer(buffer);
                }
            };
            let sound = Sound::open(&wishes, heard, buffer).await;
            let Some(this) = weak.upgrade() else { return };
            match sound {
                Ok(sound) => {
                    let old = this.state.borrow_mut().sound.replace(sound);
                    drop(old);
                    if is_new {
                        Self::tell(&this, Event::MicrophoneReady);
                    }
                }
                Err(problem) if is_new => Self::tell(&this, Event::MicrophoneFailed(problem)),
                // The old one goes on.
                Err(_) => {}
            }
        });
    }

    fn open_socket(this: &Rc<Self>, resume: Option<&str>) {
        let query = match resume {
            Some(token) => format!("ext=1&resume={token}"),
            None => format!("ext=1&{}", this.query.borrow()),
        };
        let address = socket_address(&format!("api/chat?{query}"));
        let Ok(socket) = WebSocket::new(&address) else {
            Self::tell(this, Event::Closed { code: 1006 });
            return;
        };
        socket.set_binary_type(BinaryType::Arraybuffer);
        let weak = Rc::downgrade(this);
        let on_message = Closure::<dyn Fn(MessageEvent)>::new(move |event: MessageEvent| {
            if let Some(this) = weak.upgrade() {
                let bytes = js_sys::Uint8Array::new(&event.data()).to_vec();
                Self::message(&this, &bytes);
            }
        });
        let weak = Rc::downgrade(this);
        let on_close = Closure::<dyn Fn(CloseEvent)>::new(move |event: CloseEvent| {
            let weak = weak.clone();
            let code = event.code();
            // Not from inside the socket's own callback: it is dropped by what follows.
            spawn_local(async move { Self::later(&weak, Event::Closed { code }) });
        });
        socket.set_onmessage(Some(on_message.as_ref().unchecked_ref()));
        socket.set_onclose(Some(on_close.as_ref().unchecked_ref()));
        let mut state = this.state.borrow_mut();
        state.reader = OpusReader::begin().ok();
        state.writer = None;
        state.heard_at_ms = now_ms();
        state.socket = Some(Socket {
            socket,
            code: 1000,
            _message: on_message,
            _close: on_close,
        });
    }

    fn message(this: &Rc<Self>, bytes: &[u8]) {
        this.state.borrow_mut().heard_at_ms = now_ms();
        match Downlink::parse(bytes) {
            Ok(Downlink::Ready(_)) => Self::soon(this, Event::Ready),
            Ok(Downlink::Audio(ogg)) => this.agent(ogg),
            Ok(Downlink::Text(text)) => {
                let at_ms = this.since_live_ms();
                this.shown
                    .transcript
                    .update(|transcript| transcript.say(at_ms, text));
            }
            Ok(Downlink::Metadata(json)) => match serde_json::from_str(json) {
                Ok(Notice::Phase { wait_us }) => this.phase(wait_us),
                Ok(notice) => Self::soon(this, Event::Notice(notice)),
                // A newer server may say what this page does not know.
                Err(_) => {}
            },
            Ok(Downlink::Error(text)) => Self::soon(this, Event::Complaint(text.to_owned())),
            Ok(_) | Err(_) => {}
        }
    }

    fn soon(this: &Rc<Self>, event: Event) {
        let weak = Rc::downgrade(this);
        spawn_local(async move { Self::later(&weak, event) });
    }

    fn since_live_ms(&self) -> f64 {
        self.state
            .borrow()
            .live_at_ms
            .map_or(0.0, |at| now_ms() - at)
    }

    /// From here on the microphone goes out.
    fn start_sound(this: &Rc<Self>) {
        let mut state = this.state.borrow_mut();
        let state = &mut *state;
        state.pending.clear();
        state.to_drop = 0;
        let first = state.live_at_ms.is_none();
        let live_at_ms = *state.live_at_ms.get_or_insert_with(now_ms);
        if let Some(sound) = &state.sound {
            sound.flush();
        }
        if let Ok((writer, headers)) = OpusWriter::begin() {
            state.writer = Some(writer);
            for page in headers {
                send(&state.socket, &page);
            }
        }
        if first {
            let weak = Rc::downgrade(this);
            state.clock = Some(Interval::new(250, move || {
                if let Some(this) = weak.upgrade() {
                    this.shown.elapsed_ms.set(now_ms() - live_at_ms);
                    Self::listen_for_silence(&this);
                }
            }));
        }
    }

    /// A socket can stand long after its network is gone.
    fn listen_for_silence(this: &Rc<Self>) {
        let state = this.state.borrow();
        let silent = state.socket.is_some() && now_ms() - state.heard_at_ms > SILENCE_MOST_MS;
        drop(state);
        if silent {
            // Not from inside the clock's own callback: it is dropped when the call ends.
            Self::soon(this, Event::Silent);
        }
    }

    /// The loudspeaker's buffer tells how it is.
    fn buffer(&self, buffer: Buffer) {
        self.shown.buffer.set(buffer);
        if self
            .shown
            .call
            .with_untracked(|call| call.phase == Phase::Live)
        {
            let at_ms = self.since_live_ms();
            let health = self.shown.health;
            health.update(|health| health.heard(at_ms, buffer.gaps, buffer.held_s * 1_000.0));
        }
    }

    /// A piece of the microphone, at 24 kHz.
    fn heard(&self, pcm: &[f32]) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let closed = now_ms() < state.agent_until_ms
            && self.shown.wishes.with_untracked(|wishes| wishes.take_turns);
        let muted = closed || self.shown.muted.get_untracked();
        let Some(writer) = &mut state.writer else {
            return;
        };
        match muted {
            true => state.pending.resize(state.pending.len() + pcm.len(), 0.0),
            false => state.pending.extend_from_slice(pcm),
        }
        if state.to_drop > 0 && mean_square(&state.pending) < QUIET_POWER {
            let gone = state.to_drop.min(state.pending.len());
            state.pending.drain(..gone);
            state.to_drop -= gone;
        }
        while state.pending.len() >= FRAME_SAMPLES {
            let frame = &state.pending[..FRAME_SAMPLES];
            state.caller_level = level(mean_square(frame));
            if let Ok(page) = writer.page(frame) {
                send(&state.socket, &page);
            }
            state.pending.drain(..FRAME_SAMPLES);
        }
    }

    /// How long frames wait for the tick: more than the margin is taken off, in silence.
    fn phase(&self, wait_us: u32) {
        let wait_ms = f64::from(wait_us) / 1_000.0;
        self.shown.health.update(|health| health.waits(wait_ms));
        let excess_us = wait_us.saturating_sub(MARGIN_US);
        if (MARGIN_US / 2..FRAME_MS * 1_000).contains(&excess_us) {
            let samples = u64::from(excess_us) * u64::from(SAMPLE_RATE_HZ) / 1_000_000;
            self.state.borrow_mut().to_drop = samples as usize;
        }
    }

    /// A piece of what the agent says.
    fn agent(&self, ogg: &[u8]) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let Some(reader) = &mut state.reader else {
            return;
        };
        reader.push(ogg);
        while let Ok(Some(frame)) = reader.next_frame() {
            if let Some(sound) = &state.sound {
                sound.play(&frame[..]);
            }
            let power = mean_square(&frame[..]);
            if power >= QUIET_POWER {
                let held_ms = self.shown.buffer.with_untracked(|buffer| buffer.held_s) * 1_000.0;
                state.agent_until_ms = now_ms() + f64::from(FRAME_MS) + held_ms + ECHO_MS;
            }
            let agent = level(power);
            let caller = state.caller_level;
            self.shown.levels.update(|levels| {
                levels.remove(0);
                levels.push((caller, agent));
            });
        }
    }
}

fn send(socket: &Option<Socket>, ogg: &[u8]) {
    if let Some(Socket { socket, .. }) = socket
        && socket.ready_state() == WebSocket::OPEN
    {
        // A socket that closes at this moment tells so by itself.
        let _ = socket.send_with_u8_array(&Uplink::Audio(ogg).to_bytes());
    }
}
