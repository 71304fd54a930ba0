//! One voice file to a [`VoiceBundle`], checked against the model it is for.

use safetensors::{Dtype, SafeTensors};

use super::pickle::{self, StoredTensor};
use super::zip::Archive;
use super::{BUNDLE_BYTES_MAX, BundleError, VoiceBundle};
use crate::config::{ModelConfig, RING_COLUMNS_MAX, StorageDtype};
use crate::weights::{Digest, floats};

/// How the numbers of a bundle's tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberType {
    Float(StorageDtype),
    I32,
    I64,
}

impl NumberType {
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Float(dtype) => dtype.bytes(),
            Self::I32 => 4,
            Self::I64 => 8,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Float(dtype) => dtype.name(),
            Self::I32 => "I32",
            Self::I64 => "I64",
        }
    }
}

/// One tensor out of either container.
struct Numbers {
    kind: NumberType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl VoiceBundle {
    /// Reads a bundle for a model of `config`; the end of `file_name` says which container it is.
    ///
    /// # Errors
    /// [`BundleError`]: one line without the file's name.
    pub fn read(file_name: &str, bytes: &[u8], config: &ModelConfig) -> Result<Self, BundleError> {
        if bytes.len() as u64 > BUNDLE_BYTES_MAX {
            return Err(BundleError::TooLarge {
                bytes_max: BUNDLE_BYTES_MAX,
            });
        }
        let [embeddings, cache] = if file_name.ends_with(".safetensors") {
            from_safetensors(bytes)?
        } else {
            from_torch(bytes)?
        };
        let embeddings = read_embeddings(embeddings, config)?;
        Ok(Self {
            n: embeddings.len() / config.lm.dim,
            embeddings,
            cache: read_cache(cache, config)?,
            digest: Digest::of(bytes),
        })
    }
}

/// `[n, 1, 1, dim]` floats; any shape with `dim` last and nothing else than the frames before it.
fn read_embeddings(numbers: Numbers, config: &ModelConfig) -> Result<Vec<f32>, BundleError> {
    let tensor = "embeddings";
    let NumberType::Float(dtype) = numbers.kind else {
        return Err(BundleError::Dtype {
            tensor,
            found: numbers.kind.name(),
            expected: "BF16, F16 or F32",
        });
    };
    let right = match numbers.shape.as_slice() {
        [n, 1, 1, dim] | [n, 1, dim] | [n, dim] => *n >= 1 && *dim == config.lm.dim,
        _ => false,
    };
    if !right {
        return Err(BundleError::Shape {
            tensor,
            found: numbers.shape,
            expected: format!("[n, 1, 1, {}]", config.lm.dim),
        });
    }
    let values = floats(dtype, &numbers.bytes);
    match values.iter().find(|value| !value.is_finite()) {
        Some(value) => Err(BundleError::Value {
            tensor,
            found: value.to_string(),
            expected: "finite numbers".into(),
        }),
        None => Ok(values),
    }
}

/// `[1, streams, columns]` token ids, each an id of its stream, the initial token, or one of the two markers.
fn read_cache(
    numbers: Numbers,
    config: &ModelConfig,
) -> Result<Vec<[i32; RING_COLUMNS_MAX]>, BundleError> {
    let tensor = "cache";
    if matches!(numbers.kind, NumberType::Float(_)) {
        return Err(BundleError::Dtype {
            tensor,
            found: numbers.kind.name(),
            expected: "I64 or I32",
        });
    }
    let (streams, columns) = (config.streams(), config.ring_columns());
    let right = match numbers.shape.as_slice() {
        [1, found_streams, found_columns] | [found_streams, found_columns] => {
            *found_streams == streams && *found_columns == columns
        }
        _ => false,
    };
    if !right {
        return Err(BundleError::Shape {
            tensor,
            found: numbers.shape,
            expected: format!("[1, {streams}, {columns}]"),
        });
    }
    let ids = integers(&numbers);
    let mut cache = vec![[-2; RING_COLUMNS_MAX]; streams];
    for (stream, row) in ids.chunks_exact(columns).enumerate() {
        let initial = if stream == 0 {
            config.lm.text_card
        } else {
            config.lm.card
        };
        for (cell, &id) in cache[stream].iter_mut().zip(row) {
            if !(-2..=initial as i64).contains(&id) {
                return Err(BundleError::Value {
                    tensor,
                    found: format!("id {id} in stream {stream}"),
                    expected: format!("-2 to {initial}"),
                });
            }
            *cell = id as i32;
        }
    }
    Ok(cache)
}

fn integers(numbers: &Numbers) -> Vec<i64> {
    if numbers.kind == NumberType::I64 {
        let chunks = numbers.bytes.as_chunks::<8>().0.iter();
        return chunks.map(|&chunk| i64::from_le_bytes(chunk)).collect();
    }
    let chunks = numbers.bytes.as_chunks::<4>().0.iter();
    chunks
        .map(|&chunk| i64::from(i32::from_le_bytes(chunk)))
        .collect()
}

fn from_safetensors(bytes: &[u8]) -> Result<[Numbers; 2], BundleError> {
    let container = |what: String| BundleError::Container {
        kind: "safetensors file",
        what: what.replace('\n', " "),
    };
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| container(error.to_string()))?;
    let get = |tensor| -> Result<Numbers, BundleError> {
        let view = tensors
            .tensor(tensor)
            .map_err(|_| BundleError::Missing { tensor })?;
        let kind = match view.dtype() {
            Dtype::BF16 => NumberType::Float(StorageDtype::Bf16),
            Dtype::F16 => NumberType::Float(StorageDtype::F16),
            Dtype::F32 => NumberType::Float(StorageDtype::F32),
            Dtype::I64 => NumberType::I64,
            Dtype::I32 => NumberType::I32,
            other => return Err(container(format!("tensor {tensor} is stored as {other}"))),
        };
        Ok(Numbers {
            kind,
            shape: view.shape().to_vec(),
            bytes: view.data().to_vec(),
        })
    };
    Ok([get("embeddings")?, get("cache")?])
}

fn from_torch(bytes: &[u8]) -> Result<[Numbers; 2], BundleError> {
    let mut archive = Archive::open(bytes)?;
    let byte_order = archive.read_optional("byteorder")?;
    if byte_order.is_some_and(|order| order != b"little") {
        return Err(BundleError::Container {
            kind: "zip archive",
            what: "its numbers are not little-endian".into(),
        });
    }
    let tensors = pickle::tensors(&archive.read("data.pkl")?)?;
    let mut get = |tensor: &'static str| -> Result<Numbers, BundleError> {
        let found = tensors.iter().rev().find(|(name, _)| &**name == tensor);
        let (_, stored) = found.ok_or(BundleError::Missing { tensor })?;
        read_stored(stored, &mut archive)
    };
    Ok([get("embeddings")?, get("cache")?])
}

fn read_stored(tensor: &StoredTensor, archive: &mut Archive<'_>) -> Result<Numbers, BundleError> {
    let pickle = |what: String| BundleError::Pickle { what };
    let name = format!("data/{}", tensor.storage.key);
    let storage = archive.read(&name)?;
    let width = tensor.storage.kind.bytes();
    if Some(storage.len()) != tensor.storage.elements.checked_mul(width) {
        return Err(pickle(format!(
            "{name} has {} bytes, expected {} numbers of {width} bytes",
            storage.len(),
            tensor.storage.elements
        )));
    }
    let elements = tensor.elements().ok_or_else(|| {
        pickle(format!(
            "a tensor of shape {:?} is not contiguous",
            tensor.shape
        ))
    })?;
    let range = tensor
        .offset
        .checked_add(elements)
        .filter(|&end| end <= tensor.storage.elements)
        .map(|end| tensor.offset * width..end * width)
        .ok_or_else(|| {
            pickle(format!(
                "a tensor of shape {:?} does not fit into {name}",
                tensor.shape
            ))
        })?;
    Ok(Numbers {
        kind: tensor.storage.kind,
        shape: tensor.shape.clone(),
        bytes: storage[range].to_vec(),
    })
}
