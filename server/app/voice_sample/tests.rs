//! Recordings as people bring them, good and bad.

use std::path::Path;

use super::*;

/// Nothing is cut for the model's sake.
const NO_LIMIT: usize = 10_000;

/// Half a second of a voice-like buzz and a short pause, over and over.
fn speech(rate_hz: u32, seconds: f32, level: f32) -> Vec<f32> {
    let at = |sample: u32| sample as f32 / rate_hz as f32;
    let wave = |t: f32| {
        let envelope = if t % 0.6 < 0.5 { 1.0 } else { 0.0 };
        let harmonics =
            (1..8).map(|n| (t * 130.0 * n as f32 * std::f32::consts::TAU).sin() / n as f32);
        envelope * harmonics.sum::<f32>() * 0.5
    };
    let samples = (seconds * rate_hz as f32) as u32;
    (0..samples)
        .map(|sample| wave(at(sample)) * level)
        .collect()
}

fn wav(rate_hz: u32, channels: &[Vec<f32>]) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let spec = hound::WavSpec {
        channels: channels.len() as u16,
        sample_rate: rate_hz,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut writer = hound::WavWriter::new(&mut bytes, spec).unwrap();
    for at in 0..channels[0].len() {
        for channel in channels {
            let sample = (channel[at].clamp(-1.0, 1.0) * 32_767.0) as i16;
            writer.write_sample(sample).unwrap();
        }
    }
    writer.finalize().unwrap();
    bytes.into_inner()
}

fn refused(file: Vec<u8>) -> String {
    prepared(file, NO_LIMIT).unwrap_err().to_string()
}

#[test]
fn every_format_gives_the_same_seconds_at_the_loudness_of_voices() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/voices");
    for name in [
        "speech.mp3",
        "speech.flac",
        "speech-vorbis.ogg",
        "speech-opus.ogg",
    ] {
        let file = std::fs::read(folder.join(name)).unwrap();
        let made = prepared(file, NO_LIMIT).unwrap_or_else(|error| panic!("{name}: {error}"));
        let seconds = seconds(made.pcm.len());
        assert!((3.0..6.0).contains(&seconds), "{name}: {seconds}");
        let loudness = level::loudness(&made.pcm, RATE_HZ).unwrap();
        assert!((loudness + 24.0).abs() < 0.5, "{name}: {loudness} LUFS");
    }
}

#[test]
fn what_was_done_to_a_recording_is_told() {
    let mut left = vec![0.0; 44_100];
    left.extend(speech(44_100, 4.0, 0.02));
    left.extend(vec![0.0; 3 * 44_100]);
    let made = prepared(wav(44_100, &[left.clone(), left]), NO_LIMIT).unwrap();
    let seconds = seconds(made.pcm.len());
    assert!((3.9..4.4).contains(&seconds), "{seconds}");
    let notes = made.notes.join("; ");
    for part in [
        "mixed to mono",
        "resampled from 44100 Hz",
        "0.9 s of silence trimmed at the beginning",
        "of silence trimmed at the end",
        "raised by",
    ] {
        assert!(notes.contains(part), "{part:?} is not in {notes:?}");
    }
}

#[test]
fn a_quiet_recording_with_a_knock_in_it_is_raised_without_clipping() {
    let mut pcm = speech(24_000, 4.0, 0.01);
    pcm[30_000] = 0.5;
    let made = prepared(wav(24_000, &[pcm]), NO_LIMIT).unwrap();
    assert!(made.pcm.iter().all(|sample| sample.abs() <= 0.981));
    assert!(
        made.notes
            .iter()
            .any(|note| note.starts_with("peaks lowered")),
        "{:?}",
        made.notes
    );
}

#[test]
fn channels_of_opposite_phase_do_not_cancel_each_other() {
    let left = speech(24_000, 4.0, 0.2);
    let right: Vec<f32> = left.iter().map(|sample| -sample).collect();
    let made = prepared(wav(24_000, &[left, right]), NO_LIMIT).unwrap();
    assert!(level::rms(&made.pcm) > 0.02);
}

#[test]
fn recordings_that_are_no_good_are_refused_with_the_reason() {
    let speech_wav = |seconds, level| wav(16_000, &[speech(16_000, seconds, level)]);
    let short_among_silence = {
        let mut pcm = speech(16_000, 0.4, 0.3);
        pcm.extend(vec![0.0; 5 * 16_000]);
        wav(16_000, &[pcm])
    };
    let cases = [
        ("0.2 s", speech_wav(0.2, 0.3), "at least 3 s"),
        ("a word among silence", short_among_silence, "at least 3 s"),
        ("silence", wav(16_000, &[vec![0.0; 80_000]]), "silent"),
        ("quiet", speech_wav(4.0, 0.003), "too quiet"),
        ("overdriven", speech_wav(4.0, 8.0), "clipped"),
        ("70 s", speech_wav(70.0, 0.3), "at most 60 s"),
        ("100 s", speech_wav(100.0, 0.3), "longer than 90 s"),
        (
            "text",
            b"this is no recording at all ".repeat(50),
            "no recording that can be read",
        ),
        ("nothing", Vec::new(), "no recording that can be read"),
        (
            "three channels",
            wav(16_000, &vec![speech(16_000, 4.0, 0.3); 3]),
            "one or two",
        ),
    ];
    for (name, file, reason) in cases {
        let error = refused(file);
        assert!(error.contains(reason), "{name}: {error}");
        assert!(!error.contains('\n'), "{name}: {error:?}");
    }
}

#[test]
fn a_recording_longer_than_the_model_takes_is_cut_and_said_so() {
    let made = prepared(wav(24_000, &[speech(24_000, 8.0, 0.3)]), 69).unwrap();
    assert_eq!(made.pcm.len(), 69 * FRAME_SAMPLES);
    assert!(
        made.notes
            .contains(&"cut after 5.5 s, which is as much as this model takes".to_owned())
    );
}

#[test]
fn damaged_files_never_end_anything_but_themselves() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/voices");
    for name in [
        "speech.mp3",
        "speech.flac",
        "speech-vorbis.ogg",
        "speech-opus.ogg",
    ] {
        let whole = std::fs::read(folder.join(name)).unwrap();
        for seed in 0..12usize {
            let mut file = whole.clone();
            for nth in 0..40 {
                let at = (seed * 7_919 + nth * nth * 613) % file.len();
                file[at] ^= (seed * 37 + nth) as u8 | 1;
            }
            file.truncate(whole.len() - seed * whole.len() / 13);
            // Whether it is still a recording does not matter.
            let _ = prepared(file, NO_LIMIT);
        }
    }
}
