//! Which keys a query sees.
//!
//! Lives here: the two ring rules, and the pinned prompt. Source: the recorded references' section "Ring".

use crate::backend::Query;

/// How many keys are visible once a ring is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RingRule {
    /// `context` keys, the newest included. Source: the published package.
    #[default]
    Full,
    /// One fewer: the oldest entry counts as lying in the future. Source: the published sources of the model.
    Short,
}

impl RingRule {
    /// Keys that a query in a full ring of `context` entries sees.
    pub fn visible(self, context: usize) -> usize {
        match self {
            RingRule::Full => context,
            RingRule::Short => context - 1,
        }
    }
}

/// The window of one transformer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Cells of the ring.
    pub context: usize,
    /// Which of them are seen.
    pub rule: RingRule,
}

impl Window {
    /// The query at `position` of `row`, where `newest` is the last position written before it attends.
    pub fn query(&self, row: usize, position: u64, newest: u64) -> Query {
        let visible = self.rule.visible(self.context) as u64;
        Query {
            row,
            position,
            first: (newest + 1).saturating_sub(visible),
            pinned: 0,
            pinned_rotation: position,
            active: true,
        }
    }

    /// The query at `position` of a row whose first `pinned` positions stay in the ring for good.
    ///
    /// The ring's other cells slide; pinned keys are scored as if the query stood at most `context - 1` positions after
    /// the first of them, so that no distance is larger than any the model was trained with. Until the ring wraps this
    /// is the plain window, bit for bit.
    pub fn pinned_query(&self, row: usize, position: u64, pinned: usize) -> Query {
        let plain = self.query(row, position, position);
        if pinned == 0 {
            return plain;
        }
        let sliding = (self.rule.visible(self.context) - pinned) as u64;
        Query {
            first: (position + 1).saturating_sub(sliding).max(pinned as u64),
            pinned,
            pinned_rotation: position.min(self.context as u64 - 1),
            ..plain
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(window: Window, position: u64) -> (u64, u64) {
        let first = window.query(0, position, position).first;
        (position + 1 - first, first)
    }

    #[test]
    fn a_full_ring_sees_context_keys_and_a_short_one_sees_one_fewer() {
        let context = 3_000;
        let cases = [
            (RingRule::Short, [(2_999, 0), (2_999, 1), (2_999, 2)]),
            (RingRule::Full, [(2_999, 0), (3_000, 0), (3_000, 1)]),
        ];
        for (rule, expected) in cases {
            let window = Window { context, rule };
            let found = [2_998, 2_999, 3_000].map(|position| seen(window, position));
            assert_eq!(found, expected, "{rule:?}");
        }
    }

    #[test]
    fn of_two_positions_written_together_the_first_sees_one_key_fewer() {
        for (rule, expected) in [(RingRule::Short, [248, 249]), (RingRule::Full, [249, 250])] {
            let window = Window { context: 250, rule };
            let found =
                [600, 601].map(|position| position + 1 - window.query(0, position, 601).first);
            assert_eq!(found, expected, "{rule:?}");
        }
    }

    #[test]
    fn a_pinned_prompt_leaves_the_rest_of_the_ring_to_slide() {
        let window = Window {
            context: 10,
            rule: RingRule::Full,
        };
        for position in 0..10 {
            let pinned = window.pinned_query(0, position, 4);
            assert_eq!(
                pinned.pinned_rotation, position,
                "before the ring wraps nothing is turned"
            );
            assert!(
                pinned.first <= 4,
                "before the ring wraps everything is seen"
            );
        }
        let later = window.pinned_query(0, 25, 4);
        assert_eq!((later.first, later.pinned_rotation), (20, 9));
    }
}
