//! A model folder as a whole: configuration, both weight files, tokenizer, voices.
//!
//! Lives here: [`Checkpoint`], where its parts may come from, its identity.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::{Digest, LoadError, TensorView, Tensors};
use crate::config::{CONFIG_FILE, ModelConfig, expected_tensors};
use crate::tokenizer::Tokenizer;
use crate::voices::VoiceLibrary;

/// Longest `config.json` that is read.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Longest tokenizer that is read; the published one has 553 kB.
const TOKENIZER_BYTES_MAX: u64 = 64 << 20;

/// A model, checked but not yet on any device.
#[derive(Debug)]
pub struct Checkpoint {
    config: ModelConfig,
    lm: Tensors,
    codec: Tensors,
    tokenizer: Arc<Tokenizer>,
    voices: Arc<VoiceLibrary>,
    digest: Digest,
}

/// The files of a model that is part of the program.
#[derive(Clone, Copy, Debug)]
pub struct StaticFiles {
    /// What stands in for the folder in errors.
    pub name: &'static str,
    /// `config.json`.
    pub config: &'static [u8],
    /// Weights of both transformers.
    pub lm: &'static [u8],
    /// Weights of the codec.
    pub codec: &'static [u8],
    /// SentencePiece model.
    pub tokenizer: &'static [u8],
    /// `voices.tgz`.
    pub voices: &'static [u8],
}

impl Checkpoint {
    /// Opens the model folder `folder`: reads the small files, maps the weights, checks every name and shape.
    ///
    /// A folder without `config.json`, or with one that is not ours, has the published dimensions. Voices that cannot
    /// be used are left out and kept in the library.
    ///
    /// # Errors
    /// [`LoadError`]: one line that names the file, and the tensor with expected and found shape.
    pub fn open(folder: &Path) -> Result<Self, LoadError> {
        if !folder.is_dir() {
            return Err(LoadError::Format {
                file: folder.display().to_string(),
                what: "is not a folder".into(),
            });
        }
        let config = read_config(folder)?;
        let (lm_specs, codec_specs) = expected_tensors(&config);
        let tokenizer_path = folder.join(&config.files.tokenizer);
        let tokenizer_bytes = read_bounded(&tokenizer_path, TOKENIZER_BYTES_MAX)?;
        Self::from_parts(
            Tensors::map(&folder.join(&config.files.lm), &lm_specs)?,
            Tensors::map(&folder.join(&config.files.mimi), &codec_specs)?,
            load_tokenizer(
                &tokenizer_path.display().to_string(),
                &tokenizer_bytes,
                &config,
            )?,
            VoiceLibrary::open(&folder.join(&config.files.voices), &config),
            &tokenizer_bytes,
            config,
        )
    }

    /// The same for files that are part of the program.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_static(files: &StaticFiles) -> Result<Self, LoadError> {
        let named = |part: &str| format!("{}/{part}", files.name);
        let config = ModelConfig::from_json(files.config).map_err(|source| LoadError::Config {
            file: named(CONFIG_FILE),
            source,
        })?;
        let (lm_specs, codec_specs) = expected_tensors(&config);
        Self::from_parts(
            Tensors::from_static(&named(&config.files.lm), files.lm, &lm_specs)?,
            Tensors::from_static(&named(&config.files.mimi), files.codec, &codec_specs)?,
            load_tokenizer(&named(&config.files.tokenizer), files.tokenizer, &config)?,
            VoiceLibrary::from_archive(
                &named(&format!("{}.tgz", config.files.voices)),
                files.voices,
                &config,
            ),
            files.tokenizer,
            config,
        )
    }

    /// Random weights in the sizes of `config`, a tokenizer of bytes, no voices: for measuring a machine.
    ///
    /// # Errors
    /// [`LoadError::Config`]: the sizes cannot work.
    pub fn random(config: ModelConfig, seed: u64) -> Result<Self, LoadError> {
        let file = || "random weights".to_owned();
        config.check().map_err(|source| LoadError::Config {
            file: file(),
            source,
        })?;
        let (lm_specs, codec_specs) = expected_tensors(&config);
        Self::from_parts(
            Tensors::random(lm_specs, seed),
            Tensors::random(codec_specs, seed.wrapping_add(1)),
            Tokenizer::synthetic(config.lm.text_card),
            VoiceLibrary::default(),
            &[],
            config,
        )
    }

    fn from_parts(
        lm: Tensors,
        codec: Tensors,
        tokenizer: Tokenizer,
        voices: VoiceLibrary,
        tokenizer_bytes: &[u8],
        config: ModelConfig,
    ) -> Result<Self, LoadError> {
        let digest = Digest::of(format!("{config:?}").as_bytes())
            .with(&lm.digest().0.to_le_bytes())
            .with(&codec.digest().0.to_le_bytes())
            .with(tokenizer_bytes);
        Ok(Self {
            config,
            lm,
            codec,
            tokenizer: Arc::new(tokenizer),
            voices: Arc::new(voices),
            digest,
        })
    }

    /// The model's numbers.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// All tensors of the transformers.
    pub fn lm_tensors(&self) -> &Tensors {
        &self.lm
    }

    /// All tensors of the codec.
    pub fn codec_tensors(&self) -> &Tensors {
        &self.codec
    }

    /// Tensor `name` of the transformers' file.
    ///
    /// # Errors
    /// [`LoadError::MissingTensor`]: the model has none of that name.
    pub fn lm<'a>(&'a self, name: &'a str) -> Result<TensorView<'a>, LoadError> {
        self.lm.get(name)
    }

    /// Tensor `name` of the codec's file.
    ///
    /// # Errors
    /// [`LoadError::MissingTensor`]: the codec has none of that name.
    pub fn codec<'a>(&'a self, name: &'a str) -> Result<TensorView<'a>, LoadError> {
        self.codec.get(name)
    }

    /// Bytes of the transformers' and of the codec's tensors as they are stored.
    pub fn stored_bytes(&self) -> (u64, u64) {
        (self.lm.bytes(), self.codec.bytes())
    }

    /// Role text to token ids and back.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// All voices.
    pub fn voices(&self) -> &Arc<VoiceLibrary> {
        &self.voices
    }

    /// A cheap identity for cache keys: numbers, headers, lengths and samples of the weights.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

fn read_config(folder: &Path) -> Result<ModelConfig, LoadError> {
    let path = folder.join(CONFIG_FILE);
    match read_bounded(&path, CONFIG_BYTES_MAX) {
        Ok(text) => ModelConfig::from_json(&text).map_err(|source| LoadError::Config {
            file: path.display().to_string(),
            source,
        }),
        Err(LoadError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(ModelConfig::published())
        }
        Err(error) => Err(error),
    }
}

fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>, LoadError> {
    let file = path.display().to_string();
    let io_error = |source| LoadError::Io {
        file: file.clone(),
        source,
    };
    let bytes = fs::metadata(path).map_err(io_error)?.len();
    if bytes > bytes_max {
        return Err(LoadError::Format {
            what: format!("has {bytes} bytes, at most {bytes_max} are read"),
            file,
        });
    }
    fs::read(path).map_err(io_error)
}

fn load_tokenizer(file: &str, bytes: &[u8], config: &ModelConfig) -> Result<Tokenizer, LoadError> {
    Tokenizer::from_bytes(bytes, config.lm.text_card).map_err(|error| LoadError::Format {
        file: file.into(),
        what: error.to_string(),
    })
}
