//! The switchboard in words that can be read across a room.

use wire::api::HealthState;
use wire::api::live::{Board, SlotPhase};

/// What the page leads with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sign {
    /// One or two words.
    pub word: &'static str,
    /// What they mean now.
    pub why: String,
    pub mood: Mood,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Good,
    Note,
    Bad,
    Unknown,
}

impl Mood {
    /// A class of the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Self::Good => "well",
            Self::Note => "full",
            Self::Bad => "late",
            Self::Unknown => "loading",
        }
    }
}

/// `None`: nothing has come from the server yet.
pub fn sign(board: Option<&Board>) -> Sign {
    let Some(board) = board else {
        return Sign {
            word: "Asking…",
            why: String::new(),
            mood: Mood::Unknown,
        };
    };
    let slots = board.slots.len();
    let free = board
        .slots
        .iter()
        .filter(|slot| slot.phase == SlotPhase::Free)
        .count();
    let taken = slots - free;
    let (word, why, mood) = match board.state {
        HealthState::Ready => (
            "In time",
            format!("{free} of {slots} slots free"),
            Mood::Good,
        ),
        HealthState::Full => (
            "Full",
            format!(
                "in time; all {slots} slots taken, {} waiting",
                board.waiting
            ),
            Mood::Note,
        ),
        HealthState::Late => (
            "Late",
            "ticks take too long; no new callers until that is over".to_owned(),
            Mood::Bad,
        ),
        HealthState::Draining => (
            "Draining",
            format!("no new callers; {taken} still talking"),
            Mood::Note,
        ),
        HealthState::Loading => (
            "Loading",
            "the model is on its way".to_owned(),
            Mood::Unknown,
        ),
        HealthState::Failed => (
            "Failed",
            "the device failed or hangs; the process ends".to_owned(),
            Mood::Bad,
        ),
    };
    Sign { word, why, mood }
}

/// What a slot does, in words.
pub fn phase_word(phase: SlotPhase) -> &'static str {
    match phase {
        SlotPhase::Live => "live",
        SlotPhase::Queued => "waiting for its prompt",
        SlotPhase::Prefill => "preparing the persona",
        SlotPhase::Closing => "closing",
        SlotPhase::Free => "free",
    }
}

/// Real-time factor of a tick.
pub fn rtf(tick_us: u32) -> f64 {
    f64::from(tick_us) / 80_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::api::live::{DeviceView, PromptCache, SlotView, Totals};

    fn board(state: HealthState, phases: &[SlotPhase]) -> Board {
        let slots = phases.iter().enumerate();
        Board {
            at_ms: 0,
            state,
            admission_open: true,
            waiting: 2,
            slots: slots
                .map(|(row, &phase)| SlotView {
                    row: row as u32,
                    phase,
                    call: None,
                })
                .collect(),
            tick_p50_us: 0,
            tick_p99_us: 0,
            totals: Totals::default(),
            prompt_cache: PromptCache::default(),
            device: DeviceView::default(),
        }
    }

    #[test]
    fn the_sign_says_how_it_is_and_what_that_means() {
        use SlotPhase::{Free, Live};
        let cases = [
            (
                HealthState::Ready,
                vec![Free, Live],
                "In time",
                "1 of 2 slots free",
                Mood::Good,
            ),
            (
                HealthState::Full,
                vec![Live, Live],
                "Full",
                "in time; all 2 slots taken, 2 waiting",
                Mood::Note,
            ),
            (
                HealthState::Draining,
                vec![Free, Live],
                "Draining",
                "no new callers; 1 still talking",
                Mood::Note,
            ),
        ];
        for (state, phases, word, why, mood) in cases {
            let expected = Sign {
                word,
                why: why.to_owned(),
                mood,
            };
            assert_eq!(sign(Some(&board(state, &phases))), expected);
        }
        assert_eq!(sign(None).mood, Mood::Unknown);
        assert_eq!(sign(Some(&board(HealthState::Late, &[]))).mood, Mood::Bad);
    }

    #[test]
    fn a_tick_of_80_ms_is_just_real_time() {
        assert_eq!(rtf(80_000), 1.0);
    }
}
