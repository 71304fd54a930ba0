//! The k largest of many logits, exactly, with ties going to the lowest index.
//!
//! Lives here: one pass with a rising bar. Most logits fail the bar by one comparison, so 32,000 of them cost little.

/// Working memory of a selection; grows to 2 k once.
#[derive(Clone, Debug, Default)]
pub(super) struct TopK {
    /// Rank of a logit, larger is better: its order in the upper half, its index inverted in the lower.
    ranks: Vec<u64>,
}

impl TopK {
    /// Indices of the `k` largest of `logits`, in no particular order; all of them where there are no more.
    pub(super) fn select(
        &mut self,
        logits: &[f32],
        k: usize,
    ) -> impl Iterator<Item = u32> + use<'_> {
        self.ranks.clear();
        let k = k.clamp(1, logits.len().max(1));
        let room = 2 * k;
        self.ranks.reserve(room);
        // A rank at or below the bar cannot be among the k largest.
        let mut bar = 0;
        let mut bar_logit = f32::NEG_INFINITY;
        for (index, &logit) in (0_u32..).zip(logits) {
            // Of equal logits the later one has the lower rank, so it cannot pass a bar of the same logit.
            if logit <= bar_logit && bar != 0 {
                continue;
            }
            self.ranks.push(rank(logit, index));
            if self.ranks.len() == room {
                bar = self.cut(k);
                bar_logit = logits[index_of(bar) as usize];
            }
        }
        if self.ranks.len() > k {
            self.cut(k);
        }
        self.ranks.iter().map(|&rank| index_of(rank))
    }

    /// Keeps the k best; gives the worst of them.
    fn cut(&mut self, k: usize) -> u64 {
        let (_, &mut worst, _) = self
            .ranks
            .select_nth_unstable_by(k - 1, |left, right| right.cmp(left));
        self.ranks.truncate(k);
        worst
    }
}

fn rank(logit: f32, index: u32) -> u64 {
    // Adding zero makes one zero of both.
    let bits = (logit + 0.0).to_bits();
    let order = if bits >> 31 == 0 {
        bits | 1 << 31
    } else {
        !bits
    };
    u64::from(order) << 32 | u64::from(!index)
}

fn index_of(rank: u64) -> u32 {
    !(rank as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_is_a_full_sort_cut_at_k() {
        let mut state = 7_u32;
        let mut top_k = TopK::default();
        for (count, values) in [(1, 3), (10, 3), (64, 64), (1_000, 7), (32_000, 1 << 20)] {
            let logits: Vec<f32> = (0..count)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 8) as f32 % values as f32 - values as f32 / 2.0
                })
                .collect();
            for k in [1, 2, 25, 250, count, 2 * count] {
                let mut sorted: Vec<u32> = (0..count).collect();
                sorted.sort_by(|&left, &right| {
                    let by_logit = logits[right as usize].total_cmp(&logits[left as usize]);
                    by_logit.then(left.cmp(&right))
                });
                sorted.truncate(k as usize);
                sorted.sort_unstable();
                let mut selected: Vec<u32> = top_k.select(&logits, k as usize).collect();
                selected.sort_unstable();
                assert_eq!(selected, sorted, "{k} of {count}");
            }
        }
    }

    #[test]
    fn both_zeros_and_minus_infinity_keep_their_order() {
        let logits = [-0.0, 0.0, f32::NEG_INFINITY, -0.0, f32::NEG_INFINITY];
        let mut top_k = TopK::default();
        for (k, expected) in [(1, vec![0]), (3, vec![0, 1, 3]), (4, vec![0, 1, 2, 3])] {
            let mut selected: Vec<u32> = top_k.select(&logits, k).collect();
            selected.sort_unstable();
            assert_eq!(selected, expected);
        }
    }
}
