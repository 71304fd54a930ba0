//! Text to token ids and back, by the rules of a SentencePiece model file.
//!
//! Lives here: [`Tokenizer`], what an id stands for, and the choice of the segmentation the file was trained for.
//! May not live here: system tags (`prompt.rs`), joining of byte pieces (`text.rs`).
//!
//! The segmentation is our own, since a prompt must give the reference's ids to the last one: `normalizer.rs` applies
//! the file's compiled character map, `unigram.rs` and `bpe.rs` segment.

mod bpe;
mod normalizer;
mod unigram;

use std::collections::HashMap;

use sentencepiece_model::{ModelProto, ModelType, SentencePiece, SentencePieceModel, Type};
use slots::engine::TEXT_BYTES_MAX;

use normalizer::Normalizer;

/// SentencePiece writes a space as this character.
const META_SPACE: char = '\u{2581}';
/// Bytes that may be held back when a piece arrives, plus one replacement character.
const HELD_BACK_BYTES_MAX: usize = 4;

/// A SentencePiece model.
#[derive(Debug)]
pub struct Tokenizer {
    normalizer: Normalizer,
    model: ModelType,
    vocabulary: Vocabulary,
    pieces: Vec<Piece>,
    names: Vec<Box<str>>,
}

/// What a token id stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text, with spaces as spaces.
    Text(Box<str>),
    /// One byte of a character that has no piece.
    Byte(u8),
    /// Begin, end, padding, unknown and the like: nothing that is said.
    Control,
}

/// A file that cannot be used as a tokenizer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// Not a SentencePiece model.
    #[error("is not a SentencePiece model: {what}")]
    Format {
        /// The parser's words.
        what: String,
    },
    /// A segmentation we do not have.
    #[error("has model type {model_type}, expected unigram or bpe")]
    ModelType {
        /// Number in the trainer's settings.
        model_type: i32,
    },
    /// Another number of pieces than the model has text ids.
    #[error("has {found} pieces, expected lm.text_card = {expected}")]
    Count {
        /// Pieces in the file.
        found: usize,
        /// Text ids of the model.
        expected: usize,
    },
    /// A piece is longer than a frame's text may be.
    #[error("piece {id} has {bytes} bytes, the longest that can be sent has {bytes_max}")]
    PieceTooLong {
        /// Token id.
        id: usize,
        /// Its bytes.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The character map is damaged.
    #[error("has a character map that is cut off")]
    CharacterMap,
}

/// Pieces by their text, with what segmentation needs to know of them.
#[derive(Debug, Default)]
struct Vocabulary {
    ids: HashMap<Box<[u8]>, u32>,
    scores: Vec<f32>,
    kinds: Vec<Type>,
    bytes: Option<Box<[u32; 256]>>,
    unknown_id: u32,
    piece_bytes_max: usize,
    score_min: f32,
    score_max: f32,
}

/// A part of the normalised text and the piece it became; `None` where it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment<'a> {
    text: &'a str,
    id: Option<u32>,
}

impl Tokenizer {
    /// Reads the bytes of a `.model` file for a model with `text_card` text ids.
    ///
    /// # Errors
    /// [`TokenizerError`]: one line without the file's name.
    pub fn from_bytes(bytes: &[u8], text_card: usize) -> Result<Self, TokenizerError> {
        let model = SentencePieceModel::from_slice(bytes).map_err(|error| {
            let what = error.to_string().replace('\n', " ");
            TokenizerError::Format { what }
        })?;
        Self::from_model(model.model(), text_card)
    }

    /// A tokenizer of bytes alone, for random weights that have no file: ids 0 to 3 are special, then 256 bytes, then
    /// pieces that only name their id.
    pub fn synthetic(text_card: usize) -> Self {
        let piece = |id: usize| {
            let (text, kind) = match id {
                0 => ("<unk>".into(), Type::Unknown),
                1 => ("<s>".into(), Type::Control),
                2 => ("</s>".into(), Type::Control),
                3 => ("<pad>".into(), Type::Control),
                4..260 => (format!("<0x{:02X}>", id - 4), Type::Byte),
                _ => (format!("{META_SPACE}w{id}"), Type::Unused),
            };
            SentencePiece {
                piece: Some(text),
                score: Some(0.0),
                r#type: Some(kind as i32),
            }
        };
        let mut model = ModelProto::default();
        model.pieces.extend((0..text_card).map(piece));
        model
            .trainer_spec
            .get_or_insert_default()
            .byte_fallback
            .replace(text_card >= 260);
        Self::from_model(&model, text_card).expect("the pieces above are short and of one count")
    }

    fn from_model(model: &ModelProto, text_card: usize) -> Result<Self, TokenizerError> {
        if model.pieces.len() != text_card {
            return Err(TokenizerError::Count {
                found: model.pieces.len(),
                expected: text_card,
            });
        }
        let trainer = model.trainer_spec.clone().unwrap_or_default();
        let model_type = match ModelType::try_from(trainer.model_type() as i32) {
            Ok(kind @ (ModelType::Unigram | ModelType::Bpe)) => kind,
            _ => {
                return Err(TokenizerError::ModelType {
                    model_type: trainer.model_type() as i32,
                });
            }
        };
        let vocabulary = Vocabulary::new(&model.pieces, trainer.byte_fallback());
        let symbols = vocabulary.user_symbols(&model.pieces);
        let spec = model.normalizer_spec.clone().unwrap_or_default();
        let normalizer = Normalizer::new(&spec, trainer.treat_whitespace_as_suffix(), symbols)?;
        let mut pieces = Vec::with_capacity(model.pieces.len());
        let mut names = Vec::with_capacity(model.pieces.len());
        for (id, piece) in model.pieces.iter().enumerate() {
            let name: Box<str> = piece.piece().replace(META_SPACE, " ").into();
            let what = piece_of(piece, &name);
            if let Piece::Text(text) = &what
                && text.len() > TEXT_BYTES_MAX - HELD_BACK_BYTES_MAX
            {
                return Err(TokenizerError::PieceTooLong {
                    id,
                    bytes: text.len(),
                    bytes_max: TEXT_BYTES_MAX - HELD_BACK_BYTES_MAX,
                });
            }
            pieces.push(what);
            names.push(name);
        }
        Ok(Self {
            normalizer,
            model: model_type,
            vocabulary,
            pieces,
            names,
        })
    }

    /// The ids of `text`, without begin or end of sentence.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let normalized = self.normalizer.normalize(text);
        let segments = match self.model {
            ModelType::Bpe => bpe::segment(&normalized, &self.vocabulary, &self.normalizer),
            _ => unigram::segment(&normalized, &self.vocabulary),
        };
        let mut ids = Vec::with_capacity(segments.len());
        let mut after_unknown = false;
        for segment in segments {
            match (segment.id, &self.vocabulary.bytes) {
                (Some(id), _) => ids.push(id),
                (None, Some(bytes)) => {
                    ids.extend(segment.text.bytes().map(|byte| bytes[usize::from(byte)]));
                }
                // Neighbouring unknown characters are one unknown piece.
                (None, None) if !after_unknown => ids.push(self.vocabulary.unknown_id),
                (None, None) => {}
            }
            after_unknown = segment.id.is_none();
        }
        ids
    }

    /// What `id` stands for; `None` above the vocabulary.
    pub fn piece(&self, id: u32) -> Option<&Piece> {
        self.pieces.get(id as usize)
    }

    /// The piece's own name with spaces as spaces, as the reference server sends it: bytes are `<0x..>`, special ids
    /// are their tags.
    pub fn name(&self, id: u32) -> Option<&str> {
        self.names.get(id as usize).map(|name| &**name)
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there is no id at all; never so in a tokenizer that loaded.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

fn piece_of(piece: &SentencePiece, name: &str) -> Piece {
    match kind_of(piece) {
        Type::Byte => byte_of(piece.piece()).map_or(Piece::Control, Piece::Byte),
        Type::Unknown | Type::Control => Piece::Control,
        Type::Normal | Type::UserDefined | Type::Unused => Piece::Text(name.into()),
    }
}

fn kind_of(piece: &SentencePiece) -> Type {
    Type::try_from(piece.r#type() as i32).unwrap_or(Type::Normal)
}

/// The byte behind a name of the form `<0xNN>`.
fn byte_of(name: &str) -> Option<u8> {
    u8::from_str_radix(name.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}

impl Vocabulary {
    fn new(pieces: &[SentencePiece], byte_fallback: bool) -> Self {
        let mut vocabulary = Self {
            score_min: f32::INFINITY,
            score_max: f32::NEG_INFINITY,
            ..Self::default()
        };
        let mut bytes = [None; 256];
        for (id, piece) in (0..).zip(pieces) {
            let kind = kind_of(piece);
            let text = piece.piece().as_bytes();
            match kind {
                Type::Normal | Type::UserDefined | Type::Unused => {
                    vocabulary.ids.entry(text.into()).or_insert(id);
                    vocabulary.piece_bytes_max = vocabulary.piece_bytes_max.max(text.len());
                }
                Type::Byte => {
                    if let Some(byte) = byte_of(piece.piece()) {
                        bytes[usize::from(byte)] = Some(id);
                    }
                }
                Type::Unknown => vocabulary.unknown_id = id,
                Type::Control => {}
            }
            if kind == Type::Normal {
                vocabulary.score_min = vocabulary.score_min.min(piece.score());
                vocabulary.score_max = vocabulary.score_max.max(piece.score());
            }
            vocabulary.scores.push(piece.score());
            vocabulary.kinds.push(kind);
        }
        if byte_fallback && bytes.iter().all(Option::is_some) {
            vocabulary.bytes = Some(Box::new(bytes.map(Option::unwrap_or_default)));
        }
        vocabulary
    }

    /// Symbols that are never cut, longest first.
    fn user_symbols(&self, pieces: &[SentencePiece]) -> Vec<Box<str>> {
        let mut symbols: Vec<Box<str>> = pieces
            .iter()
            .filter(|piece| kind_of(piece) == Type::UserDefined)
            .map(|piece| piece.piece().into())
            .collect();
        symbols.sort_by_key(|symbol| std::cmp::Reverse(symbol.len()));
        symbols
    }

    fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text.as_bytes()).copied()
    }

    fn kind(&self, id: u32) -> Type {
        self.kinds[id as usize]
    }

    fn score(&self, id: u32) -> f32 {
        self.scores[id as usize]
    }
}
