//! The query of `/api/chat`: every known parameter, typed and checked; unknown ones are ignored.
//!
//! Lives here: percent decoding, number formats, the rule that a voice is a name and never a path.
//! May not live here: ranges of sampling values (the server's `Sampling::check`), which voices exist, who may call.
//! Start reading at [`ChatQuery::parse`].

use std::fmt;

/// The longest query that is taken, in bytes as sent: a role text of 5,000 characters of mostly two or three
/// percent-encoded bytes fits.
pub const QUERY_BYTES_MAX: usize = 16 * 1024;
/// The longest voice name, in characters.
pub const VOICE_CHARS_MAX: usize = 64;
/// Extensions a voice name may carry; clients of the published server send file names.
pub const VOICE_EXTENSIONS: [&str; 2] = [".pt", ".safetensors"];
/// How much of a refused value an error repeats, in characters.
const SHOWN_CHARS_MAX: usize = 40;
/// The longest resume token, in characters; the server's own have 32.
const RESUME_CHARS_MAX: usize = 64;

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
const SEED_EXPECTED: &str = "a whole number from 0 to 18446744073709551615, or -1 for none";
const FLOAT_EXPECTED: &str = "a finite number";
const COUNT_EXPECTED: &str = "a whole number from 0 to 4294967295";

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
        })
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

/// Decoded names with values still as sent, so that an unknown parameter cannot fail.
struct Pairs<'a>(Vec<(Vec<u8>, &'a str)>);

impl<'a> Pairs<'a> {
    fn parse(query: &'a str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(name, value)| (percent_decoded(name), value))
                .collect(),
        )
    }

    /// The decoded value of `name`, unless it is missing or empty.
    fn text(&self, name: &'static str) -> Result<Option<String>, QueryError> {
        let sent = self.0.iter().find(|(sent, _)| sent == name.as_bytes());
        let Some((_, value)) = sent else {
            return Ok(None);
        };
        let value =
            String::from_utf8(percent_decoded(value)).map_err(|_| QueryError::NotUtf8 { name })?;
        Ok(Some(value).filter(|value| !value.is_empty()))
    }

    fn prompt(&self) -> Result<Option<String>, QueryError> {
        match self.text("text_prompt")? {
            Some(text) if text.contains('\0') => Err(refused(
                "text_prompt",
                &text,
                "text without the character of code 0",
            )),
            text => Ok(text),
        }
    }

    fn voice(&self) -> Result<Option<String>, QueryError> {
        self.text(VOICE)?.map(|sent| voice_name(&sent)).transpose()
    }

    fn seed(&self, name: &'static str) -> Result<Option<u64>, QueryError> {
        match self.text(name)?.as_deref() {
            None | Some("-1") => Ok(None),
            Some(value) => digits(value)
                .map(Some)
                .ok_or_else(|| refused(name, value, SEED_EXPECTED)),
        }
    }

    fn count(&self, name: &'static str) -> Result<Option<u32>, QueryError> {
        let Some(value) = self.text(name)? else {
            return Ok(None);
        };
        digits(&value)
            .map(Some)
            .ok_or_else(|| refused(name, &value, COUNT_EXPECTED))
    }

    fn float(&self, name: &'static str) -> Result<Option<f32>, QueryError> {
        let Some(value) = self.text(name)? else {
            return Ok(None);
        };
        match value.parse::<f32>() {
            Ok(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(refused(name, &value, FLOAT_EXPECTED)),
        }
    }

    fn switch(&self, name: &'static str) -> Result<bool, QueryError> {
        match self.text(name)?.as_deref() {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(value) => Err(refused(name, value, "0 or 1")),
        }
    }

    fn resume(&self) -> Result<Option<Secret>, QueryError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_query_asks_for_nothing() {
        for query in [
            "",
            "&&",
            "=",
            "unknown=1",
            "voice_prompt=&seed=&text_prompt=",
            "%ff=%ff",
        ] {
            assert_eq!(ChatQuery::parse(query), Ok(ChatQuery::default()), "{query}");
        }
    }

    #[test]
    fn the_query_of_the_published_web_client_is_understood() {
        let query = "text_temperature=0.7&text_topk=25&audio_temperature=0.8&audio_topk=250&pad_mult=0\
            &text_seed=7&audio_seed=7&repetition_penalty_context=64&repetition_penalty=1.0\
            &text_prompt=You+enjoy%20caf%C3%A9s%20%26%20tea&voice_prompt=NATF0.pt&worker_auth_id=w&email=a%40b";
        let expected = ChatQuery {
            text_prompt: Some("You enjoy cafés & tea".to_owned()),
            voice: Some("NATF0".to_owned()),
            seed: Some(7),
            text_temperature: Some(0.7),
            text_top_k: Some(25),
            audio_temperature: Some(0.8),
            audio_top_k: Some(250),
            pad_mult: Some(0.0),
            repetition_penalty: Some(1.0),
            repetition_penalty_context: Some(64),
            token: Some(Secret::new("w")),
            email: Some(Secret::new("a@b")),
            ext: false,
            resume: None,
        };
        assert_eq!(ChatQuery::parse(query), Ok(expected));
    }

    #[test]
    fn seeds_are_taken_left_out_or_refused() {
        let cases: [(&str, Result<Option<u64>, ()>); 19] = [
            ("seed=42", Ok(Some(42))),
            ("seed=0", Ok(Some(0))),
            ("seed=-1", Ok(None)),
            ("seed=", Ok(None)),
            ("seed", Ok(None)),
            ("seed=9223372036854775808", Ok(Some(1 << 63))),
            ("seed=18446744073709551615", Ok(Some(u64::MAX))),
            ("seed=18446744073709551616", Err(())),
            ("seed=2^63", Err(())),
            ("seed=abc", Err(())),
            ("seed=-2", Err(())),
            ("seed=3.7", Err(())),
            ("seed=%2B5", Err(())),
            ("seed=+5", Err(())),
            ("seed=1e999", Err(())),
            ("seed=NaN", Err(())),
            ("text_seed=5&seed=9&audio_seed=6", Ok(Some(9))),
            ("audio_seed=6", Ok(Some(6))),
            ("seed=9&audio_seed=x", Err(())),
        ];
        for (query, expected) in cases {
            let seed = ChatQuery::parse(query).map(|query| query.seed);
            assert_eq!(seed.map_err(drop), expected, "{query}");
        }
    }

    #[test]
    fn two_seeds_make_one_and_each_of_them_counts() {
        let seed = |query| ChatQuery::parse(query).unwrap().seed;
        let both = seed("text_seed=5&audio_seed=6");
        assert_ne!(both, seed("text_seed=6&audio_seed=5"));
        assert_ne!(both, seed("text_seed=5&audio_seed=7"));
        assert_eq!(both, seed("audio_seed=6&text_seed=5"));
    }

    #[test]
    fn numbers_that_are_none_are_refused_by_name() {
        let refused = [
            "text_temperature=NaN",
            "text_temperature=inf",
            "audio_temperature=1e999",
            "audio_temperature=warm",
            "text_topk=-3",
            "text_topk=25.0",
            "audio_topk=99999999999",
            "pad_mult=--1",
            "repetition_penalty=-inf",
            "repetition_penalty_context=1e2",
            "ext=yes",
            "text_prompt=a%00b",
            "text_prompt=%ff",
            "resume=../x",
        ];
        for query in refused {
            let (name, _) = query.split_once('=').unwrap();
            let error = ChatQuery::parse(query).unwrap_err().to_string();
            assert!(error.starts_with(name), "{query}: {error}");
        }
    }

    #[test]
    fn a_voice_is_a_name_and_never_a_path() {
        let taken = [
            ("NATF0", "NATF0"),
            ("NATF0.pt", "NATF0"),
            ("my.voice-2.safetensors", "my.voice-2"),
            ("J%C3%BCrgen+B", "Jürgen B"),
        ];
        for (sent, name) in taken {
            let voice = ChatQuery::parse(&format!("voice_prompt={sent}"))
                .unwrap()
                .voice;
            assert_eq!(voice.as_deref(), Some(name));
        }
        let long = "a".repeat(65);
        let refused = [
            "../x.pt",
            "..%2f..%2fetc%2fpasswd",
            "%2e%2e",
            "%252e%252e",
            "/etc/passwd",
            "C:%5Cvoices%5Cx.pt",
            "a%5Cb",
            "a/b",
            "a%00.pt",
            "NATF0.pt%00",
            ".pt",
            ".hidden",
            "a..b",
            "a.",
            "~",
            "%20a",
            "a%0ab",
            "voices/NATF0.pt",
            "file:NATF0",
            "$HOME",
            &long,
        ];
        for sent in refused {
            let error = ChatQuery::parse(&format!("voice_prompt={sent}")).unwrap_err();
            assert_eq!(error.code(), "bad_voice", "{sent}");
        }
    }

    #[test]
    fn a_query_has_room_for_a_long_prompt_and_a_limit() {
        let prompt = "%C3%A9".repeat(2_500) + &"e".repeat(1_000);
        let query = ChatQuery::parse(&format!("text_prompt={prompt}")).unwrap();
        assert_eq!(
            query.text_prompt.map(|text| text.chars().count()),
            Some(3_500)
        );
        let long = "a".repeat(QUERY_BYTES_MAX + 1);
        let error = ChatQuery::parse(&long).unwrap_err();
        assert_eq!(
            error,
            QueryError::TooLong {
                bytes: QUERY_BYTES_MAX + 1
            }
        );
    }

    #[test]
    fn secrets_are_not_printed() {
        let query =
            ChatQuery::parse("token=hush&email=hush&resume=hush&worker_auth_id=hush").unwrap();
        assert!(!format!("{query:?}").contains("hush"));
        assert_eq!(query.token.unwrap().reveal(), "hush");
        let error = ChatQuery::parse("resume=hush!").unwrap_err();
        assert!(!error.to_string().contains("hush"));
    }

    proptest! {
        #[test]
        fn no_query_panics_and_no_voice_can_leave_its_folder(query in "(voice_prompt|text_prompt|seed|[a-z]{1,3})?=?[ -~é%]{0,60}") {
            if let Ok(ChatQuery { voice: Some(voice), .. }) = ChatQuery::parse(&query) {
                prop_assert!(!voice.contains(['/', '\\', '\0', ':', '%']) && !voice.contains(".."));
                prop_assert!(!voice.starts_with('.'));
            }
        }

        #[test]
        fn any_text_survives_percent_encoding(text in "[^\0]{1,60}") {
            let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let query = ChatQuery::parse(&format!("text_prompt={encoded}")).unwrap();
            prop_assert_eq!(query.text_prompt, Some(text));
        }
    }
}
