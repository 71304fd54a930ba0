//! What a stream is when it is not Ogg-Opus, told by its first bytes, so that the error can name it.
//!
//! May not live here: reading any of these formats.

/// Bytes needed to tell; fewer may do.
pub const MAGIC_BYTES: usize = 12;

/// Names the container that begins with `head`, if it is a known one that is not Ogg.
pub fn known_container(head: &[u8]) -> Option<&'static str> {
    let begins: [(&[u8], &'static str); 11] = [
        (b"\x1a\x45\xdf\xa3", "WebM or Matroska"),
        (b"RIFF", "WAV"),
        (b"RF64", "WAV"),
        (b"FORM", "AIFF"),
        (b"fLaC", "FLAC"),
        (b"ID3", "MP3"),
        (b"caff", "CAF"),
        (b"#!AMR", "AMR"),
        (b"\xff\xf1", "AAC (ADTS)"),
        (b"\xff\xf9", "AAC (ADTS)"),
        (b"OpusHead", "Opus headers without Ogg pages"),
    ];
    let mp4 = matches!(head.get(4..8), Some(b"ftyp" | b"styp" | b"moof" | b"moov"));
    let named = begins.iter().find(|(magic, _)| head.starts_with(magic));
    match named {
        Some((_, name)) => Some(name),
        None if mp4 => Some("MP4"),
        None => None,
    }
}

/// Names the codec of an Ogg stream by its first packet, if it is a known one that is not Opus.
/// The second value is whether the stream is sound at all: pictures and indexes beside it are skipped.
pub fn other_ogg_codec(first_packet: &[u8]) -> Option<(&'static str, bool)> {
    let begins: [(&[u8], &'static str, bool); 6] = [
        (b"\x01vorbis", "Vorbis", true),
        (b"\x7fFLAC", "FLAC", true),
        (b"Speex   ", "Speex", true),
        (b"\x80theora", "Theora", false),
        (b"fishead\0", "Skeleton", false),
        (b"\x01video", "video", false),
    ];
    let named = begins
        .iter()
        .find(|(magic, ..)| first_packet.starts_with(magic));
    named.map(|&(_, name, is_sound)| (name, is_sound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_known_by_their_first_bytes() {
        let cases: [(&[u8], Option<&str>); 8] = [
            (
                b"\x1a\x45\xdf\xa3\x9fB\x86\x81\x01",
                Some("WebM or Matroska"),
            ),
            (b"\0\0\0\x18ftypiso5", Some("MP4")),
            (b"\0\0\x02\x10moof\0\0\0", Some("MP4")),
            (b"RIFF\x24\x08\0\0WAVE", Some("WAV")),
            (b"\xff\xf1\x50\x80", Some("AAC (ADTS)")),
            (b"OggS", None),
            (b"\xfc\x7f\x01\x02\x03\x04\x05\x06", None),
            (b"", None),
        ];
        for (head, name) in cases {
            assert_eq!(known_container(head), name, "{head:?}");
        }
    }
}
