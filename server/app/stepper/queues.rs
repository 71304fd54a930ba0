//! The two queues of a seat, and the line beside them that carries its state.
//!
//! Lives here: [`Mic`] and [`Speaker`] for the caller's side, `SeatEnds` for the tick's side, made together by `seat_pair`.
//! May not live here: who gets a row, how long a backlog may be (`slots::backlog`).
//!
//! | queue | bound | writer | reader | when it is full |
//! |---|---|---|---|---|
//! | mic | [`MIC_FRAMES_MAX`] | session task | tick | the newest frame is dropped and counted |
//! | speaker | [`SPEAKER_FRAMES_MAX`] | tick | session task | the session ends: the listener is too slow |
//! | spare buffers | as speaker | session task | tick | cannot be: a buffer goes in for each frame that came out |
//!
//! All are wait-free with one writer and one reader. State (waiting, prefill, live, ended) is no queue but a cell of
//! which the newest value counts, so it can never be full.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use arrayvec::ArrayString;
use futures_util::task::AtomicWaker;
use slots::engine::TEXT_BYTES_MAX;
use slots::loudness::mean_square;
use slots::slot::CloseReason;
use slots::units::{FRAME_SAMPLES, SlotId};

use super::board::{Board, Loss, Losses};
use super::handle::JoinError;

/// Frames the mic queue holds (5.12 s). More than the 25 the tick lets stand, so that a burst after a stall of a few
/// seconds comes in whole and the tick keeps its newest end.
pub const MIC_FRAMES_MAX: usize = 64;
/// Frames that may wait for a listener (2 s).
pub const SPEAKER_FRAMES_MAX: usize = 25;

/// What a seat tells its holder.
#[derive(Debug)]
pub enum SeatEvent {
    /// All rows are taken. `place` callers are to be seated before this one is, counting from 1 for the next.
    Waiting {
        /// 1 is next.
        place: u32,
    },
    /// The prompt is being read.
    Prefill {
        /// Chunks still to be read.
        chunks_left: u32,
    },
    /// From now on every tick takes a frame and gives one.
    Live,
    /// A frame for the listener.
    Frame(SpeakerFrame),
    /// Over. Nothing follows.
    Ended(CloseReason),
}

/// One frame for the listener.
#[derive(Clone, Debug)]
pub struct SpeakerFrame {
    /// Which frame of the caller this answers: ticks since the row went live, the first being 0.
    pub frame: u64,
    /// `FRAME_SAMPLES` samples at 24 kHz.
    pub pcm: Box<[f32]>,
    /// Text that became complete in this frame; often empty.
    pub text: ArrayString<TEXT_BYTES_MAX>,
    /// Which frame of the caller this one was said to, as [`Mic::push`] counted it; `None`: to silence.
    pub heard: Option<u64>,
}

/// What is counted for one session.
#[derive(Debug, Default)]
pub struct SeatCounters {
    losses: Losses,
    frames_sent: AtomicU64,
    mic_wait_us: AtomicU64,
    /// The row, plus one; 0 before there is one.
    row: AtomicU64,
}

impl SeatCounters {
    /// How many of `loss` there were.
    pub fn loss(&self, loss: Loss) -> u64 {
        self.losses.get(loss)
    }

    /// Frames handed to the listener.
    pub fn frames_sent(&self) -> u64 {
        self.frames_sent.load(Relaxed)
    }

    /// The row this session holds, once it has one.
    pub fn row(&self) -> Option<usize> {
        self.row
            .load(Relaxed)
            .checked_sub(1)
            .map(|row| row as usize)
    }

    /// How long the last frame taken by the tick had waited in the mic queue, in microseconds.
    pub fn mic_wait_us(&self) -> u64 {
        self.mic_wait_us.load(Relaxed)
    }
}

/// State of a seat beside its queues. Written by the tick, but for `life` and the waker.
#[derive(Debug, Default)]
pub(super) struct SeatLine {
    state: AtomicU64,
    refused: OnceLock<JoinError>,
    ended: OnceLock<CloseReason>,
    life: AtomicBool,
    waker: AtomicWaker,
    counters: SeatCounters,
}

impl SeatLine {
    /// Wakes the session task. Takes locks of the async runtime, so the tick leaves it to the doorbell thread.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }
}

/// What the cell says; packed into one word, kind in the low byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeatState {
    /// The tick has not seen the request.
    Asked,
    Waiting {
        place: u32,
    },
    /// A row is held, its prompt not begun.
    Queued,
    Prefill {
        chunks_left: u32,
    },
    Live,
}

impl SeatState {
    fn pack(self) -> u64 {
        match self {
            Self::Asked => 0,
            Self::Waiting { place } => 1 | u64::from(place) << 8,
            Self::Queued => 2,
            Self::Prefill { chunks_left } => 3 | u64::from(chunks_left) << 8,
            Self::Live => 4,
        }
    }

    fn unpack(word: u64) -> Self {
        let number = (word >> 8) as u32;
        match word & 0xff {
            0 => Self::Asked,
            1 => Self::Waiting { place: number },
            2 => Self::Queued,
            3 => Self::Prefill {
                chunks_left: number,
            },
            _ => Self::Live,
        }
    }
}

/// Goes with each frame through the mic queue.
#[derive(Clone, Copy, Debug)]
struct MicHead {
    arrived_us: u64,
    /// Mean square of the samples.
    power: f32,
}

/// The caller's end of the mic queue. Dropping it and the [`Speaker`] hangs up.
#[derive(Debug)]
pub struct Mic {
    heads: rtrb::Producer<MicHead>,
    pcm: rtrb::Producer<f32>,
    /// Frames taken so far.
    pushed: u64,
    line: Arc<SeatLine>,
    board: Arc<Board>,
}

impl Mic {
    /// Hands over one frame of `FRAME_SAMPLES` samples at 24 kHz; longer ones are cut, shorter ones end in zeros.
    ///
    /// If the queue is full, this frame is dropped and counted. It counts as a sign of life all the same.
    ///
    /// Returns how many frames were taken before this one; [`SpeakerFrame::heard`] names it by that number.
    pub fn push(&mut self, frame: &[f32]) -> Option<u64> {
        self.sign_of_life();
        if self.heads.is_full() || self.pcm.slots() < FRAME_SAMPLES {
            self.count(Loss::MicFull);
            return None;
        }
        let frame = &frame[..frame.len().min(FRAME_SAMPLES)];
        let power = mean_square(frame);
        let readable: &[f32] = if power.is_finite() { frame } else { &[] };
        if !power.is_finite() {
            self.count(Loss::MicNotFinite);
        }
        let head = MicHead {
            arrived_us: self.board.clock().now_us(),
            power: if power.is_finite() { power } else { 0.0 },
        };
        // The samples first: the reader takes a head as word that they are there.
        let written = self.pcm.push_entire_slice(readable).is_ok()
            && self
                .pcm
                .push_entire_slice(&SILENCE[readable.len()..])
                .is_ok()
            && self.heads.push(head).is_ok();
        debug_assert!(
            written,
            "there was room for a frame and nobody else writes here"
        );
        self.pushed += 1;
        Some(self.pushed - 1)
    }

    /// Notes that the peer is there: any message or pong. Without one for 30 s the call ends.
    pub fn sign_of_life(&self) {
        self.line.life.store(true, Relaxed);
    }

    /// What was counted for this session.
    pub fn counters(&self) -> &SeatCounters {
        &self.line.counters
    }

    fn count(&self, loss: Loss) {
        self.line.counters.losses.add(loss, 1);
        self.board.losses.add(loss, 1);
    }
}

static SILENCE: [f32; FRAME_SAMPLES] = [0.0; FRAME_SAMPLES];

/// The listener's end of the speaker queue. Dropping it and the [`Mic`] hangs up.
#[derive(Debug)]
pub struct Speaker {
    frames: rtrb::Consumer<SpeakerFrame>,
    spares: rtrb::Producer<Box<[f32]>>,
    line: Arc<SeatLine>,
    told: SeatState,
    over: bool,
}

impl Speaker {
    /// The next thing that happens to this seat; `None` after [`SeatEvent::Ended`]. Safe to cancel.
    ///
    /// States that follow each other faster than they are asked for are told by the newest alone.
    pub async fn next(&mut self) -> Option<SeatEvent> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<SeatEvent>> {
        if self.over {
            return Poll::Ready(None);
        }
        if let Some(event) = self.try_next() {
            return Poll::Ready(Some(event));
        }
        self.line.waker.register(context.waker());
        // What happened between the look and the registration would ring nobody, so look again.
        match self.try_next() {
            Some(event) => Poll::Ready(Some(event)),
            None => Poll::Pending,
        }
    }

    /// What has happened by now, if anything.
    pub fn try_next(&mut self) -> Option<SeatEvent> {
        if self.over {
            return None;
        }
        // The tick writes state before frames and the end after them, and this reads in the same order, so that Live
        // comes before the first frame and the end after the last. The abandoned flag is read before all else.
        let abandoned = self.frames.is_abandoned();
        let ended = self.line.ended.get().copied();
        if ended == Some(CloseReason::ListenerTooSlow) {
            // Two seconds of the past are no use to anybody now.
            self.over = true;
            return Some(SeatEvent::Ended(CloseReason::ListenerTooSlow));
        }
        let state = SeatState::unpack(self.line.state.load(SeqCst));
        if state != self.told {
            self.told = state;
            match state {
                SeatState::Waiting { place } => return Some(SeatEvent::Waiting { place }),
                SeatState::Prefill { chunks_left } => {
                    return Some(SeatEvent::Prefill { chunks_left });
                }
                SeatState::Live => return Some(SeatEvent::Live),
                SeatState::Asked | SeatState::Queued => {}
            }
        }
        if let Ok(frame) = self.frames.pop() {
            let spare = vec![0.0; FRAME_SAMPLES].into_boxed_slice();
            let given = self.spares.push(spare).is_ok();
            debug_assert!(given, "a frame came out, so there is room for its buffer");
            return Some(SeatEvent::Frame(frame));
        }
        if ended.is_some() || abandoned {
            self.over = true;
            // Without a reason the thread ended in a way it never should.
            return Some(SeatEvent::Ended(ended.unwrap_or(CloseReason::EngineFault)));
        }
        None
    }

    /// Waits for the tick's answer to the request.
    pub(super) async fn answer(&mut self) -> Result<(), JoinError> {
        // By unique reference, or the future could not move between threads.
        let this = self;
        poll_fn(move |context| match this.try_answer() {
            Some(answer) => Poll::Ready(answer),
            None => {
                this.line.waker.register(context.waker());
                match this.try_answer() {
                    Some(answer) => Poll::Ready(answer),
                    None => Poll::Pending,
                }
            }
        })
        .await
    }

    /// The tick's answer to the request, if there is one by now.
    pub(super) fn try_answer(&self) -> Option<Result<(), JoinError>> {
        let abandoned = self.frames.is_abandoned();
        if let Some(&refused) = self.line.refused.get() {
            return Some(Err(refused));
        }
        if SeatState::unpack(self.line.state.load(SeqCst)) != SeatState::Asked {
            return Some(Ok(()));
        }
        (abandoned || self.line.ended.get().is_some()).then_some(Err(JoinError::EngineStopped))
    }

    /// What was counted for this session.
    pub fn counters(&self) -> &SeatCounters {
        &self.line.counters
    }
}

/// The tick's ends of a seat. To be dropped off the tick: it frees memory.
#[derive(Debug)]
pub(super) struct SeatEnds {
    heads: rtrb::Consumer<MicHead>,
    pcm: rtrb::Consumer<f32>,
    frames: rtrb::Producer<SpeakerFrame>,
    spares: rtrb::Consumer<Box<[f32]>>,
    /// Frames that left the mic queue, in whatever way.
    popped: u64,
    /// The last one that was taken, `None` when there was none to take.
    heard: Option<u64>,
    line: Arc<SeatLine>,
}

/// Why a frame could not be handed to the listener.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SpeakerFull;

impl SeatEnds {
    /// Whether both ends of the caller are gone.
    pub(super) fn hung_up(&self) -> bool {
        self.heads.is_abandoned() && self.frames.is_abandoned()
    }

    /// Whether there was a sign of life since the last call of this.
    pub(super) fn take_life(&self) -> bool {
        self.line.life.load(Relaxed) && self.line.life.swap(false, Relaxed)
    }

    /// Frames waiting in the mic queue.
    pub(super) fn mic_queued(&self) -> usize {
        self.heads.slots()
    }

    /// Mean square of the frame at the front of the mic queue.
    pub(super) fn mic_front_power(&self) -> Option<f32> {
        self.heads.peek().ok().map(|head| head.power)
    }

    /// Takes the frame at the front into `row`, `FRAME_SAMPLES` long. False, and `row` untouched, if there is none.
    pub(super) fn take_mic(&mut self, row: &mut [f32], now_us: u64) -> bool {
        let Ok(head) = self.heads.pop() else {
            self.heard = None;
            return false;
        };
        self.heard = Some(self.popped);
        self.popped += 1;
        let taken = self.pcm.pop_entire_slice(row).is_ok();
        debug_assert!(taken, "a head stands for a whole frame");
        let waited_us = now_us.saturating_sub(head.arrived_us);
        self.line.counters.mic_wait_us.store(waited_us, Relaxed);
        taken
    }

    /// Drops the frame at the front of the mic queue.
    pub(super) fn drop_mic(&mut self) {
        if self.heads.pop().is_ok() {
            self.popped += 1;
            if let Ok(chunk) = self.pcm.read_chunk(FRAME_SAMPLES) {
                chunk.commit_all();
            }
        }
    }

    /// Hands a frame to the listener: `pcm` goes out and comes back as another buffer of the same length.
    ///
    /// # Errors
    /// [`SpeakerFull`]: the listener is about 2 s behind; nothing was handed over.
    pub(super) fn push_frame(
        &mut self,
        frame: u64,
        pcm: &mut Box<[f32]>,
        text: ArrayString<TEXT_BYTES_MAX>,
    ) -> Result<(), SpeakerFull> {
        if self.frames.is_full() {
            return Err(SpeakerFull);
        }
        let mut spare = self.spares.pop().map_err(|_| SpeakerFull)?;
        std::mem::swap(pcm, &mut spare);
        let pushed = self.frames.push(SpeakerFrame {
            frame,
            pcm: spare,
            text,
            heard: self.heard,
        });
        debug_assert!(pushed.is_ok(), "there was room and nobody else writes here");
        self.line.counters.frames_sent.fetch_add(1, Relaxed);
        Ok(())
    }

    /// The seat holds a row from now on.
    pub(super) fn take_row(&self, slot: SlotId) {
        self.line.counters.row.store(slot.row() as u64 + 1, Relaxed);
    }

    pub(super) fn set_state(&self, state: SeatState) {
        self.line.state.store(state.pack(), SeqCst);
    }

    pub(super) fn refuse(&self, error: JoinError) {
        // Set once by one thread; a second answer would be a mistake, and the first one holds.
        let _ = self.line.refused.set(error);
    }

    pub(super) fn end(&self, reason: CloseReason) {
        let _ = self.line.ended.set(reason);
    }

    pub(super) fn count(&self, loss: Loss, n: u64) {
        self.line.counters.losses.add(loss, n);
    }

    pub(super) fn counters(&self) -> &SeatCounters {
        &self.line.counters
    }

    pub(super) fn line(&self) -> &Arc<SeatLine> {
        &self.line
    }
}

/// Both sides of a new seat. Allocates and touches all its memory, so that the tick need not.
pub(super) fn seat_pair(board: Arc<Board>) -> (Mic, Speaker, SeatEnds) {
    let line = Arc::new(SeatLine::default());
    let (head_tx, head_rx) = rtrb::RingBuffer::new(MIC_FRAMES_MAX);
    let (pcm_tx, pcm_rx) = rtrb::RingBuffer::new(MIC_FRAMES_MAX * FRAME_SAMPLES);
    let (frame_tx, frame_rx) = rtrb::RingBuffer::new(SPEAKER_FRAMES_MAX);
    let (mut spare_tx, spare_rx) = rtrb::RingBuffer::new(SPEAKER_FRAMES_MAX);
    while !spare_tx.is_full() {
        // Written to, not only reserved: the first touch of a page costs a fault, and the engine writes here.
        let spare: Box<[f32]> = std::iter::repeat_n(f32::MIN_POSITIVE, FRAME_SAMPLES).collect();
        if spare_tx.push(spare).is_err() {
            break;
        }
    }
    let mic = Mic {
        heads: head_tx,
        pcm: pcm_tx,
        pushed: 0,
        line: line.clone(),
        board,
    };
    let speaker = Speaker {
        frames: frame_rx,
        spares: spare_tx,
        line: line.clone(),
        told: SeatState::Asked,
        over: false,
    };
    let ends = SeatEnds {
        heads: head_rx,
        pcm: pcm_rx,
        frames: frame_tx,
        spares: spare_rx,
        popped: 0,
        heard: None,
        line,
    };
    (mic, speaker, ends)
}
