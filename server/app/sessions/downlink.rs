//! The writing half of a connection: what happens to the seat, as messages to the peer.
//!
//! Lives here: ready, audio, text, pings, notices, and noticing that the peer is gone.
//! May not live here: what the peer sends, when a row is live.

use std::time::Duration;

use axum::extract::ws::Message;
use slots::units::FRAME_SAMPLES;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use wire::notice::{EndReason, Notice};
use wire::socket::Downlink;

use super::limits::SessionLimits;
use super::link::{Link, Over, Word};
use super::session::end_reason;
use super::socket::{Sink, binary, metadata, send};
use crate::journal::Notes;
use crate::stepper::handle::{Board, SeatEvent, Speaker, SpeakerFrame};
use audio::opus_write::OpusWriter;

/// How long the agent waits at most for a caller who is to speak first (10 s).
const CALLER_FIRST_FRAMES_MAX: u64 = 125;
static SILENCE: [f32; FRAME_SAMPLES] = [0.0; FRAME_SAMPLES];

/// What the writing half of one connection works with.
pub(super) struct Writing<'a> {
    pub(super) sink: &'a mut Sink,
    pub(super) speaker: &'a mut Speaker,
    pub(super) link: &'a Link,
    pub(super) words: mpsc::Receiver<Word>,
    pub(super) limits: &'a SessionLimits,
    pub(super) notes: &'a Notes,
    pub(super) board: &'a Board,
    /// The agent is not heard until the caller has spoken.
    pub(super) caller_first: bool,
    /// For callers with `ext=1`: sent right before the ready byte.
    pub(super) live_notice: Option<Notice>,
}

impl Writing<'_> {
    /// Writes until the connection is over.
    pub(super) async fn run(mut self) -> Over {
        match self.write().await {
            Ok(never) => match never {},
            Err(over) => over,
        }
    }

    async fn write(&mut self) -> Result<std::convert::Infallible, Over> {
        let mut opus = None;
        if self.link.is_live() {
            opus = Some(self.go_live().await?);
        }
        let mut ping = paced(self.limits.ping_every);
        let mut ws_ping = paced(self.limits.ws_ping_every);
        loop {
            let patience_ends = self.patience_ends();
            tokio::select! {
                event = self.speaker.next() => match event {
                    Some(SeatEvent::Waiting { place }) => {
                        self.notes.event("waiting", place.to_string());
                        self.tell(Notice::Queued { place }).await?;
                    }
                    Some(SeatEvent::Prefill { chunks_left }) => {
                        self.notes.seated(self.speaker.counters());
                        self.tell(Notice::Prefill { chunks_left }).await?;
                    }
                    Some(SeatEvent::Live) => {
                        self.notes.live(self.speaker.counters(), self.board);
                        opus = Some(self.go_live().await?);
                        self.link.set_live();
                    }
                    Some(SeatEvent::Frame(frame)) => self.say(&mut opus, &frame).await?,
                    Some(SeatEvent::Ended(reason)) => {
                        return Err(Over::Ended(end_reason(reason), reason.to_string()));
                    }
                    None => return Err(Over::Ended(EndReason::EngineFault, "the engine has stopped".to_owned())),
                },
                Some(word) = self.words.recv() => match word {
                    Word::Error(text) => self.send([binary(Downlink::Error(&text))]).await?,
                    Word::Phase { wait_us } => self.tell(Notice::Phase { wait_us }).await?,
                },
                _ = ping.tick(), if !self.link.is_live() => {
                    self.send([binary(Downlink::Ping)]).await?;
                }
                _ = ws_ping.tick() => {
                    self.link.note_ping();
                    self.send([Message::Ping(Vec::new().into())]).await?;
                }
                () = sleep_until(patience_ends) => self.check_peer()?,
            }
        }
    }

    /// The notice, the ready byte, and the first two audio messages.
    async fn go_live(&mut self) -> Result<OpusWriter, Over> {
        let begun = OpusWriter::begin();
        let (opus, headers) =
            begun.map_err(|error| Over::Ended(EndReason::RowFault, error.to_string()))?;
        let notice = self.live_notice.take().map(|notice| metadata(&notice));
        let [head, tags] = &headers;
        let fixed = [
            Downlink::Ready(None),
            Downlink::Audio(head),
            Downlink::Audio(tags),
        ];
        self.send(notice.into_iter().chain(fixed.map(binary)))
            .await?;
        Ok(opus)
    }

    async fn say(
        &mut self,
        opus: &mut Option<OpusWriter>,
        frame: &SpeakerFrame,
    ) -> Result<(), Over> {
        let Some(opus) = opus else {
            // The queue tells Live before the first frame.
            return Err(Over::Ended(
                EndReason::RowFault,
                "a frame came before its call was live".to_owned(),
            ));
        };
        let held = self.caller_first
            && frame.frame < CALLER_FIRST_FRAMES_MAX
            && !self.notes.caller_has_spoken();
        let (pcm, text): (&[f32], &str) = match held {
            true => (&SILENCE, ""),
            false => (&frame.pcm, &frame.text),
        };
        let counters = self.speaker.counters();
        self.notes.said(frame, (pcm, text), counters, self.board);
        let page = opus.page(pcm);
        let page = page.map_err(|error| Over::Ended(EndReason::RowFault, error.to_string()))?;
        let text = (!text.is_empty()).then(|| binary(Downlink::Text(text)));
        self.send([binary(Downlink::Audio(&page))].into_iter().chain(text))
            .await
    }

    /// A notice, for callers that asked for them.
    async fn tell(&mut self, notice: Notice) -> Result<(), Over> {
        if !self.link.wants_notices() {
            return Ok(());
        }
        self.send([metadata(&notice)]).await
    }

    async fn send(&mut self, messages: impl IntoIterator<Item = Message>) -> Result<(), Over> {
        send(self.sink, messages, self.limits.send_within).await
    }

    /// When the peer counts as gone if nothing more comes from it.
    fn patience_ends(&self) -> Instant {
        let silent_ms = self.link.quiet_ms().max(self.link.unanswered_ms());
        Instant::now()
            + self
                .limits
                .peer_gone_after
                .saturating_sub(Duration::from_millis(silent_ms))
    }

    fn check_peer(&self) -> Result<(), Over> {
        self.link.look();
        let patience_ms = self.limits.peer_gone_after.as_millis() as u64;
        let gone = |text: String| Err(Over::Ended(EndReason::PeerGone, text));
        if self.link.quiet_ms() >= patience_ms {
            return gone(format!("no sign of life for {patience_ms} ms"));
        }
        if self.link.unanswered_ms() >= patience_ms {
            return gone(format!("a ping was not answered for {patience_ms} ms"));
        }
        Ok(())
    }
}

fn paced(every: Duration) -> tokio::time::Interval {
    let mut paced = interval(every);
    paced.set_missed_tick_behavior(MissedTickBehavior::Delay);
    paced
}
