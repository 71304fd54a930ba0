//! Rotary positions: adjacent pairs of a head are turned by an angle that grows with the position.

/// Frequencies of the rotation, one for each pair of a head.
pub struct Rope {
    frequencies: Vec<f64>,
}

impl Rope {
    /// Pair `i` turns by `exp(-ln(max_period) * 2i / head_dim)` per position.
    pub fn new(head_dim: usize, max_period: f32) -> Rope {
        let step = -f64::from(max_period).ln() * 2.0 / head_dim as f64;
        Rope {
            frequencies: (0..head_dim / 2)
                .map(|pair| (step * pair as f64).exp())
                .collect(),
        }
    }

    /// Writes cosines and sines of `position`, pair by pair: `[cos, sin]`.
    ///
    /// The angle is formed in f64, so that it is still right at position 1,000,000.
    pub(super) fn table(&self, position: u64, out: &mut Vec<[f32; 2]>) {
        out.clear();
        out.extend(self.frequencies.iter().map(|frequency| {
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            [cos as f32, sin as f32]
        }));
    }
}

/// Turns the pairs of `head` by `table`.
pub(super) fn rotate(head: &mut [f32], table: &[[f32; 2]]) {
    for (pair, [cos, sin]) in head.chunks_exact_mut(2).zip(table) {
        let (a, b) = (pair[0], pair[1]);
        pair[0] = a * cos - b * sin;
        pair[1] = a * sin + b * cos;
    }
}
