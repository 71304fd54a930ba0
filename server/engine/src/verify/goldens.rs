//! The recorded files: safetensors with a JSON header, one a topic.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};

/// A recorded folder that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum GoldenError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file is not safetensors, or JSON that is not as expected.
    #[error("{}: {what}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A tensor is missing or of another type.
    #[error("{topic}: expected tensor \"{name}\" of {expected}, found {found}")]
    Tensor {
        /// The file without its ending.
        topic: String,
        /// The tensor.
        name: String,
        /// Type.
        expected: &'static str,
        /// What is there.
        found: String,
    },
}

/// The folder of recorded files.
pub(super) struct Goldens {
    dir: PathBuf,
}

/// One recorded file.
pub(super) struct Golden {
    topic: String,
    tensors: HashMap<String, Tensor>,
    metadata: HashMap<String, String>,
}

struct Tensor {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Goldens {
    pub(super) fn open(dir: &Path) -> Result<Self, GoldenError> {
        fs::read_dir(dir).map_err(|source| GoldenError::Io {
            path: dir.to_owned(),
            source,
        })?;
        Ok(Self {
            dir: dir.to_owned(),
        })
    }

    /// The file `name`, or `None` if this folder has no such topic.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, GoldenError> {
        let path = self.dir.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(GoldenError::Io { path, source }),
        }
    }

    /// The recorded topic, or `None` if this folder has no such topic.
    pub(super) fn topic(&self, topic: &str) -> Result<Option<Golden>, GoldenError> {
        let path = self.dir.join(format!("{topic}.safetensors"));
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(GoldenError::Io { path, source }),
        };
        let format = |what: safetensors::SafeTensorError| GoldenError::Format {
            path: path.clone(),
            what: what.to_string(),
        };
        let file = SafeTensors::deserialize(&bytes).map_err(format)?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(format)?;
        let tensors = file.tensors().into_iter().map(|(name, view)| {
            let tensor = Tensor {
                dtype: view.dtype(),
                shape: view.shape().to_vec(),
                bytes: view.data().to_vec(),
            };
            (name, tensor)
        });
        Ok(Some(Golden {
            topic: topic.to_owned(),
            tensors: tensors.collect(),
            metadata: header.metadata().clone().unwrap_or_default(),
        }))
    }
}

impl Golden {
    fn tensor(
        &self,
        name: &str,
        expected: &'static str,
        dtype: Dtype,
    ) -> Result<&Tensor, GoldenError> {
        let found = match self.tensors.get(name) {
            Some(tensor) if tensor.dtype == dtype => return Ok(tensor),
            Some(tensor) => format!("{:?}", tensor.dtype),
            None => "none".into(),
        };
        Err(GoldenError::Tensor {
            topic: self.topic.clone(),
            name: name.into(),
            expected,
            found,
        })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Shape of a tensor that is there.
    pub(super) fn shape(&self, name: &str) -> Result<&[usize], GoldenError> {
        match self.tensors.get(name) {
            Some(tensor) => Ok(&tensor.shape),
            None => Err(GoldenError::Tensor {
                topic: self.topic.clone(),
                name: name.into(),
                expected: "any type",
                found: "none".into(),
            }),
        }
    }

    pub(super) fn f32s(&self, name: &str) -> Result<Vec<f32>, GoldenError> {
        let tensor = self.tensor(name, "f32", Dtype::F32)?;
        Ok(tensor
            .bytes
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| f32::from_le_bytes(bytes))
            .collect())
    }

    pub(super) fn bf16s(&self, name: &str) -> Result<Vec<f32>, GoldenError> {
        let tensor = self.tensor(name, "bf16", Dtype::BF16)?;
        let halves = tensor
            .bytes
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| u16::from_le_bytes(bytes));
        Ok(halves
            .map(|bits| f32::from_bits(u32::from(bits) << 16))
            .collect())
    }

    pub(super) fn i64s(&self, name: &str) -> Result<Vec<i64>, GoldenError> {
        let tensor = self.tensor(name, "i64", Dtype::I64)?;
        Ok(tensor
            .bytes
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| i64::from_le_bytes(bytes))
            .collect())
    }

    pub(super) fn u8s(&self, name: &str) -> Result<&[u8], GoldenError> {
        Ok(&self.tensor(name, "u8", Dtype::U8)?.bytes)
    }

    pub(super) fn metadata(&self, key: &str) -> &str {
        self.metadata.get(key).map_or("", String::as_str)
    }

    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    pub(super) fn malformed(&self, what: impl Into<String>) -> GoldenError {
        GoldenError::Format {
            path: format!("{}.safetensors", self.topic).into(),
            what: what.into(),
        }
    }
}
