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

    /// Decoded samples that do not fill a frame yet, after [`OpusReader::next_frame`] said `None`.
    pub fn standing(&self) -> &[f32] {
        &self.pcm
    }

    /// Leaves out the first `samples` of [`OpusReader::standing`], or as many as there are: frames end later by that.
    pub fn drop_standing(&mut self, samples: usize) {
        self.pcm.drain(..samples.min(self.pcm.len()));
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
mod tests;
