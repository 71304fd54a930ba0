//! What can be wrong with a model folder, each in one line.

use std::io;

use crate::config::{ConfigError, StorageDtype};

/// A model folder that cannot be used. Every message is one line and starts with the file.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file or folder is not there or cannot be read.
    #[error("{file}: {source}")]
    Io {
        /// Path.
        file: String,
        /// The system's answer.
        source: io::Error,
    },
    /// `config.json` cannot be used.
    #[error("{file}: {source}")]
    Config {
        /// Path.
        file: String,
        /// Names the field.
        source: ConfigError,
    },
    /// A file is not what its name says, or is cut off.
    #[error("{file}: {what}")]
    Format {
        /// Path.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// A tensor is not in the file.
    #[error("{file}: tensor {tensor} is missing, expected shape {expected:?}")]
    MissingTensor {
        /// Path.
        file: String,
        /// Name.
        tensor: String,
        /// Shape that follows from the configuration.
        expected: Vec<usize>,
    },
    /// A tensor that the configuration does not call for.
    #[error(
        "{file}: tensor {tensor} with shape {found:?} is not part of the model, expected {expected_count} tensors, found {found_count}"
    )]
    ExtraTensor {
        /// Path.
        file: String,
        /// Name.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
        /// Tensors that follow from the configuration.
        expected_count: usize,
        /// Tensors in the file.
        found_count: usize,
    },
    /// A tensor has another shape.
    #[error("{file}: tensor {tensor} has shape {found:?}, expected {expected:?}")]
    Shape {
        /// Path.
        file: String,
        /// Name.
        tensor: String,
        /// Shape that follows from the configuration.
        expected: Vec<usize>,
        /// Shape in the file.
        found: Vec<usize>,
    },
    /// A tensor is not stored as floats.
    #[error("{file}: tensor {tensor} is stored as {found}, expected {} (or BF16, F16, F32)", expected.name())]
    Dtype {
        /// Path.
        file: String,
        /// Name.
        tensor: String,
        /// How the published file stores it.
        expected: StorageDtype,
        /// How it is stored.
        found: String,
    },
}
