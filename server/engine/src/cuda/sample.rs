//! What the lanes of a batch want of a token, as the kernel reads it.

use slots::call::REPETITION_CONTEXT_MAX;
use slots::engine::EngineError;

use crate::backend::Draw;

use super::args::{DrawArgs, SampleArgs};
use super::buffers::Buf;
use super::machine::Machine;
use super::tape::Tape;

/// Tokens that a lane may have said, from one lane to the next. Source: `sample.cu`.
const RECENT_MAX: usize = 512;
const _: () = assert!(REPETITION_CONTEXT_MAX as usize <= RECENT_MAX);

/// Memory that is kept between draws.
#[derive(Default)]
pub(super) struct Scratch {
    draws: Vec<DrawArgs>,
    recent: Vec<i32>,
    counts: Vec<i32>,
}

/// Puts `draws` into the machine. Where tokens go is left to the caller.
pub(super) fn place<M: Machine>(
    machine: &mut Tape<M>,
    scratch: &mut Scratch,
    draws: &[Draw<'_>],
    logits: &Buf<Tape<M>>,
) -> Result<SampleArgs, EngineError> {
    if draws.is_empty() || !logits.len().is_multiple_of(draws.len()) {
        return Err(EngineError {
            what: format!("{} lanes cannot share {} logits", draws.len(), logits.len()),
        });
    }
    scratch.draws.clear();
    scratch.draws.extend(draws.iter().map(|draw| DrawArgs {
        seed: draw.seed,
        position: draw.position as i64,
        stream: draw.stream,
        top_k: draw.top_k,
        temperature: draw.temperature,
        // What was never said is not held back.
        penalty: if draw.recent.is_empty() {
            1.0
        } else {
            draw.penalty
        },
        active: draw.active.into(),
        forced: draw.forced.unwrap_or(-1),
    }));
    scratch.counts.clear();
    scratch.recent.clear();
    // Only text is held back; its room is there for every lane, so that a tick always looks the same.
    let is_text = draws.iter().any(|draw| draw.stream == 0);
    if is_text {
        for draw in draws {
            let begin = scratch.recent.len();
            let recent = draw.recent.iter().take(RECENT_MAX);
            scratch.counts.push(recent.len() as i32);
            scratch.recent.extend(recent.map(|&token| token as i32));
            scratch.recent.resize(begin + RECENT_MAX, 0);
        }
    } else {
        scratch.counts.resize(draws.len(), 0);
        scratch.recent.push(0);
    }
    Ok(SampleArgs {
        logits: logits.address(),
        draws: machine.control(bytemuck::cast_slice(&scratch.draws))?,
        recent: machine.control(bytemuck::cast_slice(&scratch.recent))?,
        recent_count: machine.control(bytemuck::cast_slice(&scratch.counts))?,
        chosen: 0,
        fed: 0,
        faults: 0,
        board: 0,
        count: (logits.len() / draws.len()) as i32,
        lanes: draws.len() as i32,
    })
}
