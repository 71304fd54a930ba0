//! The caller's line: room noise, and speech that starts at given frames.
//!
//! May not live here: how the line gets to the agent, what it answers.

use std::path::Path;

use hound::WavReader;
use slots::units::{FRAME_SAMPLES, SAMPLE_RATE_HZ};

use crate::behaviour::{Behaviour, Clip};

/// Loudness of the quiet line in `behaviour.json`.
pub const ROOM_RMS: f32 = 3e-4;
/// A frame of a clip is speech from this part of its loudest frame on. Source: the demo's recipe.
const SPEECH_PART: f32 = 0.1;

/// `frames` frames of the line.
pub fn user_line(frames: usize, clips: &[Clip], noise_rms: f32) -> Vec<Vec<f32>> {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let mut line: Vec<f32> = (0..frames * FRAME_SAMPLES)
        .map(|_| noise.sample() * noise_rms)
        .collect();
    for clip in clips {
        let speech = speech(&clip.file);
        let at = clip.at_frame * FRAME_SAMPLES;
        for (sample, spoken) in line[at..].iter_mut().zip(speech) {
            *sample += spoken;
        }
    }
    line.chunks_exact(FRAME_SAMPLES)
        .map(<[f32]>::to_vec)
        .collect()
}

/// The samples of one of the project's spoken files, by its name in `behaviour.json`.
fn speech(file: &Path) -> Vec<f32> {
    let name = file.file_name().expect("a file name");
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/demo")
        .join(name);
    let reader =
        WavReader::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(
        (reader.spec().sample_rate, reader.spec().channels),
        (SAMPLE_RATE_HZ, 1)
    );
    let samples = reader.into_samples::<i16>();
    samples
        .map(|sample| f32::from(sample.expect("a whole file")) / 32_768.0)
        .collect()
}

/// White noise with a variance of 1, the same in every run.
struct Noise(u64);

impl Noise {
    /// The sum of twelve even draws is as good as normal.
    fn sample(&mut self) -> f32 {
        (0..12).map(|_| self.even()).sum::<f32>() - 6.0
    }

    /// Xorshift, in 0..1.
    fn even(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }
}

/// Root mean square.
pub fn loudness(pcm: &[f32]) -> f32 {
    (pcm.iter().map(|sample| sample * sample).sum::<f32>() / pcm.len().max(1) as f32).sqrt()
}

#[test]
fn the_line_is_quiet_noise_and_speech_lies_in_the_frames_that_are_written_down() {
    for talk in Behaviour::of_the_demo().conversations {
        let line = talk.user_line(ROOM_RMS);
        assert_eq!(line.len(), talk.frames);
        assert!((loudness(&line[0]) / ROOM_RMS - 1.0).abs() < 0.1);
        let spoken: Vec<[usize; 2]> = talk
            .user
            .iter()
            .map(|clip| {
                let levels: Vec<f32> = speech(&clip.file)
                    .chunks(FRAME_SAMPLES)
                    .map(loudness)
                    .collect();
                let limit = levels.iter().copied().fold(0.0, f32::max) * SPEECH_PART;
                let first = levels
                    .iter()
                    .position(|&level| level > limit)
                    .expect("it is not silent");
                let last = levels
                    .iter()
                    .rposition(|&level| level > limit)
                    .expect("it is not silent");
                [clip.at_frame + first, clip.at_frame + last]
            })
            .collect();
        assert_eq!(spoken, talk.user_speaks_in_frames(), "{}", talk.title());
    }
}
