//! The reading half of a connection: messages in, frames to the mic queue.
//!
//! Lives here: Ogg-Opus to PCM, what early audio, bursts, floods and odd messages lead to, signs of life.
//! May not live here: anything sent to the peer ([`Word`]s ask the other half), the rules of the mic queue.

use std::collections::VecDeque;
use std::time::Instant;

use axum::extract::ws::Message;
use futures_util::{FutureExt, StreamExt};
use slots::units::{FRAME_MS, FRAME_SAMPLES};
use wire::notice::EndReason;
use wire::socket::{CLOSE_LINE_LOST, MESSAGE_BYTES_MAX, Uplink};

use super::counters::SessionCounters;
use super::limits::{
    AHEAD_FRAMES_MAX, AUDIO_MESSAGES_BURST, AUDIO_MESSAGES_PER_S, BURST_FRAMES_MAX,
    OTHER_MESSAGES_BURST, OTHER_MESSAGES_PER_S,
};
use super::link::{Link, Over, Word};
use super::phase::Phase;
use super::rate::Bucket;
use super::socket::{Stream, meaning};
use crate::journal::Notes;
use crate::stepper::handle::{Board, Mic};
use audio::opus_read::OpusReader;

/// Messages taken in one go before what they brought goes to the mic queue; a burst of 12 s in 20 ms pages is 600.
const MESSAGES_IN_A_GO_MAX: usize = 1_024;

/// What the reading half of one connection works with.
pub(super) struct Reading<'a> {
    pub(super) stream: &'a mut Stream,
    pub(super) mic: &'a mut Mic,
    pub(super) reader: OpusReader,
    pub(super) link: &'a Link,
    pub(super) notes: &'a Notes,
    pub(super) board: &'a Board,
    pub(super) counters: &'a SessionCounters,
    /// Brings frame boundaries near the tick.
    pub(super) phase: Phase,
}

/// How much a caller may still send.
struct Allowance {
    audio: Bucket,
    others: Bucket,
    /// Frames of decoded audio.
    ahead: Bucket,
}

impl Reading<'_> {
    /// Reads until the connection is over.
    pub(super) async fn run(mut self) -> Over {
        let now = Instant::now();
        let frames_per_s = 1_000.0 / f64::from(FRAME_MS);
        let mut allowance = Allowance {
            audio: Bucket::new(AUDIO_MESSAGES_BURST, AUDIO_MESSAGES_PER_S.into(), now),
            others: Bucket::new(OTHER_MESSAGES_BURST, OTHER_MESSAGES_PER_S.into(), now),
            ahead: Bucket::new(AHEAD_FRAMES_MAX, frames_per_s, now),
        };
        let mut complained = false;
        let mut burst = VecDeque::with_capacity(BURST_FRAMES_MAX + 1);
        loop {
            let mut received = self.stream.next().await;
            // Everything that has come by now is read before any of it goes on, so that of a burst the newest is kept.
            for _ in 0..MESSAGES_IN_A_GO_MAX {
                let message = match received {
                    None => return Over::Lost,
                    Some(Err(error)) => return meaning(error),
                    Some(Ok(message)) => message,
                };
                self.link.note_life();
                self.mic.sign_of_life();
                let taken = self.take(message, &mut allowance, &mut complained, &mut burst);
                if let Err(over) = taken.await {
                    return over;
                }
                received = match self.stream.next().now_or_never() {
                    Some(received) => received,
                    None => break,
                };
            }
            self.hand_over(&mut burst);
        }
    }

    async fn take(
        &mut self,
        message: Message,
        allowance: &mut Allowance,
        complained: &mut bool,
        burst: &mut VecDeque<Box<[f32; FRAME_SAMPLES]>>,
    ) -> Result<(), Over> {
        let now = Instant::now();
        let complaint = match &message {
            Message::Close(Some(close)) if close.code == CLOSE_LINE_LOST => return Err(Over::Lost),
            Message::Close(_) => return Err(Over::HungUp),
            Message::Binary(bytes) if bytes.len() > MESSAGE_BYTES_MAX => {
                let text = format!(
                    "a message has {} bytes, the limit is {MESSAGE_BYTES_MAX}",
                    bytes.len()
                );
                return Err(Over::Ended(EndReason::MessageTooBig, text));
            }
            Message::Binary(bytes) => match Uplink::parse(bytes) {
                Ok(Uplink::Audio(ogg)) => {
                    if !allowance.audio.take(now) {
                        return Err(flood(AUDIO_MESSAGES_PER_S));
                    }
                    return self.hear(ogg, allowance, burst).await;
                }
                Ok(_) => None,
                Err(error) => Some(error.to_string()),
            },
            Message::Text(_) => Some(
                "text messages are not understood here; send binary ones, byte 0 the kind"
                    .to_owned(),
            ),
            Message::Pong(_) => {
                self.link.note_pong();
                None
            }
            Message::Ping(_) => None,
        };
        if !allowance.others.take(now) {
            return Err(flood(OTHER_MESSAGES_PER_S));
        }
        if let Some(complaint) = complaint
            && !std::mem::replace(complained, true)
        {
            self.link.say(Word::Error(complaint));
        }
        Ok(())
    }

    /// Decodes what `ogg` completes, one frame at a time.
    async fn hear(
        &mut self,
        ogg: &[u8],
        allowance: &mut Allowance,
        burst: &mut VecDeque<Box<[f32; FRAME_SAMPLES]>>,
    ) -> Result<(), Over> {
        let damage = self.reader.damage();
        self.reader.push(ogg);
        let heard = self.decode(allowance, burst).await;
        self.counters
            .damaged_packets
            .add(self.reader.damage() - damage);
        heard
    }

    async fn decode(
        &mut self,
        allowance: &mut Allowance,
        burst: &mut VecDeque<Box<[f32; FRAME_SAMPLES]>>,
    ) -> Result<(), Over> {
        let hopeless = |error: audio::opus_read::AudioError| {
            Over::Ended(EndReason::BadAudio, error.to_string())
        };
        if !self.link.is_live() {
            self.counters.early_messages.add(1);
            return self.reader.discard().map_err(hopeless);
        }
        let mut n_frames = 0;
        loop {
            if !allowance.ahead.take(Instant::now()) {
                self.counters.ahead_messages_dropped.add(1);
                return self.reader.discard().map_err(hopeless);
            }
            let Some(frame) = self.reader.next_frame().map_err(hopeless)? else {
                allowance.ahead.give_back();
                return Ok(());
            };
            self.phase.heard(frame);
            burst.push_back(Box::new(*frame));
            if burst.len() > BURST_FRAMES_MAX {
                burst.pop_front();
                self.counters.burst_frames_dropped.add(1);
            }
            n_frames += 1;
            if n_frames > 1 {
                // Others share this worker: never more than one frame in a go.
                tokio::task::yield_now().await;
            }
        }
    }

    fn hand_over(&mut self, burst: &mut VecDeque<Box<[f32; FRAME_SAMPLES]>>) {
        if self.link.is_live() {
            let (reader, finished) = (&mut self.reader, !burst.is_empty());
            let told = self
                .phase
                .decoded(finished, reader, self.board, self.counters);
            if let Some(wait_us) = told {
                self.link.say(Word::Phase { wait_us });
            }
        }
        for frame in burst.drain(..) {
            let place = self.mic.push(&frame[..]);
            self.notes.heard(place, frame);
            self.counters.frames_heard.add(1);
        }
    }
}

fn flood(per_s: u32) -> Over {
    let text = format!("too many messages, at most {per_s} a second are taken");
    Over::Ended(EndReason::BadMessages, text)
}
