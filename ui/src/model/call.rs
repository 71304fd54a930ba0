//! One caller's call: what happened leads to what is shown and what is to be done. A table of states and events.
//!
//! Lives here: [`Call::on`]. May not live here: sockets, microphones, timers; they report events and obey commands.

use wire::notice::{EndReason, Notice};

/// Where a call stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// Nothing yet.
    Idle,
    /// The browser asks for the microphone.
    AskingForMicrophone,
    /// On the way to the server.
    Connecting,
    /// All slots are taken.
    Waiting { place: u32 },
    /// The persona's prompt is being read.
    Preparing,
    /// Both sides are heard.
    Live,
    /// The line broke; the seat is kept for a while.
    Reconnecting { tries: u32 },
    /// Over.
    Ended(Ending),
}

/// Why it is over, in words, and whether calling again is of use.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    pub reason: Option<EndReason>,
    pub text: String,
    pub may_redial: bool,
}

/// Why there is no microphone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MicrophoneProblem {
    /// The person, or the browser for them, said no.
    Refused,
    /// None is there.
    Missing,
    /// Another program holds it.
    Busy,
    /// The browser does not start its sound, for want of a loudspeaker.
    NoSound,
    /// The page did not come over https, nor from this machine.
    Insecure,
}

impl MicrophoneProblem {
    pub fn text(self) -> &'static str {
        match self {
            Self::Refused => {
                "The microphone was not allowed. Allow it for this page in the browser's address bar, then call again."
            }
            Self::Missing => "No microphone was found. Connect one, then call again.",
            Self::Busy => {
                "The microphone is in use by another program. Close that one, then call again."
            }
            Self::NoSound => {
                "This browser does not start its sound. Connect a loudspeaker or headphones, then call again."
            }
            Self::Insecure => {
                "Browsers give a microphone only to pages that came over https, or from the same machine."
            }
        }
    }
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The one button.
    Pressed,
    MicrophoneReady,
    MicrophoneFailed(MicrophoneProblem),
    Notice(Notice),
    /// The ready byte.
    Ready,
    /// The server's words about what went wrong.
    Complaint(String),
    /// The connection is over; code 1006 without a close message.
    Closed {
        code: u16,
    },
    /// The connection stands, and nothing comes through it any more.
    Silent,
    /// The time for another try has come.
    RetryDue,
    /// The page goes away.
    Left,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    AskForMicrophone,
    /// Opens a connection, to go on with a call if there is a token.
    Open {
        resume: Option<String>,
    },
    /// Sends a close message.
    Close,
    /// Sound flows from here on.
    StartSound,
    /// Microphone and sound are given back.
    StopSound,
    RetryAfter {
        ms: u32,
    },
}

/// A call with what it has to remember.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub phase: Phase,
    /// Number in the log, for operators.
    pub session: Option<i64>,
    /// Where the recording will be.
    pub recording: Option<String>,
    token: Option<String>,
    resume_within_ms: u32,
    /// When the line broke that is being taken up again.
    broke_at_ms: Option<f64>,
    complaint: Option<String>,
}

/// A live line that brings nothing for this long is broken, whatever the socket says: sound comes every 80 ms.
pub const SILENCE_MOST_MS: f64 = 3_000.0;
/// The first wait before another try; each is twice as long as the one before.
const RETRY_FIRST_MS: u32 = 250;
const RETRY_MOST_MS: u32 = 2_000;
/// Close codes that do not say that the call is over: going away without words, a server that restarts, a proxy's.
const BROKEN: [u16; 4] = [1001, 1005, 1006, 1012];

impl Default for Call {
    fn default() -> Self {
        Self {
            phase: Phase::Idle,
            session: None,
            recording: None,
            token: None,
            resume_within_ms: 0,
            broke_at_ms: None,
            complaint: None,
        }
    }
}

impl Call {
    /// Whether a press of the button ends something.
    pub fn is_on(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Ended(_))
    }

    /// What the one button says.
    pub fn button(&self) -> &'static str {
        match self.phase {
            Phase::Idle => "Call",
            Phase::Ended(_) => "Call again",
            Phase::Live | Phase::Reconnecting { .. } => "Hang up",
            _ => "Cancel",
        }
    }

    /// What the page says about it.
    pub fn words(&self) -> String {
        match &self.phase {
            Phase::Idle => "Ready when you are.".to_owned(),
            Phase::AskingForMicrophone => {
                "Your browser asks for the microphone. Please allow it.".to_owned()
            }
            Phase::Connecting => "Connecting…".to_owned(),
            Phase::Waiting { place: 1 } => "Everybody is busy. You are next.".to_owned(),
            Phase::Waiting { place } => {
                format!("Everybody is busy. You are number {place} in line.")
            }
            Phase::Preparing => "Preparing the persona…".to_owned(),
            Phase::Live => "You are talking.".to_owned(),
            Phase::Reconnecting { .. } => {
                "The line broke. Reconnecting, your call is kept…".to_owned()
            }
            Phase::Ended(ending) => ending.text.clone(),
        }
    }

    /// What `event`, at `now_ms` of any steady clock, leads to.
    pub fn on(&mut self, event: Event, now_ms: f64) -> Vec<Command> {
        match (event, &self.phase) {
            (Event::Pressed, Phase::Idle | Phase::Ended(_)) => {
                *self = Self {
                    phase: Phase::AskingForMicrophone,
                    ..Self::default()
                };
                vec![Command::AskForMicrophone]
            }
            (Event::Pressed, _) => self.end(None, "You hung up.", true, true),
            (Event::Left, Phase::Idle | Phase::Ended(_)) => vec![],
            (Event::Left, _) => self.end(None, "You left the page.", true, true),
            (Event::MicrophoneReady, Phase::AskingForMicrophone) => {
                self.phase = Phase::Connecting;
                vec![Command::Open { resume: None }]
            }
            // Pressed again while the browser asked: give it back.
            (Event::MicrophoneReady, _) if !self.is_on() => vec![Command::StopSound],
            (Event::MicrophoneFailed(problem), _) if self.is_on() => {
                self.end(None, problem.text(), true, true)
            }
            (_, Phase::Idle | Phase::Ended(_)) => vec![],
            (Event::Notice(notice), _) => self.noticed(notice),
            (Event::Ready, _) => {
                self.phase = Phase::Live;
                self.broke_at_ms = None;
                vec![Command::StartSound]
            }
            (Event::Complaint(text), _) => {
                self.complaint = Some(text);
                vec![]
            }
            (Event::Closed { code }, phase) => {
                let was_live = matches!(phase, Phase::Live | Phase::Reconnecting { .. });
                match was_live && BROKEN.contains(&code) && self.token.is_some() {
                    true => self.retry(now_ms),
                    false => self.closed(code, was_live),
                }
            }
            (Event::Silent, Phase::Live | Phase::Reconnecting { .. }) if self.token.is_some() => {
                self.retry(now_ms)
            }
            (Event::RetryDue, Phase::Reconnecting { .. }) => vec![Command::Open {
                resume: self.token.clone(),
            }],
            _ => vec![],
        }
    }

    fn noticed(&mut self, notice: Notice) -> Vec<Command> {
        match notice {
            Notice::Queued { place } => self.phase = Phase::Waiting { place },
            Notice::Prefill { .. } => self.phase = Phase::Preparing,
            Notice::Live {
                resume,
                resume_within_ms,
                session,
                recording,
                ..
            } => {
                self.token = Some(resume);
                self.resume_within_ms = resume_within_ms;
                self.session = session;
                self.recording = recording;
            }
            Notice::Phase { .. } => {}
            Notice::Ended {
                reason,
                message,
                redial,
            } => {
                let text = ended_text(reason, &message);
                return self.end(
                    Some(reason),
                    &text,
                    redial || reason == EndReason::HungUp,
                    false,
                );
            }
        }
        vec![]
    }

    fn retry(&mut self, now_ms: f64) -> Vec<Command> {
        let tries = match self.phase {
            Phase::Reconnecting { tries } => tries,
            _ => 0,
        };
        let broke_at_ms = *self.broke_at_ms.get_or_insert(now_ms);
        if now_ms - broke_at_ms >= f64::from(self.resume_within_ms) {
            return self.end(
                None,
                "The line broke, and the call could not be taken up again in time.",
                true,
                false,
            );
        }
        let ms = (RETRY_FIRST_MS << tries.min(8)).min(RETRY_MOST_MS);
        self.phase = Phase::Reconnecting { tries: tries + 1 };
        vec![Command::RetryAfter { ms }]
    }

    fn closed(&mut self, code: u16, was_live: bool) -> Vec<Command> {
        let complaint = self.complaint.take();
        let (text, may_redial) = match (complaint, code) {
            (Some(text), code) => (sentence(&text), code == 1013),
            (None, 1013) => ("Every line is busy. Try again in a moment.".to_owned(), true),
            (None, 1000) => ("The call has ended.".to_owned(), true),
            (None, _) if was_live => ("The line broke.".to_owned(), true),
            (None, _) => (
                "The server cannot be reached. It may be down, or something between blocks WebSockets.".to_owned(),
                true,
            ),
        };
        self.end(None, &text, may_redial, false)
    }

    fn end(
        &mut self,
        reason: Option<EndReason>,
        text: &str,
        may_redial: bool,
        by_us: bool,
    ) -> Vec<Command> {
        self.phase = Phase::Ended(Ending {
            reason,
            text: text.to_owned(),
            may_redial,
        });
        self.token = None;
        match by_us {
            true => vec![Command::Close, Command::StopSound],
            false => vec![Command::StopSound],
        }
    }
}

/// An ending in the caller's words; what the server said where it knows more.
fn ended_text(reason: EndReason, message: &str) -> String {
    let text = match reason {
        EndReason::HungUp => "The call has ended.",
        EndReason::Full => "Every line is busy. Try again in a moment.",
        EndReason::Late => "The server is too busy for one more call. Try again in a moment.",
        EndReason::Draining | EndReason::ServerStopping => {
            "The server is about to stop. Try again later."
        }
        EndReason::LengthLimit => "The call reached its longest time.",
        EndReason::Replaced => "This call goes on in another window.",
        EndReason::ClosedByOperator => "An operator ended this call.",
        EndReason::ResumeUnknown => "The call could not be taken up again; it is over.",
        EndReason::PeerGone => "Nothing was heard from this browser for too long.",
        EndReason::ListenerTooSlow => "This connection is too slow for a call.",
        EndReason::RowFault => {
            "Something went wrong in this call. Others are not affected. Try again."
        }
        EndReason::EngineFault => "The server's device failed.",
        _ => return sentence(message),
    };
    text.to_owned()
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    let mut text = first.unwrap_or_default() + chars.as_str();
    if !text.ends_with(['.', '!', '?']) {
        text.push('.');
    }
    text
}

#[cfg(test)]
mod tests;
