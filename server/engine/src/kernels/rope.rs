//! Rotary positions: adjacent pairs of a head are turned by an angle that grows with the position.

/// Frequencies of the rotation, one for each pair of a head.
pub struct Rope {
    frequencies: Vec<f64>,
    /// What the frequencies were made from.
    made_from: (usize, u32),
}

impl Rope {
    /// Pair `i` turns by `exp(-ln(max_period) * 2i / head_dim)` per position.
    pub fn new(head_dim: usize, max_period: f32) -> Rope {
        let step = -f64::from(max_period).ln() * 2.0 / head_dim as f64;
        Rope {
            frequencies: (0..head_dim / 2)
                .map(|pair| (step * pair as f64).exp())
                .collect(),
            made_from: (head_dim, max_period.to_bits()),
        }
    }
}

/// Cosines and sines of the positions of one call, kept for the next layer, which asks for the same ones.
///
/// One slot for each angle of the call, so it stays as small as the largest call.
#[derive(Default)]
pub(super) struct Angles {
    made_from: (usize, u32),
    pairs: usize,
    positions: Vec<Option<u64>>,
    /// `[slots, pairs]` of cosine and sine.
    turns: Vec<[f32; 2]>,
}

impl Angles {
    /// Makes slot `slot` hold the angles of `position`.
    ///
    /// They are formed in f64, so that they are still right at position 1,000,000.
    pub(super) fn set(&mut self, rope: &Rope, slot: usize, position: u64) {
        if self.made_from != rope.made_from {
            self.made_from = rope.made_from;
            self.pairs = rope.frequencies.len();
            self.positions.clear();
            self.turns.clear();
        }
        if self.positions.len() <= slot {
            self.positions.resize(slot + 1, None);
            self.turns.resize((slot + 1) * self.pairs, [1.0, 0.0]);
        }
        if self.positions[slot] == Some(position) {
            return;
        }
        self.positions[slot] = Some(position);
        let turns = &mut self.turns[slot * self.pairs..][..self.pairs];
        for (turn, frequency) in turns.iter_mut().zip(&rope.frequencies) {
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            *turn = [cos as f32, sin as f32];
        }
    }

    pub(super) fn get(&self, slot: usize) -> &[[f32; 2]] {
        &self.turns[slot * self.pairs..][..self.pairs]
    }
}

/// Copies `from` to `to`, turned.
#[inline(always)]
pub(super) fn turn(from: &[f32], turns: Option<&[[f32; 2]]>, to: &mut [f32]) {
    let Some(turns) = turns else {
        return to.copy_from_slice(from);
    };
    let pairs = from.chunks_exact(2).zip(to.chunks_exact_mut(2));
    for ((from, to), [cos, sin]) in pairs.zip(turns) {
        to[0] = from[0] * cos - from[1] * sin;
        to[1] = from[0] * sin + from[1] * cos;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_are_right_at_late_positions() {
        let rope = Rope::new(128, 10_000.0);
        let mut angles = Angles::default();
        for position in [0, 1, 2_999, 3_000, 1_000_000] {
            angles.set(&rope, 1, position);
            for (pair, [cos, sin]) in angles.get(1).iter().enumerate() {
                let exact = position as f64 * 10_000.0f64.powf(-(pair as f64) / 64.0);
                assert!(
                    (f64::from(*cos) - exact.cos()).abs() < 1e-7,
                    "{position} {pair}"
                );
                assert!(
                    (f64::from(*sin) - exact.sin()).abs() < 1e-7,
                    "{position} {pair}"
                );
            }
        }
    }

    #[test]
    fn another_rope_replaces_what_was_kept() {
        let mut angles = Angles::default();
        let (small, large) = (Rope::new(4, 100.0), Rope::new(8, 10_000.0));
        angles.set(&small, 0, 3);
        let before = angles.get(0).to_vec();
        angles.set(&large, 0, 3);
        assert_eq!(angles.get(0).len(), 4);
        angles.set(&small, 0, 3);
        assert_eq!(angles.get(0), before);
    }
}
