//! Byte-pair segmentation: neighbours are merged, the pair with the best score first.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

use sentencepiece_model::Type;

use super::normalizer::Normalizer;
use super::{Segment, Vocabulary};

/// A stretch of the text that is one piece so far; empty once it has been merged into its left neighbour.
struct Symbol {
    range: Range<usize>,
    previous: Option<usize>,
    next: Option<usize>,
    frozen: bool,
}

/// Two neighbours that may be merged; stale once either has changed.
struct Pair {
    left: usize,
    right: usize,
    score: f32,
    bytes: usize,
}

impl Ord for Pair {
    /// The best score first; the leftmost of equals.
    fn cmp(&self, other: &Self) -> Ordering {
        let by_score = self.score.total_cmp(&other.score);
        by_score.then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

/// Pieces that may not come out, and where they were put together.
type Splits<'a> = HashMap<&'a str, usize>;

pub(super) fn segment<'a>(
    text: &'a str,
    vocabulary: &Vocabulary,
    normalizer: &Normalizer,
) -> Vec<Segment<'a>> {
    let mut symbols = split(text, normalizer);
    let mut agenda = BinaryHeap::new();
    let mut splits = Splits::new();
    for left in 1..symbols.len() {
        consider(
            text,
            &symbols,
            left - 1,
            left,
            vocabulary,
            &mut agenda,
            &mut splits,
        );
    }
    while let Some(pair) = agenda.pop() {
        let (left, right) = (&symbols[pair.left], &symbols[pair.right]);
        if left.range.is_empty()
            || right.range.is_empty()
            || left.range.len() + right.range.len() != pair.bytes
        {
            continue;
        }
        let (end, next) = (right.range.end, right.next);
        symbols[pair.right].range = end..end;
        symbols[pair.left].range.end = end;
        symbols[pair.left].next = next;
        if let Some(next) = next {
            symbols[next].previous = Some(pair.left);
            consider(
                text,
                &symbols,
                pair.left,
                next,
                vocabulary,
                &mut agenda,
                &mut splits,
            );
        }
        if let Some(previous) = symbols[pair.left].previous {
            consider(
                text,
                &symbols,
                previous,
                pair.left,
                vocabulary,
                &mut agenda,
                &mut splits,
            );
        }
    }
    let mut segments = Vec::new();
    let mut at = (!symbols.is_empty()).then_some(0);
    while let Some(index) = at {
        let symbol = &symbols[index];
        emit(
            &text[symbol.range.clone()],
            vocabulary,
            &splits,
            &mut segments,
        );
        at = symbol.next;
    }
    segments
}

/// One symbol a character; user-defined symbols whole and closed to merges.
fn split(text: &str, normalizer: &Normalizer) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = Vec::new();
    let mut start = 0;
    while let Some(character) = text[start..].chars().next() {
        let symbol = normalizer.symbol_at(&text[start..]);
        let end = start + symbol.unwrap_or(character.len_utf8());
        let index = symbols.len();
        symbols.push(Symbol {
            range: start..end,
            previous: index.checked_sub(1),
            next: (end < text.len()).then_some(index + 1),
            frozen: symbol.is_some(),
        });
        start = end;
    }
    symbols
}

fn consider<'a>(
    text: &'a str,
    symbols: &[Symbol],
    left: usize,
    right: usize,
    vocabulary: &Vocabulary,
    agenda: &mut BinaryHeap<Pair>,
    splits: &mut Splits<'a>,
) {
    if symbols[left].frozen || symbols[right].frozen {
        return;
    }
    let piece = &text[symbols[left].range.start..symbols[right].range.end];
    let Some(id) = vocabulary.id(piece) else {
        return;
    };
    agenda.push(Pair {
        left,
        right,
        score: vocabulary.score(id),
        bytes: piece.len(),
    });
    if vocabulary.kind(id) == Type::Unused {
        splits.insert(piece, symbols[left].range.len());
    }
}

/// Gives out a piece, or its two halves where the piece itself may not come out.
fn emit<'a>(
    piece: &'a str,
    vocabulary: &Vocabulary,
    splits: &Splits<'a>,
    segments: &mut Vec<Segment<'a>>,
) {
    let id = vocabulary.id(piece);
    if id.is_some_and(|id| vocabulary.kind(id) == Type::Unused)
        && let Some(&half) = splits.get(piece)
    {
        emit(&piece[..half], vocabulary, splits, segments);
        emit(&piece[half..], vocabulary, splits, segments);
        return;
    }
    segments.push(Segment { text: piece, id });
}
