//! One packet, one Ogg page (RFC 3533): what a listener can play without waiting for the next page.
//!
//! May not live here: what is in a packet.

use super::ogg_read::page_checksum;

/// The longest packet one page can hold whole: 254 full segments and one that is not.
pub const PACKET_BYTES_MAX: usize = 255 * 255 - 1;

const FLAG_FIRST: u8 = 2;

/// Numbers the pages of one logical stream.
#[derive(Debug)]
pub struct OggWriter {
    serial: u32,
    sequence: u32,
}

impl OggWriter {
    /// A new stream.
    pub fn new(serial: u32) -> Self {
        Self {
            serial,
            sequence: 0,
        }
    }

    /// The next page, holding `packet` alone. `granule` is what the codec says it is: for Opus, samples at 48 kHz up
    /// to the end of this packet, pre-skip included.
    ///
    /// # Panics
    /// If `packet` is longer than [`PACKET_BYTES_MAX`]; Opus packets of 80 ms have at most 5,104 bytes.
    pub fn page(&mut self, packet: &[u8], granule: u64) -> Vec<u8> {
        assert!(packet.len() <= PACKET_BYTES_MAX);
        let full_segments = packet.len() / 255;
        let mut page = Vec::with_capacity(28 + full_segments + packet.len());
        page.extend_from_slice(b"OggS\0");
        page.push(if self.sequence == 0 { FLAG_FIRST } else { 0 });
        page.extend_from_slice(&granule.to_le_bytes());
        page.extend_from_slice(&self.serial.to_le_bytes());
        page.extend_from_slice(&self.sequence.to_le_bytes());
        page.extend_from_slice(&[0; 4]);
        page.push((full_segments + 1) as u8);
        page.resize(page.len() + full_segments, 255);
        page.push((packet.len() % 255) as u8);
        page.extend_from_slice(packet);
        let checksum = page_checksum(&page);
        page[22..26].copy_from_slice(&checksum.to_le_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_reader_finds_the_packets_one_to_a_page() {
        let sizes = [
            0,
            1,
            19,
            254,
            255,
            256,
            509,
            510,
            511,
            5_104,
            PACKET_BYTES_MAX,
        ];
        let mut writer = OggWriter::new(42);
        let mut bytes = Vec::new();
        for size in sizes {
            bytes.extend(writer.page(&vec![size as u8; size], 7 * size as u64));
        }
        let mut reader = ogg::PacketReader::new(std::io::Cursor::new(bytes));
        for (index, size) in sizes.into_iter().enumerate() {
            let packet = reader.read_packet_expected().unwrap();
            assert_eq!(packet.data, vec![size as u8; size]);
            assert_eq!(packet.absgp_page(), 7 * size as u64);
            assert_eq!(packet.stream_serial(), 42);
            assert!(packet.first_in_page() && packet.last_in_page());
            assert_eq!(packet.first_in_stream(), index == 0);
        }
        assert!(reader.read_packet().unwrap().is_none());
    }
}
