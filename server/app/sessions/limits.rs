//! How long and how much: every limit of a session in one place.
//!
//! May not live here: limits of the tick (`stepper`, `slots`) and of a message's bytes (`wire`).

use std::time::Duration;

/// Times and amounts one caller is granted. Tests shorten the times; amounts are constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// How often a caller who waits or is in prefill gets a ping message (0x06). Stock clients give up after 10 s of
    /// nothing; at most 4 s.
    pub ping_every: Duration,
    /// How often a WebSocket ping goes out.
    pub ws_ping_every: Duration,
    /// A peer that sent nothing at all for this long, or left a WebSocket ping unanswered for this long (it does not
    /// read), is let go. With the ping interval on top it stays within 30 s.
    pub peer_gone_after: Duration,
    /// How long one message may wait for the network to take it.
    pub send_within: Duration,
    /// How long the close message may take, its answer included.
    pub close_within: Duration,
    /// How long a seat is kept for a client that asked for it, after its connection was lost without a close message.
    pub resume_within: Duration,
    /// How often a client with `ext=1` hears where its frame boundaries lie.
    pub phase_every: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            ping_every: Duration::from_millis(3_500),
            ws_ping_every: Duration::from_secs(10),
            peer_gone_after: Duration::from_secs(19),
            send_within: Duration::from_secs(10),
            close_within: Duration::from_secs(2),
            resume_within: Duration::from_secs(15),
            phase_every: Duration::from_secs(1),
        }
    }
}

/// Frames kept of what one burst brought (2 s); what is older is dropped before it reaches the mic queue.
pub const BURST_FRAMES_MAX: usize = 25;
/// How far decoded audio may run ahead of real time, in frames (30 s): bursts are fine, a firehose is not decoded.
pub const AHEAD_FRAMES_MAX: u32 = 375;
/// Messages that are not audio (text frames, controls, pings, unknown kinds): how many may come at once, and how many
/// a second for long. Beyond that the session ends.
pub const OTHER_MESSAGES_BURST: u32 = 100;
/// See [`OTHER_MESSAGES_BURST`].
pub const OTHER_MESSAGES_PER_S: u32 = 20;
/// Audio messages likewise; 2.5 ms packets, one a message, are 400 a second.
pub const AUDIO_MESSAGES_BURST: u32 = 15_000;
/// See [`AUDIO_MESSAGES_BURST`].
pub const AUDIO_MESSAGES_PER_S: u32 = 500;
/// Bytes the socket buffers for writing beyond the message at hand; several frames of audio.
pub const WRITE_BUFFER_BYTES_MAX: usize = 256 * 1024;
