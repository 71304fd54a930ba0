//! Unigram segmentation: the most probable way to cut a text into pieces.

use sentencepiece_model::Type;

use super::{Segment, Vocabulary};

/// How much worse than the worst piece an unknown character is. Source: SentencePiece's `kUnkPenalty`.
const UNKNOWN_PENALTY: f32 = 10.0;

/// The best way to reach one byte of the text.
#[derive(Clone, Copy)]
struct Node {
    start: usize,
    id: Option<u32>,
    score: f32,
}

/// Viterbi over the byte positions of `text`. On equal scores the earlier start wins, as in the reference.
pub(super) fn segment<'a>(text: &'a str, vocabulary: &Vocabulary) -> Vec<Segment<'a>> {
    let unknown_score = vocabulary.score_min - UNKNOWN_PENALTY;
    let mut best: Vec<Option<Node>> = vec![None; text.len() + 1];
    for (start, character) in text.char_indices() {
        let so_far = best[start].map_or(0.0, |node| node.score);
        let character_end = start + character.len_utf8();
        let longest = text.len().min(start + vocabulary.piece_bytes_max);
        let mut known = false;
        for (end, node) in best
            .iter_mut()
            .enumerate()
            .take(longest + 1)
            .skip(character_end)
        {
            let Some(&id) = vocabulary.ids.get(&text.as_bytes()[start..end]) else {
                continue;
            };
            let score = match vocabulary.kind(id) {
                Type::Unused => continue,
                Type::UserDefined => (end - start) as f32 * vocabulary.score_max - 0.1,
                _ => vocabulary.score(id),
            };
            improve(node, start, Some(id), so_far + score);
            known |= end == character_end;
        }
        if !known {
            improve(
                &mut best[character_end],
                start,
                None,
                so_far + unknown_score,
            );
        }
    }
    let mut segments = Vec::new();
    let mut end = text.len();
    while let Some(node) = best[end] {
        segments.push(Segment {
            text: &text[node.start..end],
            id: node.id,
        });
        end = node.start;
    }
    segments.reverse();
    segments
}

fn improve(node: &mut Option<Node>, start: usize, id: Option<u32>, score: f32) {
    if node.is_none_or(|node| score > node.score) {
        *node = Some(Node { start, id, score });
    }
}
