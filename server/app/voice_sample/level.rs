//! How loud a recording is, and how it becomes as loud as voices are, without clipping.
//!
//! May not live here: which loudness is refused.

use ebur128::{EbuR128, Mode};

/// What voices are brought to, in LUFS. Source: the published server's prompt from a WAV.
const VOICE_LUFS: f64 = -24.0;
/// No sample is louder.
const CEILING: f32 = 0.98;
/// Samples on each side of a peak in which the limiter goes down and comes back (5 ms).
const LIMITER_REACH: usize = 120;
/// From here on a sample counts as one at full scale.
const FULL_SCALE: f32 = 0.995;
/// A peak this many samples wide was cut off; narrower ones happen.
const CLIPPED_RUN: usize = 3;

/// Root of the mean of squares; 0 for nothing.
pub(super) fn rms(pcm: &[f32]) -> f32 {
    let squares: f64 = pcm.iter().map(|&sample| f64::from(sample).powi(2)).sum();
    (squares / pcm.len().max(1) as f64).sqrt() as f32
}

/// Share of samples that stand in peaks which were cut off, of the channel where it is largest.
pub(super) fn clipped_share(channels: &[Vec<f32>]) -> f64 {
    let share = |channel: &Vec<f32>| {
        let runs = channel.chunk_by(|a, b| is_full(*a) && is_full(*b) && (*a > 0.0) == (*b > 0.0));
        let cut = runs.filter(|run| run.len() >= CLIPPED_RUN);
        cut.map(<[f32]>::len).sum::<usize>() as f64 / channel.len().max(1) as f64
    };
    channels.iter().map(share).fold(0.0, f64::max)
}

fn is_full(sample: f32) -> bool {
    sample.abs() >= FULL_SCALE
}

/// Integrated loudness in LUFS (ITU-R BS.1770, gated, so pauses do not count); `None`: nothing above the gate.
pub(super) fn loudness(pcm: &[f32], rate_hz: u32) -> Option<f64> {
    let mut meter = EbuR128::new(1, rate_hz, Mode::I).ok()?;
    meter.add_frames_f32(pcm).ok()?;
    meter.loudness_global().ok().filter(|lufs| lufs.is_finite())
}

/// Brings `pcm` from `loudness` to that of voices. What was done, for people.
pub(super) fn bring_to_voice_level(pcm: &mut [f32], loudness: f64) -> Vec<String> {
    let gain_db = VOICE_LUFS - loudness;
    let gain = 10f64.powf(gain_db / 20.0) as f32;
    pcm.iter_mut().for_each(|sample| *sample *= gain);
    let mut notes = Vec::new();
    match gain_db {
        0.1.. => notes.push(format!("raised by {gain_db:.1} dB")),
        ..-0.1 => notes.push(format!("lowered by {:.1} dB", -gain_db)),
        _ => {}
    }
    let least = limit(pcm);
    if least < 1.0 {
        let down_db = -20.0 * least.log10();
        notes.push(format!("peaks lowered by up to {down_db:.1} dB"));
    }
    notes
}

/// Turns peaks above the ceiling down, smoothly. The least factor that was needed; 1 if none.
///
/// Each sample's factor is the mean of what the samples around it need, each of which is the least around itself: so it
/// is never above what the sample itself needs.
fn limit(pcm: &mut [f32]) -> f32 {
    let needed: Vec<f32> = pcm
        .iter()
        .map(|sample| (CEILING / sample.abs().max(CEILING)).min(1.0))
        .collect();
    let least = needed.iter().copied().fold(1.0, f32::min);
    if least >= 1.0 {
        return 1.0;
    }
    let around =
        |at: usize, len: usize| at.saturating_sub(LIMITER_REACH)..(at + LIMITER_REACH + 1).min(len);
    let mut lowest = vec![1.0; pcm.len()];
    // Only around the few samples that need it.
    for (at, &factor) in needed
        .iter()
        .enumerate()
        .filter(|(_, factor)| **factor < 1.0)
    {
        for low in &mut lowest[around(at, pcm.len())] {
            *low = factor.min(*low);
        }
    }
    let mut sums = Vec::with_capacity(pcm.len() + 1);
    sums.push(0.0f64);
    for &low in &lowest {
        sums.push(sums[sums.len() - 1] + f64::from(low));
    }
    for (at, sample) in pcm.iter_mut().enumerate() {
        let range = around(at, lowest.len());
        let mean = (sums[range.end] - sums[range.start]) / range.len() as f64;
        *sample = (f64::from(*sample) * mean) as f32;
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sine_is_brought_to_the_loudness_of_voices() {
        // Source of the figure: a sine of 997 Hz at full scale in one channel has -3.01 LUFS.
        let sine = |level: f32| -> Vec<f32> {
            let step = std::f32::consts::TAU * 997.0 / 24_000.0;
            (0..72_000)
                .map(|at| (at as f32 * step).sin() * level)
                .collect()
        };
        let full = loudness(&sine(1.0), 24_000).unwrap();
        assert!((full + 3.01).abs() < 0.1, "{full}");
        for level in [0.003, 0.1, 0.9] {
            let mut pcm = sine(level);
            let before = loudness(&pcm, 24_000).unwrap();
            bring_to_voice_level(&mut pcm, before);
            let after = loudness(&pcm, 24_000).unwrap();
            assert!((after - VOICE_LUFS).abs() < 0.1, "{level}: {after}");
        }
    }

    #[test]
    fn peaks_are_turned_down_and_the_rest_stays() {
        let mut pcm = vec![0.1; 10_000];
        pcm[5_000] = 3.0;
        pcm[5_001] = -2.0;
        let least = limit(&mut pcm);
        assert!((least - CEILING / 3.0).abs() < 1e-6);
        assert!(pcm.iter().all(|sample| sample.abs() <= CEILING + 1e-6));
        assert_eq!((pcm[4_700], pcm[5_300]), (0.1, 0.1));
        let steps = pcm[4_700..4_990].windows(2);
        assert!(steps.map(|w| (w[1] - w[0]).abs()).fold(0.0, f32::max) < 1e-3);
    }

    #[test]
    fn flat_peaks_are_clipped_and_pointed_ones_are_not() {
        let loud = |flat: bool| -> Vec<f32> {
            let step = std::f32::consts::TAU * 200.0 / 24_000.0;
            let wave = (0..24_000).map(|at| (at as f32 * step).sin());
            wave.map(|s| {
                if flat {
                    (s * 2.0).clamp(-1.0, 1.0)
                } else {
                    s * 0.99
                }
            })
            .collect()
        };
        assert!(clipped_share(&[loud(false), loud(true)]) > 0.5);
        assert_eq!(clipped_share(&[loud(false)]), 0.0);
    }
}
