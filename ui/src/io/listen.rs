//! Listening in to a running call: frames from the server straight to the loudspeaker.
//!
//! May not live here: who may listen; the server decides.

use js_sys::Uint8Array;
use leptos::prelude::*;
use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use web_sys::{AudioContext, AudioContextOptions, BinaryType, MessageEvent, WebSocket};

use super::page::socket_address;

const SAMPLE_RATE_HZ: f32 = 24_000.0;
/// Sound that is kept ahead, against gaps of the network.
const AHEAD_S: f64 = 0.12;
/// More than this ahead is skipped, so that the listener stays with the call.
const AHEAD_S_MAX: f64 = 0.6;

/// One call that is listened to. Dropping it ends the listening.
pub struct Listening {
    socket: WebSocket,
    context: AudioContext,
    _heard: Closure<dyn FnMut(MessageEvent)>,
    _over: Closure<dyn FnMut()>,
}

impl Listening {
    /// Starts; `over` is told when the call or the line ends. `None`: this browser cannot.
    pub fn start(session: i64, over: impl Fn() + 'static) -> Option<Self> {
        let options = AudioContextOptions::new();
        options.set_sample_rate(SAMPLE_RATE_HZ);
        let context =
            AudioContext::new_with_context_options(&options).or_else(|_| AudioContext::new());
        let context = context.ok()?;
        let Ok(socket) = WebSocket::new(&socket_address(&format!("api/live/{session}/listen")))
        else {
            let _ = context.close();
            return None;
        };
        socket.set_binary_type(BinaryType::Arraybuffer);
        let out = context.clone();
        let mut due_s = 0.0;
        let heard = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
            let bytes = Uint8Array::new(&event.data()).to_vec();
            due_s = play(&out, &bytes, due_s).unwrap_or(due_s);
        });
        socket.set_onmessage(Some(heard.as_ref().unchecked_ref()));
        let over = Closure::<dyn FnMut()>::new(over);
        socket.set_onclose(Some(over.as_ref().unchecked_ref()));
        Some(Self {
            socket,
            context,
            _heard: heard,
            _over: over,
        })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.socket.set_onmessage(None);
        self.socket.set_onclose(None);
        let _ = self.socket.close();
        let _ = self.context.close();
    }
}

/// Puts one frame of interleaved stereo at the end of what is played; when the next one is due.
fn play(context: &AudioContext, bytes: &[u8], due_s: f64) -> Option<f64> {
    let now_s = context.current_time();
    if due_s - now_s > AHEAD_S_MAX {
        return None;
    }
    let samples: Vec<f32> = bytes
        .chunks_exact(2)
        .map(|pair| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32_768.0)
        .collect();
    let frames = samples.len() / 2;
    if frames == 0 {
        return None;
    }
    let buffer = context
        .create_buffer(2, frames as u32, SAMPLE_RATE_HZ)
        .ok()?;
    for channel in 0..2 {
        let side: Vec<f32> = samples.iter().skip(channel).step_by(2).copied().collect();
        buffer.copy_to_channel(&side, channel as i32).ok()?;
    }
    let source = context.create_buffer_source().ok()?;
    source.set_buffer(Some(&buffer));
    source
        .connect_with_audio_node(&context.destination())
        .ok()?;
    let start_s = if due_s < now_s {
        now_s + AHEAD_S
    } else {
        due_s
    };
    source.start_with_when(start_s).ok()?;
    Some(start_s + frames as f64 / f64::from(SAMPLE_RATE_HZ))
}

/// The one call a page listens to.
#[derive(Clone, Copy)]
pub struct Ear {
    held: StoredValue<Option<Listening>, LocalStorage>,
    pub session: RwSignal<Option<i64>>,
}

impl Ear {
    /// Stops with the component that made it.
    pub fn new() -> Self {
        let ear = Self {
            held: StoredValue::new_local(None),
            session: RwSignal::new(None),
        };
        on_cleanup(move || ear.stop());
        ear
    }

    pub fn stop(self) {
        let _ = self.held.try_set_value(None);
        let _ = self.session.try_set(None);
    }

    /// Listens to `session` instead of any other; or to nothing, if it was this one.
    pub fn press(self, session: i64) {
        let was = self.session.get_untracked();
        self.stop();
        if was != Some(session) {
            let listening = Listening::start(session, move || {
                let _ = self.session.try_set(None);
            });
            self.session.set(listening.as_ref().map(|_| session));
            self.held.set_value(listening);
        }
    }
}
