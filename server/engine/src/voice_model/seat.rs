//! Seating: clearing a row, restoring a snapshot, reading a prompt chunk by chunk.

use slots::engine::{EngineError, Readiness, SeatError};
use slots::units::SlotId;

use crate::backend::{Backend, Done, Query, WriteOrder};
use crate::prompt::{InputSource, Prompt};
use crate::tokens::ZERO;

use super::row::RowPhase;
use super::{CallTrace, Order, Snapshot, VoiceCall, VoiceModel};

impl<B: Backend> VoiceModel<B> {
    pub(super) fn seat_call(
        &mut self,
        slot: SlotId,
        call: VoiceCall,
    ) -> Result<Readiness, SeatError> {
        let index = slot.row();
        let VoiceCall { prompt, sampling } = call;
        let (positions, positions_max) = (prompt.positions(), self.options.positions_max);
        // `prepare` has told the caller already; this call was made in another way.
        if positions > positions_max {
            return Err(SeatError::PromptTooLong {
                positions,
                positions_max,
            });
        }
        let pinned = if self.options.pin_prompt {
            self.pinnable(&prompt)
        } else {
            0
        };
        let phase = self.after_prompt();
        let snapshot = self.snapshots.get(&prompt.key);
        let row = &mut self.rows[index];
        row.clear(sampling);
        row.pinned = pinned;
        if let Some(snapshot) = snapshot {
            // A device that fails here fails again when the prompt is read, which reports it.
            let backend = &mut self.backend;
            let restored = self
                .codec
                .reset(backend, index)
                .and_then(|()| self.temporal.restore(backend, index, &snapshot.rings));
            if restored.is_ok() {
                self.cache_hits += 1;
                row.staging = snapshot.after.clone();
                row.phase = phase;
                return Ok(self.readiness(index));
            }
        }
        self.cache_misses += 1;
        row.phase = RowPhase::Prefill {
            prompt: Box::new(prompt),
            next: 0,
        };
        Ok(self.readiness(index))
    }

    /// How many positions of `prompt` may stay in the window for good.
    fn pinnable(&self, prompt: &Prompt) -> usize {
        let positions = prompt.positions();
        if positions <= self.config.lm.context / 2 {
            return positions;
        }
        tracing::warn!(
            positions,
            context = self.config.lm.context,
            "prompt too long to pin"
        );
        0
    }

    fn after_prompt(&self) -> RowPhase {
        match self.options.order {
            Order::Sooner => RowPhase::LeadIn,
            Order::Overlapped => RowPhase::Live,
        }
    }

    pub(super) fn readiness(&self, index: usize) -> Readiness {
        let chunk = self.options.prefill_chunk;
        let lead_in = u32::from(self.options.order == Order::Sooner);
        match &self.rows[index].phase {
            RowPhase::Prefill { prompt, next } => {
                let chunks = (prompt.positions() - next).div_ceil(chunk) as u32;
                Readiness::Prefill {
                    chunks_left: chunks + lead_in,
                }
            }
            RowPhase::LeadIn => Readiness::Prefill { chunks_left: 1 },
            RowPhase::Live | RowPhase::Free | RowPhase::Faulted(_) => Readiness::Live,
        }
    }

    pub(super) fn prefill_row(&mut self, slot: SlotId) -> Result<Readiness, EngineError> {
        let index = slot.row();
        match std::mem::replace(&mut self.rows[index].phase, RowPhase::Free) {
            RowPhase::Prefill { prompt, next } => {
                let next = self.read_chunk(index, &prompt, next)?;
                if next < prompt.positions() {
                    self.rows[index].phase = RowPhase::Prefill { prompt, next };
                } else {
                    self.finish_prompt(index, *prompt)?;
                }
            }
            RowPhase::LeadIn => {
                self.rows[index].phase = RowPhase::Live;
                self.lead_in(index)?;
            }
            other => self.rows[index].phase = other,
        }
        Ok(self.readiness(index))
    }

    /// Reads the chunk that begins at position `next`; gives the position after it.
    fn read_chunk(
        &mut self,
        index: usize,
        prompt: &Prompt,
        next: usize,
    ) -> Result<usize, EngineError> {
        if next == 0 {
            self.codec.reset(&mut self.backend, index)?;
        }
        let dim = self.config.lm.dim;
        let end = (next + self.options.prefill_chunk).min(prompt.positions());
        // A device that pads gets chunks of one length, so that a prompt always takes the same path.
        let len = if self.backend.padded() {
            self.options.prefill_chunk
        } else {
            end - next
        };
        let s = &mut self.scratch;
        let streams = self.rows[index].staging.streams();
        s.tokens.clear();
        s.tokens.resize(len * streams, ZERO);
        s.values.clear();
        s.values.resize(len * dim, 0.0);
        s.queries.clear();
        for at in 0..len {
            let position = (next + at) as u64;
            let query = self
                .window
                .pinned_query(index, position, self.rows[index].pinned);
            s.queries.push(Query {
                active: next + at < end,
                ..query
            });
            let Some(input) = prompt.inputs.get(next + at) else {
                continue;
            };
            match (input.source, &prompt.bundle) {
                (InputSource::Tokens(tokens), _) => {
                    s.tokens[at * streams..][..streams].copy_from_slice(&tokens[..streams]);
                }
                (InputSource::Embedding(row), Some(bundle)) => {
                    let vector = &bundle.embeddings[row * dim..][..dim];
                    s.values[at * dim..][..dim].copy_from_slice(vector);
                }
                (InputSource::Embedding(_), None) => {
                    return Err(EngineError {
                        what: "a prompt without its voice".into(),
                    });
                }
            }
        }
        self.temporal
            .embed(&mut self.backend, &s.tokens, &mut s.reordered)?;
        self.backend.upload(&s.values, dim, &mut s.vectors)?;
        self.temporal.add_input(&mut self.backend, &s.vectors)?;
        let order = WriteOrder::EachThenAttend;
        self.temporal
            .forward(&mut self.backend, &s.queries, order, &mut |_, _, _| Ok(()))?;
        if self.probe.is_some() {
            self.trace_chunk(index, prompt, next, end)?;
        }
        Ok(end)
    }

    fn trace_chunk(&mut self, index: usize, prompt: &Prompt, next: usize, end: usize) -> Done {
        let dim = self.config.lm.dim;
        let streams = self.rows[index].staging.streams();
        self.temporal.finish(&mut self.backend)?;
        self.backend
            .download(self.temporal.hidden(), &mut self.scratch.values)?;
        let Some(probe) = &mut self.probe else {
            return Ok(());
        };
        for (position, hidden) in (next..end).zip(self.scratch.values.chunks_exact(dim)) {
            let fed = match &prompt.inputs[position].source {
                InputSource::Tokens(tokens) => tokens[..streams].to_vec(),
                InputSource::Embedding(_) => Vec::new(),
            };
            let call = position as u64 + 1;
            let hidden = hidden.to_vec();
            probe.call(CallTrace {
                row: index,
                call,
                fed,
                hidden,
                ..CallTrace::default()
            });
        }
        Ok(())
    }

    /// The prompt is read: keeps a snapshot and makes the row ready for the conversation.
    fn finish_prompt(&mut self, index: usize, prompt: Prompt) -> Done {
        let cells = 0..prompt.positions().min(self.config.lm.context);
        let rings = self.temporal.save(&mut self.backend, index, cells)?;
        let bytes = rings.iter().map(B::ring_part_bytes).sum::<usize>();
        let row = &mut self.rows[index];
        row.staging = prompt.after.clone();
        let snapshot = Snapshot {
            rings,
            after: prompt.after,
        };
        self.snapshots.insert(prompt.key, snapshot, bytes);
        self.rows[index].phase = self.after_prompt();
        Ok(())
    }
}
