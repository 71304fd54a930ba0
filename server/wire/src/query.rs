//! The query of `/api/chat`: every known parameter, typed and checked; unknown ones are ignored.
//!
//! Lives here: which parameters there are, the rule that a voice is a name and never a path.
//! May not live here: number formats (`pairs`), ranges of sampling values (the server's `Sampling::check`), which voices
//! exist, who may call.
//! Start reading at [`ChatQuery::parse`].

mod pairs;

use std::fmt;

use pairs::Pairs;

/// The longest query that is taken, in bytes as sent: a role text of 5,000 characters of mostly two or three
/// percent-encoded bytes fits.
pub const QUERY_BYTES_MAX: usize = 16 * 1024;
/// The longest voice name, in characters.
pub const VOICE_CHARS_MAX: usize = 64;
/// Extensions a voice name may carry; clients of the published server send file names.
pub const VOICE_EXTENSIONS: [&str; 2] = [".pt", ".safetensors"];
/// How much of a refused value an error repeats, in characters.
const SHOWN_CHARS_MAX: usize = 40;

/// What a caller asked for. Everything is optional; the first of two equal names counts; an empty value is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatQuery {
    /// The role text, as sent.
    pub text_prompt: Option<String>,
    /// Name of the voice, without extension.
    pub voice: Option<String>,
    /// `seed`, or else what `text_seed` and `audio_seed` make together; -1 stands for none in all three.
    pub seed: Option<u64>,
    /// Finite; the range is checked by the server, like that of all sampling values here.
    pub text_temperature: Option<f32>,
    /// `text_topk`.
    pub text_top_k: Option<u32>,
    /// Finite.
    pub audio_temperature: Option<f32>,
    /// `audio_topk`.
    pub audio_top_k: Option<u32>,
    /// Finite. Checked and not used: it belongs to another model of the family.
    pub pad_mult: Option<f32>,
    /// Finite.
    pub repetition_penalty: Option<f32>,
    /// In text tokens.
    pub repetition_penalty_context: Option<u32>,
    /// `token`, or else `worker_auth_id`: what stock clients can send in place of a header.
    pub token: Option<Secret>,
    /// Sent by the published web client for its queue; checked and not used.
    pub email: Option<Secret>,
    /// `ext=1`: JSON notices and a resume token, see [`crate::notice`].
    pub ext: bool,
    /// Go on with the call this token was given for.
    pub resume: Option<Secret>,
    /// Number of a saved persona; its texts and values apply where the query names none of its own.
    pub persona: Option<u32>,
}

/// A value that no log may show: its `Debug` form is stars.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides `value`.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value. Compare it, never print it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A query that is refused, before the upgrade and with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryError {
    /// Longer than [`QUERY_BYTES_MAX`].
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A known parameter does not decode to UTF-8.
    NotUtf8 {
        /// The parameter.
        name: &'static str,
    },
    /// A value of the wrong form.
    Value {
        /// The parameter.
        name: &'static str,
        /// What was sent, shortened.
        value: String,
        /// What is taken.
        expected: &'static str,
    },
}

impl QueryError {
    /// The code for the error body.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "query_too_long",
            Self::NotUtf8 { .. } => "not_utf8",
            Self::Value { name, .. } if *name == VOICE => "bad_voice",
            Self::Value { .. } => "bad_value",
        }
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes } => write!(
                f,
                "the query has {bytes} bytes, the limit is {QUERY_BYTES_MAX}"
            ),
            Self::NotUtf8 { name } => write!(f, "{name} is not UTF-8"),
            Self::Value {
                name,
                value,
                expected,
            } => write!(f, "{name} is {value:?}, it must be {expected}"),
        }
    }
}

impl std::error::Error for QueryError {}

const VOICE: &str = "voice_prompt";

impl ChatQuery {
    /// Reads a query as it stands in the URL, without the question mark.
    ///
    /// # Errors
    /// [`QueryError`] names the first parameter that is refused.
    pub fn parse(query: &str) -> Result<Self, QueryError> {
        if query.len() > QUERY_BYTES_MAX {
            return Err(QueryError::TooLong { bytes: query.len() });
        }
        let pairs = Pairs::parse(query);
        let seed = match pairs.seed("seed")? {
            Some(seed) => {
                // The others lose, but a wrong one is still wrong.
                pairs.seed("text_seed")?;
                pairs.seed("audio_seed")?;
                Some(seed)
            }
            None => one_seed(pairs.seed("text_seed")?, pairs.seed("audio_seed")?),
        };
        let token = pairs.text("token")?;
        let worker_auth_id = pairs.text("worker_auth_id")?;
        Ok(Self {
            text_prompt: pairs.prompt()?,
            voice: pairs.voice()?,
            seed,
            text_temperature: pairs.float("text_temperature")?,
            text_top_k: pairs.count("text_topk")?,
            audio_temperature: pairs.float("audio_temperature")?,
            audio_top_k: pairs.count("audio_topk")?,
            pad_mult: pairs.float("pad_mult")?,
            repetition_penalty: pairs.float("repetition_penalty")?,
            repetition_penalty_context: pairs.count("repetition_penalty_context")?,
            token: token.or(worker_auth_id).map(Secret),
            email: pairs.text("email")?.map(Secret),
            ext: pairs.switch("ext")?,
            resume: pairs.resume()?,
            persona: pairs.count("persona")?,
        })
    }

    /// The token alone, out of a query of which nothing else needs to be in order.
    pub fn token_of(query: &str) -> Option<Secret> {
        let pairs = Pairs::parse(query);
        let text = |name| pairs.text(name).ok().flatten();
        text("token").or_else(|| text("worker_auth_id")).map(Secret)
    }
}

/// The name of a voice from what a client sent: a published extension is cut off, anything like a path is refused.
///
/// # Errors
/// [`QueryError::Value`]: letters, digits, `_`, `-`, and `.` or a space between them are taken, nothing else.
pub fn voice_name(sent: &str) -> Result<String, QueryError> {
    let name = VOICE_EXTENSIONS
        .iter()
        .find_map(|extension| sent.strip_suffix(extension))
        .unwrap_or(sent);
    let solid = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let inside = |c: char| solid(c) || c == '.' || c == ' ';
    let is_name = name.chars().count() <= VOICE_CHARS_MAX
        && name.chars().all(inside)
        && name.starts_with(solid)
        && name.ends_with(solid)
        && !name.contains("..");
    if is_name {
        Ok(name.to_owned())
    } else {
        Err(refused(
            VOICE,
            sent,
            "the name of a voice: up to 64 letters, digits, '_' or '-', never a path",
        ))
    }
}

/// One seed out of two, so that either changes the call. Published clients send both.
fn one_seed(text: Option<u64>, audio: Option<u64>) -> Option<u64> {
    match (text, audio) {
        (Some(text), Some(audio)) if text != audio => {
            // An odd factor keeps different pairs apart far better than a plain exclusive or.
            Some(text ^ audio.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31))
        }
        (Some(seed), _) | (None, Some(seed)) => Some(seed),
        (None, None) => None,
    }
}

fn refused(name: &'static str, value: &str, expected: &'static str) -> QueryError {
    let mut shown: String = value.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    QueryError::Value {
        name,
        value: shown,
        expected,
    }
}

#[cfg(test)]
mod tests;
