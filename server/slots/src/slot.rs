//! One slot: its states, the one function that moves it, and the reasons for which a session ends.
//!
//! Lives here: [`Slot`], [`SlotEvent`], [`Peer`], [`CloseReason`].
//! May not live here: who else is in the house (`table`), what is heard (`backlog`), time of day.
//! Start reading at [`Slot::after`].

use crate::engine::{Readiness, RowFault};
use crate::units::{Lease, PEER_GAP_FRAMES_MAX};

/// Why a session ended. The text is plain enough to be sent to the caller; [`CloseReason::code`] is for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The caller closed the connection or hung up.
    #[error("the caller hung up")]
    HungUp,
    /// Nothing came from the peer for [`PEER_GAP_FRAMES_MAX`] ticks: no audio, no pong, no message.
    #[error("no sign of life from the caller for 30 s")]
    PeerGone,
    /// The listener took so little that about 2 s of audio were waiting for it.
    #[error("the listener reads too slowly: 2 s of audio were waiting")]
    ListenerTooSlow,
    /// The device or the engine failed, for everybody.
    #[error("the engine failed; the server will restart")]
    EngineFault,
    /// This row alone failed.
    #[error("this call failed: {0}")]
    RowFault(RowFault),
    /// The prompt does not fit.
    #[error("the persona prompt takes {positions} positions, the limit is {positions_max}")]
    PromptTooLong {
        /// Positions of voice, role text and silences.
        positions: u32,
        /// The most a live call may use.
        positions_max: u32,
    },
    /// The server is stopping and the time for running calls to finish is over.
    #[error("the server is stopping")]
    ServerStopping,
    /// The same session connected anew; this older connection gave way.
    #[error("this session continues on a newer connection")]
    Replaced,
    /// The call reached the longest time that was agreed for it.
    #[error("the call reached its time limit")]
    LengthLimit,
    /// What the caller sent could not be understood.
    #[error("the caller sent something that cannot be understood")]
    BadInput,
}

/// How many kinds of [`CloseReason`] there are; the length of [`CloseReason::CODES`].
pub const CLOSE_REASONS: usize = 10;

impl CloseReason {
    /// Every code, in the order of [`CloseReason::index`].
    pub const CODES: [&'static str; CLOSE_REASONS] = [
        "hung_up",
        "peer_gone",
        "listener_too_slow",
        "engine_fault",
        "row_fault",
        "prompt_too_long",
        "server_stopping",
        "replaced",
        "length_limit",
        "bad_input",
    ];

    /// A stable word for metrics, logs and clients.
    pub fn code(self) -> &'static str {
        Self::CODES[self.index()]
    }

    /// The kind as an index into [`CloseReason::CODES`].
    pub fn index(self) -> usize {
        match self {
            Self::HungUp => 0,
            Self::PeerGone => 1,
            Self::ListenerTooSlow => 2,
            Self::EngineFault => 3,
            Self::RowFault(_) => 4,
            Self::PromptTooLong { .. } => 5,
            Self::ServerStopping => 6,
            Self::Replaced => 7,
            Self::LengthLimit => 8,
            Self::BadInput => 9,
        }
    }
}

/// What the peer of a session showed since the last tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Audio, a pong, or any message.
    Life,
    /// Nothing at all.
    Nothing,
    /// Both ends of the seat were dropped.
    HungUp,
}

/// Ticks in a row without a sign of life from the peer, `0..=PEER_GAP_FRAMES_MAX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerGap(pub u32);

impl PeerGap {
    /// The gap after one more tick.
    ///
    /// # Errors
    /// The reason to end the session.
    pub fn after(self, peer: Peer) -> Result<Self, CloseReason> {
        match peer {
            Peer::Life => Ok(Self(0)),
            Peer::Nothing if self.0 < PEER_GAP_FRAMES_MAX => Ok(Self(self.0 + 1)),
            Peer::Nothing => Err(CloseReason::PeerGone),
            Peer::HungUp => Err(CloseReason::HungUp),
        }
    }
}

/// One row of the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slot {
    /// Nobody holds it, and nothing of the last holder is left.
    #[default]
    Free,
    /// Held. The engine has not been told yet: that happens in the slack of the tick.
    Queued {
        /// Whose it is.
        lease: Lease,
        /// Since the last sign of life.
        gap: PeerGap,
    },
    /// The persona prompt is being read; the caller hears nothing yet.
    Prefill {
        /// Whose it is.
        lease: Lease,
        /// Since the last sign of life.
        gap: PeerGap,
        /// Chunks still to be read, at least 1.
        chunks_left: u32,
    },
    /// Full duplex.
    Live {
        /// Whose it is.
        lease: Lease,
        /// Since the last sign of life.
        gap: PeerGap,
        /// The caller frame that the next step takes; the first is 0.
        frame: u64,
    },
    /// Over. The row is cleared at the next tick and then becomes free.
    Closing {
        /// Whose it was.
        lease: Lease,
        /// Why it ended.
        reason: CloseReason,
        /// Whether the engine has seated the row, so that it must be vacated.
        seated: bool,
    },
}

/// What can happen to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotEvent {
    /// It was given to a session: a free slot, or one whose session came back on a newer connection.
    Given(Lease),
    /// The engine seated the row, or read a chunk of its prompt.
    Read(Readiness),
    /// A tick began; this is what the peer showed.
    Tick(Peer),
    /// The engine made a step with this row.
    Stepped,
    /// The session ends.
    Close(CloseReason),
    /// The engine holds nothing of the row any more.
    Cleared,
}

impl Slot {
    /// The state after `event`. The only function that moves a slot.
    ///
    /// An event that means nothing in a state (a step of a free row) leaves it as it is: late news of a session that
    /// is already over is nothing to fail on.
    pub fn after(self, event: SlotEvent) -> Self {
        use SlotEvent::{Cleared, Close, Given, Read, Stepped, Tick};
        match (self, event) {
            (Self::Free, Given(lease))
            | (Self::Queued { .. } | Self::Prefill { .. } | Self::Live { .. }, Given(lease)) => {
                Self::Queued {
                    lease,
                    gap: PeerGap(0),
                }
            }
            (Self::Queued { lease, gap } | Self::Prefill { lease, gap, .. }, Read(readiness)) => {
                match readiness {
                    Readiness::Prefill { chunks_left } => Self::Prefill {
                        lease,
                        gap,
                        chunks_left: chunks_left.max(1),
                    },
                    Readiness::Live => Self::Live {
                        lease,
                        gap,
                        frame: 0,
                    },
                }
            }
            (Self::Queued { .. } | Self::Prefill { .. } | Self::Live { .. }, Tick(peer)) => {
                self.after_peer(peer)
            }
            (Self::Live { lease, gap, frame }, Stepped) => Self::Live {
                lease,
                gap,
                frame: frame + 1,
            },
            (Self::Queued { lease, .. }, Close(reason)) => Self::Closing {
                lease,
                reason,
                seated: false,
            },
            (Self::Prefill { lease, .. } | Self::Live { lease, .. }, Close(reason)) => {
                Self::Closing {
                    lease,
                    reason,
                    seated: true,
                }
            }
            (Self::Closing { .. }, Cleared) => Self::Free,
            (Self::Free, Read(_) | Tick(_) | Stepped | Close(_) | Cleared)
            | (Self::Queued { .. } | Self::Prefill { .. }, Stepped | Cleared)
            | (Self::Live { .. }, Read(_) | Cleared)
            | (Self::Closing { .. }, Given(_) | Read(_) | Tick(_) | Stepped | Close(_)) => self,
        }
    }

    fn after_peer(mut self, peer: Peer) -> Self {
        match &mut self {
            Self::Queued { gap, .. } | Self::Prefill { gap, .. } | Self::Live { gap, .. } => {
                match gap.after(peer) {
                    Ok(after) => *gap = after,
                    Err(reason) => return self.after(SlotEvent::Close(reason)),
                }
            }
            Self::Free | Self::Closing { .. } => {}
        }
        self
    }

    /// Who holds the slot, or held it until it was closed.
    pub fn lease(self) -> Option<Lease> {
        match self {
            Self::Free => None,
            Self::Queued { lease, .. }
            | Self::Prefill { lease, .. }
            | Self::Live { lease, .. }
            | Self::Closing { lease, .. } => Some(lease),
        }
    }

    /// Whether the engine has seated the row.
    pub fn seated(self) -> bool {
        match self {
            Self::Free | Self::Queued { .. } => false,
            Self::Prefill { .. } | Self::Live { .. } => true,
            Self::Closing { seated, .. } => seated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Epoch, SlotId};

    fn lease(epoch: u32) -> Lease {
        Lease {
            slot: SlotId::new(0).unwrap(),
            epoch: Epoch(epoch),
        }
    }

    #[test]
    fn a_peer_that_shows_no_life_is_let_go_in_every_state() {
        let lease = lease(1);
        let live = |gap| Slot::Live {
            lease,
            gap: PeerGap(gap),
            frame: 9,
        };
        let prefill = |gap| Slot::Prefill {
            lease,
            gap: PeerGap(gap),
            chunks_left: 3,
        };
        let queued = |gap| Slot::Queued {
            lease,
            gap: PeerGap(gap),
        };
        let closing = |reason, seated| Slot::Closing {
            lease,
            reason,
            seated,
        };
        let max = PEER_GAP_FRAMES_MAX;
        let gone = CloseReason::PeerGone;
        let cases = [
            ("life resets the gap", live(7), Peer::Life, live(0)),
            ("a gap grows by one", live(7), Peer::Nothing, live(8)),
            (
                "the last tick of patience",
                live(max - 1),
                Peer::Nothing,
                live(max),
            ),
            (
                "one too many closes",
                live(max),
                Peer::Nothing,
                closing(gone, true),
            ),
            ("life in the last moment", live(max), Peer::Life, live(0)),
            (
                "a prompt is not read for nobody",
                prefill(max),
                Peer::Nothing,
                closing(gone, true),
            ),
            (
                "nor is one begun",
                queued(max),
                Peer::Nothing,
                closing(gone, false),
            ),
            (
                "hanging up ends a call",
                live(0),
                Peer::HungUp,
                closing(CloseReason::HungUp, true),
            ),
            (
                "hanging up ends prefill",
                prefill(0),
                Peer::HungUp,
                closing(CloseReason::HungUp, true),
            ),
            ("nobody sits here", Slot::Free, Peer::HungUp, Slot::Free),
            (
                "over is over",
                closing(gone, true),
                Peer::HungUp,
                closing(gone, true),
            ),
        ];
        for (name, before, peer, after) in cases {
            assert_eq!(before.after(SlotEvent::Tick(peer)), after, "{name}");
        }
    }

    #[test]
    fn a_slot_goes_round_from_free_to_free() {
        use SlotEvent::{Cleared, Close, Given, Read, Stepped};
        let gap = PeerGap(0);
        let first = lease(1);
        let newer = lease(2);
        let steps = [
            (Cleared, Slot::Free),
            (Stepped, Slot::Free),
            (Given(first), Slot::Queued { lease: first, gap }),
            (Stepped, Slot::Queued { lease: first, gap }),
            (
                Read(Readiness::Prefill { chunks_left: 2 }),
                Slot::Prefill {
                    lease: first,
                    gap,
                    chunks_left: 2,
                },
            ),
            (Given(newer), Slot::Queued { lease: newer, gap }),
            (
                Read(Readiness::Live),
                Slot::Live {
                    lease: newer,
                    gap,
                    frame: 0,
                },
            ),
            (
                Stepped,
                Slot::Live {
                    lease: newer,
                    gap,
                    frame: 1,
                },
            ),
            (
                Close(CloseReason::HungUp),
                Slot::Closing {
                    lease: newer,
                    reason: CloseReason::HungUp,
                    seated: true,
                },
            ),
            (
                Close(CloseReason::EngineFault),
                Slot::Closing {
                    lease: newer,
                    reason: CloseReason::HungUp,
                    seated: true,
                },
            ),
            (
                Given(first),
                Slot::Closing {
                    lease: newer,
                    reason: CloseReason::HungUp,
                    seated: true,
                },
            ),
            (Cleared, Slot::Free),
        ];
        let mut slot = Slot::Free;
        for (at, (event, after)) in steps.into_iter().enumerate() {
            slot = slot.after(event);
            assert_eq!(slot, after, "step {at}: {event:?}");
        }
    }

    #[test]
    fn every_reason_has_its_own_code_and_a_sentence() {
        let reasons = [
            CloseReason::HungUp,
            CloseReason::PeerGone,
            CloseReason::ListenerTooSlow,
            CloseReason::EngineFault,
            CloseReason::RowFault(RowFault::NotFinite),
            CloseReason::PromptTooLong {
                positions: 9,
                positions_max: 8,
            },
            CloseReason::ServerStopping,
            CloseReason::Replaced,
            CloseReason::LengthLimit,
            CloseReason::BadInput,
        ];
        for (index, reason) in reasons.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert_eq!(reason.code(), CloseReason::CODES[index]);
            assert!(reason.to_string().len() > 10);
        }
        assert_eq!(reasons.len(), CLOSE_REASONS);
    }
}
