//! Numbers that mean nothing: sound, tokens and keys for measurements. The same in every run.

/// A stream of pseudo-random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A whole number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit.max(1) as u64) as usize
    }

    /// `values` becomes `count` numbers in -`loud`..`loud`.
    pub(crate) fn fill(&mut self, count: usize, loud: f32, values: &mut Vec<f32>) {
        values.clear();
        values.extend((0..count).map(|_| {
            let unit = (self.bits() >> 40) as f32 / (1u64 << 24) as f32;
            loud * (2.0 * unit - 1.0)
        }));
    }
}
