//! Ogg-Opus bytes cut anywhere in, frames of 1,920 samples out: what the caller says, on its way to the tick.
//!
//! Lives here: which packets are headers and which are sound, chained streams, when a stream is hopeless, cutting
//! frames. At most one frame is decoded in one call, so that a task can yield between two.
//! May not live here: sockets, queues, when a caller is live.
//!
//! Decided once: damage inside a good stream is skipped (the caller hears about nothing, a counter does); a stream that
//! is no Ogg-Opus from its first byte, or that stops being one, is an error and ends the session.

use arrayvec::ArrayVec;
use slots::units::FRAME_SAMPLES;

use super::container::{MAGIC_BYTES, known_container, other_ogg_codec};
use super::ogg_read::{OggReader, PAGE_BYTES_MAX, Packet};
use super::opus_codec::{Decoder, OpusError, PACKET_SAMPLES_MAX, tamed};

/// Bytes without one good page after which a stream that began well is given up; a damaged page may be this long.
pub const JUNK_BYTES_MAX: usize = 2 * PAGE_BYTES_MAX;
/// Undecodable packets in a row after which a stream is given up: half a second of the longest packets.
pub const BAD_PACKETS_MAX: u32 = 25;
/// Streams beside the Opus one (pictures, indexes) that are kept apart; more are taken for sound and fail there.
const OTHER_STREAMS_MAX: usize = 8;

/// Why a caller's stream is hopeless. The text names what is expected, and what came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AudioError {
    /// Another container, told by its first bytes.
    #[error("expected Ogg/Opus, got {found}")]
    Container {
        /// Its name.
        found: &'static str,
    },
    /// The first bytes are no container that is known: often Opus packets without Ogg pages around them.
    #[error(
        "expected Ogg/Opus, got bytes that begin no Ogg page (Opus packets must be in Ogg pages)"
    )]
    NotOgg,
    /// The stream began well, but for long now nothing in it was a page.
    #[error("expected Ogg/Opus, got {junk_bytes} bytes without an Ogg page")]
    Lost {
        /// How many bytes.
        junk_bytes: usize,
    },
    /// Ogg, but not Opus.
    #[error("expected Ogg/Opus, got Ogg/{found}")]
    Codec {
        /// Its name.
        found: &'static str,
    },
    /// An OpusHead that names something this server does not take.
    #[error(
        "expected Opus with one or two channels, got version {version}, {channels} channels, mapping {mapping}"
    )]
    Head {
        /// Of the encapsulation.
        version: u8,
        /// How many channels.
        channels: u8,
        /// The channel mapping family.
        mapping: u8,
    },
    /// Good pages, but what is in them is not Opus.
    #[error("expected Ogg/Opus, got {in_a_row} packets in a row that are not Opus")]
    Packets {
        /// How many.
        in_a_row: u32,
    },
}

/// One incoming stream.
pub struct OpusReader {
    ogg: OggReader,
    decoder: Decoder,
    /// The first bytes of the stream, for recognising other containers.
    head: ArrayVec<u8, MAGIC_BYTES>,
    others: ArrayVec<u32, OTHER_STREAMS_MAX>,
    /// Decoded samples that do not fill a frame yet; after a long packet, also a frame that nobody took yet.
    pcm: Vec<f32>,
    frame: Box<[f32; FRAME_SAMPLES]>,
    bad_in_a_row: u32,
    bad_packets: u64,
}

/// What is inside a packet.
enum Content {
    Sound,
    NewStream,
    Skip,
}

impl OpusReader {
    /// A stream that has brought nothing yet.
    ///
    /// # Errors
    /// [`OpusError::Start`]: no memory.
    pub fn begin() -> Result<Self, OpusError> {
        Ok(Self {
            ogg: OggReader::new(),
            decoder: Decoder::new()?,
            head: ArrayVec::new(),
            others: ArrayVec::new(),
            pcm: Vec::with_capacity(FRAME_SAMPLES + PACKET_SAMPLES_MAX),
            frame: Box::new([0.0; FRAME_SAMPLES]),
            bad_in_a_row: 0,
            bad_packets: 0,
        })
    }

    /// Takes the next bytes, cut anywhere. Then call [`OpusReader::next_frame`] or [`OpusReader::discard`].
    pub fn push(&mut self, bytes: &[u8]) {
        let missing = MAGIC_BYTES - self.head.len();
        self.head.extend(bytes.iter().copied().take(missing));
        self.ogg.push(bytes);
    }

    /// The next whole frame, finite and within -1..=1, or `None` until more bytes come.
    /// Decodes until a frame is full, never more.
    ///
    /// # Errors
    /// [`AudioError`]: the stream is hopeless; the session must end.
    pub fn next_frame(&mut self) -> Result<Option<&[f32; FRAME_SAMPLES]>, AudioError> {
        while self.pcm.len() < FRAME_SAMPLES {
            let Some(packet) = self.ogg.next_packet() else {
                self.check_junk()?;
                return Ok(None);
            };
            match content(&packet, &mut self.others)? {
                Content::Skip => continue,
                Content::NewStream => {
                    self.decoder.reset();
                    continue;
                }
                Content::Sound => {}
            }
            let mut pcm = [0.0; PACKET_SAMPLES_MAX];
            match self.decoder.decode(packet.data, &mut pcm) {
                Ok(samples) => {
                    self.bad_in_a_row = 0;
                    self.pcm.extend(pcm[..samples].iter().copied().map(tamed));
                }
                Err(_) => {
                    self.bad_packets += 1;
                    self.bad_in_a_row += 1;
                    if self.bad_in_a_row > BAD_PACKETS_MAX {
                        return Err(AudioError::Packets {
                            in_a_row: self.bad_in_a_row,
                        });
                    }
                }
            }
        }
        self.frame.copy_from_slice(&self.pcm[..FRAME_SAMPLES]);
        self.pcm.drain(..FRAME_SAMPLES);
        Ok(Some(&self.frame))
    }

    /// Reads what has come without decoding it: headers are remembered, sound is dropped. What audio that comes too
    /// early gets.
    ///
    /// # Errors
    /// [`AudioError`]: the stream is hopeless; the session must end.
    pub fn discard(&mut self) -> Result<(), AudioError> {
        self.pcm.clear();
        while let Some(packet) = self.ogg.next_packet() {
            if let Content::NewStream = content(&packet, &mut self.others)? {
                self.decoder.reset();
            }
        }
        self.check_junk()
    }

    /// Packets that could not be decoded and pages with a wrong checksum, so far.
    pub fn damage(&self) -> u64 {
        self.bad_packets + self.ogg.damaged_pages()
    }

    fn check_junk(&self) -> Result<(), AudioError> {
        let junk_bytes = self.ogg.junk_bytes();
        if self.ogg.pages() > 0 {
            return if junk_bytes > JUNK_BYTES_MAX {
                Err(AudioError::Lost { junk_bytes })
            } else {
                Ok(())
            };
        }
        match known_container(&self.head) {
            Some(found) => Err(AudioError::Container { found }),
            // Too few bytes to name it; the next ones will.
            None if junk_bytes == 0 || self.head.len() < 8 => Ok(()),
            None => Err(AudioError::NotOgg),
        }
    }
}

/// Tells headers from sound (RFC 7845, section 5), and other streams from the Opus one.
fn content(
    packet: &Packet<'_>,
    others: &mut ArrayVec<u32, OTHER_STREAMS_MAX>,
) -> Result<Content, AudioError> {
    if packet.data.starts_with(b"OpusHead") {
        others.retain(|serial| *serial != packet.serial);
        return match (packet.data.get(8), packet.data.get(9), packet.data.get(18)) {
            // The upper half of the version must be 0; mappings 0 and 1 put one or two channels into one stream.
            (Some(0..=15), Some(1..=2), Some(0..=1)) => Ok(Content::NewStream),
            (Some(&version), Some(&channels), Some(&mapping)) => Err(AudioError::Head {
                version,
                channels,
                mapping,
            }),
            _ => Ok(Content::Skip),
        };
    }
    if packet.begins_stream
        && let Some((found, is_sound)) = other_ogg_codec(packet.data)
    {
        if is_sound {
            return Err(AudioError::Codec { found });
        }
        // When there is no room the stream is taken for sound, and fails there.
        let _ = others.try_push(packet.serial);
    }
    let skip = packet.data.is_empty()
        || packet.data.starts_with(b"OpusTags")
        || others.contains(&packet.serial);
    Ok(if skip { Content::Skip } else { Content::Sound })
}

#[cfg(test)]
mod tests {
    use ogg::{PacketWriteEndInfo, PacketWriter};
    use proptest::prelude::*;

    use super::*;
    use crate::audio::opus_codec::testing::AnyEncoder;
    use crate::audio::opus_write::OpusWriter;

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
                    ((index * samples + at / channels) as f32 * 1_000.0 / rate_hz as f32).sin()
                        * 0.3
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
                b"OpusHead\x01\x06\x38\x01\x80\xbb\0\0\0\0\x01\x04\x02\0\x04\x01\x02\x03\x05"
                    .to_vec();
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
    fn good_pages_of_something_else_are_given_up() {
        let mut bytes = stream(24_000, 1, 20, 2, 1);
        let mut writer = crate::audio::ogg_write::OggWriter::new(9);
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
}
