//! Voices out of recordings, really computed, beside the model's own.

use std::io::Cursor;
use std::path::Path;

use engine::voice_model::EngineOptions;
use hound::{SampleFormat, WavSpec, WavWriter};
use serde_json::Value;

use crate::behaviour::{Behaviour, Heard};
use crate::switchboard::{Plan, Switchboard, greedy_query};
use crate::user::ROOM_RMS;

/// Frames that are compared: the greeting and a pause.
const FRAMES: usize = 40;
const BOUNDARY: &str = "part-1c9e";

/// A voice-like buzz that goes up and down, at 44,100 Hz in two channels.
fn buzz() -> Vec<u8> {
    let rate_hz = 44_100;
    let spec = WavSpec {
        channels: 2,
        sample_rate: rate_hz,
        bits_per_sample: 16,
        sample_format: SampleFormat::Int,
    };
    let mut file = Cursor::new(Vec::new());
    let mut writer = WavWriter::new(&mut file, spec).expect("memory");
    for at in 0..rate_hz * 4 {
        let t = at as f32 / rate_hz as f32;
        let turns = 120.0 * t + 4.0 * (3.0 * t).sin();
        let harmonics =
            (1..12).map(|n| (std::f32::consts::TAU * turns * n as f32).sin() / n as f32);
        let loud = (9.0 * t).sin().abs() * 0.2;
        let sample = (harmonics.sum::<f32>() * loud * 32_767.0) as i16;
        for _ in 0..2 {
            writer.write_sample(sample).expect("memory");
        }
    }
    writer.finalize().expect("memory");
    file.into_inner()
}

/// Adds a voice as a page does; the answer.
async fn add(board: &Switchboard, name: &str, file: &[u8]) -> Value {
    let mut body = Vec::new();
    for (field, value) in [
        ("name", name),
        ("consent", "Synthetic; nobody was recorded."),
    ] {
        let part = format!(
            "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"{field}\"\r\n\r\n{value}\r\n"
        );
        body.extend_from_slice(part.as_bytes());
    }
    let part = format!(
        "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n"
    );
    body.extend_from_slice(part.as_bytes());
    body.extend_from_slice(file);
    body.extend_from_slice(format!("\r\n--{BOUNDARY}--\r\n").as_bytes());
    let request = reqwest::Client::new()
        .post(board.url("/api/voices"))
        .header(
            "content-type",
            format!("multipart/form-data; boundary={BOUNDARY}"),
        )
        .body(body);
    let answer = request.send().await.expect("an answer");
    let status = answer.status();
    let text = answer.text().await.expect("a body");
    assert_eq!(status, 201, "{text}");
    serde_json::from_str(&text).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn four_callers_at_once_have_four_voices_two_of_them_out_of_recordings() {
    let board = Switchboard::start(4, EngineOptions::PROMPT_CACHE_BYTES).await;
    let speech = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/voices/speech-opus.ogg");
    let speech = std::fs::read(speech).expect("it is part of the project");
    let made = add(&board, "Ada", &speech).await;
    assert_eq!(made["voice"]["origin"], "recording", "{made}");
    add(&board, "Bea", &buzz()).await;

    let prompt = &Behaviour::of_the_demo().conversations[0].prompt;
    let plan = |voice: &str| Plan {
        // The demo knows two voices and speaks with one of them, most probably; how probably depends on what it was given.
        query: greedy_query(prompt, voice).replace("temperature=0", "temperature=1.5")
            + "&seed=5&ext=1",
        line: Behaviour::of_the_demo().conversations[0].user_line(ROOM_RMS)[..FRAMES].to_vec(),
        after_ticks: 0,
        mute: true,
    };
    let voices = ["NATF0", "Ada", "NATM0", "Bea"];
    let together = board.hold(voices.map(plan).into()).await;
    let pcm = |heard: &[Heard]| -> Vec<f32> {
        heard.iter().flat_map(|frame| frame.pcm.clone()).collect()
    };
    for (voice, heard) in voices.iter().zip(&together) {
        let alone = board.hold(vec![plan(voice)]).await;
        assert!(&alone[0] == heard, "{voice} is another one among others");
        let sounds = pcm(heard).iter().any(|sample| sample.abs() > 0.01);
        assert!(sounds, "{voice} says nothing");
    }
    for (nth, heard) in together.iter().enumerate() {
        for other in &together[nth + 1..] {
            assert!(
                pcm(heard) != pcm(other),
                "{} is another's voice",
                voices[nth]
            );
        }
    }
    assert_eq!(board.frames_lost(), 0);
}
