//! Voices: recorded prompts that give the agent its voice, found by name.
//!
//! Lives here: [`VoiceLibrary`] (all voices of a model's folder), [`VoiceBundle`] (one voice), the limits on both.
//! May not live here: staging and prompts. Names from callers are only compared with known names, never made a path.
//!
//! `bundle.rs` reads one file, `pickle.rs` and `zip.rs` are its formats, `archive.rs` reads `voices.tgz`; `record.rs`
//! makes a voice out of a recording, `shelf.rs` knows which voices can be called now.

mod archive;
mod bundle;
mod pickle;
pub(crate) mod record;
mod shelf;
mod zip;

pub use record::{RecordError, frames_max};
pub use shelf::{NamedVoice, Shelf, ShelfError};

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crate::config::{ModelConfig, RING_COLUMNS_MAX};
use crate::weights::Digest;

/// Most bytes of one bundle: about 8,000 frames at the published width, far above any voice.
pub const BUNDLE_BYTES_MAX: u64 = 64 << 20;
/// Most bundles of a library.
pub const BUNDLES_MAX: usize = 1_024;
/// Most bytes of all bundles together, since they are held in memory.
pub const LIBRARY_BYTES_MAX: u64 = 512 << 20;
/// Most characters of a voice's name.
pub const NAME_CHARS_MAX: usize = 64;

/// One voice as the model reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct VoiceBundle {
    /// Input vectors of the temporal transformer at positions 0 to n - 1: `[n, lm.dim]`, row-major.
    pub embeddings: Vec<f32>,
    /// The staging ring after the last voice frame: one entry a stream, position p in column p modulo the ring's width.
    pub cache: Vec<[i32; RING_COLUMNS_MAX]>,
    /// Number of input vectors; the recording had one frame more.
    pub n: usize,
    /// Identity of the file.
    pub digest: Digest,
}

/// A voice that cannot be used. One line; the library goes on without it.
#[derive(Debug, thiserror::Error)]
pub enum VoiceError {
    /// A file or folder cannot be read.
    #[error("{file}: {source}")]
    Io {
        /// Path.
        file: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A bundle is damaged, hostile, or of another model.
    #[error("{file}: {source}")]
    Bundle {
        /// Path.
        file: String,
        /// What is wrong.
        source: BundleError,
    },
    /// An archive is damaged or hostile; none of its voices is used.
    #[error("{file}: {what}")]
    Archive {
        /// Path.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// A file whose name cannot be a voice's.
    #[error("{file}: {what}")]
    Name {
        /// Path.
        file: String,
        /// What is wrong.
        what: &'static str,
    },
}

/// What is wrong with one bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// Larger than any voice.
    #[error("has more than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: u64,
    },
    /// The container cannot be read.
    #[error("is not a readable {kind}: {what}")]
    Container {
        /// Zip archive or safetensors file.
        kind: &'static str,
        /// What is wrong.
        what: String,
    },
    /// The pickle asks for something that is no tensor.
    #[error("refused, it names {name}, which no voice needs")]
    Global {
        /// Module and name.
        name: String,
    },
    /// The pickle cannot be read.
    #[error("has a pickle that is not a dictionary of tensors: {what}")]
    Pickle {
        /// What is wrong.
        what: String,
    },
    /// One of the two tensors is not there.
    #[error("has no tensor {tensor}")]
    Missing {
        /// `embeddings` or `cache`.
        tensor: &'static str,
    },
    /// A tensor has another shape than the model needs.
    #[error("tensor {tensor} has shape {found:?}, expected {expected}")]
    Shape {
        /// `embeddings` or `cache`.
        tensor: &'static str,
        /// Shape in the file.
        found: Vec<usize>,
        /// Shape that follows from the configuration.
        expected: String,
    },
    /// A tensor is stored in a type it cannot have.
    #[error("tensor {tensor} is stored as {found}, expected {expected}")]
    Dtype {
        /// `embeddings` or `cache`.
        tensor: &'static str,
        /// Type in the file.
        found: &'static str,
        /// What is taken.
        expected: &'static str,
    },
    /// A number that would make the model's state unusable.
    #[error("tensor {tensor} holds {found}, expected {expected}")]
    Value {
        /// `embeddings` or `cache`.
        tensor: &'static str,
        /// The number.
        found: String,
        /// What is taken.
        expected: String,
    },
}

/// All voices of a model, in memory.
#[derive(Debug, Default)]
pub struct VoiceLibrary {
    voices: BTreeMap<String, Arc<VoiceBundle>>,
    broken: Vec<VoiceError>,
    source: String,
    bytes: u64,
}

impl VoiceLibrary {
    /// Reads every bundle of the folder `folder`, or of the archive `<folder>.tgz` where the folder is missing or holds
    /// none. What cannot be read is kept in [`VoiceLibrary::broken`]; none at all is logged as an error here.
    pub fn open(folder: &Path, config: &ModelConfig) -> Self {
        let mut library = Self {
            source: folder.display().to_string(),
            ..Self::default()
        };
        library.add_folder(folder, config);
        let archive = folder.with_extension("tgz");
        if library.is_empty() && archive.is_file() {
            library.source = archive.display().to_string();
            match File::open(&archive) {
                Ok(file) => library.add_archive(&archive.display().to_string(), file, config),
                Err(source) => library.broken.push(VoiceError::Io {
                    file: archive.display().to_string(),
                    source,
                }),
            }
        }
        library.log();
        library
    }

    /// Reads the bundles of a gzipped tar archive in memory; `name` stands in for the path in errors.
    pub fn from_archive(name: &str, bytes: &[u8], config: &ModelConfig) -> Self {
        let mut library = Self {
            source: name.into(),
            ..Self::default()
        };
        library.add_archive(name, bytes, config);
        library.log();
        library
    }

    /// The voice of that name, with or without `.pt` or `.safetensors`. Anything else than a known name is unknown.
    pub fn get(&self, name: &str) -> Option<(&str, &Arc<VoiceBundle>)> {
        let exact = self.voices.get_key_value(name);
        let found = exact.or_else(|| self.voices.get_key_value(stem(name)?));
        found.map(|(name, bundle)| (name.as_str(), bundle))
    }

    /// All names, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.voices.keys().map(String::as_str)
    }

    /// Number of voices.
    pub fn len(&self) -> usize {
        self.voices.len()
    }

    /// Whether there is no voice that can be used.
    pub fn is_empty(&self) -> bool {
        self.voices.is_empty()
    }

    /// The voices that could not be used, one line each.
    pub fn broken(&self) -> &[VoiceError] {
        &self.broken
    }

    /// Folder or archive the voices came from.
    pub fn source(&self) -> &str {
        &self.source
    }

    fn log(&self) {
        for error in &self.broken {
            tracing::warn!("voice left out: {error}");
        }
        if self.is_empty() {
            tracing::error!(
                "{}: no voice found, calls have no voice prompt",
                self.source
            );
        }
    }

    fn add_folder(&mut self, folder: &Path, config: &ModelConfig) {
        let label = folder.display().to_string();
        let io_error = |source| VoiceError::Io {
            file: label.clone(),
            source,
        };
        let root = match folder.canonicalize() {
            Ok(root) => root,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => return self.broken.push(io_error(error)),
        };
        let mut names: Vec<_> = match fs::read_dir(&root) {
            Ok(entries) => entries.flatten().map(|entry| entry.file_name()).collect(),
            Err(error) => return self.broken.push(io_error(error)),
        };
        names.sort();
        for name in names {
            let file = folder.join(&name).display().to_string();
            let Some(name) = name.to_str() else {
                self.refuse(file, "has a name that is not UTF-8");
                continue;
            };
            if name.starts_with('.') || stem(name).is_none() {
                continue;
            }
            // Both sides are canonical, so a link that leads out of the folder shows.
            match root.join(name).canonicalize() {
                Ok(path) if path.starts_with(&root) => match read_file(&path) {
                    Ok(bytes) => self.add(file, name, &bytes, config),
                    Err(source) => self.broken.push(VoiceError::Io { file, source }),
                },
                Ok(_) => self.refuse(file, "is a link that leaves the folder"),
                Err(source) => self.broken.push(VoiceError::Io { file, source }),
            }
        }
    }

    fn add_archive(&mut self, label: &str, archive: impl Read, config: &ModelConfig) {
        match archive::files(archive) {
            Ok(files) => {
                for (name, bytes) in files {
                    if !name.starts_with('.') && stem(&name).is_some() {
                        self.add(format!("{label}: {name}"), &name, &bytes, config);
                    }
                }
            }
            Err(what) => self.broken.push(VoiceError::Archive {
                file: label.into(),
                what,
            }),
        }
    }

    fn add(&mut self, file: String, name: &str, bytes: &[u8], config: &ModelConfig) {
        let Some(stem) = stem(name) else { return };
        if stem.is_empty() || stem.chars().count() > NAME_CHARS_MAX {
            return self.refuse(
                file,
                "has a name that is empty or longer than 64 characters",
            );
        }
        if stem.contains(|c: char| c.is_control() || "/\\\"".contains(c)) {
            return self.refuse(file, "has a name with characters that no voice's name has");
        }
        if self.voices.contains_key(stem) {
            return self.refuse(file, "is a second file for a voice that is there already");
        }
        self.bytes += bytes.len() as u64;
        if self.voices.len() >= BUNDLES_MAX || self.bytes > LIBRARY_BYTES_MAX {
            return self.refuse(
                file,
                "is one voice too many: 1,024 voices or 512 MiB are the limit",
            );
        }
        match VoiceBundle::read(name, bytes, config) {
            Ok(bundle) => {
                self.voices.insert(stem.into(), Arc::new(bundle));
            }
            Err(source) => self.broken.push(VoiceError::Bundle { file, source }),
        }
    }

    fn refuse(&mut self, file: String, what: &'static str) {
        self.broken.push(VoiceError::Name { file, what });
    }
}

/// The voice's name in a file name; `None` where the file is no bundle.
fn stem(file_name: &str) -> Option<&str> {
    let pt = file_name.strip_suffix(".pt");
    pt.or_else(|| file_name.strip_suffix(".safetensors"))
}

/// A file's bytes; one above the limit is cut one byte behind it, which the bundle's reader refuses.
fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    // Asked before it is opened: opening a pipe would wait for somebody to write to it.
    if !fs::metadata(path)?.is_file() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "is not a file",
        ));
    }
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(BUNDLE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
