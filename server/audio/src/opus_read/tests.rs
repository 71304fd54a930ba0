//! Streams as clients send them, cut anywhere, damaged, or of another kind.

use ogg::{PacketWriteEndInfo, PacketWriter};
use proptest::prelude::*;

use super::*;
use crate::opus_codec::testing::AnyEncoder;
use crate::opus_write::OpusWriter;

/// Opus packets of a tone in Ogg, as another writer packs them: header pages, then `per_page` packets a page.
fn stream(
    rate_hz: i32,
    channels: usize,
    packet_ms: usize,
    packets: usize,
    per_page: usize,
) -> Vec<u8> {
    let mut encoder = AnyEncoder::new(rate_hz, channels as i32);
    let mut bytes = Vec::new();
    let mut writer = PacketWriter::new(&mut bytes);
    let head = [
        b"OpusHead\x01",
        &[channels as u8][..],
        b"\x38\x01\x80\xbb\0\0\0\0\0",
    ]
    .concat();
    writer
        .write_packet(head, 9, PacketWriteEndInfo::EndPage, 0)
        .unwrap();
    writer
        .write_packet(
            b"OpusTags\0\0\0\0\0\0\0\0".to_vec(),
            9,
            PacketWriteEndInfo::EndPage,
            0,
        )
        .unwrap();
    let samples = rate_hz as usize * packet_ms / 1_000;
    for index in 0..packets {
        let pcm: Vec<f32> = (0..samples * channels)
            .map(|at| {
                ((index * samples + at / channels) as f32 * 1_000.0 / rate_hz as f32).sin() * 0.3
            })
            .collect();
        let end = match (index + 1 == packets, (index + 1) % per_page) {
            (true, _) | (_, 0) => PacketWriteEndInfo::EndPage,
            _ => PacketWriteEndInfo::NormalPacket,
        };
        let granule = (index + 1) * packet_ms * 48;
        writer
            .write_packet(encoder.encode(&pcm, samples), 9, end, granule as u64)
            .unwrap();
    }
    drop(writer);
    bytes
}

/// All whole frames of `bytes`, pushed in pieces of `piece` bytes.
fn frames(bytes: &[u8], piece: usize) -> Result<Vec<f32>, AudioError> {
    let mut reader = OpusReader::begin().unwrap();
    let mut pcm = Vec::new();
    for piece in bytes.chunks(piece) {
        reader.push(piece);
        while let Some(frame) = reader.next_frame()? {
            pcm.extend_from_slice(frame);
        }
    }
    Ok(pcm)
}

#[test]
fn packets_of_any_length_become_frames_of_80_ms_without_loss() {
    let cases = [
        (
            "20 ms, two a page, as the web client sends",
            24_000,
            1,
            20,
            2,
        ),
        ("40 ms", 24_000, 1, 40, 1),
        ("60 ms, which does not divide 80", 24_000, 1, 60, 3),
        ("80 ms", 24_000, 1, 80, 1),
        ("120 ms", 24_000, 1, 120, 1),
        ("10 ms", 48_000, 1, 10, 8),
        ("stereo at 48 kHz", 48_000, 2, 20, 1),
        ("telephone band", 8_000, 1, 20, 5),
    ];
    for (name, rate_hz, channels, packet_ms, per_page) in cases {
        let packets = 2_400 / packet_ms;
        let pcm = frames(
            &stream(rate_hz, channels, packet_ms, packets, per_page),
            333,
        )
        .unwrap();
        assert_eq!(pcm.len(), 30 * FRAME_SAMPLES, "{name}");
        // A tone of 1,000 radians a second at 0.3, both channels alike: its power says that nothing is missing.
        let power = pcm[4_800..]
            .iter()
            .map(|sample| sample * sample)
            .sum::<f32>();
        let mean = power / (pcm.len() - 4_800) as f32;
        assert!((0.038..0.052).contains(&mean), "{name}: {mean}");
    }
}

#[test]
fn headers_are_remembered_when_early_audio_is_discarded() {
    let bytes = stream(24_000, 1, 20, 40, 2);
    let mut reader = OpusReader::begin().unwrap();
    reader.push(&bytes[..bytes.len() / 2]);
    reader.discard().unwrap();
    reader.push(&bytes[bytes.len() / 2..]);
    let mut n_frames = 0;
    while reader.next_frame().unwrap().is_some() {
        n_frames += 1;
    }
    assert!((4..=5).contains(&n_frames), "{n_frames}");
}

#[test]
fn a_chained_stream_goes_on_and_a_stream_without_headers_is_taken() {
    let one = stream(24_000, 1, 40, 10, 1);
    let two = stream(48_000, 2, 60, 10, 2);
    assert_eq!(
        frames(&[&one[..], &two].concat(), 77).unwrap().len(),
        12 * FRAME_SAMPLES
    );
    let headers_bytes = 28 + 19 + 28 + 16;
    assert_eq!(
        frames(&one[headers_bytes..], 500).unwrap().len(),
        5 * FRAME_SAMPLES
    );
}

#[test]
fn what_is_no_ogg_opus_is_named() {
    let mut packet = AnyEncoder::new(24_000, 1).encode(&[0.1; 480], 480);
    packet.resize(60, 1);
    let vorbis = {
        let mut bytes = Vec::new();
        let mut writer = PacketWriter::new(&mut bytes);
        let head = b"\x01vorbis\0\0\0\0\x02".to_vec();
        writer
            .write_packet(head, 1, PacketWriteEndInfo::EndPage, 0)
            .unwrap();
        bytes
    };
    let surround = {
        let mut bytes = Vec::new();
        let mut writer = PacketWriter::new(&mut bytes);
        let head =
            b"OpusHead\x01\x06\x38\x01\x80\xbb\0\0\0\0\x01\x04\x02\0\x04\x01\x02\x03\x05".to_vec();
        writer
            .write_packet(head, 1, PacketWriteEndInfo::EndPage, 0)
            .unwrap();
        bytes
    };
    let cases: [(&str, &[u8], &str); 7] = [
        (
            "WebM",
            b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42",
            "got WebM",
        ),
        ("MP4", b"\0\0\0\x1cftypisom\0\0\x02\0", "got MP4"),
        ("WAV", b"RIFF\x24\0\0\0WAVEfmt ", "got WAV"),
        ("raw Opus", &packet, "begin no Ogg page"),
        ("JSON", b"{\"type\":\"audio\"}", "begin no Ogg page"),
        ("Vorbis", &vorbis, "got Ogg/Vorbis"),
        ("surround", &surround, "6 channels"),
    ];
    for (name, bytes, expected) in cases {
        for piece in [1, 5, 1_000] {
            let error = frames(bytes, piece).unwrap_err().to_string();
            assert!(error.starts_with("expected "), "{name}: {error}");
            assert!(error.contains(expected), "{name}: {error}");
        }
        let mut reader = OpusReader::begin().unwrap();
        reader.push(bytes);
        assert!(reader.discard().is_err(), "{name} while waiting");
    }
}

#[test]
fn a_stream_that_stops_being_one_is_given_up_and_damage_is_not() {
    let mut bytes = stream(24_000, 1, 20, 100, 2);
    let at = bytes.len() / 2;
    bytes[at] ^= 0xff;
    let pcm = frames(&bytes, 400).unwrap();
    assert_eq!(pcm.len() / FRAME_SAMPLES, 24, "one page of 40 ms is lost");
    bytes.resize(bytes.len() + JUNK_BYTES_MAX + 10, 0x55);
    assert!(matches!(
        frames(&bytes, 4_000),
        Err(AudioError::Lost { .. })
    ));
}

#[test]
fn what_stands_can_be_left_out_and_the_rest_goes_on_behind_it() {
    let bytes = stream(24_000, 1, 20, 9, 1);
    let all = {
        let mut reader = OpusReader::begin().unwrap();
        reader.push(&bytes);
        let mut all: Vec<f32> = Vec::new();
        while let Some(frame) = reader.next_frame().unwrap() {
            all.extend(frame);
        }
        all.extend(reader.standing());
        all
    };
    assert_eq!(all.len(), 2 * FRAME_SAMPLES + 480);
    let mut reader = OpusReader::begin().unwrap();
    // Six of nine packets: a frame, and 40 ms that stand.
    let (before, after) = bytes.split_at(nth_page(&bytes, 2 + 6));
    reader.push(before);
    assert_eq!(reader.next_frame().unwrap().unwrap()[..], all[..1_920]);
    assert_eq!(reader.next_frame(), Ok(None));
    assert_eq!(reader.standing(), &all[1_920..1_920 + 960]);
    reader.drop_standing(700);
    assert_eq!(reader.standing().len(), 260);
    reader.push(after);
    assert_eq!(reader.next_frame(), Ok(None));
    assert_eq!(reader.standing(), &all[1_920 + 700..]);
    reader.drop_standing(5_000);
    assert!(reader.standing().is_empty());
}

/// Where the page of index `nth` begins.
fn nth_page(bytes: &[u8], nth: usize) -> usize {
    let begins = bytes.windows(4).enumerate();
    let mut pages = begins.filter(|(_, window)| window == b"OggS");
    pages.nth(nth).unwrap().0
}

#[test]
fn good_pages_of_something_else_are_given_up() {
    let mut bytes = stream(24_000, 1, 20, 2, 1);
    let mut writer = crate::ogg_write::OggWriter::new(9);
    // Code 3 with a count of no frames: not a packet.
    let bad = (0..=BAD_PACKETS_MAX).flat_map(|_| writer.page(&[0xff, 0], 0));
    bytes.extend(bad.collect::<Vec<u8>>());
    assert!(matches!(
        frames(&bytes, 90),
        Err(AudioError::Packets { .. })
    ));
}

#[test]
fn samples_out_of_range_do_not_pass() {
    let (mut writer, headers) = OpusWriter::begin().unwrap();
    let mut bytes = headers.concat();
    for index in 0..10 {
        let square: Vec<f32> = (0..FRAME_SAMPLES)
            .map(|at| {
                if (at + index) / 40 % 2 == 0 {
                    1.0
                } else {
                    -1.0
                }
            })
            .collect();
        bytes.extend(writer.page(&square).unwrap());
    }
    let pcm = frames(&bytes, 1_000).unwrap();
    assert_eq!(pcm.len(), 10 * FRAME_SAMPLES);
    assert!(pcm.iter().all(|sample| sample.abs() <= 1.0));
    assert!(
        pcm.contains(&1.0),
        "a square wave overshoots, so something was clipped"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_stream_with_flipped_bytes_never_panics_and_gives_sane_samples(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 1..=255u8), 0..30),
        piece in 1..700usize,
    ) {
        let mut bytes = stream(24_000, 1, 20, 16, 2);
        for (index, mask) in flips {
            let at = index.index(bytes.len());
            bytes[at] ^= mask;
        }
        if let Ok(pcm) = frames(&bytes, piece) {
            prop_assert!(pcm.iter().all(|sample| sample.abs() <= 1.0));
        }
    }
}
