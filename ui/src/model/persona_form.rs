//! A persona as its form holds it: texts that may be wrong, on the way to a draft that is right.

use serde::{Deserialize, Serialize};
use wire::api::personas::{Greeting, PersonaDraft, SamplingWish};

/// A number of the sampling; empty fields leave the choice to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    TextTemperature,
    TextTopK,
    AudioTemperature,
    AudioTopK,
    RepetitionPenalty,
    RepetitionContext,
    Seed,
}

impl Number {
    pub const ALL: [Self; 7] = [
        Self::TextTemperature,
        Self::TextTopK,
        Self::AudioTemperature,
        Self::AudioTopK,
        Self::RepetitionPenalty,
        Self::RepetitionContext,
        Self::Seed,
    ];

    pub fn label(self) -> &'static str {
        match self {
            Self::TextTemperature => "Text temperature",
            Self::TextTopK => "Text top-k",
            Self::AudioTemperature => "Audio temperature",
            Self::AudioTopK => "Audio top-k",
            Self::RepetitionPenalty => "Repetition penalty",
            Self::RepetitionContext => "Penalty looks back",
            Self::Seed => "Seed",
        }
    }

    pub fn hint(self) -> &'static str {
        match self {
            Self::TextTemperature | Self::AudioTemperature => "0 (always the likeliest) to 5",
            Self::TextTopK | Self::AudioTopK => "1 to 1048576",
            Self::RepetitionPenalty => "1 (off) to 10",
            Self::RepetitionContext => "0 to 500 text tokens",
            Self::Seed => "empty: drawn for each call",
        }
    }

    pub fn read(self, of: &SamplingWish) -> String {
        fn text<T: ToString>(value: &Option<T>) -> String {
            value.as_ref().map(T::to_string).unwrap_or_default()
        }
        match self {
            Self::TextTemperature => text(&of.text_temperature),
            Self::TextTopK => text(&of.text_top_k),
            Self::AudioTemperature => text(&of.audio_temperature),
            Self::AudioTopK => text(&of.audio_top_k),
            Self::RepetitionPenalty => text(&of.repetition_penalty),
            Self::RepetitionContext => text(&of.repetition_penalty_context),
            Self::Seed => text(&of.seed),
        }
    }

    /// Puts `text` into `to`; false when it is no such number. Ranges are the server's matter.
    fn write(self, text: &str, to: &mut SamplingWish) -> bool {
        fn parsed<T: std::str::FromStr>(text: &str, to: &mut Option<T>) -> bool {
            *to = match text {
                "" => None,
                text => match text.parse() {
                    Ok(value) => Some(value),
                    Err(_) => return false,
                },
            };
            true
        }
        // People write 0,8 as well.
        let text = text.trim().replace(',', ".");
        match self {
            Self::TextTemperature => parsed(&text, &mut to.text_temperature),
            Self::TextTopK => parsed(&text, &mut to.text_top_k),
            Self::AudioTemperature => parsed(&text, &mut to.audio_temperature),
            Self::AudioTopK => parsed(&text, &mut to.audio_top_k),
            Self::RepetitionPenalty => parsed(&text, &mut to.repetition_penalty),
            Self::RepetitionContext => parsed(&text, &mut to.repetition_penalty_context),
            Self::Seed => {
                let fits = text.is_empty() || text.parse::<u64>().is_ok();
                to.seed = Some(text).filter(|text| !text.is_empty());
                fits
            }
        }
    }
}

/// What the fields hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersonaForm {
    pub name: String,
    pub role_text: String,
    /// Empty: the default voice.
    pub voice: String,
    pub caller_first: bool,
    /// In the order of [`Number::ALL`].
    pub numbers: [String; 7],
}

impl PersonaForm {
    pub fn of(draft: &PersonaDraft) -> Self {
        Self {
            name: draft.name.clone(),
            role_text: draft.role_text.clone(),
            voice: draft.voice.clone().unwrap_or_default(),
            caller_first: draft.greeting == Greeting::CallerFirst,
            numbers: Number::ALL.map(|number| number.read(&draft.sampling)),
        }
    }

    /// The draft, or the number that is none.
    ///
    /// # Errors
    /// The first field that holds no number.
    pub fn draft(&self) -> Result<PersonaDraft, Number> {
        let mut sampling = SamplingWish::default();
        for (number, text) in Number::ALL.into_iter().zip(&self.numbers) {
            if !number.write(text, &mut sampling) {
                return Err(number);
            }
        }
        let greeting = match self.caller_first {
            true => Greeting::CallerFirst,
            false => Greeting::AgentFirst,
        };
        Ok(PersonaDraft {
            name: self.name.trim().to_owned(),
            role_text: self.role_text.clone(),
            voice: Some(self.voice.clone()).filter(|voice| !voice.is_empty()),
            sampling,
            greeting,
        })
    }
}

/// Fields in which two drafts differ: name of the field, how it is in each. The role text is left to a diff of lines.
pub fn differences(
    theirs: &PersonaDraft,
    mine: &PersonaDraft,
) -> Vec<(&'static str, String, String)> {
    let fields = |draft: &PersonaDraft| {
        let form = PersonaForm::of(draft);
        let first = if form.caller_first {
            "the caller"
        } else {
            "whoever likes"
        };
        let mut fields = vec![
            ("Name", form.name),
            ("Voice", form.voice),
            ("Speaks first", first.to_owned()),
        ];
        fields.extend(Number::ALL.map(Number::label).into_iter().zip(form.numbers));
        fields
    };
    let both = fields(theirs).into_iter().zip(fields(mine));
    both.filter(|(theirs, mine)| theirs != mine)
        .map(|((name, theirs), (_, mine))| (name, theirs, mine))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> PersonaDraft {
        PersonaDraft {
            name: "Porter".to_owned(),
            voice: Some("NATF0".to_owned()),
            sampling: SamplingWish {
                text_temperature: Some(0.7),
                seed: Some("18446744073709551615".to_owned()),
                ..SamplingWish::default()
            },
            ..PersonaDraft::default()
        }
    }

    #[test]
    fn a_form_gives_back_the_draft_it_was_made_from() {
        assert_eq!(PersonaForm::of(&draft()).draft(), Ok(draft()));
    }

    #[test]
    fn a_field_that_holds_no_number_is_named() {
        let cases = [
            (
                Number::TextTemperature,
                "warm",
                Err(Number::TextTemperature),
            ),
            (Number::AudioTopK, "2.5", Err(Number::AudioTopK)),
            (Number::Seed, "-1", Err(Number::Seed)),
            (Number::TextTemperature, " 0,8 ", Ok(Some(0.8))),
            (Number::TextTemperature, "", Ok(None)),
        ];
        for (number, text, expected) in cases {
            let mut form = PersonaForm::of(&draft());
            form.numbers[number as usize] = text.to_owned();
            let got = form.draft().map(|draft| draft.sampling.text_temperature);
            assert_eq!(got, expected, "{number:?} {text:?}");
        }
    }

    #[test]
    fn differences_name_the_field_and_both_values() {
        let mut mine = draft();
        assert_eq!(differences(&draft(), &mine), []);
        mine.voice = None;
        mine.sampling.text_top_k = Some(25);
        let expected = [
            ("Voice", "NATF0".to_owned(), String::new()),
            ("Text top-k", String::new(), "25".to_owned()),
        ];
        assert_eq!(differences(&draft(), &mine), expected);
    }
}
