//! The tick: every live row one frame on, in the chosen order.

use slots::engine::{
    Engine, EngineCounters, EngineError, FrameKind, FrameOutput, Readiness, RowFault, SeatError,
    TickPlan,
};
use slots::units::{FRAME_SAMPLES, SlotId};

use crate::backend::{Backend, Done};
use crate::codec::CodecError;
use crate::tokens::OutFrame;

use super::row::RowPhase;
use super::{Order, VoiceCall, VoiceModel};

impl<B: Backend> Engine for VoiceModel<B> {
    type Call = VoiceCall;

    fn capacity(&self) -> usize {
        self.rows.len()
    }

    fn seat(&mut self, slot: SlotId, call: VoiceCall) -> Result<Readiness, SeatError> {
        self.seat_call(slot, call)
    }

    fn prefill(&mut self, slot: SlotId) -> Result<Readiness, EngineError> {
        self.prefill_row(slot)
    }

    fn vacate(&mut self, slot: SlotId) {
        self.rows[slot.row()].phase = RowPhase::Free;
    }

    fn step(
        &mut self,
        plan: &TickPlan,
        mic: &[f32],
        out: &mut [FrameOutput],
    ) -> Result<(), EngineError> {
        out.iter_mut().for_each(FrameOutput::clear);
        let mut live = std::mem::take(&mut self.scratch.live);
        live.clear();
        live.extend(
            plan.live.iter().map(|slot| slot.row()).filter(|&row| {
                matches!(self.rows[row].phase, RowPhase::Live | RowPhase::Faulted(_))
            }),
        );
        let result = self.step_rows(&live, mic, out);
        self.scratch.live = live;
        result
    }

    fn counters(&self) -> EngineCounters {
        EngineCounters {
            prompt_cache_hits: self.cache_hits,
            prompt_cache_misses: self.cache_misses,
            prompt_cache_bytes: self.snapshots.bytes() as u64,
        }
    }
}

impl<B: Backend> VoiceModel<B> {
    fn step_rows(
        &mut self,
        live: &[usize],
        mic: &[f32],
        out: &mut [FrameOutput],
    ) -> Result<(), EngineError> {
        if live.is_empty() {
            return Ok(());
        }
        if self.backend.deferred() {
            return self.deferred_tick(live, Some(mic), out);
        }
        let mut frames = std::mem::take(&mut self.scratch.frames);
        // Both orders hear the caller first here: on one device there is nothing to overlap with, and a caller's frame
        // given before its call is only a target of that call. What differs is which call follows it.
        let result = self
            .hear(live, mic)
            .and_then(|()| self.model_call(live, &mut frames))
            .and_then(|()| self.speak(live, &frames, out));
        self.scratch.frames = frames;
        result
    }

    /// Puts the callers' frames into the lanes of the batch, with zeros for what is no number.
    pub(super) fn lay_out_frames(&mut self, live: &[usize], mic: &[f32]) {
        let s = &mut self.scratch;
        s.lanes.set(live, self.rows.len(), self.backend.padded());
        s.pcm.clear();
        for (&row, &active) in s.lanes.rows.iter().zip(&s.lanes.active) {
            if active {
                let frame = &mic[row * FRAME_SAMPLES..][..FRAME_SAMPLES];
                s.pcm
                    .extend(frame.iter().map(|&v| if v.is_finite() { v } else { 0.0 }));
            } else {
                s.pcm.resize(s.pcm.len() + FRAME_SAMPLES, 0.0);
            }
        }
    }

    /// Encodes the callers' frames and gives them to their rows.
    fn hear(&mut self, live: &[usize], mic: &[f32]) -> Done {
        self.lay_out_frames(live, mic);
        let s = &mut self.scratch;
        self.codec.encode(
            &mut self.backend,
            &s.lanes,
            &s.pcm,
            &mut s.codes,
            &mut |_, _, _| Ok(()),
        )?;
        let codes = s.codes.chunks_exact(self.config.codes());
        for ((&row, &active), codes) in s.lanes.rows.iter().zip(&s.lanes.active).zip(codes) {
            let row = &mut self.rows[row];
            // A row that failed is not called any more, so its frames would pile up; it keeps the reason it failed for.
            if active
                && matches!(row.phase, RowPhase::Live)
                && let Err(error) = row.staging.give_user(codes)
            {
                row.phase = RowPhase::Faulted(error.into());
            }
            if self.probe.is_some() {
                row.user.clear();
                row.user.extend_from_slice(codes);
            }
        }
        Ok(())
    }

    /// Decodes the frames that are whole and hands them out.
    fn speak(&mut self, live: &[usize], frames: &[OutFrame], out: &mut [FrameOutput]) -> Done {
        let mut speaking = std::mem::take(&mut self.scratch.speaking);
        speaking.clear();
        for (&row, frame) in live.iter().zip(frames) {
            out[row].kind = match self.rows[row].phase {
                RowPhase::Faulted(fault) => FrameKind::Fault(fault),
                _ => FrameKind::WarmingUp,
            };
            if let (OutFrame::Frame { text, codes }, FrameKind::WarmingUp) = (frame, out[row].kind)
            {
                let bins = self.config.mimi.quantizer.bins as u32;
                if let Some(&code) = codes.iter().find(|&&code| code >= bins) {
                    let fault = RowFault::CodeOutOfRange { code, codes: bins };
                    self.rows[row].phase = RowPhase::Faulted(fault);
                    out[row].kind = FrameKind::Fault(fault);
                    continue;
                }
                speaking.push(row);
                if let Some(piece) = self.tokenizer.piece(*text)
                    && !self.config.text.silent_ids.contains(text)
                {
                    self.rows[row].text.push(piece, &mut out[row].text);
                }
            }
        }
        let result = self.decode(&speaking, live, frames, out);
        self.scratch.speaking = speaking;
        result
    }

    fn decode(
        &mut self,
        speaking: &[usize],
        live: &[usize],
        frames: &[OutFrame],
        out: &mut [FrameOutput],
    ) -> Done {
        if speaking.is_empty() {
            return Ok(());
        }
        let s = &mut self.scratch;
        s.lanes
            .set(speaking, self.rows.len(), self.backend.padded());
        s.codes.clear();
        for (&row, &active) in s.lanes.rows.iter().zip(&s.lanes.active) {
            let frame = live.binary_search(&row).ok().map(|at| &frames[at]);
            match frame {
                Some(OutFrame::Frame { codes, .. }) if active => s.codes.extend_from_slice(codes),
                _ => s
                    .codes
                    .extend_from_slice(&self.config.prompt.silence_tokens),
            }
        }
        let decoded = self.codec.decode(
            &mut self.backend,
            &s.lanes,
            &s.codes,
            &mut s.pcm,
            &mut |_, _, _| Ok(()),
        );
        decoded.map_err(|error| match error {
            CodecError::Device(error) => error,
            error => EngineError {
                what: error.to_string(),
            },
        })?;
        let pcm = s.pcm.chunks_exact(FRAME_SAMPLES);
        for ((&row, &active), pcm) in s.lanes.rows.iter().zip(&s.lanes.active).zip(pcm) {
            if !active {
                continue;
            }
            if pcm.iter().all(|sample| sample.is_finite()) {
                out[row].pcm.copy_from_slice(pcm);
                out[row].kind = FrameKind::Live;
            } else {
                self.rows[row].phase = RowPhase::Faulted(RowFault::NotFinite);
                out[row].kind = FrameKind::Fault(RowFault::NotFinite);
            }
        }
        Ok(())
    }

    /// The model call ahead of the first caller frame: its frame, which the prompt has forced, goes through the decoder
    /// and is not sent.
    pub(super) fn lead_in(&mut self, index: usize) -> Done {
        debug_assert_eq!(self.options.order, Order::Sooner);
        let mut frames = std::mem::take(&mut self.scratch.frames);
        let mut out = std::mem::take(&mut self.scratch.unsent);
        out.resize_with(self.rows.len(), FrameOutput::idle);
        let result = match self.backend.deferred() {
            true => self.deferred_tick(&[index], None, &mut out),
            false => self
                .model_call(&[index], &mut frames)
                .and_then(|()| self.speak(&[index], &frames, &mut out)),
        };
        self.scratch.frames = frames;
        self.scratch.unsent = out;
        result
    }
}
