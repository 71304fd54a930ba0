//! What the demo is expected to do, read from its `behaviour.json`, and whether a call did it.
//!
//! Lives here: [`Conversation`] and [`Conversation::judge`], the one place that knows what the numbers mean.
//! May not live here: engines, sockets.
//!
//! Frame numbers are those of `--order overlapped`, where the answer to a frame comes one tick later.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use engine::tokenizer::Tokenizer;
use serde::Deserialize;

use crate::user::{loudness, user_line};

/// Frames without text after which the next text counts as a new turn. Source: the demo's recipe.
const TURN_GAP_FRAMES: usize = 14;
/// Frames of the caller's speech that the agent may take to fall silent, after which its loudness is judged.
const GIVING_WAY_FRAMES: usize = 7;
/// What Opus may change: by so many frames everything may come earlier or later, and so many tokens more or less are
/// said by an agent that is interrupted.
pub const OPUS_SLACK: usize = 3;

#[derive(Deserialize)]
pub struct Behaviour {
    loud_rms: f32,
    personas: HashMap<String, Persona>,
    pub conversations: Vec<Conversation>,
}

#[derive(Clone, Deserialize)]
struct Persona {
    greeting: String,
}

/// One conversation: what the caller does, what the agent is expected to do.
#[derive(Deserialize)]
pub struct Conversation {
    pub name: String,
    persona: String,
    pub prompt: String,
    pub voice: String,
    pub frames: usize,
    pub user: Vec<Clip>,
    expect: Expected,
    #[serde(skip)]
    loud_rms: f32,
    #[serde(skip)]
    greeting: String,
}

/// A file that the caller plays.
#[derive(Deserialize)]
pub struct Clip {
    pub at_frame: usize,
    pub file: PathBuf,
}

#[derive(Deserialize)]
struct Expected {
    first_loud_frame_at_most: usize,
    texts: Vec<String>,
    #[serde(default)]
    user_speaks_in_frames: Vec<[usize; 2]>,
    rms_at_most_while_user_speaks: Option<f32>,
    reply_loud_after_frames: Option<[usize; 2]>,
    silent_after_frames_of_interruption: Option<usize>,
}

/// One frame of the agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    pub text: String,
    pub pcm: Vec<f32>,
}

/// Which frame an answer comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Sooner,
    Overlapped,
}

impl Order {
    pub fn flag(self) -> &'static str {
        match self {
            Self::Sooner => "sooner",
            Self::Overlapped => "overlapped",
        }
    }
}

impl Behaviour {
    /// The demo's own.
    pub fn of_the_demo() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("server/engine/demo/behaviour.json");
        let json = std::fs::read(path).expect("the demo says how it behaves");
        let mut behaviour: Self =
            serde_json::from_slice(&json).expect("behaviour.json is as expected");
        for talk in &mut behaviour.conversations {
            talk.loud_rms = behaviour.loud_rms;
            talk.greeting = behaviour.personas[&talk.persona].greeting.clone();
        }
        behaviour
    }
}

impl Conversation {
    /// For messages of failing tests.
    pub fn title(&self) -> String {
        format!("{} {} {}", self.name, self.persona, self.voice)
    }

    /// The frames of the caller, with a quiet line of this loudness.
    pub fn user_line(&self, noise_rms: f32) -> Vec<Vec<f32>> {
        user_line(self.frames, &self.user, noise_rms)
    }

    /// Whether `heard` is what is expected: the list of what is not. `slack` is 0 where the engine got the very samples,
    /// [`OPUS_SLACK`] behind Opus.
    pub fn judge(&self, heard: &[Heard], order: Order, slack: usize) -> Vec<String> {
        let mut faults = Vec::new();
        if heard.len() != self.frames {
            faults.push(format!("{} frames instead of {}", heard.len(), self.frames));
        }
        // Under `sooner` the first recorded frame was not sent.
        let unsent = usize::from(order == Order::Sooner);
        let rms: Vec<f32> = std::iter::repeat_n(0.0, unsent)
            .chain(heard.iter().map(|frame| loudness(&frame.pcm)))
            .collect();
        self.judge_texts(heard, slack, &mut faults);
        self.judge_sound(&rms, slack, &mut faults);
        faults
    }

    fn judge_texts(&self, heard: &[Heard], slack: usize, faults: &mut Vec<String>) {
        let turns = turns(heard);
        let expected = &self.expect.texts;
        let interrupted = self.expect.silent_after_frames_of_interruption.is_some();
        let as_expected = turns.len() == expected.len()
            && turns
                .iter()
                .zip(expected)
                .enumerate()
                .all(|(turn, (heard, expected))| {
                    heard == expected
                        || (interrupted && turn == 0 && self.is_cut_near(heard, expected, slack))
                });
        if !as_expected {
            faults.push(format!("said {turns:?} instead of {expected:?}"));
        }
    }

    /// Whether both are beginnings of the greeting, at most `tokens` tokens apart.
    fn is_cut_near(&self, heard: &str, expected: &str, tokens: usize) -> bool {
        let length = |text| tokens_of_beginning(&self.greeting, text);
        match (length(heard), length(expected)) {
            (Some(heard), Some(expected)) => heard > 0 && heard.abs_diff(expected) <= tokens,
            _ => false,
        }
    }

    fn judge_sound(&self, rms: &[f32], slack: usize, faults: &mut Vec<String>) {
        let expect = &self.expect;
        let is_loud = |frame: &usize| rms[*frame] > self.loud_rms;
        let first_loud = (0..rms.len()).find(is_loud);
        if first_loud.is_none_or(|frame| frame > expect.first_loud_frame_at_most + slack) {
            faults.push(format!("the first loud frame is {first_loud:?}"));
        }
        for &[first, last] in &expect.user_speaks_in_frames {
            if let Some(rms_max) = expect.rms_at_most_while_user_speaks {
                let during = &rms[first + GIVING_WAY_FRAMES + slack..=last];
                let power = during.iter().map(|rms| rms * rms).sum::<f32>() / during.len() as f32;
                if power.sqrt() > rms_max {
                    faults.push(format!(
                        "rms {} while the user speaks from {first}",
                        power.sqrt()
                    ));
                }
            }
            if let Some([least, most]) = expect.reply_loud_after_frames {
                let after = (last + 1..rms.len())
                    .find(is_loud)
                    .map(|frame| frame - last);
                let in_time = least.saturating_sub(slack)..=most + slack;
                if after.is_none_or(|after| !in_time.contains(&after)) {
                    faults.push(format!(
                        "the reply to {last} is loud after {after:?} frames"
                    ));
                }
            }
            if let Some(most) = expect.silent_after_frames_of_interruption {
                let spoken = (first..=last)
                    .rfind(is_loud)
                    .map_or(0, |frame| frame - first + 1);
                if spoken > most + slack {
                    faults.push(format!("silent {spoken} frames after the interruption"));
                }
            }
        }
    }

    /// The frames in which the caller speaks, as they are expected to be.
    pub fn user_speaks_in_frames(&self) -> &[[usize; 2]] {
        &self.expect.user_speaks_in_frames
    }
}

/// What was said, cut where nothing was said for long.
fn turns(heard: &[Heard]) -> Vec<String> {
    let mut turns: Vec<String> = Vec::new();
    let mut last = None;
    for (frame, heard) in heard
        .iter()
        .enumerate()
        .filter(|(_, heard)| !heard.text.is_empty())
    {
        match (turns.last_mut(), last) {
            (Some(turn), Some(last)) if frame - last <= TURN_GAP_FRAMES => {
                turn.push_str(&heard.text)
            }
            _ => turns.push(heard.text.clone()),
        }
        last = Some(frame);
    }
    turns.iter().map(|turn| turn.trim().to_owned()).collect()
}

/// How many tokens of `whole` its beginning `text` takes; `None` if it does not end where a token does.
fn tokens_of_beginning(whole: &str, text: &str) -> Option<usize> {
    let tokenizer = demo_tokenizer();
    let mut so_far = String::new();
    for (index, id) in tokenizer.encode(whole).into_iter().enumerate() {
        if so_far.trim() == text {
            return Some(index);
        }
        so_far.push_str(&tokenizer.name(id)?.replace('\u{2581}', " "));
    }
    (so_far.trim() == text).then(|| tokenizer.encode(whole).len())
}

fn demo_tokenizer() -> std::sync::Arc<Tokenizer> {
    let demo = engine::weights::Checkpoint::demo().expect("the demo is part of the program");
    std::sync::Arc::clone(demo.tokenizer())
}

#[test]
fn an_interrupted_greeting_may_end_three_tokens_away_and_no_other_text_may_differ() {
    let behaviour = Behaviour::of_the_demo();
    let talk = behaviour
        .conversations
        .iter()
        .find(|talk| talk.name == "barge_in")
        .expect("one is interrupted");
    let greeting = &talk.greeting;
    let ids = demo_tokenizer().encode(greeting);
    assert_eq!(tokens_of_beginning(greeting, greeting), Some(ids.len()));
    assert_eq!(tokens_of_beginning(greeting, "Goodbye"), None);
    let cut =
        tokens_of_beginning(greeting, &talk.expect.texts[0]).expect("it ends where a token does");
    let beginning = |tokens: usize| {
        let names = ids[..tokens].iter().map(|&id| {
            demo_tokenizer()
                .name(id)
                .expect("a known id")
                .replace('\u{2581}', " ")
        });
        names.collect::<String>().trim().to_owned()
    };
    assert!(talk.is_cut_near(&beginning(cut - 3), &talk.expect.texts[0], 3));
    assert!(!talk.is_cut_near(&beginning(cut - 4), &talk.expect.texts[0], 3));
    let said = |first: &str, second: &str| {
        let mut heard = vec![Heard::default(); talk.frames];
        heard[3].text = first.to_owned();
        heard[60].text = second.to_owned();
        let mut faults = Vec::new();
        talk.judge_texts(&heard, 3, &mut faults);
        faults.len()
    };
    assert_eq!(said(&beginning(cut - 1), &talk.expect.texts[1]), 0);
    assert_eq!(said(&talk.expect.texts[0], greeting), 1);
}
