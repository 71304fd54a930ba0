//! A new voice as its form holds it: what can be said about a file before it is sent.
//!
//! The server looks at the content and decides; what is refused here would be refused there, only later.

use wire::api::voices::{
    CONSENT_CHARS_MAX, RECORDING_SECONDS_MAX, RECORDING_SECONDS_MIN, UPLOAD_BYTES_MAX,
};
use wire::query::voice_name;

use super::text::bytes;

/// What a file seems to be, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Made for this model.
    Bundle,
    /// Somebody speaking.
    Recording,
}

impl Kind {
    /// What the file field lets be chosen.
    pub const ACCEPT: &str = ".pt,.safetensors,.wav,.flac,.ogg,.oga,.opus,.mp3,audio/*";

    pub fn of(file_name: &str) -> Self {
        match file_name.to_ascii_lowercase().rsplit_once('.') {
            Some((_, "pt" | "safetensors")) => Self::Bundle,
            _ => Self::Recording,
        }
    }

    /// What will be done with it.
    pub fn promise(self) -> String {
        match self {
            Self::Bundle => {
                "A bundle. It must be made for this model; nothing in it is executed.".to_owned()
            }
            Self::Recording => format!(
                "A recording: one person, {RECORDING_SECONDS_MIN} to {RECORDING_SECONDS_MAX} s without the silence at \
                 both ends. It is mixed to mono and brought to an even loudness. Silent, clipped and longer ones are refused."
            ),
        }
    }
}

/// What is to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VoiceForm {
    /// How callers will name it.
    pub name: String,
    /// Who is heard, and that they agreed.
    pub consent: String,
    /// The chosen file's name, and its length in bytes.
    pub file: Option<(String, u64)>,
}

/// What stands in the way, by the field it stands at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    pub file: Option<String>,
    pub name: Option<String>,
    pub consent: Option<String>,
}

impl VoiceForm {
    /// A name out of a file's: its letters and digits, without the extension.
    pub fn name_of(file_name: &str) -> String {
        let stem = file_name
            .rsplit_once('.')
            .map_or(file_name, |(stem, _)| stem);
        let mut name = String::new();
        for c in stem.chars() {
            match c.is_alphanumeric() || c == '-' {
                true => name.push(c),
                false if !name.ends_with('_') => name.push('_'),
                false => {}
            }
        }
        name.trim_matches(['_', '-']).chars().take(64).collect()
    }

    /// Whether the server will ask for a consent statement.
    pub fn needs_consent(&self) -> bool {
        let kind = self.file.as_ref().map(|(name, _)| Kind::of(name));
        kind == Some(Kind::Recording)
    }

    /// # Errors
    /// [`Missing`]: it would be refused.
    pub fn check(&self) -> Result<(), Missing> {
        let mut missing = Missing::default();
        match &self.file {
            None => missing.file = Some("Choose a file.".to_owned()),
            Some((_, 0)) => missing.file = Some("This file is empty.".to_owned()),
            Some((_, length)) if *length > UPLOAD_BYTES_MAX as u64 => {
                missing.file = Some(format!(
                    "This file has {}, at most {} are taken.",
                    bytes(*length),
                    bytes(UPLOAD_BYTES_MAX as u64)
                ));
            }
            Some(_) => {}
        }
        if voice_name(self.name.trim()).is_err() {
            missing.name = Some(
                "1 to 64 letters, digits, _ or -; dots and spaces only between them.".to_owned(),
            );
        }
        let consent = self.consent.trim().chars().count();
        if self.needs_consent() && consent == 0 {
            missing.consent = Some("Say who is heard and that they agreed.".to_owned());
        } else if consent > CONSENT_CHARS_MAX {
            missing.consent = Some(format!("At most {CONSENT_CHARS_MAX} characters."));
        }
        match missing == Missing::default() {
            true => Ok(()),
            false => Err(missing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(file: &str, length: u64) -> VoiceForm {
        VoiceForm {
            name: "Ada".into(),
            consent: "Ada, who agreed".into(),
            file: Some((file.into(), length)),
        }
    }

    #[test]
    fn a_recording_needs_somebody_who_agreed_and_a_bundle_does_not() {
        let silent = |file| VoiceForm {
            consent: " \n".into(),
            ..form(file, 1)
        };
        let missing = silent("ada.WAV").check().expect_err("nobody agreed");
        assert!(missing.consent.is_some() && missing.file.is_none() && missing.name.is_none());
        assert_eq!(silent("ada.PT").check(), Ok(()));
        assert_eq!(silent("a.b.safetensors").check(), Ok(()));
        assert_eq!(
            form("ada", 1).check(),
            Ok(()),
            "what it is, the server finds out"
        );
    }

    #[test]
    fn what_the_server_would_refuse_is_said_beside_its_field() {
        let max = UPLOAD_BYTES_MAX as u64;
        assert_eq!(form("ada.wav", max).check(), Ok(()));
        for (form, at_file, at_name) in [
            (form("ada.wav", max + 1), true, false),
            (form("ada.wav", 0), true, false),
            (
                VoiceForm {
                    file: None,
                    ..form("", 1)
                },
                true,
                false,
            ),
            (
                VoiceForm {
                    name: "../x".into(),
                    ..form("x.pt", 1)
                },
                false,
                true,
            ),
            (
                VoiceForm {
                    name: " ".into(),
                    ..form("x.pt", 0)
                },
                true,
                true,
            ),
        ] {
            let missing = form.check().expect_err("refused");
            assert_eq!(
                (missing.file.is_some(), missing.name.is_some()),
                (at_file, at_name),
                "{form:?}"
            );
        }
        let long = VoiceForm {
            consent: "é".repeat(CONSENT_CHARS_MAX + 1),
            ..form("x.pt", 1)
        };
        assert!(long.check().expect_err("long").consent.is_some());
    }

    #[test]
    fn a_files_name_suggests_one_that_is_allowed() {
        for (file, name) in [
            ("My voice (final).wav", "My_voice_final"),
            ("NATF0.pt", "NATF0"),
            ("etc/passwd", "etc_passwd"),
            ("Zoë-2.flac", "Zoë-2"),
            (".wav", ""),
            ("_.mp3", ""),
        ] {
            let suggested = VoiceForm::name_of(file);
            assert_eq!(suggested, name);
            assert!(suggested.is_empty() || voice_name(&suggested).is_ok());
        }
    }
}
