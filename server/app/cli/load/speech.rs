//! What the callers say: a loop of Opus packets, coded once and shared by all of them.
//!
//! Lives here: the built-in signal, coding. May not live here: pacing.

use std::path::Path;

use anyhow::ensure;
use slots::units::{FRAME_SAMPLES, SAMPLE_RATE_HZ};

use crate::cli::sound_file;
use audio::ogg_read::OggReader;
use audio::ogg_write::OggWriter;
use audio::opus_codec::{OpusError, SAMPLES_48K};
use audio::opus_write::OpusWriter;

/// Silence after each round, so that an agent can answer: 4 s.
const PAUSE_FRAMES: usize = 50;
/// Longest input: 10 minutes, about 5 MB of packets.
const INPUT_FRAMES_MAX: usize = 7_500;

/// One round of packets: two headers, then one packet a frame.
#[derive(Debug)]
pub struct Speech {
    headers: [Vec<u8>; 2],
    packets: Vec<Vec<u8>>,
}

impl Speech {
    /// The sound of `file`, then a pause.
    ///
    /// # Errors
    /// One line: not a WAV file, empty, or too long.
    pub fn from_wav(file: &Path) -> anyhow::Result<Self> {
        let pcm = sound_file::read(file)?;
        let frames = pcm.len().div_ceil(FRAME_SAMPLES);
        ensure!(
            (1..=INPUT_FRAMES_MAX).contains(&frames),
            "{} has {frames} frames of 80 ms, it must have 1 to {INPUT_FRAMES_MAX}",
            file.display()
        );
        Ok(Self::coded(pcm)?)
    }

    /// A signal with the rhythm and formants of speech, 2.4 s, then a pause. The same in every run.
    ///
    /// # Errors
    /// [`OpusError`]: the coder failed.
    pub fn built_in() -> Result<Self, OpusError> {
        Self::coded(voice_like(30 * FRAME_SAMPLES))
    }

    fn coded(mut pcm: Vec<f32>) -> Result<Self, OpusError> {
        let frames = pcm.len().div_ceil(FRAME_SAMPLES) + PAUSE_FRAMES;
        pcm.resize(frames * FRAME_SAMPLES, 0.0);
        let (mut writer, pages) = OpusWriter::begin()?;
        let mut reader = OggReader::new();
        let mut packets = Vec::new();
        let mut collect = |page: &[u8]| {
            reader.push(page);
            while let Some(packet) = reader.next_packet() {
                packets.push(packet.data.to_vec());
            }
        };
        pages.iter().for_each(|page| collect(page));
        for frame in pcm.chunks_exact(FRAME_SAMPLES) {
            collect(&writer.page(frame)?);
        }
        let spoken = packets.split_off(2);
        let [head, tags] = [packets.remove(0), packets.remove(0)];
        Ok(Self {
            headers: [head, tags],
            packets: spoken,
        })
    }

    /// A stream of pages that says all this over and over.
    pub fn stream(&self) -> SpeechStream<'_> {
        SpeechStream {
            speech: self,
            writer: OggWriter::new(1),
            frame: 0,
        }
    }
}

/// One caller's own Ogg stream over the shared packets.
pub struct SpeechStream<'a> {
    speech: &'a Speech,
    writer: OggWriter,
    frame: u64,
}

impl SpeechStream<'_> {
    /// The pages a stream begins with.
    pub fn headers(&mut self) -> [Vec<u8>; 2] {
        let [head, tags] = &self.speech.headers;
        [self.writer.page(head, 0), self.writer.page(tags, 0)]
    }

    /// The page of the next frame.
    pub fn next_page(&mut self) -> Vec<u8> {
        let packets = &self.speech.packets;
        let packet = &packets[(self.frame % packets.len() as u64) as usize];
        self.frame += 1;
        self.writer
            .page(packet, self.frame * FRAME_SAMPLES as u64 * SAMPLES_48K)
    }
}

/// Pulses at a wandering pitch through two resonances that move from vowel to vowel, in syllables.
fn voice_like(samples: usize) -> Vec<f32> {
    use std::f32::consts::TAU;
    /// First and second resonance of a, e, o, i, in Hz.
    const VOWELS: [(f32, f32); 4] = [
        (730.0, 1_090.0),
        (530.0, 1_840.0),
        (570.0, 840.0),
        (270.0, 2_290.0),
    ];
    const SYLLABLE_SAMPLES: usize = 4_800; // 200 ms
    let rate = SAMPLE_RATE_HZ as f32;
    let mut pulse_phase = 0.0_f32;
    let mut states = [[0.0_f32; 2]; 2];
    let sound = (0..samples).map(|index| {
        let time = index as f32 / rate;
        let pitch_hz = 120.0 + 15.0 * (TAU * 0.6 * time).sin();
        pulse_phase += pitch_hz / rate;
        let pulse = if pulse_phase >= 1.0 { 1.0 } else { 0.0 };
        pulse_phase -= pulse;
        let (first, second) = VOWELS[index / SYLLABLE_SAMPLES % VOWELS.len()];
        let voiced: f32 = [first, second]
            .into_iter()
            .zip(&mut states)
            .map(|(resonance_hz, state)| {
                // A two-pole resonator of 80 Hz width.
                let radius = (-std::f32::consts::PI * 80.0 / rate).exp();
                let out = pulse + 2.0 * radius * (TAU * resonance_hz / rate).cos() * state[0]
                    - radius * radius * state[1];
                *state = [out, state[0]];
                out
            })
            .sum();
        let in_syllable = (index % SYLLABLE_SAMPLES) as f32 / SYLLABLE_SAMPLES as f32;
        voiced * 0.05 * (std::f32::consts::PI * in_syllable).sin().powf(0.7)
    });
    sound.map(|sample| sample.clamp(-0.9, 0.9)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::load::measure::packet_samples;
    use audio::opus_read::OpusReader;

    #[test]
    fn the_built_in_signal_is_heard_as_speech_with_pauses() {
        let speech = Speech::built_in().unwrap();
        assert_eq!(speech.packets.len(), 30 + PAUSE_FRAMES);
        assert!(
            speech
                .packets
                .iter()
                .all(|packet| packet_samples(packet) == FRAME_SAMPLES as u64)
        );
        let mut stream = speech.stream();
        let mut bytes = stream.headers().concat();
        let rounds = 2;
        let frames = rounds * speech.packets.len();
        (0..frames).for_each(|_| bytes.extend(stream.next_page()));
        let mut reader = OpusReader::begin().unwrap();
        let mut levels = Vec::new();
        for piece in bytes.chunks(1_000) {
            reader.push(piece);
            while let Some(frame) = reader.next_frame().unwrap() {
                let power: f32 = frame.iter().map(|sample| sample * sample).sum();
                levels.push((power / FRAME_SAMPLES as f32).sqrt());
            }
        }
        assert!(levels.len() >= frames - 1, "{} of {frames}", levels.len());
        for round in levels.chunks(speech.packets.len()) {
            assert!(
                round[2..28].iter().all(|level| (0.01..0.5).contains(level)),
                "{round:?}"
            );
            assert!(
                round[35..75].iter().all(|level| *level < 0.002),
                "{round:?}"
            );
        }
    }

    #[test]
    fn any_wav_becomes_24_khz_mono() {
        let dir = tempfile::tempdir().unwrap();
        let cases = [
            (16_000, 1, 16),
            (44_100, 2, 24),
            (48_000, 2, 32),
            (8_000, 1, 8),
        ];
        for (sample_rate, channels, bits_per_sample) in cases {
            let file = dir.path().join(format!("{sample_rate}.wav"));
            let sample_format = hound::SampleFormat::Int;
            let spec = hound::WavSpec {
                channels,
                sample_rate,
                bits_per_sample,
                sample_format,
            };
            let mut writer = hound::WavWriter::create(&file, spec).unwrap();
            for sample in 0..sample_rate * u32::from(channels) {
                writer.write_sample((sample % 100) as i32).unwrap();
            }
            writer.finalize().unwrap();
            let speech = Speech::from_wav(&file).unwrap();
            // One second is 12.5 frames.
            assert_eq!(speech.packets.len(), 13 + PAUSE_FRAMES, "{sample_rate}");
        }
    }

    #[test]
    fn what_is_no_sound_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.wav");
        std::fs::write(&file, "ID3 this is not RIFF").unwrap();
        let line = Speech::from_wav(&file).unwrap_err().to_string();
        assert!(line.contains("x.wav") && !line.contains('\n'), "{line}");
        let spec = hound::WavSpec {
            channels: 1,
            sample_rate: 24_000,
            bits_per_sample: 16,
            sample_format: hound::SampleFormat::Int,
        };
        hound::WavWriter::create(&file, spec)
            .unwrap()
            .finalize()
            .unwrap();
        let line = Speech::from_wav(&file).unwrap_err().to_string();
        assert!(line.contains("has 0 frames"), "{line}");
    }
}
