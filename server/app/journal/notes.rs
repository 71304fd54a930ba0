//! One session's pen: what happens in it, kept together until it is worth telling.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slots::loudness::{QUIET_OVER_NOISE, QUIET_POWER, level, mean_square};
use slots::units::FRAME_SAMPLES;
use wire::api::sessions::SessionCounts;
use wire::notice::EndReason;

use super::live::LiveCall;
use super::recording::{self, Recorder};
use super::{CallFacts, Entry, Journal};
use crate::stepper::board::{Board, Loss};
use crate::stepper::queues::{MIC_FRAMES_MAX, SPEAKER_FRAMES_MAX, SeatCounters, SpeakerFrame};
use crate::store::{EventRow, ProgressRow, SessionEnd, SessionRow, now_ms};

/// Frames between two tellings (1 s). With the writer's own second, a killed process loses 2 s at most.
const TELL_FRAMES: u32 = 12;
/// Levels that wait while the writer does not take any (8 min); beyond it they are left out.
const LEVELS_MAX: usize = 6_000;
/// Mean square above which a frame is somebody speaking.
const SPOKEN_POWER: f32 = QUIET_POWER * QUIET_OVER_NOISE;
/// Caller's frames that wait for the agent's frame they go with: those in the mic queue, and those whose answer is still
/// in the speaker queue.
const CALLER_FRAMES_MAX: usize = MIC_FRAMES_MAX + SPEAKER_FRAMES_MAX;

/// Of one session. Dropping it ends the session in the log.
#[derive(Debug)]
pub struct Notes {
    journal: Arc<Journal>,
    call: Arc<LiveCall>,
    keep_transcript: bool,
    recording_key: Option<String>,
    spoken: AtomicBool,
    // Both halves of a connection write, in one task: never contended.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    row: ProgressRow,
    events: i64,
    untold: u32,
    heard: VecDeque<CallerFrame>,
    recorder: Option<Recorder>,
    resumed: i64,
    ticks_at_live: (u64, u64),
    in_word: bool,
    ended: bool,
}

/// A frame of the caller, on its way through the mic queue.
#[derive(Debug)]
struct CallerFrame {
    /// As the mic queue counts.
    place: u64,
    level: u8,
    pcm: Box<[f32; FRAME_SAMPLES]>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

impl Notes {
    pub(super) fn begin(journal: Arc<Journal>, id: i64, facts: CallFacts) -> Self {
        let call = LiveCall::new(id, &facts.caller, &facts.persona, &facts.voice);
        let call = Arc::new(call);
        let began_at_ms = now_ms();
        journal.tell(Entry::Began(SessionRow {
            id,
            caller: facts.caller,
            persona_id: facts.persona_id,
            persona: facts.persona,
            role_text: facts.role_text,
            voice: facts.voice,
            seed: facts.seed,
            began_at_ms,
        }));
        journal.live.add(call.clone());
        let state = State {
            row: ProgressRow {
                session: id,
                ..ProgressRow::default()
            },
            ..State::default()
        };
        let mut recording_key = None;
        if facts.record && journal.recordings().is_some() {
            match recording::new_key() {
                Ok(key) => recording_key = Some(key),
                Err(error) => tracing::warn!(session = id, %error, "a call is not recorded"),
            }
        }
        let notes = Self {
            journal,
            call,
            keep_transcript: facts.keep_transcript,
            recording_key,
            spoken: AtomicBool::new(false),
            state: Mutex::new(state),
        };
        notes.event("began", "");
        notes
    }

    /// The session's number.
    pub fn session(&self) -> i64 {
        self.call.session
    }

    /// Where its recording can be fetched after the end, if it is recorded.
    pub fn recording_path(&self) -> Option<String> {
        let key = self.recording_key.as_deref()?;
        Some(format!("api/talk/recordings/{key}"))
    }

    /// What others see of it.
    pub fn call(&self) -> &LiveCall {
        &self.call
    }

    /// Something happened.
    pub fn event(&self, what: &'static str, detail: impl Into<String>) {
        let mut state = self.lock();
        self.write_event(&mut state, what, detail.into());
    }

    /// The session has its row, and the ready byte goes out.
    pub fn live(&self, counters: &SeatCounters, board: &Board) {
        let mut state = self.lock();
        if let Some(row) = counters.row() {
            self.call.row.store(row as u32, Relaxed);
        }
        if state.row.live_at_ms.is_some() {
            return;
        }
        let at_ms = now_ms();
        state.row.live_at_ms = Some(at_ms);
        state.ticks_at_live = (board.steps(), board.tick_sum_us());
        self.call.live_at_ms.store(at_ms, Relaxed);
        self.write_event(&mut state, "live", String::new());
        if let (Some(key), Some(folder)) = (&self.recording_key, self.journal.recordings()) {
            let session = self.call.session;
            let recorder = recording::begin(&self.journal, folder, session, key, at_ms);
            state.recorder = Some(recorder);
            self.call.recorded.store(true, Relaxed);
        }
    }

    /// The session holds a row, which is being prepared.
    pub fn seated(&self, counters: &SeatCounters) {
        if let Some(row) = counters.row() {
            self.call.row.store(row as u32, Relaxed);
        }
    }

    /// The connection was taken up again.
    pub fn resumed(&self) {
        let mut state = self.lock();
        state.resumed += 1;
        self.write_event(&mut state, "resumed", String::new());
    }

    /// Whether the caller was ever louder than a quiet room.
    pub fn caller_has_spoken(&self) -> bool {
        self.spoken.load(Relaxed)
    }

    /// A frame of the caller went to the mic queue, which gave it `place`, or was full.
    pub fn heard(&self, place: Option<u64>, frame: Box<[f32; FRAME_SAMPLES]>) {
        let power = mean_square(&frame[..]);
        if power > SPOKEN_POWER {
            self.spoken.store(true, Relaxed);
        }
        let level = level(power);
        self.call.caller_level.store(level, Relaxed);
        let Some(place) = place else { return };
        let mut state = self.lock();
        if state.heard.len() == CALLER_FRAMES_MAX {
            state.heard.pop_front();
        }
        state.heard.push_back(CallerFrame {
            place,
            level,
            pcm: frame,
        });
    }

    /// A frame of the agent came from the tick. `pcm` and `text` are what the caller gets of it.
    pub fn said(
        &self,
        frame: &SpeakerFrame,
        (pcm, text): (&[f32], &str),
        counters: &SeatCounters,
        board: &Board,
    ) {
        let agent = level(mean_square(pcm));
        self.call.agent_level.store(agent, Relaxed);
        if !text.is_empty() {
            self.call.say(text);
        }
        let mut state = self.lock();
        let caller_frame = state.take_heard(frame.heard);
        let caller = caller_frame.as_ref().map_or(0, |frame| frame.level);
        if caller_frame.is_none() {
            self.call.caller_level.store(0, Relaxed);
        }
        let frame = frame.frame;
        let caller_frame = caller_frame.as_ref().map(|frame| &frame.pcm[..]);
        self.pass_on(&mut state, caller_frame, pcm);
        if state.row.levels_agent.len() < LEVELS_MAX {
            state.row.levels_caller.push(caller);
            state.row.levels_agent.push(agent);
        }
        if !text.is_empty() {
            let mut in_word = state.in_word;
            for c in text.chars() {
                let solid = !c.is_whitespace();
                state.row.words += i64::from(solid && !in_word);
                in_word = solid;
            }
            state.in_word = in_word;
            if self.keep_transcript {
                state.row.pieces.push((frame as i64, text.to_owned()));
            }
        }
        state.untold += 1;
        if state.untold >= TELL_FRAMES {
            self.count(&mut state, counters, board);
            self.tell(&mut state);
        }
    }

    /// The session is over. `counters` are absent when it never had a seat.
    pub fn ended(&self, reason: EndReason, seat: Option<(&SeatCounters, &Board)>, detail: &str) {
        let mut state = self.lock();
        if let Some((counters, board)) = seat {
            self.count(&mut state, counters, board);
        }
        self.finish(&mut state, reason, detail);
    }

    /// To the recording, and to whoever listens in.
    fn pass_on(&self, state: &mut State, caller: Option<&[f32]>, agent: &[f32]) {
        let listened = self.call.listeners() > 0;
        if !listened && state.recorder.is_none() {
            return;
        }
        let sample = |pcm: Option<&[f32]>, at: usize| {
            let sample = pcm.and_then(|pcm| pcm.get(at)).copied().unwrap_or(0.0);
            (sample.clamp(-1.0, 1.0) * 32_767.0) as i16
        };
        let frame: Arc<[i16]> = (0..FRAME_SAMPLES)
            .flat_map(|at| [sample(caller, at), sample(Some(agent), at)])
            .collect();
        if let Some(recorder) = &state.recorder
            && !recorder.take(frame.clone())
        {
            state.recorder = None;
            self.call.recorded.store(false, Relaxed);
            self.write_event(
                state,
                "recording_given_up",
                "it could not be written further; the call went on".to_owned(),
            );
        }
        if listened {
            self.call.let_hear(frame);
        }
    }

    fn count(&self, state: &mut State, counters: &SeatCounters, board: &Board) {
        let loss = |loss| counters.loss(loss) as i64;
        let drops = loss(Loss::MicFull) + loss(Loss::MicBacklog) + loss(Loss::MicQuiet);
        let (steps, sum_us) = state.ticks_at_live;
        let steps = board.steps().saturating_sub(steps).max(1);
        let sum_us = board.tick_sum_us().saturating_sub(sum_us);
        let was_live = state.row.live_at_ms.is_some() || counters.frames_sent() > 0;
        state.row.counts = SessionCounts {
            frames: counters.frames_sent() as i64,
            deficit: loss(Loss::Deficit),
            drops,
            late_ticks: loss(Loss::LateTick),
            missing: loss(Loss::MicMissing),
            resumed: state.resumed,
            tick_mean_us: if was_live { (sum_us / steps) as i64 } else { 0 },
        };
        let short = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
        self.call
            .deficit
            .store(short(state.row.counts.deficit), Relaxed);
        self.call.drops.store(short(drops), Relaxed);
        self.call
            .mic_wait_us
            .store(short(counters.mic_wait_us() as i64), Relaxed);
    }

    /// Tells the writer what came about, or keeps it for the next time.
    fn tell(&self, state: &mut State) {
        state.row.at_ms = now_ms();
        let fresh = ProgressRow {
            session: state.row.session,
            live_at_ms: state.row.live_at_ms,
            counts: state.row.counts,
            ..ProgressRow::default()
        };
        let row = std::mem::replace(&mut state.row, fresh);
        match self.journal.try_tell(row) {
            None => state.untold = 0,
            Some(row) => state.row = row,
        }
    }

    fn finish(&self, state: &mut State, reason: EndReason, detail: &str) {
        if std::mem::replace(&mut state.ended, true) {
            return;
        }
        state.recorder = None;
        state.row.at_ms = now_ms();
        let row = std::mem::take(&mut state.row);
        self.journal.tell(Entry::Progress(row));
        self.write_event(state, "ended", detail.to_owned());
        self.journal.tell(Entry::Ended(SessionEnd {
            session: self.call.session,
            at_ms: now_ms(),
            reason: reason.name(),
        }));
        // Last: who sees that it is gone finds its end in the log after a flush.
        self.journal.live.remove(self.call.session);
    }

    fn write_event(&self, state: &mut State, what: &'static str, detail: String) {
        let number = state.events;
        state.events += 1;
        self.journal.tell(Entry::Event(EventRow {
            session: self.call.session,
            number,
            at_ms: now_ms(),
            what,
            detail,
        }));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing here can panic half way through a change that matters.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The frame of the caller that the tick took, if it took one. Those before it were dropped by the tick.
    fn take_heard(&mut self, place: Option<u64>) -> Option<CallerFrame> {
        let place = place?;
        loop {
            let frame = self.heard.pop_front()?;
            if frame.place >= place {
                return (frame.place == place).then_some(frame);
            }
        }
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        let mut state = self.lock();
        self.finish(&mut state, EndReason::HungUp, "");
    }
}
