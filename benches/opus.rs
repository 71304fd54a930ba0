//! What one caller costs one core beside the model: Opus both ways and the WebSocket, for each tick of 80 ms.
//!
//! `cargo bench --bench opus` prints microseconds a tick and callers a core. The aim is 180 callers. The work is what a
//! session task does: unmask and parse the caller's message (one page with 80 ms of Opus, which are four frames to the
//! decoder, as in four packets of 20 ms), decode it; encode one frame, put it into a page, a message and a WebSocket
//! frame with a text message beside it. Sockets themselves are left out: memory stands for the network.
//! Seeded and without a clock but for the measurement; each round and each complexity starts with fresh coders. What is
//! measured is the time on the processor (on Linux), and the fastest of the rounds counts: whatever else the machine
//! does only makes a round slower.

use std::hint::black_box;
use std::io::{Cursor, Read, Write};
use std::sync::OnceLock;
use std::time::Instant;

use audio::opus_codec::{COMPLEXITY, Encoder, PACKET_BYTES_MAX};
use audio::opus_read::OpusReader;
use audio::opus_write::OpusWriter;
use slots::units::{FRAME_MS, FRAME_SAMPLES};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocket};
use wire::socket::{Downlink, Uplink};

/// Callers per core that a box with the largest number of slots needs to have room left for everything else.
const AIM: f64 = 180.0;
/// Ticks measured in a round: 12 s of speech, many syllables.
const TICKS: usize = 150;
/// Rounds, each from fresh coders.
const ROUNDS: usize = 15;
/// Ticks before that, so that coders have adapted and caches are warm.
const WARM_UP: usize = 25;

/// A network of memory: what is written is forgotten, what is read was put in before.
#[derive(Default)]
struct Memory {
    incoming: Cursor<Vec<u8>>,
    outgoing_bytes: usize,
}

impl Read for Memory {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.incoming.read(buffer)? {
            0 => Err(std::io::ErrorKind::WouldBlock.into()),
            bytes => Ok(bytes),
        }
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.outgoing_bytes += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Something like speech: a gliding tone with overtones in syllables, noise in between.
fn speech(ticks: usize) -> Vec<Vec<f32>> {
    let mut seed = 0x2545_f491u32;
    let mut noise = move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let mut phase = 0.0f32;
    let sample = move |at: usize| {
        let seconds = at as f32 / 24_000.0;
        phase += (110.0 + 40.0 * (seconds * 2.3).sin()) / 24_000.0;
        let voiced = (1..12).map(|n| (phase * n as f32 * std::f32::consts::TAU).sin() / n as f32);
        let syllable = (seconds * 4.0 * std::f32::consts::TAU).sin().max(0.0);
        voiced.sum::<f32>() * 0.15 * syllable + noise() * 0.02
    };
    let pcm: Vec<f32> = (0..ticks * FRAME_SAMPLES).map(sample).collect();
    pcm.chunks(FRAME_SAMPLES).map(<[f32]>::to_vec).collect()
}

/// What the caller's browser sends for each tick: WebSocket bytes.
fn callers_bytes(frames: &[Vec<f32>]) -> Vec<Vec<u8>> {
    let (mut writer, headers) = OpusWriter::begin().expect("memory for an encoder");
    let mut client = WebSocket::from_raw_socket(Cursor::new(Vec::new()), Role::Client, None);
    let mut of_tick = Vec::new();
    let mut pending = headers.to_vec();
    for frame in frames {
        pending.push(writer.page(frame).expect("a whole frame"));
        for page in pending.drain(..) {
            let message = Message::Binary(Uplink::Audio(&page).to_bytes().into());
            client.send(message).expect("memory takes everything");
        }
        let bytes = client.get_mut();
        of_tick.push(std::mem::take(bytes.get_mut()));
        bytes.set_position(0);
    }
    of_tick
}

/// Microseconds a tick to read what the caller sends and decode it.
fn listening(incoming: &[Vec<u8>]) -> f64 {
    let mut socket = WebSocket::from_raw_socket(Memory::default(), Role::Server, None);
    let mut reader = OpusReader::begin().expect("memory for a decoder");
    per_tick(incoming, |bytes| {
        socket.get_mut().incoming = Cursor::new(bytes.clone());
        let mut heard = 0;
        while let Ok(message) = socket.read() {
            let bytes = message.into_data();
            if let Ok(Uplink::Audio(ogg)) = Uplink::parse(&bytes) {
                reader.push(ogg);
            }
            while let Ok(Some(frame)) = reader.next_frame() {
                black_box(frame);
                heard += 1;
            }
        }
        assert_eq!(heard, 1, "a frame a tick");
    })
}

/// Microseconds a tick to encode a frame and write it, with a piece of text.
fn speaking(frames: &[Vec<f32>]) -> f64 {
    let mut socket = WebSocket::from_raw_socket(Memory::default(), Role::Server, None);
    let (mut writer, _) = OpusWriter::begin().expect("memory for an encoder");
    let us = per_tick(frames, |frame| {
        let page = writer.page(frame).expect("a whole frame");
        let audio = Message::Binary(Downlink::Audio(&page).to_bytes().into());
        let text = Message::Binary(Downlink::Text(" word").to_bytes().into());
        socket.write(audio).expect("memory takes everything");
        socket.write(text).expect("memory takes everything");
        socket.flush().expect("memory takes everything");
    });
    black_box(socket.get_ref().outgoing_bytes);
    us
}

/// Microseconds to encode one frame at some complexity.
fn encoding(frames: &[Vec<f32>], complexity: i32) -> f64 {
    let mut encoder = Encoder::with_complexity(complexity).expect("memory for an encoder");
    let mut packet = [0; PACKET_BYTES_MAX];
    per_tick(frames, |frame| {
        let bytes = encoder.encode(frame, &mut packet).expect("a whole frame");
        black_box(&packet[..bytes]);
    })
}

/// Does `work` for every tick and returns the microseconds of one, the first [`WARM_UP`] left out.
fn per_tick<T>(ticks: &[T], mut work: impl FnMut(&T)) -> f64 {
    let (warm_up, measured) = ticks.split_at(WARM_UP);
    warm_up.iter().for_each(&mut work);
    let began_us = used_us();
    measured.iter().for_each(&mut work);
    (used_us() - began_us) / measured.len() as f64
}

/// Microseconds this thread has had of a processor; where the system does not tell, microseconds of any clock.
fn used_us() -> f64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = told.and_then(|told| told.split(' ').next()?.parse::<f64>().ok());
    let wall_us = BEGAN.get_or_init(Instant::now).elapsed().as_secs_f64() * 1e6;
    ns.map_or(wall_us, |ns| ns / 1e3)
}

/// The least of several rounds, each from fresh coders.
fn fastest(round: impl Fn() -> f64) -> f64 {
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn main() {
    let frames = speech(WARM_UP + TICKS);
    let incoming = callers_bytes(&frames);
    let listening_us = fastest(|| listening(&incoming));
    let speaking_us = fastest(|| speaking(&frames));
    let per_core = f64::from(FRAME_MS) * 1_000.0 / (listening_us + speaking_us);
    println!("session: {listening_us:.0} us a tick to read and decode");
    println!("session: {speaking_us:.0} us a tick to encode and write");
    println!("sessions per core: {per_core:.0} (aim {AIM:.0}), complexity {COMPLEXITY}");
    for complexity in [0, 1, 2, 3, 5, 8, 10] {
        let us = fastest(|| encoding(&frames, complexity));
        println!("encoder, complexity {complexity}: {us:.0} us a frame");
    }
}
