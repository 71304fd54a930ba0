//! Other sample rates to 24 kHz, for whole recordings.
//!
//! Lives here: [`resampled`], for the command line's input files.
//! May not live here: live audio (Opus is decoded at 24 kHz whatever it was), reading files.

use rubato::audioadapter_buffers::direct::SequentialSliceOfVecs;
use rubato::{
    Async, FixedAsync, Resampler, SincInterpolationParameters, SincInterpolationType,
    WindowFunction,
};

/// The lowest and highest rates that are taken, in samples a second: telephone to studio.
pub const RATE_HZ_MIN: u32 = 4_000;
/// See [`RATE_HZ_MIN`].
pub const RATE_HZ_MAX: u32 = 192_000;
/// Samples worked on at once; only memory depends on it.
const CHUNK_SAMPLES: usize = 1_024;

/// Why a recording cannot be resampled.
#[derive(Debug, thiserror::Error)]
pub enum ResampleError {
    /// A rate outside the limits.
    #[error("the sample rate is {rate_hz} Hz, {RATE_HZ_MIN} to {RATE_HZ_MAX} are taken")]
    Rate {
        /// The rate.
        rate_hz: u32,
    },
    /// The resampler refused; never seen, since all its settings are fixed.
    #[error("resampling failed: {what}")]
    Failed {
        /// What it said.
        what: String,
    },
}

/// `pcm` at `from_hz` as it is at `to_hz`, mono; same duration, nothing cut at either end.
///
/// # Errors
/// [`ResampleError`]: a rate is outside the limits.
pub fn resampled(pcm: &[f32], from_hz: u32, to_hz: u32) -> Result<Vec<f32>, ResampleError> {
    for rate_hz in [from_hz, to_hz] {
        if !(RATE_HZ_MIN..=RATE_HZ_MAX).contains(&rate_hz) {
            return Err(ResampleError::Rate { rate_hz });
        }
    }
    if from_hz == to_hz || pcm.is_empty() {
        return Ok(pcm.to_vec());
    }
    let failed = |what: String| ResampleError::Failed { what };
    let parameters = SincInterpolationParameters {
        sinc_len: 192,
        f_cutoff: None,
        interpolation: SincInterpolationType::Cubic,
        oversampling_factor: 256,
        window: WindowFunction::BlackmanHarris2,
    };
    let ratio = f64::from(to_hz) / f64::from(from_hz);
    let mut resampler =
        Async::<f32>::new_sinc(ratio, 1.0, &parameters, CHUNK_SAMPLES, 1, FixedAsync::Input)
            .map_err(|error| failed(error.to_string()))?;
    let channels = [pcm.to_vec()];
    let input = SequentialSliceOfVecs::new(&channels, 1, pcm.len())
        .map_err(|error| failed(error.to_string()))?;
    let output = resampler
        .process_all(&input, pcm.len(), None)
        .map_err(|error| failed(error.to_string()))?;
    Ok(output.take_data())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate_hz: u32, samples: usize) -> Vec<f32> {
        let step = 440.0 * std::f32::consts::TAU / rate_hz as f32;
        (0..samples)
            .map(|at| (at as f32 * step).sin() * 0.5)
            .collect()
    }

    #[test]
    fn a_tone_keeps_its_pitch_its_loudness_and_its_length() {
        for from_hz in [8_000, 16_000, 22_050, 44_100, 48_000] {
            let pcm = resampled(&tone(from_hz, from_hz as usize), from_hz, 24_000).unwrap();
            assert!(
                (23_999..=24_001).contains(&pcm.len()),
                "{from_hz}: {}",
                pcm.len()
            );
            // The delay is taken out to the nearest sample, which is up to half a sample or 0.029 of this tone off.
            let expected = tone(24_000, pcm.len() + 2);
            let worst = |shift: usize| {
                let pairs = pcm[501..pcm.len() - 500]
                    .iter()
                    .zip(&expected[500 + shift..]);
                pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
            };
            let least = worst(0).min(worst(1)).min(worst(2));
            assert!(least < 0.03, "{from_hz}: {least}");
        }
    }

    #[test]
    fn what_lies_above_the_new_band_does_not_fold_back() {
        let step = 15_000.0 * std::f32::consts::TAU / 48_000.0;
        let high: Vec<f32> = (0..48_000).map(|at| (at as f32 * step).sin()).collect();
        let pcm = resampled(&high, 48_000, 24_000).unwrap();
        let loudest = pcm[500..23_000]
            .iter()
            .fold(0.0, |most: f32, s| most.max(s.abs()));
        assert!(loudest < 1e-2, "{loudest}");
    }

    #[test]
    fn absurd_rates_are_refused() {
        for rate_hz in [0, 3_999, 192_001, u32::MAX] {
            assert!(matches!(
                resampled(&[0.0], rate_hz, 24_000),
                Err(ResampleError::Rate { .. })
            ));
        }
        assert!(resampled(&[], 8_000, 24_000).unwrap().is_empty());
    }
}
