//! Another sample rate, while it flows: a windowed sinc, evaluated where each output sample lies.

/// Half the length of the filter, in samples of the lower rate.
const HALF_TAPS: f64 = 16.0;

/// Turns one rate into another. What goes in in pieces comes out as if it had been one.
#[derive(Clone, Debug)]
pub struct Resampler {
    /// Input samples for one output sample.
    step: f64,
    /// Part of the input's band that is kept.
    cutoff: f64,
    /// Half the filter's length in input samples.
    half: f64,
    held: Vec<f32>,
    /// Where the next output sample lies in `held`.
    at: f64,
}

impl Resampler {
    pub fn new(from_hz: f64, to_hz: f64) -> Self {
        let step = from_hz / to_hz;
        let cutoff = step.max(1.0).recip() * 0.94;
        let half = HALF_TAPS * step.max(1.0);
        Self {
            step,
            cutoff,
            half,
            // As if silence came before.
            held: vec![0.0; half.ceil() as usize],
            at: half.ceil(),
        }
    }

    /// What `input` completes, added to `out`.
    pub fn push(&mut self, input: &[f32], out: &mut Vec<f32>) {
        if self.step == 1.0 {
            out.extend_from_slice(input);
            return;
        }
        self.held.extend_from_slice(input);
        while self.at + self.half < self.held.len() as f64 {
            out.push(self.sample());
            self.at += self.step;
        }
        let done = (self.at - self.half).floor().max(0.0) as usize;
        self.held.drain(..done);
        self.at -= done as f64;
    }

    fn sample(&self) -> f32 {
        let first = (self.at - self.half).ceil().max(0.0) as usize;
        let last = ((self.at + self.half).floor() as usize).min(self.held.len() - 1);
        let mut sum = 0.0;
        let mut weights = 0.0;
        for (index, &value) in self.held[first..=last].iter().enumerate() {
            let x = (first + index) as f64 - self.at;
            let window = 0.5 + 0.5 * (std::f64::consts::PI * x / self.half).cos();
            let t = std::f64::consts::PI * x * self.cutoff;
            let weight = window * if t == 0.0 { 1.0 } else { t.sin() / t };
            sum += weight * f64::from(value);
            weights += weight;
        }
        (sum / weights) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sine(hz: f64, rate: f64, n: usize) -> Vec<f32> {
        (0..n)
            .map(|i| (2.0 * std::f64::consts::PI * hz * i as f64 / rate).sin() as f32)
            .collect()
    }

    fn power(pcm: &[f32]) -> f32 {
        pcm.iter().map(|x| x * x).sum::<f32>() / pcm.len() as f32
    }

    #[test]
    fn a_tone_stays_and_what_lies_above_the_lower_rate_goes() {
        for (from, to) in [
            (48_000.0, 24_000.0),
            (44_100.0, 24_000.0),
            (24_000.0, 48_000.0),
            (24_000.0, 44_100.0),
        ] {
            let mut out = Vec::new();
            Resampler::new(from, to).push(&sine(1_000.0, from, 48_000), &mut out);
            let expected = (48_000.0 * to / from) as usize;
            assert!(
                out.len().abs_diff(expected) < 100,
                "{} {expected}",
                out.len()
            );
            let middle = &out[1_000..out.len() - 1_000];
            assert!(
                (power(middle) - 0.5).abs() < 0.01,
                "{from} {to}: {}",
                power(middle)
            );
        }
        let mut out = Vec::new();
        Resampler::new(48_000.0, 24_000.0).push(&sine(16_000.0, 48_000.0, 48_000), &mut out);
        assert!(power(&out[1_000..]) < 1e-4, "{}", power(&out[1_000..]));
    }

    #[test]
    fn pieces_give_what_the_whole_gives() {
        let input = sine(440.0, 44_100.0, 10_000);
        let mut whole = Vec::new();
        Resampler::new(44_100.0, 24_000.0).push(&input, &mut whole);
        let mut pieces = Vec::new();
        let mut resampler = Resampler::new(44_100.0, 24_000.0);
        for piece in input.chunks(441) {
            resampler.push(piece, &mut pieces);
        }
        assert_eq!(whole.len(), pieces.len());
        assert!(whole.iter().zip(&pieces).all(|(a, b)| (a - b).abs() < 1e-6));
    }
}
