//! Token ids against the recorded ones, and what every id stands for.

use std::fs;
use std::path::Path;

use engine::prompt::{wrap, wrap_role_text};
use engine::tokenizer::{Piece, Tokenizer, TokenizerError};
use proptest::prelude::*;
use sentencepiece_model::{ModelProto, ModelType, SentencePiece, Type};

use crate::support::{FIXTURE, checkpoint};

fn ids(value: &serde_json::Value) -> Vec<u32> {
    let ids = value.as_array().unwrap().iter();
    ids.map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn every_recorded_text_gives_the_recorded_ids() {
    let checkpoint = checkpoint();
    let (config, tokenizer) = (checkpoint.config(), checkpoint.tokenizer());
    let path = Path::new(FIXTURE).join("goldens/tokenisation.json");
    let golden: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!(golden["vocab_size"], tokenizer.len());
    for case in golden["cases"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        assert_eq!(tokenizer.encode(text), ids(&case["ids"]), "{text:?}");
        let wrapped = wrap(text, &config.prompt.system_tag);
        assert_eq!(wrapped, case["wrapped"].as_str().unwrap());
        assert_eq!(
            tokenizer.encode(&wrapped),
            ids(&case["wrapped_ids"]),
            "{wrapped:?}"
        );
    }
    let spoken = golden["spoken"].as_array().unwrap();
    assert_eq!(spoken.len(), tokenizer.len());
    for (id, spoken) in (0..).zip(spoken) {
        let silent = config.text.silent_ids.contains(&id);
        let ours = tokenizer.name(id).filter(|_| !silent);
        assert_eq!(ours, spoken.as_str(), "id {id}");
    }
}

#[test]
fn a_byte_pair_model_gives_the_recorded_ids() {
    let tokenizer = load(include_bytes!("../data/bpe.model")).unwrap();
    let cases: serde_json::Value =
        serde_json::from_slice(include_bytes!("../data/bpe.json")).unwrap();
    let cases = cases.as_array().unwrap();
    assert!(cases.len() > 100);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        assert_eq!(tokenizer.encode(text), ids(&case["ids"]), "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_text_becomes_ids_of_the_vocabulary(text in "\\PC{0,60}|(<system>|[ \t\n\u{2581}a-f0-9]){0,40}") {
        let checkpoint = checkpoint();
        let tokenizer = checkpoint.tokenizer();
        let ids = tokenizer.encode(&text);
        prop_assert!(ids.iter().all(|&id| tokenizer.piece(id).is_some()));
        // This file drops spaces at the start.
        let spaced = tokenizer.encode(&format!("  {text}"));
        prop_assert_eq!(ids, spaced);
    }
}

#[test]
fn a_blank_role_text_is_no_text() {
    let prompt = checkpoint().config().prompt.clone();
    assert_eq!(wrap_role_text(" \n\t ", &prompt), None);
    let wrapped = wrap_role_text(" You. ", &prompt).unwrap();
    assert_eq!(wrapped, "<system> You. <system>");
}

#[test]
fn pieces_say_whether_they_are_text_a_byte_or_nothing() {
    let checkpoint = checkpoint();
    let tokenizer = checkpoint.tokenizer();
    assert_eq!(tokenizer.piece(0), Some(&Piece::Control));
    assert_eq!(tokenizer.piece(1), Some(&Piece::Control));
    assert_eq!(tokenizer.piece(4), Some(&Piece::Byte(0)));
    assert_eq!(tokenizer.piece(259), Some(&Piece::Byte(255)));
    assert_eq!(tokenizer.piece(tokenizer.len() as u32), None);
    let id = tokenizer.encode("a")[0];
    assert!(matches!(tokenizer.piece(id), Some(Piece::Text(text)) if text.starts_with(' ')));
}

/// A model file of `pieces`: text, score, kind.
fn model(kind: ModelType, bytes: bool, pieces: &[(&str, f32, Type)]) -> Vec<u8> {
    let mut model = ModelProto::default();
    let mut add = |text: &str, score, kind: Type| {
        model.pieces.push(SentencePiece {
            piece: Some(text.into()),
            score: Some(score),
            r#type: Some(kind as i32),
        });
    };
    add("<unk>", 0.0, Type::Unknown);
    if bytes {
        for byte in 0..=255 {
            add(&format!("<0x{byte:02X}>"), 0.0, Type::Byte);
        }
    }
    for &(text, score, kind) in pieces {
        add(text, score, kind);
    }
    let trainer = model.trainer_spec.get_or_insert_default();
    trainer.model_type = Some(kind as i32);
    trainer.byte_fallback = Some(bytes);
    encode(&model)
}

/// Protobuf by hand, since the crate only reads: fields 1 (pieces), 2 (trainer), 3 (normalizer) of a model.
fn encode(model: &ModelProto) -> Vec<u8> {
    fn varint(out: &mut Vec<u8>, mut value: u64) {
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }
    fn field(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
        varint(out, number << 3 | 2);
        varint(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
    let mut out = Vec::new();
    for piece in &model.pieces {
        let mut inner = Vec::new();
        field(&mut inner, 1, piece.piece().as_bytes());
        inner.push(2 << 3 | 5);
        inner.extend_from_slice(&piece.score().to_le_bytes());
        varint(&mut inner, 3 << 3);
        varint(&mut inner, piece.r#type() as u64);
        field(&mut out, 1, &inner);
    }
    let trainer = model.trainer_spec.as_ref().unwrap();
    let mut inner = Vec::new();
    varint(&mut inner, 3 << 3);
    varint(&mut inner, trainer.model_type() as u64);
    varint(&mut inner, 35 << 3);
    varint(&mut inner, u64::from(trainer.byte_fallback()));
    field(&mut out, 2, &inner);
    out
}

fn load(bytes: &[u8]) -> Result<Tokenizer, TokenizerError> {
    let pieces = sentencepiece_model::SentencePieceModel::from_slice(bytes)
        .unwrap()
        .pieces()
        .len();
    Tokenizer::from_bytes(bytes, pieces)
}

fn names(tokenizer: &Tokenizer, text: &str) -> Vec<String> {
    let ids = tokenizer.encode(text).into_iter();
    ids.map(|id| tokenizer.name(id).unwrap().to_owned())
        .collect()
}

#[test]
fn byte_pairs_merge_by_score_and_unused_ones_come_apart_again() {
    use Type::{Normal, Unused, UserDefined};
    let pieces = [
        ("\u{2581}", -20.0, Normal),
        ("a", -21.0, Normal),
        ("b", -22.0, Normal),
        ("c", -23.0, Normal),
        ("ab", -1.0, Unused),
        ("bc", -2.0, Normal),
        ("abc", -3.0, Normal),
        ("\u{2581}a", -4.0, Normal),
        ("<x>", 0.0, UserDefined),
    ];
    let tokenizer = load(&model(ModelType::Bpe, true, &pieces)).unwrap();
    let cases: [(&str, &[&str]); 6] = [
        ("abc", &[" ", "abc"]),
        ("bc", &[" ", "bc"]),
        ("ab", &[" ", "a", "b"]),
        ("a", &[" a"]),
        ("a<x>bc", &[" a", "<x>", "bc"]),
        ("ad", &[" a", "<0x64>"]),
    ];
    for (text, expected) in cases {
        assert_eq!(names(&tokenizer, text), expected, "{text}");
    }
}

#[test]
fn unknown_neighbours_are_one_unknown_piece_where_there_are_no_bytes() {
    let pieces = [("\u{2581}", -1.0, Type::Normal), ("a", -2.0, Type::Normal)];
    for kind in [ModelType::Unigram, ModelType::Bpe] {
        let tokenizer = load(&model(kind, false, &pieces)).unwrap();
        assert_eq!(
            names(&tokenizer, "xyax"),
            [" ", "<unk>", "a", "<unk>"],
            "{kind:?}"
        );
    }
}

#[test]
fn a_file_that_is_no_tokenizer_of_this_model_is_refused_in_one_line() {
    let long = "x".repeat(125);
    let too_long = model(
        ModelType::Unigram,
        false,
        &[(long.as_str(), -1.0, Type::Normal)],
    );
    let word = model(ModelType::Word, false, &[("a", -1.0, Type::Normal)]);
    assert_eq!(
        load(&too_long).unwrap_err().to_string(),
        "piece 1 has 125 bytes, the longest that can be sent has 124"
    );
    assert_eq!(
        load(&word).unwrap_err().to_string(),
        "has model type 3, expected unigram or bpe"
    );
    assert_eq!(
        Tokenizer::from_bytes(&word, 32_000)
            .unwrap_err()
            .to_string(),
        "has 2 pieces, expected lm.text_card = 32000"
    );
    let garbage = Tokenizer::from_bytes(b"\x0a\xff garbage", 4)
        .unwrap_err()
        .to_string();
    assert!(
        garbage.starts_with("is not a SentencePiece model"),
        "{garbage}"
    );
    assert!(!garbage.contains('\n'));
}

#[test]
fn a_tokenizer_without_a_file_speaks_in_bytes() {
    let tokenizer = Tokenizer::synthetic(32_000);
    assert_eq!(tokenizer.len(), 32_000);
    // U+2581, then the letter.
    assert_eq!(
        tokenizer.encode("a"),
        [0xe2 + 4, 0x96 + 4, 0x81 + 4, 0x61 + 4]
    );
    assert_eq!(Tokenizer::synthetic(40).encode("a"), [0]);
}
