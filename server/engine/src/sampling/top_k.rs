//! The k largest of many logits, exactly, with ties going to the lowest index.
//!
//! Lives here: one pass with a rising bar. Most logits fail the bar by one comparison, so 32,000 of them cost little.

/// Working memory of a selection; grows to 2 k once.
#[derive(Clone, Debug, Default)]
pub(super) struct TopK {
    /// Rank of a logit, larger is better: its order in the upper half, its index inverted in the lower.
    ranks: Vec<u64>,
    indices: Vec<u32>,
}

/// Logits that are compared with the bar side by side.
const LANES: usize = 16;

impl TopK {
    /// Indices of the `k` largest of `logits`, in no particular order; all of them where there are no more.
    pub(super) fn select(&mut self, logits: &[f32], k: usize) -> &[u32] {
        self.indices.clear();
        if k >= logits.len() {
            self.indices.extend(0..logits.len() as u32);
            return &self.indices;
        }
        let k = k.max(1);
        let room = 2 * k;
        self.ranks.clear();
        self.ranks.reserve(room);
        let mut bar = None;
        let mut first = 0;
        for chunk in logits.chunks(LANES) {
            if bar.is_none_or(|bar| any_above(chunk, bar)) {
                for (index, &logit) in (first..).zip(chunk) {
                    // Of equal logits the later one is the worse, so it cannot pass a bar of the same logit.
                    if bar.is_some_and(|bar| logit <= bar) {
                        continue;
                    }
                    self.ranks.push(rank(logit, index));
                    if self.ranks.len() == room {
                        bar = Some(logits[index_of(self.cut(k)) as usize]);
                    }
                }
            }
            first += LANES as u32;
        }
        if self.ranks.len() > k {
            self.cut(k);
        }
        self.indices
            .extend(self.ranks.iter().map(|&rank| index_of(rank)));
        &self.indices
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

fn any_above(chunk: &[f32], bar: f32) -> bool {
    let above = |found, &logit: &f32| found | (logit > bar);
    match chunk.first_chunk::<LANES>() {
        Some(chunk) => chunk.iter().fold(false, above),
        None => chunk.iter().fold(false, above),
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
                let mut selected: Vec<u32> = top_k.select(&logits, k as usize).to_vec();
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
            let mut selected: Vec<u32> = top_k.select(&logits, k).to_vec();
            selected.sort_unstable();
            assert_eq!(selected, expected);
        }
    }
}
