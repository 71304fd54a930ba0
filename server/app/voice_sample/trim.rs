//! Where a recording begins and ends to sound.

use std::ops::Range;

use super::level::rms;

/// What is looked at as one piece: 20 ms.
const WINDOW_SAMPLES: usize = 480;
/// So much quieter than its loud parts is silence (35 dB).
const SILENCE_BELOW_LOUD: f32 = 0.0178;
/// Always silence (-65 dB of full scale).
const SILENCE_RMS: f32 = 0.000_56;
/// Kept before the first sound, where a breath or a soft consonant may be: 80 ms.
const KEPT_BEFORE_SAMPLES: usize = 1_920;
/// Kept after the last one, where a word dies away: 160 ms.
const KEPT_AFTER_SAMPLES: usize = 3_840;
/// Of the windows, the share that is louder than what counts as loud.
const LOUD_SHARE: f32 = 0.05;

/// The part of `pcm` (24 kHz) that is not silence at its ends; `None`: all of it is.
pub(super) fn sounding(pcm: &[f32]) -> Option<Range<usize>> {
    let windows: Vec<f32> = pcm.chunks(WINDOW_SAMPLES).map(rms).collect();
    let mut sorted = windows.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let loud = *sorted.get((sorted.len() as f32 * LOUD_SHARE) as usize)?;
    // A short word in a long silence: the loud share is silence too, so its loudest window counts.
    let loud = match loud > SILENCE_RMS {
        true => loud,
        false => sorted[0],
    };
    let silence = SILENCE_RMS.max(loud * SILENCE_BELOW_LOUD);
    let sounds = |window: &f32| *window > silence;
    let first = windows.iter().position(sounds)? * WINDOW_SAMPLES;
    let last = (windows.iter().rposition(sounds)? + 1) * WINDOW_SAMPLES;
    Some(first.saturating_sub(KEPT_BEFORE_SAMPLES)..(last + KEPT_AFTER_SAMPLES).min(pcm.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_goes_at_both_ends_and_stays_inside() {
        let hiss = |at: usize| (at as f32 * 12.989).sin() * 0.0005;
        let mut pcm: Vec<f32> = (0..10 * 24_000).map(hiss).collect();
        for second in [2, 5] {
            for sample in &mut pcm[second * 24_000..(second + 1) * 24_000] {
                *sample *= 400.0;
            }
        }
        let range = sounding(&pcm).expect("there is sound");
        assert_eq!(range, 2 * 24_000 - 1_920..6 * 24_000 + 3_840);
        assert_eq!(sounding(&pcm[..24_000]), None, "hiss alone");
        assert_eq!(sounding(&[]), None);
        assert_eq!(sounding(&pcm[50_000..60_000]), Some(0..10_000));
    }
}
