//! WAV files in and out for the commands.
//!
//! Lives here: any PCM or float WAV to mono 24 kHz, and back to 16 bit. May not live here: Ogg, Opus, live audio.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, ensure};
use hound::{SampleFormat, WavReader, WavSpec, WavWriter};
use slots::units::SAMPLE_RATE_HZ;

use crate::resample::resampled;

/// Longest input: an hour. A call offline holds it in memory.
const INPUT_S_MAX: u64 = 3_600;

/// The sound of `path`, mixed to mono, at 24 kHz, in -1..=1.
///
/// # Errors
/// One line: the file, and what is wrong with it.
pub fn read(path: &Path) -> anyhow::Result<Vec<f32>> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("{name}"))?;
    let reader = WavReader::new(BufReader::new(file))
        .with_context(|| format!("{name} is not a WAV file"))?;
    let spec = reader.spec();
    ensure!(
        spec.channels > 0 && spec.sample_rate > 0,
        "{name}: no channels or no sample rate"
    );
    let seconds = u64::from(reader.duration()) / u64::from(spec.sample_rate);
    ensure!(
        seconds <= INPUT_S_MAX,
        "{name} has {seconds} s, the limit is {INPUT_S_MAX}"
    );
    let interleaved =
        samples(reader).with_context(|| format!("{name} breaks off or is damaged"))?;
    let channels = usize::from(spec.channels);
    let mono: Vec<f32> = interleaved
        .chunks_exact(channels)
        .map(|frame| frame.iter().sum::<f32>() / channels as f32)
        .collect();
    resampled(&mono, spec.sample_rate, SAMPLE_RATE_HZ).with_context(|| format!("{name}"))
}

fn samples(reader: WavReader<BufReader<File>>) -> Result<Vec<f32>, hound::Error> {
    let spec = reader.spec();
    match spec.sample_format {
        SampleFormat::Float => {
            let finite = |v: f32| {
                if v.is_finite() {
                    v.clamp(-1.0, 1.0)
                } else {
                    0.0
                }
            };
            reader
                .into_samples::<f32>()
                .map(|sample| sample.map(finite))
                .collect()
        }
        SampleFormat::Int => {
            let full_scale = 2f32.powi(i32::from(spec.bits_per_sample) - 1);
            let scaled = |v: i32| v as f32 / full_scale;
            reader
                .into_samples::<i32>()
                .map(|sample| sample.map(scaled))
                .collect()
        }
    }
}

/// Writes `samples` (24 kHz, mono, clamped to -1..=1) as 16-bit PCM.
///
/// # Errors
/// One line: the file, and why it cannot be written.
pub fn write(path: &Path, samples: &[f32]) -> anyhow::Result<()> {
    let spec = WavSpec {
        channels: 1,
        sample_rate: SAMPLE_RATE_HZ,
        bits_per_sample: 16,
        sample_format: SampleFormat::Int,
    };
    let written = WavWriter::create(path, spec).and_then(|mut writer| {
        for sample in samples {
            writer.write_sample((sample.clamp(-1.0, 1.0) * 32_767.0).round() as i16)?;
        }
        writer.finalize()
    });
    written.with_context(|| format!("writing {}", path.display()))
}
