//! The pairs of a query and the forms their values may have.
//!
//! Lives here: percent decoding, number formats.
//! May not live here: which parameters there are.

use super::{QueryError, Secret, VOICE, refused, voice_name};

/// The longest resume token, in characters; the server's own have 32.
const RESUME_CHARS_MAX: usize = 64;
const SEED_EXPECTED: &str = "a whole number from 0 to 18446744073709551615, or -1 for none";
const FLOAT_EXPECTED: &str = "a finite number";
const COUNT_EXPECTED: &str = "a whole number from 0 to 4294967295";

/// Decoded names with values still as sent, so that an unknown parameter cannot fail.
pub(super) struct Pairs<'a>(Vec<(Vec<u8>, &'a str)>);

impl<'a> Pairs<'a> {
    pub(super) fn parse(query: &'a str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(name, value)| (percent_decoded(name), value))
                .collect(),
        )
    }

    /// The decoded value of `name`, unless it is missing or empty.
    pub(super) fn text(&self, name: &'static str) -> Result<Option<String>, QueryError> {
        let sent = self.0.iter().find(|(sent, _)| sent == name.as_bytes());
        let Some((_, value)) = sent else {
            return Ok(None);
        };
        let value =
            String::from_utf8(percent_decoded(value)).map_err(|_| QueryError::NotUtf8 { name })?;
        Ok(Some(value).filter(|value| !value.is_empty()))
    }

    pub(super) fn prompt(&self) -> Result<Option<String>, QueryError> {
        match self.text("text_prompt")? {
            Some(text) if text.contains('\0') => Err(refused(
                "text_prompt",
                &text,
                "text without the character of code 0",
            )),
            text => Ok(text),
        }
    }

    pub(super) fn voice(&self) -> Result<Option<String>, QueryError> {
        self.text(VOICE)?.map(|sent| voice_name(&sent)).transpose()
    }

    pub(super) fn seed(&self, name: &'static str) -> Result<Option<u64>, QueryError> {
        match self.text(name)?.as_deref() {
            None | Some("-1") => Ok(None),
            Some(value) => digits(value)
                .map(Some)
                .ok_or_else(|| refused(name, value, SEED_EXPECTED)),
        }
    }

    pub(super) fn count(&self, name: &'static str) -> Result<Option<u32>, QueryError> {
        let Some(value) = self.text(name)? else {
            return Ok(None);
        };
        digits(&value)
            .map(Some)
            .ok_or_else(|| refused(name, &value, COUNT_EXPECTED))
    }

    pub(super) fn float(&self, name: &'static str) -> Result<Option<f32>, QueryError> {
        let Some(value) = self.text(name)? else {
            return Ok(None);
        };
        match value.parse::<f32>() {
            Ok(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(refused(name, &value, FLOAT_EXPECTED)),
        }
    }

    pub(super) fn switch(&self, name: &'static str) -> Result<bool, QueryError> {
        match self.text(name)?.as_deref() {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(value) => Err(refused(name, value, "0 or 1")),
        }
    }

    pub(super) fn resume(&self) -> Result<Option<Secret>, QueryError> {
        match self.text("resume")? {
            Some(token)
                if token.len() > RESUME_CHARS_MAX
                    || !token.bytes().all(|b| b.is_ascii_alphanumeric()) =>
            {
                Err(QueryError::Value {
                    name: "resume",
                    value: "***".to_owned(),
                    expected: "a token of at most 64 letters and digits",
                })
            }
            token => Ok(token.map(Secret)),
        }
    }
}

/// Digits and nothing else: `parse` alone would also take a plus sign.
fn digits<N: std::str::FromStr>(value: &str) -> Option<N> {
    value
        .bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| value.parse().ok())
        .flatten()
}

/// `+` is a space, `%` with two hexadecimal digits is a byte, any other `%` stays as it is (as browsers do).
fn percent_decoded(sent: &str) -> Vec<u8> {
    let hex = |digit: Option<&u8>| digit.and_then(|digit| char::from(*digit).to_digit(16));
    let sent = sent.as_bytes();
    let mut decoded = Vec::with_capacity(sent.len());
    let mut at = 0;
    while let Some(&byte) = sent.get(at) {
        match (byte, hex(sent.get(at + 1)), hex(sent.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                at += 3;
                continue;
            }
            (b'+', ..) => decoded.push(b' '),
            _ => decoded.push(byte),
        }
        at += 1;
    }
    decoded
}
