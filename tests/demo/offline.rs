//! Every conversation through `vivavoce run`: the program itself, a sound file in, a sound file and words out.

use std::process::Command;

use hound::{SampleFormat, WavReader, WavSpec, WavWriter};
use serde::Deserialize;
use slots::units::{FRAME_SAMPLES, SAMPLE_RATE_HZ};
use tempfile::TempDir;

use crate::behaviour::{Behaviour, Conversation, Heard, Order};
use crate::user::ROOM_RMS;

#[derive(Deserialize)]
struct Transcript {
    frames: usize,
    pieces: Vec<Piece>,
}

#[derive(Deserialize)]
struct Piece {
    frame: usize,
    text: String,
}

/// What the agent of `talk` says to `line`.
fn run(talk: &Conversation, line: &[Vec<f32>], order: Order) -> Vec<Heard> {
    let dir = TempDir::new().expect("a temp folder");
    let path = |name: &str| dir.path().join(name);
    write(&path("in.wav"), line);
    let mut command = Command::new(env!("CARGO_BIN_EXE_vivavoce"));
    command
        .env_clear()
        .env("HOME", dir.path())
        .current_dir(dir.path());
    command.args([
        "run",
        "--greedy",
        "--input",
        "in.wav",
        "--output",
        "out.wav",
        "--transcript",
        "out.json",
    ]);
    command.args([
        "--order",
        order.flag(),
        "--prompt",
        &talk.prompt,
        "--voice",
        &talk.voice,
    ]);
    let output = command.output().expect("the program starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let json = std::fs::read(path("out.json")).expect("a transcript");
    let transcript: Transcript = serde_json::from_slice(&json).expect("a transcript");
    let reader = WavReader::open(path("out.wav")).expect("a sound file");
    let samples = reader.into_samples::<i16>();
    let pcm: Vec<f32> = samples
        .map(|sample| f32::from(sample.expect("a whole file")) / 32_768.0)
        .collect();
    assert_eq!(pcm.len(), transcript.frames * FRAME_SAMPLES);
    let mut heard: Vec<Heard> = pcm
        .chunks_exact(FRAME_SAMPLES)
        .map(|pcm| Heard {
            text: String::new(),
            pcm: pcm.to_vec(),
        })
        .collect();
    for piece in transcript.pieces {
        heard[piece.frame].text.push_str(&piece.text);
    }
    heard
}

/// As 32-bit floats, so that nothing is rounded.
fn write(path: &std::path::Path, line: &[Vec<f32>]) {
    let spec = WavSpec {
        channels: 1,
        sample_rate: SAMPLE_RATE_HZ,
        bits_per_sample: 32,
        sample_format: SampleFormat::Float,
    };
    let mut writer = WavWriter::create(path, spec).expect("a new file");
    for &sample in line.iter().flatten() {
        writer.write_sample(sample).expect("room on the disk");
    }
    writer.finalize().expect("room on the disk");
}

fn all_as_written_down(talks: &[Conversation], noise_rms: f32, order: Order) {
    let mut faults = Vec::new();
    for talk in talks {
        let heard = run(talk, &talk.user_line(noise_rms), order);
        let judged = talk.judge(&heard, order, 0).into_iter();
        faults.extend(judged.map(|fault| format!("{}: {fault}", talk.title())));
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn every_conversation_is_exactly_as_written_down_with_the_answers_sooner() {
    all_as_written_down(
        &Behaviour::of_the_demo().conversations,
        ROOM_RMS,
        Order::Sooner,
    );
}

#[test]
fn every_conversation_is_exactly_as_written_down_in_the_published_order() {
    all_as_written_down(
        &Behaviour::of_the_demo().conversations,
        ROOM_RMS,
        Order::Overlapped,
    );
}

/// What a row hears when its caller sends nothing; none of the demo's training had it.
#[test]
fn a_digitally_silent_line_between_the_words_changes_nothing_that_is_said() {
    let mut talks = Behaviour::of_the_demo().conversations;
    talks.retain(|talk| talk.name != "barge_in");
    all_as_written_down(&talks, 0.0, Order::Sooner);
}
