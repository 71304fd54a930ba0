//! Ogg pages in, packets out, as the bytes arrive (RFC 3533).
//!
//! Lives here: finding pages in bytes cut anywhere, their checksum, joining packets that span pages, going on after
//! damage. Memory is bounded by one pushed piece, one page, and one packet.
//! May not live here: what is in a packet.
//! Why not the crate `ogg`: its reader pulls from a blocking source and gives up at the first damaged page; it serves
//! as the independent judge in the tests.

/// The first bytes of every page.
const CAPTURE: &[u8; 4] = b"OggS";
/// Bytes of a page before its table of segment lengths.
const HEADER_BYTES: usize = 27;
/// The largest page: header, 255 table entries, 255 segments of 255 bytes.
pub const PAGE_BYTES_MAX: usize = HEADER_BYTES + 255 + 255 * 255;
/// The longest packet that is put together from several pages; the rest of a longer one is skipped.
/// Only comment headers with pictures in them come near.
pub const PACKET_BYTES_MAX: usize = 256 * 1024;

const FLAG_CONTINUED: u8 = 1;
const FLAG_FIRST: u8 = 2;

/// One packet of some logical stream.
#[derive(Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Which logical stream.
    pub serial: u32,
    /// Whether its page begins the stream: then it is the packet that names the codec.
    pub begins_stream: bool,
    /// The bytes; may be empty.
    pub data: &'a [u8],
}

/// Cuts a stream of bytes into packets.
#[derive(Debug, Default)]
pub struct OggReader {
    held: Vec<u8>,
    /// Everything before this index is done with.
    at: usize,
    page: Option<OpenPage>,
    /// The beginning of a packet whose end is on a later page.
    carry: Vec<u8>,
    carry_of: Option<CarryKey>,
    /// The last packet given out was put together in `carry`.
    carry_given: bool,
    junk_bytes: usize,
    pages: u64,
    damaged_pages: u64,
}

/// A page with a good checksum whose packets are being given out. Indices into `held`.
#[derive(Clone, Copy, Debug)]
struct OpenPage {
    serial: u32,
    sequence: u32,
    begins_stream: bool,
    /// The next packet is the rest of one from the page before.
    continues: bool,
    next_segment: usize,
    segments_end: usize,
    body_at: usize,
}

/// The page that must come next for a held packet to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CarryKey {
    serial: u32,
    sequence: u32,
}

impl OggReader {
    /// A reader at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes, cut anywhere. Call [`OggReader::next_packet`] until it gives `None` before pushing more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.drain(..self.at);
        if let Some(page) = &mut self.page {
            page.next_segment -= self.at;
            page.segments_end -= self.at;
            page.body_at -= self.at;
        }
        self.at = 0;
        self.held.extend_from_slice(bytes);
    }

    /// The next whole packet, or `None` until more bytes come.
    pub fn next_packet(&mut self) -> Option<Packet<'_>> {
        if self.carry_given {
            self.carry.clear();
            self.carry_given = false;
        }
        loop {
            let Some(page) = self.page else {
                if !self.open_page() {
                    return None;
                }
                continue;
            };
            let Some((body, whole)) = self.next_body(page) else {
                self.page = None;
                continue;
            };
            let packet = |data| Packet {
                serial: page.serial,
                begins_stream: page.begins_stream,
                data,
            };
            let this_page = CarryKey {
                serial: page.serial,
                sequence: page.sequence,
            };
            let goes_on = page.continues && self.carry_of == Some(this_page);
            match (page.continues, goes_on, whole) {
                (false, _, true) => return Some(packet(&self.held[body])),
                (true, true, true) => {
                    self.carry.extend_from_slice(&self.held[body]);
                    self.carry_of = None;
                    self.carry_given = true;
                    return Some(packet(&self.carry));
                }
                // The rest of a packet whose beginning is lost.
                (true, false, _) => {}
                (false, _, false) => {
                    self.carry.clear();
                    self.hold(&page, body);
                }
                (true, true, false) => self.hold(&page, body),
            }
        }
    }

    /// Bytes skipped since the last good page, or since the start.
    pub fn junk_bytes(&self) -> usize {
        self.junk_bytes
    }

    /// Good pages so far.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Pages with a wrong checksum so far; their bytes are searched for the next page.
    pub fn damaged_pages(&self) -> u64 {
        self.damaged_pages
    }

    /// Takes one packet's bytes off the open page: where they lie, and whether the packet ends here.
    fn next_body(&mut self, page: OpenPage) -> Option<(std::ops::Range<usize>, bool)> {
        if page.next_segment == page.segments_end {
            self.at = page.body_at;
            return None;
        }
        let table = &self.held[page.next_segment..page.segments_end];
        let full_segments = table.iter().take_while(|&&bytes| bytes == 255).count();
        let whole = full_segments < table.len();
        let last_bytes = table.get(full_segments).map_or(0, |&bytes| bytes.into());
        let body = page.body_at..page.body_at + full_segments * 255 + last_bytes;
        if let Some(open) = &mut self.page {
            open.next_segment += full_segments + usize::from(whole);
            open.body_at = body.end;
            open.continues = false;
        }
        Some((body, whole))
    }

    /// Keeps the unfinished packet at the end of `page`.
    fn hold(&mut self, page: &OpenPage, body: std::ops::Range<usize>) {
        if self.carry.len() + body.len() > PACKET_BYTES_MAX {
            self.carry.clear();
            self.carry_of = None;
            return;
        }
        self.carry.extend_from_slice(&self.held[body]);
        self.carry_of = Some(CarryKey {
            serial: page.serial,
            sequence: page.sequence.wrapping_add(1),
        });
    }

    /// Looks for the next page with a good checksum; `false` until more bytes come.
    fn open_page(&mut self) -> bool {
        loop {
            let rest = &self.held[self.at..];
            let found = rest.windows(CAPTURE.len()).position(|four| four == CAPTURE);
            // Without a capture pattern, the last bytes may still be the beginning of one.
            let skipped = found.unwrap_or_else(|| rest.len() - tail_of_capture(rest));
            self.skip(skipped);
            if found.is_none() {
                return false;
            }
            let rest = &self.held[self.at..];
            if rest.len() < HEADER_BYTES {
                return false;
            }
            let n_segments = usize::from(rest[26]);
            let body_at = HEADER_BYTES + n_segments;
            if rest[4] != 0 {
                self.skip(CAPTURE.len());
                continue;
            }
            if rest.len() < body_at {
                return false;
            }
            let body_bytes: usize = rest[HEADER_BYTES..body_at]
                .iter()
                .copied()
                .map(usize::from)
                .sum();
            if rest.len() < body_at + body_bytes {
                return false;
            }
            let page = &rest[..body_at + body_bytes];
            if page_checksum(page) != le_u32(&page[22..]) {
                self.damaged_pages += 1;
                self.skip(CAPTURE.len());
                continue;
            }
            let flags = page[5];
            self.page = Some(OpenPage {
                serial: le_u32(&page[14..]),
                sequence: le_u32(&page[18..]),
                begins_stream: flags & FLAG_FIRST != 0,
                continues: flags & FLAG_CONTINUED != 0,
                next_segment: self.at + HEADER_BYTES,
                segments_end: self.at + body_at,
                body_at: self.at + body_at,
            });
            self.pages += 1;
            self.junk_bytes = 0;
            return true;
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.at += bytes;
        self.junk_bytes += bytes;
    }
}

/// How many bytes at the end of `bytes` could be the beginning of a capture pattern.
fn tail_of_capture(bytes: &[u8]) -> usize {
    (1..CAPTURE.len())
        .rev()
        .find(|&n| bytes.ends_with(&CAPTURE[..n]))
        .unwrap_or(0)
}

/// The first four bytes as a little-endian number. Callers have checked the length.
fn le_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// The checksum of a whole page, its own checksum field taken as zeros (RFC 3533, section 6: polynomial 0x04c11db7,
/// nothing reflected, start and end 0).
pub fn page_checksum(page: &[u8]) -> u32 {
    let (head, rest) = page.split_at(page.len().min(22));
    let crc = checksum(0, head);
    let crc = checksum(crc, &[0; 4][..rest.len().min(4)]);
    checksum(crc, rest.get(4..).unwrap_or(&[]))
}

fn checksum(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, &byte| {
        (crc << 8) ^ CRC_TABLE[usize::from((crc >> 24) as u8 ^ byte)]
    })
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc << 1) ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use ogg::{PacketWriteEndInfo, PacketWriter};
    use proptest::prelude::*;

    /// A stream as another implementation writes it.
    fn written(serial: u32, packets: &[Vec<u8>], flush: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = PacketWriter::new(&mut bytes);
        for (index, packet) in packets.iter().enumerate() {
            let end = match (index + 1 == packets.len(), flush) {
                (true, _) => PacketWriteEndInfo::EndStream,
                (false, true) => PacketWriteEndInfo::EndPage,
                (false, false) => PacketWriteEndInfo::NormalPacket,
            };
            writer
                .write_packet(packet.clone(), serial, end, index as u64)
                .unwrap();
        }
        drop(writer);
        bytes
    }

    /// Everything a reader gives for `bytes` in pieces of the given sizes.
    fn read(bytes: &[u8], pieces: &[usize]) -> (Vec<Vec<u8>>, OggReader) {
        let mut reader = OggReader::new();
        let mut packets = Vec::new();
        let mut rest = bytes;
        for index in 0.. {
            if rest.is_empty() {
                break;
            }
            let (piece, later) = rest.split_at(pieces[index % pieces.len()].min(rest.len()));
            rest = later;
            reader.push(piece);
            while let Some(packet) = reader.next_packet() {
                packets.push(packet.data.to_vec());
            }
            assert!(reader.held.len() - reader.at <= PAGE_BYTES_MAX);
        }
        (packets, reader)
    }

    proptest! {
        #[test]
        fn packets_come_out_as_another_writer_put_them_in_however_the_bytes_are_cut(
            sizes in proptest::collection::vec(prop_oneof![0..4usize, 250..260usize, 500..700usize, 60_000..70_000usize], 1..8),
            pieces in proptest::collection::vec(prop_oneof![1..5usize, 20..400usize, 5_000..80_000usize], 1..6),
            flush in any::<bool>(),
        ) {
            let packets: Vec<Vec<u8>> = sizes.iter().enumerate()
                .map(|(index, &size)| (0..size).map(|at| (at * 7 + index) as u8).collect())
                .collect();
            let (found, reader) = read(&written(5, &packets, flush), &pieces);
            prop_assert!(found == packets);
            prop_assert_eq!((reader.junk_bytes(), reader.damaged_pages()), (0, 0));
        }

        #[test]
        fn no_bytes_panic_and_memory_stays_bounded(
            junk in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'O'), Just(b'g'), Just(b'S'), Just(0)], 0..2_000),
            piece in 1..300usize,
        ) {
            read(&junk, &[piece]);
        }
    }

    #[test]
    fn damage_costs_the_damaged_page_and_nothing_else() {
        let packets: Vec<Vec<u8>> = (0..10).map(|index| vec![index; 100]).collect();
        let good = written(1, &packets, true);
        for damaged_byte in [0, 5, 26, 30, 60, 127] {
            let page_bytes = HEADER_BYTES + 1 + 100;
            let mut bytes = good.clone();
            bytes[3 * page_bytes + damaged_byte] ^= 0x41;
            let (found, reader) = read(&bytes, &[50]);
            let expected: Vec<_> = packets
                .iter()
                .filter(|packet| packet[0] != 3)
                .cloned()
                .collect();
            assert_eq!(found, expected, "byte {damaged_byte}");
            assert_eq!(reader.junk_bytes(), 0);
        }
    }

    #[test]
    fn junk_before_and_between_pages_is_counted_and_skipped() {
        let packets = vec![b"one".to_vec(), b"two".to_vec()];
        let stream = written(1, &packets, true);
        let page_bytes = stream.len() / 2;
        let mut bytes = b"OggO....OggS junk with a false start OggS".to_vec();
        let junk_bytes = bytes.len();
        let mut reader = OggReader::new();
        reader.push(&bytes);
        assert!(reader.next_packet().is_none());
        assert!(reader.junk_bytes() + HEADER_BYTES >= junk_bytes);
        bytes.extend_from_slice(&stream[..page_bytes]);
        bytes.extend_from_slice(b"Ogg\0");
        bytes.extend_from_slice(&stream[page_bytes..]);
        assert_eq!(read(&bytes, &[3]).0, packets);
    }

    #[test]
    fn a_packet_that_lost_a_page_is_dropped_and_the_next_one_comes_through() {
        let packets = vec![vec![1; 70_000], vec![2; 10], vec![3; 100_000], vec![4; 20]];
        let bytes = written(1, &packets, true);
        let mut pages: Vec<&[u8]> = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let n_segments = usize::from(rest[26]);
            let body: usize = rest[27..27 + n_segments]
                .iter()
                .copied()
                .map(usize::from)
                .sum();
            let (page, later) = rest.split_at(27 + n_segments + body);
            pages.push(page);
            rest = later;
        }
        for lost in 0..pages.len() {
            let kept: Vec<u8> = pages
                .iter()
                .enumerate()
                .filter(|(index, _)| *index != lost)
                .flat_map(|(_, page)| page.iter().copied())
                .collect();
            let found = read(&kept, &[1_000]).0;
            assert_eq!(found.len(), 3, "lost page {lost}");
            assert!(found.iter().all(|packet| packets.contains(packet)));
        }
    }

    #[test]
    fn chained_and_interleaved_streams_keep_their_names() {
        let mut bytes = written(7, &[b"a".to_vec(), b"b".to_vec()], true);
        bytes.extend(written(8, &[b"c".to_vec()], true));
        let mut reader = OggReader::new();
        reader.push(&bytes);
        let mut seen = Vec::new();
        while let Some(packet) = reader.next_packet() {
            seen.push((packet.serial, packet.begins_stream, packet.data[0]));
        }
        assert_eq!(seen, [(7, true, b'a'), (7, false, b'b'), (8, true, b'c')]);
    }

    #[test]
    fn a_packet_beyond_the_limit_is_skipped_whole() {
        let packets = vec![vec![1; PACKET_BYTES_MAX + 70_000], vec![2; 10]];
        assert_eq!(read(&written(1, &packets, true), &[9_000]).0, [vec![2; 10]]);
    }
}
