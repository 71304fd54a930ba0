//! One call from its seat to its end, over one connection or, for clients that asked, several.
//!
//! Lives here: a connection's two halves side by side, keeping a seat while the connection is lost, last words.
//! May not live here: asking for the seat (`host`), messages (`uplink`, `downlink`).
//! Start reading at [`Session::run`].

use std::time::Instant;

use axum::extract::ws::WebSocket;
use futures_util::StreamExt;
use slots::slot::CloseReason;
use tokio::sync::mpsc;
use tokio::time::{Instant as TokioInstant, sleep_until};
use wire::notice::{EndReason, Notice};

use super::counters::SessionCounters;
use super::downlink::Writing;
use super::limits::SessionLimits;
use super::link::{Link, Over};
use super::phase::Phase;
use super::registry::{Registry, Ticket};
use super::socket::{Sink, Stream, answer_close, farewell};
use super::uplink::Reading;
use crate::journal::Notes;
use crate::stepper::handle::{Board, Seat, SeatEvent};
use audio::opus_read::OpusReader;

/// One call with a seat.
pub(super) struct Session<'a> {
    pub(super) seat: Seat,
    pub(super) ext: bool,
    pub(super) seed: u64,
    pub(super) notes: &'a Notes,
    pub(super) caller_first: bool,
    pub(super) board: &'a Board,
    pub(super) counters: &'a SessionCounters,
    pub(super) limits: &'a SessionLimits,
    pub(super) registry: &'a Registry,
}

/// How a connection was left.
enum Left {
    Over(Over),
    /// Another connection of the same call came in.
    Resumed(Box<WebSocket>),
}

impl Session<'_> {
    /// Runs the call over its first and all later connections. Returns when the seat can be given back.
    pub(super) async fn run(mut self, sink: Sink, stream: Stream) -> EndReason {
        let (mut sink, mut stream) = (sink, stream);
        let (door, mut newcomers) = mpsc::channel(1);
        let mut was_live = false;
        for generation in 0.. {
            let ticket = self
                .ext
                .then(|| self.registry.issue(door.clone()).ok())
                .flatten();
            let notice = ticket
                .as_ref()
                .map(|ticket| self.live_notice(ticket, generation));
            let (link, words) = Link::new(was_live, self.ext);
            let Ok(reader) = OpusReader::begin() else {
                let why = (EndReason::RowFault, "no memory for a decoder");
                farewell(&mut sink, &mut stream, self.ext, why, self.limits).await;
                return EndReason::RowFault;
            };
            let reading = Reading {
                stream: &mut stream,
                mic: &mut self.seat.mic,
                reader,
                link: &link,
                notes: self.notes,
                board: self.board,
                counters: self.counters,
                phase: match self.ext {
                    true => Phase::told(self.limits.phase_every, Instant::now()),
                    false => Phase::moved(),
                },
            };
            let writing = Writing {
                sink: &mut sink,
                speaker: &mut self.seat.speaker,
                link: &link,
                words,
                limits: self.limits,
                notes: self.notes,
                board: self.board,
                caller_first: self.caller_first,
                live_notice: notice,
            };
            let left = tokio::select! {
                // The end that the tick gives, if there is one, says more than a socket that breaks with it.
                biased;
                over = writing.run() => Left::Over(over),
                over = reading.run() => Left::Over(over),
                never = link.watch_the_clock() => match never {},
                () = self.notes.call().hung_up() => Left::Over(Over::Ended(
                    EndReason::ClosedByOperator,
                    "an operator ended this call".to_owned(),
                )),
                Some(socket) = newcomers.recv() => Left::Resumed(Box::new(socket)),
            };
            was_live = link.is_live();
            let socket = match left {
                Left::Over(Over::HungUp) => {
                    // The seat goes first: a peer that closes without reading may hold the answer up for seconds.
                    let Self { seat, limits, .. } = self;
                    let told = Some((seat.speaker.counters(), self.board));
                    self.notes.ended(EndReason::HungUp, told, "");
                    drop(seat);
                    answer_close(&mut sink, limits).await;
                    return EndReason::HungUp;
                }
                Left::Over(Over::Ended(reason, text)) => {
                    // The seat goes first: parting may take seconds, and the row is wanted.
                    let Self {
                        seat, ext, limits, ..
                    } = self;
                    let told = Some((seat.speaker.counters(), self.board));
                    self.notes.ended(reason, told, &text);
                    drop(seat);
                    farewell(&mut sink, &mut stream, ext, (reason, &text), limits).await;
                    return reason;
                }
                Left::Over(Over::Lost) if ticket.is_some() && was_live => {
                    self.notes.event("connection_lost", "");
                    // Aside: a peer who took leave gets its answer, and a dead connection holds up nothing.
                    let limits = *self.limits;
                    tokio::spawn(async move {
                        answer_close(&mut sink, &limits).await;
                        drop(stream);
                    });
                    match self.keep_seat(&mut newcomers).await {
                        Ok(socket) => socket,
                        Err(reason) => return self.over(reason),
                    }
                }
                Left::Over(Over::Lost) => return self.over(EndReason::HungUp),
                Left::Resumed(socket) => {
                    // Aside: the old connection may be dead, and the new one must not wait for it.
                    let limits = *self.limits;
                    tokio::spawn(async move {
                        let why = (
                            EndReason::Replaced,
                            "this call continues on a newer connection",
                        );
                        farewell(&mut sink, &mut stream, true, why, &limits).await;
                    });
                    *socket
                }
            };
            self.counters.resumed.add(1);
            self.notes.resumed();
            (sink, stream) = socket.split();
        }
        EndReason::HungUp
    }

    /// The end without anybody to tell.
    fn over(&self, reason: EndReason) -> EndReason {
        let told = Some((self.seat.speaker.counters(), self.board));
        self.notes.ended(reason, told, "");
        reason
    }

    fn live_notice(&self, ticket: &Ticket, generation: u32) -> Notice {
        Notice::Live {
            resume: ticket.token().to_owned(),
            resume_within_ms: self.limits.resume_within.as_millis() as u32,
            generation,
            seed: self.seed.to_string(),
            session: Some(self.notes.session()),
            recording: self.notes.recording_path(),
        }
    }

    /// Keeps the call going without a listener until another connection takes it up.
    async fn keep_seat(
        &mut self,
        newcomers: &mut mpsc::Receiver<WebSocket>,
    ) -> Result<WebSocket, EndReason> {
        let until = TokioInstant::now() + self.limits.resume_within;
        loop {
            tokio::select! {
                Some(socket) = newcomers.recv() => return Ok(socket),
                event = self.seat.speaker.next() => match event {
                    Some(SeatEvent::Frame(frame)) => {
                        let counters = self.seat.speaker.counters();
                        let said = (&frame.pcm[..], frame.text.as_str());
                        self.notes.said(&frame, said, counters, self.board);
                        self.counters.parked_frames_dropped.add(1);
                    }
                    Some(SeatEvent::Ended(reason)) => return Err(end_reason(reason)),
                    Some(_) => {}
                    None => return Err(EndReason::EngineFault),
                },
                () = sleep_until(until) => return Err(EndReason::HungUp),
                () = self.notes.call().hung_up() => return Err(EndReason::ClosedByOperator),
            }
        }
    }
}

/// The tick's reasons in the words of the wire.
pub(super) fn end_reason(reason: CloseReason) -> EndReason {
    match reason {
        CloseReason::HungUp => EndReason::HungUp,
        CloseReason::PeerGone => EndReason::PeerGone,
        CloseReason::ListenerTooSlow => EndReason::ListenerTooSlow,
        CloseReason::EngineFault => EndReason::EngineFault,
        CloseReason::RowFault(_) => EndReason::RowFault,
        CloseReason::PromptTooLong { .. } => EndReason::PromptTooLong,
        CloseReason::ServerStopping => EndReason::ServerStopping,
        CloseReason::Replaced => EndReason::Replaced,
        CloseReason::LengthLimit => EndReason::LengthLimit,
        CloseReason::BadInput => EndReason::BadMessages,
    }
}
