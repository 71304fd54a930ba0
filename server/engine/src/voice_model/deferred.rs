//! The tick of a backend that keeps its tokens on the device: everything is asked for without looking at a result, then
//! everything is read at once.
//!
//! The same steps as in `tick.rs`. Where that one knows a token, this one writes down in which slot of the board it will
//! be; what was chosen takes the place of these notes once the tick is over. All rows take part in every operation,
//! idle ones without effect, so that every tick asks for the same operations.

use slots::engine::{EngineError, FrameKind, FrameOutput, RowFault};
use slots::units::FRAME_SAMPLES;

use crate::backend::{Backend, Board, Done, Draw, Query, WriteOrder, board_slot, on_board};
use crate::config::CODES_MAX;
use crate::model::StepChoice;

use super::VoiceModel;
use super::row::{Row, RowPhase};

/// Slots of the board: the text, the steps of the depformer, the caller's codes.
const TEXT: usize = 0;
const STEPS: usize = 1;
const USER: usize = STEPS + 2 * CODES_MAX;

/// What a row lets out of the tick at hand.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    /// Whether its call ran.
    called: bool,
    /// Text token of the frame that goes through the decoder, if one does.
    frame_text: Option<i32>,
    /// A code that came from elsewhere and is out of range.
    bad_code: Option<u32>,
}

/// How `row` wants the token of a stream chosen: the text's, or that of a step.
fn draw<'a>(row: &'a Row, query: &Query, stream: usize) -> Draw<'a> {
    let sampling = row.sampler.sampling();
    let (temperature, top_k, penalty, recent) = match stream {
        0 => (
            sampling.text_temperature,
            sampling.text_top_k,
            sampling.repetition_penalty,
            row.sampler.recent(),
        ),
        _ => (
            sampling.audio_temperature,
            sampling.audio_top_k,
            1.0,
            &[][..],
        ),
    };
    Draw {
        active: query.active,
        seed: sampling.seed,
        position: query.position,
        stream: stream as u32,
        temperature,
        top_k,
        penalty,
        recent,
        forced: row.call.and_then(|call| call.forced(stream)),
    }
}

/// Asks for the codes of one frame.
struct Choice<'a> {
    rows: &'a [Row],
    queries: &'a [Query],
}

impl<B: Backend> StepChoice<B> for Choice<'_> {
    fn choose(
        &mut self,
        backend: &mut B,
        step: usize,
        logits: &B::Buf,
        tokens: &mut [i32],
    ) -> Done {
        let draws: Vec<Draw<'_>> = self
            .queries
            .iter()
            .map(|query| draw(&self.rows[query.row], query, 1 + step))
            .collect();
        tokens.fill(on_board(STEPS + step));
        backend.choose_to(&draws, logits, STEPS + step)
    }
}

impl<B: Backend> VoiceModel<B> {
    /// One frame of `live` rows. `mic` is what callers say, or `None` for the call ahead of the first caller frame.
    pub(super) fn deferred_tick(
        &mut self,
        live: &[usize],
        mic: Option<&[f32]>,
        out: &mut [FrameOutput],
    ) -> Result<(), EngineError> {
        // A call without a caller's frame asks for less than a tick.
        let whole = mic.is_some();
        if whole {
            self.backend.begin_tick()?;
        }
        let mut pending = std::mem::take(&mut self.scratch.pending);
        pending.clear();
        pending.resize(self.rows.len(), Pending::default());
        let asked = self.ask(live, mic, &mut pending);
        let ended = match whole {
            true => self.backend.end_tick(),
            false => Ok(()),
        };
        let result = asked
            .and(ended)
            .and_then(|()| self.collect(live, &pending, out));
        self.scratch.pending = pending;
        result
    }

    fn ask(&mut self, live: &[usize], mic: Option<&[f32]>, pending: &mut [Pending]) -> Done {
        if let Some(mic) = mic {
            self.ask_encoder(live, mic)?;
        }
        self.begin_calls(live);
        self.ask_model(pending)?;
        self.ask_decoder(live, pending)
    }

    fn ask_encoder(&mut self, live: &[usize], mic: &[f32]) -> Done {
        self.lay_out_frames(live, mic);
        let s = &mut self.scratch;
        self.codec
            .encode_to_board(&mut self.backend, &s.lanes, &s.pcm, USER)?;
        for &index in live {
            let row = &mut self.rows[index];
            if !matches!(row.phase, RowPhase::Live) {
                continue;
            }
            let codes = (0..self.config.codes()).map(|code| on_board(USER + code));
            if let Err(error) = row.staging.give_user_tokens(codes) {
                row.phase = RowPhase::Faulted(error.into());
            }
        }
        Ok(())
    }

    fn ask_model(&mut self, pending: &mut [Pending]) -> Done {
        let s = &mut self.scratch;
        self.temporal
            .embed(&mut self.backend, &s.tokens, &mut s.reordered)?;
        let order = WriteOrder::AllThenAttend;
        self.temporal
            .forward(&mut self.backend, &s.queries, order, &mut |_, _, _| Ok(()))?;
        self.temporal.finish(&mut self.backend)?;
        let draws: Vec<Draw<'_>> = s
            .queries
            .iter()
            .map(|query| draw(&self.rows[query.row], query, 0))
            .collect();
        self.backend
            .choose_to(&draws, self.temporal.text_logits(), TEXT)?;
        s.text.clear();
        s.text.resize(s.queries.len(), on_board(TEXT));
        let mut choice = Choice {
            rows: &self.rows,
            queries: &s.queries,
        };
        self.depformer.run(
            &mut self.backend,
            self.temporal.hidden(),
            &s.text,
            &mut choice,
        )?;
        let steps = self.depformer.steps();
        for query in s.queries.iter().filter(|query| query.active) {
            let row = &mut self.rows[query.row];
            let codes = (0..steps).map(|step| on_board(STEPS + step));
            row.staging.end_call_tokens(on_board(TEXT), codes);
            pending[query.row].called = true;
        }
        Ok(())
    }

    fn ask_decoder(&mut self, live: &[usize], pending: &mut [Pending]) -> Done {
        let bins = self.config.mimi.quantizer.bins as i32;
        let s = &mut self.scratch;
        s.speaking.clear();
        s.ids.clear();
        for (index, row) in self.rows.iter().enumerate() {
            let frame = match live.binary_search(&index).is_ok() && pending[index].called {
                true => row.staging.out_tokens(),
                false => None,
            };
            let bad = |code: &&i32| **code >= bins;
            if let Some((text, codes)) = frame {
                pending[index].bad_code = codes.iter().find(bad).map(|&code| code as u32);
                if pending[index].bad_code.is_none() {
                    pending[index].frame_text = Some(text);
                    s.speaking.push(index);
                    s.ids.extend_from_slice(&codes);
                    continue;
                }
            }
            let silence = &self.config.prompt.silence_tokens;
            s.ids.extend(silence.iter().map(|&code| code as i32));
        }
        s.lanes.set(&s.speaking, self.rows.len(), true);
        let lanes = &s.lanes;
        self.codec
            .decode_ids(&mut self.backend, lanes, &s.ids, &mut |_, _, _| Ok(()))?;
        self.backend.gather(self.codec.pcm())
    }

    /// Reads what was chosen and said, and puts it where the notes are.
    fn collect(&mut self, live: &[usize], pending: &[Pending], out: &mut [FrameOutput]) -> Done {
        let mut board = std::mem::take(&mut self.scratch.board);
        let read = self
            .backend
            .read_gathered(&mut board, &mut self.scratch.pcm);
        if read.is_ok() {
            for &index in live {
                self.collect_row(index, &pending[index], &board, &mut out[index]);
            }
        }
        self.scratch.board = board;
        read?;
        if self.probe.is_some() {
            let mut logits = Vec::new();
            self.backend
                .download(self.temporal.text_logits(), &mut logits)?;
            self.trace_calls(&logits)?;
        }
        Ok(())
    }

    fn collect_row(
        &mut self,
        index: usize,
        pending: &Pending,
        board: &Board,
        out: &mut FrameOutput,
    ) {
        let row = &mut self.rows[index];
        let known = |slot| board.token(slot, index);
        row.staging.resolve(known);
        if let Some(call) = &mut row.call {
            call.resolve(known);
        }
        if self.probe.is_some() {
            row.user.clear();
            let codes = 0..self.config.codes();
            row.user
                .extend(codes.map(|code| board.token(USER + code, index) as u32));
        }
        if pending.called {
            let steps = STEPS..STEPS + self.depformer.steps();
            row.text_token = board.token(TEXT, index) as u32;
            row.codes.clear();
            row.codes
                .extend(steps.clone().map(|slot| board.chosen(slot, index) as u32));
            let fault = std::iter::once(TEXT)
                .chain(steps)
                .any(|slot| board.is_fault(slot, index));
            if fault {
                row.phase = RowPhase::Faulted(RowFault::NotFinite);
            } else if !self.config.text.silent_ids.contains(&row.text_token) {
                row.sampler.said(row.text_token);
            }
        }
        if let Some(code) = pending.bad_code {
            let codes = self.config.mimi.quantizer.bins as u32;
            row.phase = RowPhase::Faulted(RowFault::CodeOutOfRange { code, codes });
        }
        out.kind = FrameKind::WarmingUp;
        if let RowPhase::Faulted(fault) = row.phase {
            out.kind = FrameKind::Fault(fault);
            return;
        }
        let Some(text) = pending.frame_text else {
            return;
        };
        let text = board_slot(text).map_or(text, |slot| board.token(slot, index)) as u32;
        if let Some(piece) = self.tokenizer.piece(text)
            && !self.config.text.silent_ids.contains(&text)
        {
            row.text.push(piece, &mut out.text);
        }
        let pcm = &self.scratch.pcm[index * FRAME_SAMPLES..][..FRAME_SAMPLES];
        if pcm.iter().all(|sample| sample.is_finite()) {
            out.pcm.copy_from_slice(pcm);
            out.kind = FrameKind::Live;
        } else {
            row.phase = RowPhase::Faulted(RowFault::NotFinite);
            out.kind = FrameKind::Fault(RowFault::NotFinite);
        }
    }
}
