//! The units of time and place: sample rate, frame, tick, slot, epoch, lease.
//!
//! Lives here: types that must not be mixed up, and the constants of time with their reasons.
//! May not live here: behaviour. Every other room takes these numbers from here.

/// Samples per second of all PCM inside the program. Source: the codec's configuration.
pub const SAMPLE_RATE_HZ: u32 = 24_000;
/// One model frame, which is one tick. Source: the codec's frame rate of 12.5 Hz.
pub const FRAME_MS: u32 = 80;
/// Samples of one frame.
pub const FRAME_SAMPLES: usize = 1_920;
const _: () = assert!(FRAME_SAMPLES as u32 * 1_000 == SAMPLE_RATE_HZ * FRAME_MS);

/// The most slots one engine may have; what a [`SlotId`] can name.
pub const SLOTS_MAX: usize = 256;

/// Ticks since the stepping thread started: an index, so the first tick is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameIndex(pub u64);

/// Row of the batch, `0 <= row < capacity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(u8);

impl SlotId {
    /// The slot of row `row`; `None` at [`SLOTS_MAX`] or above.
    pub fn new(row: usize) -> Option<Self> {
        u8::try_from(row).ok().map(Self)
    }

    /// The row as an index into per-row arrays.
    pub fn row(self) -> usize {
        self.0.into()
    }
}

/// How often a slot has changed hands. Output stamped with an old epoch is dropped, never delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

/// The right of one session to one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The row.
    pub slot: SlotId,
    /// Which holder of that row.
    pub epoch: Epoch,
}

/// One tick, in microseconds: the unit in which the schedule counts.
pub const TICK_US: u64 = FRAME_MS as u64 * 1_000;

/// Ticks in a row without any sign of life from the peer (audio, pong, any message) before it counts as gone
/// (30 s). A quiet microphone alone never ends a call.
pub const PEER_GAP_FRAMES_MAX: u32 = 375;
const _: () = assert!(PEER_GAP_FRAMES_MAX * FRAME_MS == 30_000);

/// Names one session over all its connections. Whoever makes it draws it at random, so that it cannot be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub u128);
