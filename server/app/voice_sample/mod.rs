//! A recording somebody brought, on its way to a voice: decoded, mixed, resampled, trimmed, brought to one loudness.
//!
//! Lives here: [`prepared`], the order of these steps, what is refused and why.
//! May not live here: requests, the engine, where voices are kept.
//!
//! Everything here takes whole recordings and some seconds of a processor; call it where blocking is allowed.

mod decode;
mod level;
mod trim;

pub use decode::DecodeError;

use slots::units::FRAME_SAMPLES;
use wire::api::voices::{RECORDING_SECONDS_MAX, RECORDING_SECONDS_MIN};

use crate::resample::{ResampleError, resampled};

/// What the model hears and says.
const RATE_HZ: u32 = 24_000;
/// Seconds of silence at the ends that may be trimmed of the longest recording; what is longer than both together is
/// not decoded to its end.
const SILENCE_SECONDS_MAX: u32 = 30;
/// Quieter than this, in LUFS, its noise would be all that is heard once it is loud enough.
const LOUDNESS_MIN: f64 = -54.0;
/// Of all samples, the share that may stand in clipped peaks.
const CLIPPED_MAX: f64 = 0.002;
/// A stereo recording whose mix is quieter than one of its channels by this factor has them in opposite phase.
const CANCELLED: f32 = 0.25;

/// A recording as the engine takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// 24 kHz mono, within -1..=1.
    pub pcm: Vec<f32>,
    /// What was done to it, for people.
    pub notes: Vec<String>,
}

/// Why a recording gives no voice, for whoever brought it.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// It cannot be read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A rate outside the limits.
    #[error(transparent)]
    Resample(#[from] ResampleError),
    /// Nothing to hear.
    #[error("the recording is silent")]
    Silent,
    /// Little is left.
    #[error(
        "without the silence at its ends the recording has {seconds:.1} s, at least {RECORDING_SECONDS_MIN} s are needed"
    )]
    TooShort {
        /// What is left.
        seconds: f32,
    },
    /// Too much is left.
    #[error(
        "without the silence at its ends the recording has {seconds:.1} s, at most {RECORDING_SECONDS_MAX} s are taken"
    )]
    TooLong {
        /// What is left.
        seconds: f32,
    },
    /// Whispered from afar.
    #[error(
        "the recording is too quiet ({loudness:.0} LUFS, at least {LOUDNESS_MIN} are needed): record it closer to the microphone"
    )]
    TooQuiet {
        /// Of the trimmed recording.
        loudness: f64,
    },
    /// Overdriven.
    #[error(
        "{percent:.1} % of the recording is clipped, which would be heard in the voice: record it again with less gain"
    )]
    Clipped {
        /// Share of samples in clipped peaks.
        percent: f64,
    },
}

/// The sound in `file`, whatever format it is, of at most `frames_max` frames.
///
/// # Errors
/// [`SampleError`]: one line for whoever brought it.
pub fn prepared(file: Vec<u8>, frames_max: usize) -> Result<Prepared, SampleError> {
    let seconds_max = RECORDING_SECONDS_MAX + SILENCE_SECONDS_MAX;
    let decode::Decoded { channels, rate_hz } = decode::decode(file, seconds_max)?;
    let mut notes = Vec::new();
    let clipped = level::clipped_share(&channels);
    if clipped > CLIPPED_MAX {
        let percent = clipped * 100.0;
        return Err(SampleError::Clipped { percent });
    }
    if channels.len() > 1 {
        notes.push("mixed to mono".to_owned());
    }
    let mono = mixed(channels);
    if rate_hz != RATE_HZ {
        notes.push(format!("resampled from {rate_hz} Hz"));
    }
    let pcm = resampled(&mono, rate_hz, RATE_HZ)?;
    let range = trim::sounding(&pcm).ok_or(SampleError::Silent)?;
    for (samples, place) in [(range.start, "beginning"), (pcm.len() - range.end, "end")] {
        let seconds = seconds(samples);
        if seconds >= 0.1 {
            notes.push(format!("{seconds:.1} s of silence trimmed at the {place}"));
        }
    }
    let mut pcm = pcm[range].to_vec();
    let length = seconds(pcm.len());
    if length < RECORDING_SECONDS_MIN as f32 {
        return Err(SampleError::TooShort { seconds: length });
    }
    if length > RECORDING_SECONDS_MAX as f32 {
        return Err(SampleError::TooLong { seconds: length });
    }
    if pcm.len() > frames_max * FRAME_SAMPLES {
        pcm.truncate(frames_max * FRAME_SAMPLES);
        let taken = seconds(pcm.len());
        notes.push(format!(
            "cut after {taken:.1} s, which is as much as this model takes"
        ));
    }
    match level::loudness(&pcm, RATE_HZ) {
        None => return Err(SampleError::Silent),
        Some(loudness) if loudness < LOUDNESS_MIN => {
            return Err(SampleError::TooQuiet { loudness });
        }
        Some(loudness) => notes.extend(level::bring_to_voice_level(&mut pcm, loudness)),
    }
    Ok(Prepared { pcm, notes })
}

fn seconds(samples: usize) -> f32 {
    samples as f32 / RATE_HZ as f32
}

/// The mean of all channels, or the louder channel where the mean cancels out.
fn mixed(mut channels: Vec<Vec<f32>>) -> Vec<f32> {
    if channels.len() == 1 {
        return channels.remove(0);
    }
    let n = channels.len() as f32;
    let length = channels.iter().map(Vec::len).min().unwrap_or(0);
    let mean: Vec<f32> = (0..length)
        .map(|at| channels.iter().map(|channel| channel[at]).sum::<f32>() / n)
        .collect();
    let loudest = channels
        .into_iter()
        .max_by(|a, b| level::rms(a).total_cmp(&level::rms(b)));
    match loudest {
        Some(loudest) if level::rms(&mean) < level::rms(&loudest) * CANCELLED => loudest,
        _ => mean,
    }
}

#[cfg(test)]
mod tests;
