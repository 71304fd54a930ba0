//! How one row chooses its tokens: temperature, top-k, repetition penalty, and a random stream of its own.
//!
//! Lives here: [`RowSampler`] (what one row remembers), the draw among the most probable tokens, greedy choice.
//! May not live here: other rows, clocks, any randomness but the row's seed.
//!
//! A draw is a function of seed, position, stream and logits alone, so a row's choices depend neither on its
//! neighbours nor on the order in which the device works. `philox.rs` and `ln.rs` hold the two functions whose bits a
//! device must reproduce.

mod ln;
mod philox;
mod top_k;

use slots::call::{REPETITION_CONTEXT_MAX, Sampling};
use slots::engine::RowFault;

pub use ln::ln;
pub use philox::{philox, uniform};
use top_k::TopK;

/// Working memory of a draw; one serves all rows.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    top_k: TopK,
    penalized: Vec<f32>,
}

/// What one row's sampler remembers. Fixed size.
#[derive(Clone, Debug, PartialEq)]
pub struct RowSampler {
    sampling: Sampling,
    recent: [u32; REPETITION_CONTEXT_MAX as usize],
    recent_len: usize,
    recent_next: usize,
}

/// Names one draw of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Draw {
    seed: u64,
    position: u64,
    stream: u32,
}

impl RowSampler {
    /// The sampler of a call that begins.
    pub fn new(sampling: Sampling) -> Self {
        Self {
            sampling,
            recent: [0; REPETITION_CONTEXT_MAX as usize],
            recent_len: 0,
            recent_next: 0,
        }
    }

    /// How the call wants its tokens chosen.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Text tokens that were said within the penalty's context, in no order.
    pub fn recent(&self) -> &[u32] {
        &self.recent[..self.recent_len]
    }

    /// Chooses the text token of `position` from `logits`, one a text id.
    ///
    /// # Errors
    /// [`RowFault::NotFinite`]: a logit is NaN or infinite, or all are -inf.
    pub fn text(
        &self,
        position: u64,
        logits: &[f32],
        scratch: &mut Scratch,
    ) -> Result<u32, RowFault> {
        let draw = self.draw(position, 0);
        let (temperature, top_k) = (self.sampling.text_temperature, self.sampling.text_top_k);
        if self.sampling.repetition_penalty == 1.0 || self.recent_len == 0 {
            return choose(draw, logits, temperature, top_k, &mut scratch.top_k);
        }
        scratch.penalized.clear();
        scratch.penalized.extend_from_slice(logits);
        for &id in &self.recent[..self.recent_len] {
            let (Some(penalized), Some(&logit)) = (
                scratch.penalized.get_mut(id as usize),
                logits.get(id as usize),
            ) else {
                continue;
            };
            // From the logit itself, so that a token said twice is not punished twice.
            *penalized = if logit > 0.0 {
                logit / self.sampling.repetition_penalty
            } else {
                logit * self.sampling.repetition_penalty
            };
        }
        choose(
            draw,
            &scratch.penalized,
            temperature,
            top_k,
            &mut scratch.top_k,
        )
    }

    /// Chooses the code of depformer step `step` at `position` from `logits`, one a code.
    ///
    /// # Errors
    /// [`RowFault::NotFinite`]: as [`RowSampler::text`].
    pub fn audio(
        &self,
        position: u64,
        step: usize,
        logits: &[f32],
        scratch: &mut Scratch,
    ) -> Result<u32, RowFault> {
        choose(
            self.draw(position, 1 + step as u32),
            logits,
            self.sampling.audio_temperature,
            self.sampling.audio_top_k,
            &mut scratch.top_k,
        )
    }

    /// Remembers a text token that was said, for the repetition penalty. Silent ids are not said.
    pub fn said(&mut self, id: u32) {
        let context = self.sampling.repetition_penalty_context as usize;
        let context = context.min(self.recent.len());
        if context == 0 {
            return;
        }
        self.recent[self.recent_next] = id;
        self.recent_next = (self.recent_next + 1) % context;
        self.recent_len = (self.recent_len + 1).min(context);
    }

    fn draw(&self, position: u64, stream: u32) -> Draw {
        Draw {
            seed: self.sampling.seed,
            position,
            stream,
        }
    }
}

/// One token out of `logits`. The draw is a race: the candidate with the largest logit / temperature plus noise wins,
/// which happens with the candidate's softmax probability among the `top_k` largest.
fn choose(
    draw: Draw,
    logits: &[f32],
    temperature: f32,
    top_k: u32,
    scratch: &mut TopK,
) -> Result<u32, RowFault> {
    let max = finite_max(logits)?;
    if temperature == 0.0 || top_k == 1 {
        return Ok(first_index_of(max, logits));
    }
    // The smallest temperatures have an infinite inverse, and zero times that is no number.
    let per_temperature = (1.0 / temperature).min(f32::MAX);
    let mut best = (f32::NEG_INFINITY, u32::MAX);
    for candidates in scratch.select(logits, top_k as usize).chunks(BATCH) {
        let mut scores = [0.0; BATCH];
        draw.gumbel(candidates, &mut scores);
        for (&index, noise) in candidates.iter().zip(scores) {
            let score = (logits[index as usize] - max) * per_temperature + noise;
            if score > best.0 || (score == best.0 && index < best.1) {
                best = (score, index);
            }
        }
    }
    Ok(best.1)
}

/// Candidates whose noise is computed side by side, in vector registers where there are some.
const BATCH: usize = 64;

impl Draw {
    /// The noise of every candidate, a function of its index: `-ln(-ln u)` for `u` uniform between 0 and 1.
    fn gumbel(&self, candidates: &[u32], noise: &mut [f32; BATCH]) {
        let mut indices = [0; BATCH];
        indices[..candidates.len()].copy_from_slice(candidates);
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        let position = [self.position as u32, (self.position >> 32) as u32];
        for (noise, index) in noise.iter_mut().zip(indices) {
            let [a, b, c, d] = philox([position[0], position[1], self.stream, index / 4], key);
            // Choices in place of an array access, which would keep this out of the vector registers.
            let even = if index & 2 == 0 { a } else { c };
            let odd = if index & 2 == 0 { b } else { d };
            *noise = uniform(if index & 1 == 0 { even } else { odd });
        }
        for noise in noise {
            *noise = -ln(-ln(*noise));
        }
    }
}

/// Logits looked at side by side.
const LANES: usize = 16;

/// The largest logit, if every one is a number below infinity and one is above -infinity.
fn finite_max(logits: &[f32]) -> Result<f32, RowFault> {
    let mut maxima = [f32::NEG_INFINITY; LANES];
    let mut wrong = [false; LANES];
    let (chunks, rest) = logits.as_chunks::<LANES>();
    let mut last = [f32::NEG_INFINITY; LANES];
    last[..rest.len()].copy_from_slice(rest);
    for chunk in chunks.iter().chain([&last]) {
        for lane in 0..LANES {
            let logit = chunk[lane];
            wrong[lane] |= logit.is_nan() | (logit == f32::INFINITY);
            maxima[lane] = if logit > maxima[lane] {
                logit
            } else {
                maxima[lane]
            };
        }
    }
    let max = maxima.into_iter().fold(f32::NEG_INFINITY, f32::max);
    if wrong.contains(&true) || max == f32::NEG_INFINITY {
        return Err(RowFault::NotFinite);
    }
    Ok(max)
}

fn first_index_of(max: f32, logits: &[f32]) -> u32 {
    let index = logits.iter().position(|&logit| logit == max);
    index.unwrap_or_default() as u32
}

/// The lowest index of the largest logit: what temperature 0 chooses.
///
/// # Errors
/// [`RowFault::NotFinite`]: a logit is NaN or infinite, or all are -inf.
pub fn greedy(logits: &[f32]) -> Result<u32, RowFault> {
    finite_max(logits).map(|max| first_index_of(max, logits))
}

/// The distribution that temperature and top-k leave, one probability a logit; for comparison with recorded ones.
///
/// # Errors
/// [`RowFault::NotFinite`]: a logit is NaN or infinite, or all are -inf.
pub fn probabilities(logits: &[f32], temperature: f32, top_k: u32) -> Result<Vec<f32>, RowFault> {
    let max = finite_max(logits)?;
    let mut weights = vec![0.0_f64; logits.len()];
    if temperature == 0.0 || top_k == 1 {
        weights[first_index_of(max, logits) as usize] = 1.0;
    } else {
        for &index in TopK::default().select(logits, top_k as usize) {
            let above = f64::from(logits[index as usize]) - f64::from(max);
            weights[index as usize] = (above / f64::from(temperature)).exp();
        }
    }
    let sum: f64 = weights.iter().sum();
    Ok(weights.iter().map(|weight| (weight / sum) as f32).collect())
}

#[cfg(test)]
mod tests;
