//! Microphone and loudspeaker of a call: one audio context, one capture, two worklets.

use std::cell::RefCell;
use std::rc::Rc;

use js_sys::{Array, Float32Array, Object, Promise, Reflect};
use slots::units::SAMPLE_RATE_HZ;
use ui::model::call::MicrophoneProblem;
use ui::model::resample::Resampler;
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    AudioContext, AudioContextOptions, AudioContextState, AudioWorkletNode, MediaStream,
    MediaStreamConstraints, MediaStreamTrack, MessageEvent,
};

use super::page::{window, worklet};

/// What a person may switch.
#[derive(Clone, Debug, PartialEq)]
pub struct Wishes {
    pub microphone: Option<String>,
    pub speaker: Option<String>,
    pub echo_cancellation: bool,
    pub noise_suppression: bool,
    pub auto_gain: bool,
    /// The microphone is closed while the agent speaks, for loudspeakers whose echo comes through.
    pub take_turns: bool,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            microphone: None,
            speaker: None,
            echo_cancellation: true,
            noise_suppression: true,
            auto_gain: true,
            take_turns: false,
        }
    }
}

/// How the loudspeaker's buffer is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Buffer {
    pub held_s: f64,
    pub gaps: u32,
    pub skipped_s: f64,
    pub aim_s: f64,
}

/// Sound that flows. Dropping it gives microphone and loudspeaker back.
pub struct Sound {
    context: AudioContext,
    stream: MediaStream,
    playback: AudioWorkletNode,
    capture: AudioWorkletNode,
    out: RefCell<Resampler>,
    _heard: Closure<dyn Fn(MessageEvent)>,
    _buffer: Closure<dyn Fn(MessageEvent)>,
    _state: Closure<dyn Fn()>,
}

impl Sound {
    /// Asks for the microphone and sets everything up. `heard` gets the microphone at 24 kHz in pieces of about 10 ms.
    pub async fn open(
        wishes: &Wishes,
        heard: impl Fn(&[f32]) + 'static,
        buffer: impl Fn(Buffer) + 'static,
    ) -> Result<Self, MicrophoneProblem> {
        let stream = microphone(wishes).await?;
        match Self::with(stream.clone(), wishes, heard, buffer).await {
            Ok(sound) => Ok(sound),
            Err(error) => {
                web_sys_log(&error);
                stop(&stream);
                Err(match error.as_string().as_deref() {
                    Some(NOT_STARTED) => MicrophoneProblem::NoSound,
                    _ => MicrophoneProblem::Busy,
                })
            }
        }
    }

    async fn with(
        stream: MediaStream,
        wishes: &Wishes,
        heard: impl Fn(&[f32]) + 'static,
        buffer: impl Fn(Buffer) + 'static,
    ) -> Result<Self, JsValue> {
        let (context, source) = context_for(&stream)?;
        let worklets = context.audio_worklet()?;
        for name in ["capture", "playback"] {
            JsFuture::from(worklets.add_module(&worklet(name))?).await?;
        }
        let capture = AudioWorkletNode::new(&context, "capture")?;
        let playback = AudioWorkletNode::new(&context, "playback")?;
        source.connect_with_audio_node(&capture)?;
        playback.connect_with_audio_node(&context.destination())?;
        let rate = f64::from(context.sample_rate());
        let model_rate = f64::from(SAMPLE_RATE_HZ);
        let down = Rc::new(RefCell::new((Resampler::new(rate, model_rate), Vec::new())));
        let on_heard = Closure::<dyn Fn(MessageEvent)>::new(move |event: MessageEvent| {
            let block = Float32Array::new(&event.data()).to_vec();
            let (resampler, pcm) = &mut *down.borrow_mut();
            pcm.clear();
            resampler.push(&block, pcm);
            heard(pcm);
        });
        let on_buffer = Closure::<dyn Fn(MessageEvent)>::new(move |event: MessageEvent| {
            let numbers = Array::from(&event.data());
            let number = |at| numbers.get(at).as_f64().unwrap_or(0.0);
            buffer(Buffer {
                held_s: number(0),
                gaps: number(1) as u32,
                skipped_s: number(2),
                aim_s: number(3),
            });
        });
        capture
            .port()?
            .set_onmessage(Some(on_heard.as_ref().unchecked_ref()));
        playback
            .port()?
            .set_onmessage(Some(on_buffer.as_ref().unchecked_ref()));
        // A device that changes or a machine that sleeps suspends the context; it is woken as soon as that is over.
        let waking = context.clone();
        let on_state = Closure::<dyn Fn()>::new(move || {
            if waking.state() == AudioContextState::Suspended {
                let _ = waking.resume();
            }
        });
        context.set_onstatechange(Some(on_state.as_ref().unchecked_ref()));
        started(&context).await?;
        let sound = Self {
            out: RefCell::new(Resampler::new(model_rate, rate)),
            context,
            stream,
            playback,
            capture,
            _heard: on_heard,
            _buffer: on_buffer,
            _state: on_state,
        };
        if let Some(speaker) = &wishes.speaker {
            sound.choose_speaker(speaker).await;
        }
        Ok(sound)
    }

    /// Plays a frame at 24 kHz.
    pub fn play(&self, frame: &[f32]) {
        let mut pcm = Vec::with_capacity(frame.len() * 2);
        self.out.borrow_mut().push(frame, &mut pcm);
        if let Ok(port) = self.playback.port() {
            let block = Float32Array::from(&pcm[..]);
            let _ = port.post_message(&block);
        }
    }

    /// Forgets what is still to be played.
    pub fn flush(&self) {
        if let Ok(port) = self.playback.port() {
            let _ = port.post_message(&JsValue::NULL);
        }
    }

    /// Wakes a context that was put to sleep while the page was hidden.
    pub fn wake(&self) {
        let _ = self.context.resume();
    }

    /// Where the browser lets a page choose.
    pub async fn choose_speaker(&self, id: &str) {
        let set = Reflect::get(&self.context, &"setSinkId".into()).ok();
        let Some(set) = set.and_then(|set| set.dyn_into::<js_sys::Function>().ok()) else {
            return;
        };
        if let Ok(promise) = set.call1(&self.context, &id.into()) {
            let _ = JsFuture::from(js_sys::Promise::from(promise)).await;
        }
    }
}

impl Drop for Sound {
    fn drop(&mut self) {
        self.context.set_onstatechange(None);
        for node in [&self.capture, &self.playback] {
            if let Ok(port) = node.port() {
                port.set_onmessage(None);
            }
            let _ = node.disconnect();
        }
        stop(&self.stream);
        let _ = self.context.close();
    }
}

/// A context at the model's rate, or, where the browser refuses that for this microphone, at the hardware's.
fn context_for(
    stream: &MediaStream,
) -> Result<(AudioContext, web_sys::MediaStreamAudioSourceNode), JsValue> {
    let options = AudioContextOptions::new();
    options.set_sample_rate(SAMPLE_RATE_HZ as f32);
    if let Ok(context) = AudioContext::new_with_context_options(&options) {
        if let Ok(source) = context.create_media_stream_source(stream) {
            return Ok((context, source));
        }
        let _ = context.close();
    }
    let context = AudioContext::new()?;
    let source = context.create_media_stream_source(stream)?;
    Ok((context, source))
}

/// What a browser without any loudspeaker may do: keep its audio waiting for ever.
const NOT_STARTED: &str = "audio does not start";
const STARTS_WITHIN_MS: i32 = 5_000;

/// Waits until sound flows.
async fn started(context: &AudioContext) -> Result<(), JsValue> {
    let wait = Promise::new(&mut |resolve, _| {
        let _ = window()
            .set_timeout_with_callback_and_timeout_and_arguments_0(&resolve, STARTS_WITHIN_MS);
    });
    let (resumed, waited) = (JsValue::from(context.resume()?), JsValue::from(wait));
    let either = Promise::race(&Array::of2(&resumed, &waited));
    JsFuture::from(either).await?;
    match context.state() {
        AudioContextState::Running => Ok(()),
        _ => {
            context.set_onstatechange(None);
            let _ = context.close();
            Err(NOT_STARTED.into())
        }
    }
}

async fn microphone(wishes: &Wishes) -> Result<MediaStream, MicrophoneProblem> {
    let devices = window()
        .navigator()
        .media_devices()
        .map_err(|_| MicrophoneProblem::Insecure)?;
    if devices.is_undefined() {
        return Err(MicrophoneProblem::Insecure);
    }
    let audio = Object::new();
    let set = |name: &str, value: JsValue| {
        let _ = Reflect::set(&audio, &name.into(), &value);
    };
    set("echoCancellation", wishes.echo_cancellation.into());
    set("noiseSuppression", wishes.noise_suppression.into());
    set("autoGainControl", wishes.auto_gain.into());
    if let Some(id) = &wishes.microphone {
        set("deviceId", id.into());
    }
    let constraints = MediaStreamConstraints::new();
    constraints.set_audio(&audio);
    let asking = devices
        .get_user_media_with_constraints(&constraints)
        .map_err(|error| problem(&error))?;
    let stream = JsFuture::from(asking)
        .await
        .map_err(|error| problem(&error))?;
    Ok(stream.unchecked_into())
}

fn problem(error: &JsValue) -> MicrophoneProblem {
    let name = Reflect::get(error, &"name".into())
        .ok()
        .and_then(|name| name.as_string());
    match name.as_deref() {
        Some("NotFoundError" | "OverconstrainedError") => MicrophoneProblem::Missing,
        Some("NotReadableError" | "AbortError") => MicrophoneProblem::Busy,
        _ => MicrophoneProblem::Refused,
    }
}

fn stop(stream: &MediaStream) {
    for track in stream.get_tracks() {
        track.unchecked_into::<MediaStreamTrack>().stop();
    }
}

fn web_sys_log(error: &JsValue) {
    let message = Reflect::get(error, &"message".into()).ok();
    let text = error
        .as_string()
        .or_else(|| message.and_then(|message| message.as_string()));
    leptos::logging::warn!("no sound: {}", text.unwrap_or_default());
}

/// Microphones and loudspeakers with their names, once the microphone was allowed: (kind, id, name).
pub async fn devices() -> Vec<(bool, String, String)> {
    let Ok(devices) = window().navigator().media_devices() else {
        return Vec::new();
    };
    if devices.is_undefined() {
        return Vec::new();
    }
    let Ok(asking) = devices.enumerate_devices() else {
        return Vec::new();
    };
    let Ok(list) = JsFuture::from(asking).await else {
        return Vec::new();
    };
    let list = Array::from(&JsValue::from(list));
    list.iter()
        .map(|info| info.unchecked_into::<web_sys::MediaDeviceInfo>())
        .filter_map(|info| {
            let is_microphone = match info.kind() {
                web_sys::MediaDeviceKind::Audioinput => true,
                web_sys::MediaDeviceKind::Audiooutput => false,
                _ => return None,
            };
            let name = info.label();
            (!name.is_empty()).then(|| (is_microphone, info.device_id(), name))
        })
        .collect()
}
