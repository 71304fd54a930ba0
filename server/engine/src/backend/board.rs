//! The board: where a device keeps what a tick has chosen until the tick is over, and how a lane wants it chosen.
//!
//! May not live here: operations.

/// Stands for a token that a tick has chosen and that is still on the device: what `slot` of the board holds for the
/// lane that reads it. Every other negative id stands for nothing.
pub fn on_board(slot: usize) -> i32 {
    ON_BOARD - slot as i32
}

/// The slot that `id` names, if it is one of [`on_board`].
pub fn board_slot(id: i32) -> Option<usize> {
    ON_BOARD
        .checked_sub(id)
        .and_then(|slot| usize::try_from(slot).ok())
}

/// The id of slot 0; the kernels know it.
const ON_BOARD: i32 = -1_000;

/// How a lane wants a token chosen; see [`crate::sampling`].
#[derive(Clone, Copy, Debug)]
pub struct Draw<'a> {
    /// An idle lane chooses nothing.
    pub active: bool,
    /// Seed of the row.
    pub seed: u64,
    /// Position of the row.
    pub position: u64,
    /// 0 for text, 1 and up for the steps of the depformer.
    pub stream: u32,
    /// 0: the largest logit.
    pub temperature: f32,
    /// How many of the largest take part.
    pub top_k: u32,
    /// Holds back what is in `recent`; 1: nothing.
    pub penalty: f32,
    /// Tokens that were said.
    pub recent: &'a [u32],
    /// What goes on in place of the choice; may be [`on_board`].
    pub forced: Option<i32>,
}

/// What a tick has chosen, by slot of the board and lane.
#[derive(Clone, Debug, Default)]
pub struct Board {
    /// Lanes of a slot.
    pub lanes: usize,
    /// `[slots, 3, lanes]`: what went on, what was chosen, whether that was impossible.
    pub values: Vec<i32>,
}

impl Board {
    /// Values of a lane: see [`Board::values`].
    pub const PLANES: usize = 3;

    /// What went on: the choice, or what was forced.
    pub fn token(&self, slot: usize, lane: usize) -> i32 {
        self.at(slot, 0, lane)
    }

    /// What was chosen.
    pub fn chosen(&self, slot: usize, lane: usize) -> i32 {
        self.at(slot, 1, lane)
    }

    /// Whether the logits were no numbers to choose from.
    pub fn is_fault(&self, slot: usize, lane: usize) -> bool {
        self.at(slot, 2, lane) != 0
    }

    fn at(&self, slot: usize, plane: usize, lane: usize) -> i32 {
        self.values[(slot * Self::PLANES + plane) * self.lanes + lane]
    }
}
