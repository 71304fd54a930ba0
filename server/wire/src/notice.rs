//! The JSON of metadata messages (0x04), sent only to callers that asked with `ext=1`.
//!
//! Lives here: [`Notice`] and [`EndReason`], with their JSON form.
//! May not live here: when a notice is due.

use serde::{Deserialize, Serialize};

/// What the server tells a caller beside audio and text. In JSON a `type` field names the variant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Notice {
    /// All slots are taken; the call waits. Sent again whenever the place changes.
    Queued {
        /// 1 is the next to get a slot.
        place: u32,
    },
    /// A slot is there; the persona's prompt is being read.
    Prefill {
        /// Chunks still to read.
        chunks_left: u32,
    },
    /// The ready byte comes next: from here on both sides stream.
    Live {
        /// Hand this back as `resume=` within `resume_within_ms` of a lost connection to go on with the same call.
        /// Each connection of a call gets a new one.
        resume: String,
        /// How long the seat is kept after a connection is lost without a close message, in milliseconds.
        resume_within_ms: u32,
        /// 0 for the first connection of a call, one more for each resumption.
        generation: u32,
        /// The seed in use, also when the server chose it. A string, since JavaScript numbers end at 2^53.
        seed: String,
        /// Number of the call in the log; absent when no log is kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<i64>,
        /// Where the recording of this call can be fetched after its end, relative to the server's root. Absent: the call
        /// is not recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recording: Option<String>,
    },
    /// Where the caller's frame boundaries lie. Sent about once a second.
    Phase {
        /// The shortest time in the last second that a finished frame waited for the tick that takes it, in
        /// microseconds, 0 to 80,000. Cutting frames later by this much (less a margin for jitter) makes the answer
        /// come sooner by as much.
        wait_us: u32,
    },
    /// The call is over; the close message follows.
    Ended {
        /// Why.
        reason: EndReason,
        /// One line for a person.
        message: String,
        /// Whether dialling again is of any use. A client must not redial on its own when it is false.
        redial: bool,
    },
}

/// Why a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The caller closed the connection, or it was lost and not resumed in time.
    HungUp,
    /// All slots, and all waiting places if the caller may wait, are taken.
    Full,
    /// The server measures that it cannot keep real time with one caller more.
    Late,
    /// The server is about to stop and takes no new callers.
    Draining,
    /// The server stopped while the call was on.
    ServerStopping,
    /// The call reached the longest time that was agreed for it.
    LengthLimit,
    /// A newer connection of the same session took over.
    Replaced,
    /// The prompt is longer than the engine takes.
    PromptTooLong,
    /// No sign of life from the caller.
    PeerGone,
    /// The caller does not read what is sent.
    ListenerTooSlow,
    /// The caller's audio is not Ogg-Opus.
    BadAudio,
    /// The caller broke the WebSocket protocol, or sent too many messages.
    BadMessages,
    /// The caller sent a message beyond the limit.
    MessageTooBig,
    /// The resume token is unknown: the call ended, or the token was used before.
    ResumeUnknown,
    /// The model failed in this call alone.
    RowFault,
    /// The device failed; every call ended.
    EngineFault,
    /// An operator ended it.
    ClosedByOperator,
}

impl EndReason {
    /// All of them, in the order of [`EndReason::index`].
    pub const ALL: [Self; 17] = [
        Self::HungUp,
        Self::Full,
        Self::Late,
        Self::Draining,
        Self::ServerStopping,
        Self::LengthLimit,
        Self::Replaced,
        Self::PromptTooLong,
        Self::PeerGone,
        Self::ListenerTooSlow,
        Self::BadAudio,
        Self::BadMessages,
        Self::MessageTooBig,
        Self::ResumeUnknown,
        Self::RowFault,
        Self::EngineFault,
        Self::ClosedByOperator,
    ];

    /// Place in [`EndReason::ALL`], for arrays of counters.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The JSON name, also the value of the metric's label.
    pub fn name(self) -> &'static str {
        match self {
            Self::HungUp => "hung_up",
            Self::Full => "full",
            Self::Late => "late",
            Self::Draining => "draining",
            Self::ServerStopping => "server_stopping",
            Self::LengthLimit => "length_limit",
            Self::Replaced => "replaced",
            Self::PromptTooLong => "prompt_too_long",
            Self::PeerGone => "peer_gone",
            Self::ListenerTooSlow => "listener_too_slow",
            Self::BadAudio => "bad_audio",
            Self::BadMessages => "bad_messages",
            Self::MessageTooBig => "message_too_big",
            Self::ResumeUnknown => "resume_unknown",
            Self::RowFault => "row_fault",
            Self::EngineFault => "engine_fault",
            Self::ClosedByOperator => "closed_by_operator",
        }
    }

    /// The WebSocket close code that goes with it (RFC 6455, section 7.4.1, and its registry).
    pub fn close_code(self) -> u16 {
        match self {
            Self::HungUp | Self::LengthLimit | Self::ClosedByOperator => 1000,
            Self::Full | Self::Late | Self::Draining => 1013,
            Self::ServerStopping => 1001,
            Self::BadAudio => 1003,
            Self::MessageTooBig => 1009,
            Self::PromptTooLong
            | Self::Replaced
            | Self::PeerGone
            | Self::ListenerTooSlow
            | Self::BadMessages
            | Self::ResumeUnknown => 1008,
            Self::RowFault | Self::EngineFault => 1011,
        }
    }

    /// Whether dialling again is of any use: the cause lies with the server and passes.
    pub fn redial(self) -> bool {
        matches!(
            self,
            Self::Full | Self::Late | Self::Draining | Self::ServerStopping | Self::RowFault
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_have_the_documented_json() {
        let cases = [
            (
                Notice::Queued { place: 2 },
                r#"{"type":"queued","place":2}"#,
            ),
            (
                Notice::Prefill { chunks_left: 3 },
                r#"{"type":"prefill","chunks_left":3}"#,
            ),
            (
                Notice::Live {
                    resume: "ab".to_owned(),
                    resume_within_ms: 15_000,
                    generation: 1,
                    seed: "42".to_owned(),
                    session: None,
                    recording: None,
                },
                r#"{"type":"live","resume":"ab","resume_within_ms":15000,"generation":1,"seed":"42"}"#,
            ),
            (
                Notice::Phase { wait_us: 12_000 },
                r#"{"type":"phase","wait_us":12000}"#,
            ),
            (
                Notice::Ended {
                    reason: EndReason::ListenerTooSlow,
                    message: "m".to_owned(),
                    redial: false,
                },
                r#"{"type":"ended","reason":"listener_too_slow","message":"m","redial":false}"#,
            ),
        ];
        for (notice, json) in cases {
            assert_eq!(serde_json::to_string(&notice).unwrap(), json);
            assert_eq!(serde_json::from_str::<Notice>(json).unwrap(), notice);
        }
    }

    #[test]
    fn every_end_reason_has_its_place_its_name_and_a_sendable_code() {
        for (index, reason) in EndReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
            let json = serde_json::to_string(&reason).unwrap();
            assert_eq!(json, format!("\"{}\"", reason.name()));
            // 1004 to 1006 and 1015 must never be sent.
            assert!(matches!(reason.close_code(), 1000..=1003 | 1007..=1014));
        }
    }
}
