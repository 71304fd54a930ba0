//! Streams and delays of one row: which token enters at which call, which is forced, which comes out.
//!
//! Lives here: [`Staging`], the ring of tokens of one row. Fixed size, no allocation, nothing shared between rows.
//! May not live here: the model, sampling, prompts (`prompt.rs` plays a whole prompt through a `Staging`).
//!
//! Source: the lockstep step of the published sources. `o` counts calls since the row was cleared. Position p of a
//! stream is the token that call `p + 1` feeds and call `p` predicts. What is given for a stream at call `o` lands at
//! position `o + delay`. Call 0 runs no model. A position up to its stream's delay holds the initial token.
//!
//! The user's frame of call `o` is read by call `o + 1` at the earliest. So it may be given before call `o`, as the
//! published sources do, or after it, one frame sooner for the caller; the tokens are the same.

use arrayvec::ArrayVec;

use crate::backend::board_slot;
use crate::config::{CODES_MAX, ModelConfig, RING_COLUMNS_MAX, STREAMS_MAX};
use crate::voices::VoiceBundle;

/// A cell that no call has written. Never fed.
pub const UNWRITTEN: i32 = -2;
/// A token that embeds to nothing.
pub const ZERO: i32 = -1;
/// In [`Call::targets`]: nothing is given, the model chooses.
pub const FREE: i32 = -1;

/// One token a stream: text, agent's codes, user's codes. Only the first `streams` count.
pub type TokenRow = [i32; STREAMS_MAX];

/// The tokens of one row between calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Staging {
    rules: Rules,
    /// Calls so far, the one without a model included.
    calls: u64,
    /// Position of the next user frame.
    next_user: u64,
    ring: [[i32; RING_COLUMNS_MAX]; STREAMS_MAX],
    given: [[bool; RING_COLUMNS_MAX]; STREAMS_MAX],
}

/// What the configuration says about streams.
#[derive(Clone, Debug, PartialEq)]
struct Rules {
    codes: usize,
    columns: u64,
    delay_max: u64,
    delays: [u64; STREAMS_MAX],
    text_initial: i32,
    audio_initial: i32,
}

/// What one model call reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Position that is fed: rotary position and index into the attention window.
    pub position: u64,
    /// Tokens that are fed, one a stream.
    pub input: TokenRow,
    /// Tokens that are given at the position the call predicts, one a stream; [`FREE`] where the model chooses.
    pub targets: TokenRow,
}

/// What one call lets out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutFrame {
    /// Nothing that can be decoded yet.
    WarmingUp,
    /// A frame: every code is in the codec's range.
    Frame {
        /// Text token of the frame.
        text: u32,
        /// The agent's codes for the decoder.
        codes: ArrayVec<u32, CODES_MAX>,
    },
}

/// Calls and user frames came in an order that would feed a token that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("call {call} needs the user's frames up to {needed}, the next one to come is {next_user}")]
pub struct OutOfOrder {
    /// The call.
    pub call: u64,
    /// Position of the last frame it feeds.
    pub needed: u64,
    /// Position of the next user frame.
    pub next_user: u64,
}

impl Call {
    /// The token that is given for a stream, if one is; it may be on the board of a device.
    pub fn forced(&self, stream: usize) -> Option<i32> {
        Some(self.targets[stream]).filter(|&token| token != FREE)
    }

    /// As [`Staging::resolve`].
    pub fn resolve(&mut self, token: impl Fn(usize) -> i32) {
        for cell in self.input.iter_mut().chain(&mut self.targets) {
            if let Some(slot) = board_slot(*cell) {
                *cell = token(slot);
            }
        }
    }

    /// The text token that is given, if one is.
    pub fn text_target(&self) -> Option<u32> {
        u32::try_from(self.targets[0]).ok()
    }

    /// The code that is given for step `step` of the depformer, if one is.
    pub fn audio_target(&self, step: usize) -> Option<u32> {
        u32::try_from(self.targets[1 + step]).ok()
    }
}

impl Staging {
    /// A cleared row of a model of `config`.
    pub fn new(config: &ModelConfig) -> Self {
        let mut delays = [0; STREAMS_MAX];
        for (delay, &frames) in delays.iter_mut().zip(&config.lm.delays) {
            *delay = frames as u64;
        }
        Self {
            rules: Rules {
                codes: config.codes(),
                columns: config.ring_columns() as u64,
                delay_max: config.ring_columns() as u64 - 3,
                delays,
                text_initial: config.lm.text_card as i32,
                audio_initial: config.lm.card as i32,
            },
            calls: 0,
            next_user: 0,
            ring: [[UNWRITTEN; RING_COLUMNS_MAX]; STREAMS_MAX],
            given: [[false; RING_COLUMNS_MAX]; STREAMS_MAX],
        }
    }

    /// Clears the row.
    pub fn reset(&mut self) {
        self.calls = 0;
        self.next_user = 0;
        self.ring = [[UNWRITTEN; RING_COLUMNS_MAX]; STREAMS_MAX];
        self.given = [[false; RING_COLUMNS_MAX]; STREAMS_MAX];
    }

    /// Number of streams that count.
    pub fn streams(&self) -> usize {
        1 + 2 * self.rules.codes
    }

    /// Calls so far, the one without a model included.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Model calls so far: positions the temporal transformer has seen.
    pub fn positions(&self) -> u64 {
        self.calls.saturating_sub(1)
    }

    /// Gives the text token of the coming call.
    pub fn give_text(&mut self, id: u32) {
        self.give(0, self.calls, id as i32);
    }

    /// Gives the agent's codes of the coming call.
    pub fn give_agent(&mut self, codes: &[u32]) {
        for (index, &code) in codes.iter().enumerate().take(self.rules.codes) {
            let stream = 1 + index;
            self.give(stream, self.calls + self.rules.delays[stream], code as i32);
        }
    }

    /// Gives the next frame of the user: the one of the coming call, or, if that was skipped, the one of the last call.
    ///
    /// # Errors
    /// [`OutOfOrder`]: the frame of the coming call is there already.
    pub fn give_user(&mut self, codes: &[u32]) -> Result<(), OutOfOrder> {
        self.give_user_tokens(codes.iter().map(|&code| code as i32))
    }

    /// As [`Staging::give_user`] of tokens that may still be on the board of a device; see [`Staging::resolve`].
    ///
    /// # Errors
    /// As [`Staging::give_user`].
    pub fn give_user_tokens(&mut self, codes: impl Iterator<Item = i32>) -> Result<(), OutOfOrder> {
        if self.next_user > self.calls {
            return Err(self.out_of_order());
        }
        let position = self.next_user;
        for (index, code) in codes.enumerate().take(self.rules.codes) {
            let stream = 1 + self.rules.codes + index;
            self.give(stream, position + self.rules.delays[stream], code);
        }
        self.next_user += 1;
        Ok(())
    }

    /// Begins a call: what the model is to read. `None` for the first call of a row, which runs no model and is over
    /// with this.
    ///
    /// # Errors
    /// [`OutOfOrder`]: a user frame that the call feeds has not been given.
    pub fn begin_call(&mut self) -> Result<Option<Call>, OutOfOrder> {
        if self.next_user < self.calls {
            return Err(self.out_of_order());
        }
        for stream in 0..self.streams() {
            if self.calls <= self.rules.delays[stream] {
                self.give(stream, self.calls, self.initial(stream));
            }
        }
        if self.calls == 0 {
            self.calls = 1;
            self.next_user = self.next_user.max(1);
            return Ok(None);
        }
        let (fed, predicted) = (self.column(self.calls - 1), self.column(self.calls));
        let mut call = Call {
            position: self.calls - 1,
            input: [ZERO; STREAMS_MAX],
            targets: [FREE; STREAMS_MAX],
        };
        for stream in 0..self.streams() {
            call.input[stream] = self.ring[stream][fed];
            if self.given[stream][predicted] {
                call.targets[stream] = self.ring[stream][predicted];
            }
        }
        Ok(Some(call))
    }

    /// Ends a call with what the model chose: a text token, and a code for each depformer step that was run (the
    /// agent's first). What was given is kept. Gives the frame that is complete now.
    pub fn end_call(&mut self, text: u32, codes: &[u32]) -> OutFrame {
        self.end_call_tokens(text as i32, codes.iter().map(|&code| code as i32));
        match self.out_tokens() {
            Some((text, codes)) => OutFrame::Frame {
                text: text as u32,
                codes: codes.iter().map(|&code| code as u32).collect(),
            },
            None => OutFrame::WarmingUp,
        }
    }

    /// As [`Staging::end_call`] with tokens that may still be on the board of a device; see [`Staging::resolve`].
    pub fn end_call_tokens(&mut self, text: i32, codes: impl Iterator<Item = i32>) {
        let (fed, predicted) = (self.column(self.calls - 1), self.column(self.calls));
        let chosen = std::iter::once(text).chain(codes);
        for (stream, token) in (0..self.streams()).zip(chosen) {
            if !self.given[stream][predicted] {
                self.ring[stream][predicted] = token;
            }
        }
        for given in &mut self.given {
            given[fed] = false;
        }
        self.calls += 1;
    }

    /// Puts tokens in the place of those that were on the board of a device.
    pub fn resolve(&mut self, token: impl Fn(usize) -> i32) {
        for cell in self.ring.iter_mut().flatten() {
            if let Some(slot) = board_slot(*cell) {
                *cell = token(slot);
            }
        }
    }

    /// Takes the place of the calls that recorded `voice`: the row stands after its last frame.
    pub fn replay_voice(&mut self, voice: &VoiceBundle) {
        self.reset();
        self.calls = voice.n as u64 + 1;
        self.next_user = self.calls;
        for (ring, cache) in self.ring.iter_mut().zip(&voice.cache) {
            *ring = *cache;
        }
        for stream in 0..self.streams() {
            for position in self.calls..self.calls + self.rules.delays[stream] {
                let column = self.column(position);
                self.given[stream][column] = true;
            }
        }
    }

    /// Stands at least `frames` frames later with the same tokens at hand: for clocks.
    pub(crate) fn skip(&mut self, frames: u64) {
        // Whole turns of the ring, so that every token keeps its column.
        let frames = frames.next_multiple_of(self.rules.columns);
        self.calls += frames;
        self.next_user += frames;
    }

    /// All tokens of position `position`, one of the last few.
    pub fn tokens_at(&self, position: u64) -> TokenRow {
        let column = self.column(position);
        self.ring.map(|stream| stream[column])
    }

    /// All streams of the frame that the last call completed, user's codes included; cells that are not there yet hold
    /// [`UNWRITTEN`].
    pub fn out_row(&self) -> TokenRow {
        let mut row = [UNWRITTEN; STREAMS_MAX];
        if let Some(frame) = self.calls.checked_sub(1 + self.rules.delay_max) {
            let delays = &self.rules.delays[..self.streams()];
            for ((token, ring), delay) in row.iter_mut().zip(&self.ring).zip(delays) {
                *token = ring[self.column(frame + delay)];
            }
        }
        row
    }

    /// Text token and agent's codes of the frame that the last call completed; `None` while there is none that can be
    /// decoded. Tokens on the board count as in range.
    pub fn out_tokens(&self) -> Option<(i32, ArrayVec<i32, CODES_MAX>)> {
        // The call that just ended has number `calls - 1`; up to the largest delay there is no whole frame.
        if self.calls <= 1 + self.rules.delay_max {
            return None;
        }
        let row = self.out_row();
        let in_range =
            |token: i32, limit: i32| (0..limit).contains(&token) || board_slot(token).is_some();
        let codes = &row[1..=self.rules.codes];
        let is_whole = in_range(row[0], self.rules.text_initial)
            && codes
                .iter()
                .all(|&code| in_range(code, self.rules.audio_initial));
        is_whole.then(|| (row[0], codes.iter().copied().collect()))
    }

    fn give(&mut self, stream: usize, position: u64, token: i32) {
        let column = self.column(position);
        self.ring[stream][column] = token;
        self.given[stream][column] = true;
    }

    fn initial(&self, stream: usize) -> i32 {
        if stream == 0 {
            self.rules.text_initial
        } else {
            self.rules.audio_initial
        }
    }

    fn column(&self, position: u64) -> usize {
        (position % self.rules.columns) as usize
    }

    fn out_of_order(&self) -> OutOfOrder {
        OutOfOrder {
            call: self.calls,
            needed: self.calls.saturating_sub(1),
            next_user: self.next_user,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT_INITIAL: i32 = 32_000;
    const AUDIO_INITIAL: i32 = 2_048;

    /// Text, agent's code 0, agent's code 1, user's code 0, user's code 1 of a row.
    fn pick(row: &TokenRow) -> [i32; 5] {
        [row[0], row[1], row[2], row[9], row[10]]
    }

    /// User frame `call` is `100 + call` in code 0 and `200 + call` in the others.
    fn user(call: u32) -> [u32; 8] {
        let mut codes = [200 + call; 8];
        codes[0] = 100 + call;
        codes
    }

    /// The model's choice at `call`: text `300 + call`, code 0 `400 + call`, the others `500 + call`.
    fn chosen(call: u32) -> (u32, [u32; 8]) {
        let mut codes = [500 + call; 8];
        codes[0] = 400 + call;
        (300 + call, codes)
    }

    #[test]
    fn a_fresh_row_that_is_live_at_once_reads_and_gives_the_traced_tokens() {
        let (t, a) = (TEXT_INITIAL, AUDIO_INITIAL);
        // Call: what is fed, what is given for the predicted position.
        let traced = [
            ([t, a, a, a, a], [FREE, FREE, a, 101, a]),
            ([301, 401, a, 101, a], [FREE, FREE, FREE, 102, 201]),
            ([302, 402, 502, 102, 201], [FREE, FREE, FREE, 103, 202]),
            ([303, 403, 503, 103, 202], [FREE, FREE, FREE, 104, 203]),
            ([304, 404, 504, 104, 203], [FREE, FREE, FREE, 105, 204]),
        ];
        let mut staging = Staging::new(&ModelConfig::published());
        staging.give_user(&user(0)).unwrap();
        assert_eq!(
            staging.begin_call(),
            Ok(None),
            "the first call runs no model"
        );
        for (call, (input, targets)) in (1..).zip(traced) {
            staging.give_user(&user(call)).unwrap();
            let read = staging.begin_call().unwrap().unwrap();
            assert_eq!(read.position, u64::from(call) - 1);
            assert_eq!(pick(&read.input), input, "fed at call {call}");
            assert_eq!(pick(&read.targets), targets, "given at call {call}");
            let (text, codes) = chosen(call);
            let out = staging.end_call(text, &codes);
            if call == 1 {
                assert_eq!(out, OutFrame::WarmingUp);
                continue;
            }
            let OutFrame::Frame { text, codes } = out else {
                panic!("call {call} gives a frame");
            };
            assert_eq!(text, 300 + call - 1);
            assert_eq!(codes[..2], [400 + call - 1, 500 + call]);
        }
    }

    #[test]
    fn the_user_frame_may_come_before_the_call_or_after_it() {
        let config = ModelConfig::published();
        let (mut before, mut after) = (Staging::new(&config), Staging::new(&config));
        for staging in [&mut before, &mut after] {
            staging.give_user(&user(0)).unwrap();
            staging.begin_call().unwrap();
        }
        for call in 1..20 {
            let (text, codes) = chosen(call);
            before.give_user(&user(call)).unwrap();
            let read_before = before.begin_call().unwrap().unwrap();
            let read_after = after.begin_call().unwrap().unwrap();
            assert_eq!(read_before.input, read_after.input, "call {call}");
            assert_eq!(read_before.targets[..9], read_after.targets[..9]);
            // Predictions for the user's own codes are lost either way.
            let with_user: Vec<u32> = codes.iter().copied().chain([9; 8]).collect();
            let frames = [
                before.end_call(text, &with_user),
                after.end_call(text, &with_user),
            ];
            assert_eq!(frames[0], frames[1]);
            after.give_user(&user(call)).unwrap();
            assert_eq!(before.ring, after.ring, "call {call}");
        }
    }

    #[test]
    fn a_call_without_its_user_frame_is_refused_and_so_is_a_frame_too_many() {
        let mut staging = Staging::new(&ModelConfig::published());
        staging.give_user(&user(0)).unwrap();
        assert_eq!(staging.give_user(&user(1)).unwrap_err().next_user, 1);
        staging.begin_call().unwrap();
        staging.begin_call().unwrap().expect("frame 0 is not fed");
        staging.end_call(0, &[0; 8]);
        assert_eq!(
            staging.begin_call(),
            Err(OutOfOrder {
                call: 2,
                needed: 1,
                next_user: 1
            })
        );
    }

    #[test]
    fn codes_out_of_the_codecs_range_never_leave() {
        let mut staging = Staging::new(&ModelConfig::published());
        for call in 0..6 {
            staging.give_user(&user(call)).unwrap();
            if staging.begin_call().unwrap().is_some() {
                let bad = if call == 3 { AUDIO_INITIAL as u32 } else { 7 };
                let out = staging.end_call(5, &[bad; 8]);
                let warming_up = matches!(call, 1 | 3 | 4);
                assert_eq!(out == OutFrame::WarmingUp, warming_up, "call {call}");
            }
        }
    }
}
