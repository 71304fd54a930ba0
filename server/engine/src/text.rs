//! Joins the text pieces of one row: bytes become characters, spaces stay spaces.
//!
//! Lives here: [`TextJoiner`], the bytes of one row that do not form a character yet.
//! May not live here: token ids, other rows.

use arrayvec::{ArrayString, ArrayVec};
use slots::engine::TEXT_BYTES_MAX;

use crate::tokenizer::Piece;

/// Most bytes of one character.
const CHAR_BYTES_MAX: usize = 4;

/// Bytes of one row that may still become a character; always the start of a valid one.
#[derive(Clone, Debug, Default)]
pub struct TextJoiner {
    held: ArrayVec<u8, CHAR_BYTES_MAX>,
}

impl TextJoiner {
    /// Adds one piece to `out`, with what became complete by it. Bytes that can no longer become a character come out
    /// as U+FFFD. A piece of text ends a character that was begun; nothing and control pieces do not.
    pub fn push(&mut self, piece: &Piece, out: &mut ArrayString<TEXT_BYTES_MAX>) {
        match piece {
            Piece::Text(text) => {
                self.flush(out);
                append(out, text);
            }
            Piece::Byte(byte) => self.push_byte(*byte, out),
            Piece::Control => {}
        }
    }

    /// Gives out what is held back, as U+FFFD: the call is over or other text follows.
    pub fn flush(&mut self, out: &mut ArrayString<TEXT_BYTES_MAX>) {
        if !self.held.is_empty() {
            self.held.clear();
            append(out, "\u{fffd}");
        }
    }

    /// Forgets what is held back: the row changes hands.
    pub fn reset(&mut self) {
        self.held.clear();
    }

    fn push_byte(&mut self, byte: u8, out: &mut ArrayString<TEXT_BYTES_MAX>) {
        // `held` is a proper prefix of a character, at most three bytes, so there is room.
        self.held.push(byte);
        match std::str::from_utf8(&self.held) {
            Ok(text) => {
                append(out, text);
                self.held.clear();
            }
            Err(error) if error.error_len().is_none() => {}
            Err(_) if self.held.len() == 1 => {
                append(out, "\u{fffd}");
                self.held.clear();
            }
            Err(_) => {
                // The new byte does not go on where the held ones stopped: they are lost, it may begin anew.
                self.held.clear();
                append(out, "\u{fffd}");
                self.push_byte(byte, out);
            }
        }
    }
}

/// The tokenizer refuses pieces that would not fit; a longer text is cut at a character.
fn append(out: &mut ArrayString<TEXT_BYTES_MAX>, text: &str) {
    for character in text.chars() {
        if out.try_push(character).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(pieces: &[Piece]) -> (String, usize) {
        let mut joiner = TextJoiner::default();
        let mut all = String::new();
        for piece in pieces {
            let mut out = ArrayString::new();
            joiner.push(piece, &mut out);
            all.push_str(&out);
        }
        (all, joiner.held.len())
    }

    fn bytes(bytes: &[u8]) -> Vec<Piece> {
        bytes.iter().map(|&byte| Piece::Byte(byte)).collect()
    }

    #[test]
    fn bytes_come_out_once_they_form_a_character() {
        let cases: [(&str, Vec<Piece>, &str, usize); 8] = [
            ("a whole character", bytes("🙂é".as_bytes()), "🙂é", 0),
            ("a begun character waits", bytes(&[0xe6, 0x9d]), "", 2),
            (
                "a byte that starts nothing",
                bytes(&[0xff, b'a']),
                "\u{fffd}a",
                0,
            ),
            ("a lone continuation", bytes(&[0x80, b'a']), "\u{fffd}a", 0),
            (
                "a character cut off by another",
                bytes(&[0xe6, 0x9d, 0xc3, 0xa9]),
                "\u{fffd}é",
                0,
            ),
            (
                "text ends a begun character",
                [bytes(&[0xe6]), vec![Piece::Text(" a".into())]].concat(),
                "\u{fffd} a",
                0,
            ),
            (
                "silence does not",
                [bytes(&[0xc3]), vec![Piece::Control], bytes(&[0xa9])].concat(),
                "é",
                0,
            ),
            (
                "an overlong form",
                bytes(&[0xe0, 0x80]),
                "\u{fffd}\u{fffd}",
                0,
            ),
        ];
        for (name, pieces, text, held) in cases {
            assert_eq!(join(&pieces), (text.into(), held), "{name}");
        }
    }

    #[test]
    fn joined_bytes_are_what_the_standard_library_makes_of_them() {
        // Every pair and a spread of longer strings over the bytes that matter.
        let kinds = [
            b'a', 0x80, 0x9f, 0xa0, 0xbf, 0xc1, 0xc3, 0xe0, 0xed, 0xe6, 0xf0, 0xf4, 0xf5,
        ];
        for first in kinds {
            for second in kinds {
                for third in kinds {
                    let text = [first, second, third, b'z'];
                    let expected = String::from_utf8_lossy(&text);
                    assert_eq!(join(&bytes(&text)).0, expected, "{text:x?}");
                }
            }
        }
    }

    #[test]
    fn the_longest_piece_fits_beside_held_back_bytes() {
        let longest = "x".repeat(TEXT_BYTES_MAX - 4);
        let pieces = [
            bytes(&[0xf0, 0x9f, 0x99]),
            vec![Piece::Text(longest.as_str().into())],
        ];
        assert_eq!(join(&pieces.concat()).0, format!("\u{fffd}{longest}"));
    }
}
