//! One model call of some rows: embed, temporal transformer, text token, depformer, out-frame.

use slots::engine::{EngineError, RowFault};

use crate::backend::{Backend, Done, Query, WriteOrder};
use crate::model::StepChoice;
use crate::sampling::Scratch as SampleScratch;
use crate::tokens::{OutFrame, OutOfOrder, ZERO};

use super::row::{Row, RowPhase};
use super::{CallTrace, VoiceModel};

impl From<OutOfOrder> for RowFault {
    fn from(_: OutOfOrder) -> Self {
        RowFault::OutOfOrder
    }
}

/// Chooses the codes of one frame, lane by lane, from each row's own sampler.
struct Choice<'a> {
    rows: &'a mut [Row],
    queries: &'a [Query],
    scratch: &'a mut SampleScratch,
    values: &'a mut Vec<f32>,
    card: usize,
}

impl<B: Backend> StepChoice<B> for Choice<'_> {
    fn choose(
        &mut self,
        backend: &mut B,
        step: usize,
        logits: &B::Buf,
        tokens: &mut [i32],
    ) -> Done {
        backend.download(logits, self.values)?;
        let lanes = self.queries.iter().zip(self.values.chunks_exact(self.card));
        for ((query, logits), token) in lanes.zip(tokens) {
            let row = &mut self.rows[query.row];
            let Some(call) = row.call.filter(|_| query.active) else {
                continue;
            };
            let chosen = match row.sampler.audio(call.position, step, logits, self.scratch) {
                Ok(code) => code,
                Err(fault) => {
                    row.phase = RowPhase::Faulted(fault);
                    0
                }
            };
            row.codes.push(chosen);
            *token = call.audio_target(step).unwrap_or(chosen) as i32;
        }
        Ok(())
    }
}

impl<B: Backend> VoiceModel<B> {
    /// Runs one model call of each of `rows`, ascending. What comes out is in `frames`, row by row in that order.
    pub(super) fn model_call(
        &mut self,
        rows: &[usize],
        frames: &mut Vec<OutFrame>,
    ) -> Result<(), EngineError> {
        frames.clear();
        frames.resize(rows.len(), OutFrame::WarmingUp);
        self.begin_calls(rows);
        let s = &mut self.scratch;
        if !s.queries.iter().any(|query| query.active) {
            return Ok(());
        }
        self.temporal
            .embed(&mut self.backend, &s.tokens, &mut s.reordered)?;
        let order = WriteOrder::AllThenAttend;
        self.temporal
            .forward(&mut self.backend, &s.queries, order, &mut |_, _, _| Ok(()))?;
        self.temporal.finish(&mut self.backend)?;

        self.backend
            .download(self.temporal.text_logits(), &mut s.values)?;
        s.text.clear();
        for (query, logits) in s
            .queries
            .iter()
            .zip(s.values.chunks_exact(self.config.lm.text_card))
        {
            let row = &mut self.rows[query.row];
            s.text.push(0);
            let Some(call) = row.call.filter(|_| query.active) else {
                continue;
            };
            let chosen = match row.sampler.text(call.position, logits, &mut s.sample) {
                Ok(id) => id,
                Err(fault) => {
                    row.phase = RowPhase::Faulted(fault);
                    self.config.text.pad_id
                }
            };
            row.text_token = call.text_target().unwrap_or(chosen);
            row.codes.clear();
            *s.text.last_mut().expect("just pushed") = row.text_token as i32;
        }
        let mut logits = Vec::new();
        if self.probe.is_some() {
            logits.clone_from(&s.values);
        }

        let mut choice = Choice {
            rows: &mut self.rows,
            queries: &s.queries,
            scratch: &mut s.sample,
            values: &mut s.values,
            card: self.config.lm.card,
        };
        self.depformer.run(
            &mut self.backend,
            self.temporal.hidden(),
            &s.text,
            &mut choice,
        )?;

        for (&index, frame) in rows.iter().zip(frames.iter_mut()) {
            let row = &mut self.rows[index];
            if row.call.is_none() || matches!(row.phase, RowPhase::Faulted(_)) {
                continue;
            }
            let spoken = row.text_token;
            if !self.config.text.silent_ids.contains(&spoken) {
                row.sampler.said(spoken);
            }
            *frame = row.staging.end_call(spoken, &row.codes);
        }
        if self.probe.is_some() {
            self.trace_calls(&logits)?;
        }
        Ok(())
    }

    /// Takes each row's tokens and lays out lanes. A row whose tokens are not there is at fault.
    pub(super) fn begin_calls(&mut self, rows: &[usize]) {
        let s = &mut self.scratch;
        s.queries.clear();
        s.tokens.clear();
        let padded = self.backend.padded();
        let all = if padded {
            0..self.rows.len()
        } else {
            0..rows.len()
        };
        for lane in all {
            let index = if padded { lane } else { rows[lane] };
            let row = &mut self.rows[index];
            row.call = None;
            let live = !padded || rows.binary_search(&index).is_ok();
            if live && !matches!(row.phase, RowPhase::Faulted(_)) {
                match row.staging.begin_call() {
                    Ok(call) => row.call = call,
                    Err(error) => row.phase = RowPhase::Faulted(error.into()),
                }
            }
            let streams = row.staging.streams();
            match row.call {
                Some(call) => {
                    s.tokens.extend_from_slice(&call.input[..streams]);
                    s.queries
                        .push(self.window.pinned_query(index, call.position, row.pinned));
                }
                None if padded => {
                    s.tokens.extend(std::iter::repeat_n(ZERO, streams));
                    let idle = self.window.query(index, 0, 0);
                    s.queries.push(Query {
                        active: false,
                        ..idle
                    });
                }
                None => {}
            }
        }
    }

    /// Tells the probe what the calls of this pass read and chose.
    pub(super) fn trace_calls(&mut self, text_logits: &[f32]) -> Done {
        let s = &mut self.scratch;
        self.backend
            .download(self.temporal.hidden(), &mut s.values)?;
        let Some(probe) = &mut self.probe else {
            return Ok(());
        };
        let (dim, card) = (self.config.lm.dim, self.config.lm.text_card);
        for (lane, query) in s
            .queries
            .iter()
            .enumerate()
            .filter(|(_, query)| query.active)
        {
            let row = &self.rows[query.row];
            let Some(call) = row.call else { continue };
            let streams = row.staging.streams();
            let number = row.staging.calls() - 1;
            probe.call(CallTrace {
                row: query.row,
                call: number,
                fed: call.input[..streams].to_vec(),
                hidden: s.values[lane * dim..][..dim].to_vec(),
                text_logits: text_logits[lane * card..][..card].to_vec(),
                text: row.text_token,
                given: call.targets[1..streams].to_vec(),
                chosen: row.codes.clone(),
                target: row.staging.tokens_at(number)[..streams].to_vec(),
                out: row.staging.out_row()[..streams].to_vec(),
                user: row.user.to_vec(),
            });
        }
        Ok(())
    }
}
