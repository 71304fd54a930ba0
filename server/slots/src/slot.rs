//! One slot: its states, the one function that moves it, and the reasons for which a session ends.
//!
//! Lives here: [`Slot`], [`SlotEvent`], [`Peer`], [`CloseReason`].
//! May not live here: who else is in the house (`table`), what is heard (`backlog`), time of day.
//! Start reading at [`Slot::after`].

use crate::engine::RowFault;
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
