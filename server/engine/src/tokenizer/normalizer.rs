//! The normalisation a SentencePiece file asks for: its compiled character map, and the rules about spaces.
//!
//! Source: the format of `precompiled_charsmap`: `u32` length of a Darts double array, the array of `u32` units, then
//! the replacements, each ended by a zero byte.

use sentencepiece_model::NormalizerSpec;

use super::{META_SPACE, TokenizerError};

#[derive(Debug)]
pub(super) struct Normalizer {
    units: Vec<u32>,
    replacements: Vec<u8>,
    symbols: Vec<Box<str>>,
    add_dummy_prefix: bool,
    remove_extra_whitespaces: bool,
    space_as_suffix: bool,
    space: char,
}

impl Normalizer {
    pub(super) fn new(
        spec: &NormalizerSpec,
        space_as_suffix: bool,
        symbols: Vec<Box<str>>,
    ) -> Result<Self, TokenizerError> {
        let (units, replacements) = character_map(spec.precompiled_charsmap())?;
        Ok(Self {
            units,
            replacements,
            symbols,
            add_dummy_prefix: spec.add_dummy_prefix(),
            remove_extra_whitespaces: spec.remove_extra_whitespaces(),
            space_as_suffix,
            space: if spec.escape_whitespaces() {
                META_SPACE
            } else {
                ' '
            },
        })
    }

    pub(super) fn normalize(&self, text: &str) -> String {
        let mut rest = text;
        if self.remove_extra_whitespaces {
            while !rest.is_empty() {
                let (part, consumed) = self.prefix(rest);
                if part != " " {
                    break;
                }
                rest = &rest[consumed..];
            }
        }
        let mut out = String::with_capacity(3 * rest.len() / 2 + 3);
        if rest.is_empty() {
            return out;
        }
        if self.add_dummy_prefix && !self.space_as_suffix {
            out.push(self.space);
        }
        let mut after_space = self.remove_extra_whitespaces;
        while !rest.is_empty() {
            let (mut part, consumed) = self.prefix(rest);
            if after_space {
                part = part.trim_start_matches(' ');
            }
            if !part.is_empty() {
                out.extend(part.chars().map(|c| if c == ' ' { self.space } else { c }));
                after_space = part.ends_with(' ');
            }
            rest = &rest[consumed..];
            after_space &= self.remove_extra_whitespaces;
        }
        if self.remove_extra_whitespaces {
            out.truncate(out.trim_end_matches(self.space).len());
        }
        if self.add_dummy_prefix && self.space_as_suffix {
            out.push(self.space);
        }
        out
    }

    /// The user-defined symbol at the start of `text`, longest first.
    pub(super) fn symbol_at(&self, text: &str) -> Option<usize> {
        let symbols = self.symbols.iter().filter(|symbol| !symbol.is_empty());
        let mut found = symbols.filter(|symbol| text.starts_with(&***symbol));
        found.next().map(|symbol| symbol.len())
    }

    /// What the first characters of `text` become, and how many bytes of it that takes.
    fn prefix<'a>(&'a self, text: &'a str) -> (&'a str, usize) {
        if let Some(length) = self.symbol_at(text) {
            return (&text[..length], length);
        }
        if let Some((replacement, length)) = self.longest_match(text) {
            return (replacement, length);
        }
        let length = text.chars().next().map_or(0, char::len_utf8);
        (&text[..length], length)
    }

    /// Walks the double array; a damaged one ends the walk.
    fn longest_match(&self, text: &str) -> Option<(&str, usize)> {
        let mut found = None;
        let mut position = offset(*self.units.first()?);
        for (index, byte) in text.bytes().enumerate() {
            position ^= usize::from(byte);
            let Some(&unit) = self.units.get(position) else {
                break;
            };
            if unit & (1 << 31 | 0xff) != u32::from(byte) {
                break;
            }
            position ^= offset(unit);
            if unit >> 8 & 1 == 1
                && let Some(&leaf) = self.units.get(position)
            {
                found = Some((leaf & 0x7fff_ffff, index + 1));
            }
        }
        let (start, length) = found.filter(|&(_, length)| text.is_char_boundary(length))?;
        let tail = self.replacements.get(start as usize..)?;
        let end = tail.iter().position(|&byte| byte == 0)?;
        Some((std::str::from_utf8(&tail[..end]).ok()?, length))
    }
}

fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize
}

fn character_map(blob: &[u8]) -> Result<(Vec<u32>, Vec<u8>), TokenizerError> {
    if blob.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let (length, rest) = blob
        .split_first_chunk::<4>()
        .ok_or(TokenizerError::CharacterMap)?;
    let (array, replacements) = rest
        .split_at_checked(u32::from_le_bytes(*length) as usize)
        .ok_or(TokenizerError::CharacterMap)?;
    let units = array.as_chunks::<4>().0.iter();
    Ok((
        units.map(|&unit| u32::from_le_bytes(unit)).collect(),
        replacements.to_vec(),
    ))
}
