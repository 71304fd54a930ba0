//! Frames in, Ogg-Opus pages out (RFC 7845): what the agent says, on its way to the caller.
//!
//! Lives here: the two header pages, one packet of 80 ms a page, granule positions.
//! May not live here: message kinds, sockets.

use slots::units::{FRAME_SAMPLES, SAMPLE_RATE_HZ};

use super::ogg_write::OggWriter;
use super::opus_codec::{Encoder, OpusError, PACKET_BYTES_MAX, SAMPLES_48K};

/// The name of the logical stream. There is one in a connection; the published server uses this number.
const SERIAL: u32 = 42;
/// What OpusTags names as the maker.
const VENDOR: &str = concat!("vivavoce ", env!("CARGO_PKG_VERSION"));

/// One outgoing stream. A resumed connection gets a new one.
pub struct OpusWriter {
    encoder: Encoder,
    writer: OggWriter,
    /// Samples at 48 kHz that the pages so far decode to.
    granule: u64,
}

impl OpusWriter {
    /// A stream that has said nothing, and its first two pages: OpusHead and OpusTags.
    ///
    /// # Errors
    /// [`OpusError::Start`]: no memory.
    pub fn begin() -> Result<(Self, [Vec<u8>; 2]), OpusError> {
        let encoder = Encoder::new()?;
        let mut writer = OggWriter::new(SERIAL);
        // The truth of the encoder, 312. The published server says 3,840, and a player that believes it never plays
        // the first frame.
        let pre_skip = encoder.lookahead_samples() as u64 * SAMPLES_48K;
        let headers = [
            writer.page(&opus_head(pre_skip as u16), 0),
            writer.page(&opus_tags(), 0),
        ];
        let opus = Self {
            encoder,
            writer,
            granule: 0,
        };
        Ok((opus, headers))
    }

    /// The page that carries `frame` (`FRAME_SAMPLES` samples at 24 kHz).
    ///
    /// # Errors
    /// [`OpusError::Encode`]: `frame` has another length.
    pub fn page(&mut self, frame: &[f32]) -> Result<Vec<u8>, OpusError> {
        let mut packet = [0; PACKET_BYTES_MAX];
        let bytes = self.encoder.encode(frame, &mut packet)?;
        self.granule += FRAME_SAMPLES as u64 * SAMPLES_48K;
        Ok(self.writer.page(&packet[..bytes], self.granule))
    }
}

/// RFC 7845, section 5.1.
fn opus_head(pre_skip: u16) -> Vec<u8> {
    let mut head = b"OpusHead".to_vec();
    head.extend_from_slice(&[1, 1]); // version, channels
    head.extend_from_slice(&pre_skip.to_le_bytes());
    head.extend_from_slice(&SAMPLE_RATE_HZ.to_le_bytes());
    head.extend_from_slice(&[0, 0, 0]); // gain (two bytes), mapping family
    head
}

/// RFC 7845, section 5.2, without comments.
fn opus_tags() -> Vec<u8> {
    let mut tags = b"OpusTags".to_vec();
    tags.extend_from_slice(&(VENDOR.len() as u32).to_le_bytes());
    tags.extend_from_slice(VENDOR.as_bytes());
    tags.extend_from_slice(&0u32.to_le_bytes());
    tags
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opus_codec::{Decoder, PACKET_SAMPLES_MAX};

    fn tone(frame: usize) -> Vec<f32> {
        let phase = |sample: usize| (frame * FRAME_SAMPLES + sample) as f32 * 0.0411;
        (0..FRAME_SAMPLES)
            .map(|sample| phase(sample).sin() * 0.4)
            .collect()
    }

    #[test]
    fn an_independent_reader_finds_the_headers_and_one_80_ms_packet_a_page() {
        let (mut writer, headers) = OpusWriter::begin().unwrap();
        let mut bytes = headers.concat();
        for frame in 0..25 {
            bytes.extend(writer.page(&tone(frame)).unwrap());
        }
        let mut reader = ogg::PacketReader::new(std::io::Cursor::new(bytes));
        let head = reader.read_packet_expected().unwrap();
        assert!(head.first_in_stream());
        assert_eq!(&head.data[..10], b"OpusHead\x01\x01");
        let pre_skip = u64::from(u16::from_le_bytes([head.data[10], head.data[11]]));
        assert_eq!(&head.data[12..], [0xc0, 0x5d, 0, 0, 0, 0, 0]);
        assert!(
            reader
                .read_packet_expected()
                .unwrap()
                .data
                .starts_with(b"OpusTags")
        );
        let mut decoder = Decoder::new().unwrap();
        let mut heard = Vec::new();
        for frame in 1..=25u64 {
            let packet = reader.read_packet_expected().unwrap();
            assert!(packet.first_in_page() && packet.last_in_page());
            assert_eq!(packet.absgp_page(), frame * 3_840);
            let mut pcm = [0.0; PACKET_SAMPLES_MAX];
            let samples = decoder.decode(&packet.data, &mut pcm).unwrap();
            assert_eq!(samples, FRAME_SAMPLES);
            heard.extend_from_slice(&pcm[..samples]);
        }
        assert!(reader.read_packet().unwrap().is_none());
        // The pre-skip is the truth: shifted by it, what is heard is what was said.
        let said: Vec<f32> = (0..25).flat_map(tone).collect();
        let shift = (pre_skip / SAMPLES_48K) as usize;
        let error = |shift: usize| -> f32 {
            let pairs = said.iter().zip(&heard[shift..]).skip(4_000);
            pairs.map(|(said, heard)| (said - heard).powi(2)).sum()
        };
        let power: f32 = said.iter().map(|sample| sample.powi(2)).sum();
        assert!(error(shift) < 0.02 * power, "{} of {power}", error(shift));
        assert!(error(shift) < error(shift + 8) && error(shift) < error(shift - 8));
    }
}
