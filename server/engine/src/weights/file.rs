//! One safetensors file in memory: mapped, or part of the program.
//!
//! Lives here: the mapping, the header, the strict comparison with the expected list.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use super::{Digest, LoadError, TensorView};
use crate::config::{StorageDtype, TensorSpec};

/// Bytes before the header: its length.
const LENGTH_BYTES: usize = 8;
/// Samples of the numbers that go into the digest, and bytes of each: 256 kB of a file of any size.
const DIGEST_SAMPLES: usize = 64;
const DIGEST_SAMPLE_BYTES: usize = 4_096;

#[derive(Debug)]
pub(super) struct TensorFile {
    file: String,
    bytes: Bytes,
    data_start: usize,
    tensors: HashMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    dtype: StorageDtype,
    shape: Vec<usize>,
    range: Range<usize>,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mmap),
    Static(&'static [u8]),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Static(bytes) => bytes,
        }
    }
}

impl TensorFile {
    pub(super) fn map(path: &Path, specs: &[TensorSpec]) -> Result<Self, LoadError> {
        let file = path.display().to_string();
        let io_error = |source| LoadError::Io {
            file: file.clone(),
            source,
        };
        let opened = File::open(path).map_err(io_error)?;
        let metadata = opened.metadata().map_err(io_error)?;
        if !metadata.is_file() {
            return Err(LoadError::Format {
                file,
                what: "is not a file".into(),
            });
        }
        if metadata.len() == 0 {
            return Err(LoadError::Format {
                file,
                what: "is empty".into(),
            });
        }
        #[expect(
            unsafe_code,
            reason = "mapping a file is the only way not to copy 17 GB"
        )]
        // SAFETY: the map is read-only and private to this struct, and every byte pattern is a valid u8. What remains
        // is the condition that nobody shortens the file while it is mapped; `Tensors::map` tells the operator.
        let map = unsafe { Mmap::map(&opened) }.map_err(io_error)?;
        Self::read(file, Bytes::Mapped(map), specs)
    }

    pub(super) fn from_static(
        name: &str,
        bytes: &'static [u8],
        specs: &[TensorSpec],
    ) -> Result<Self, LoadError> {
        Self::read(name.into(), Bytes::Static(bytes), specs)
    }

    fn read(file: String, bytes: Bytes, specs: &[TensorSpec]) -> Result<Self, LoadError> {
        let (header_bytes, metadata) =
            SafeTensors::read_metadata(&bytes).map_err(|error| LoadError::Format {
                what: reason(&error, &bytes),
                file: file.clone(),
            })?;
        let data_start = LENGTH_BYTES + header_bytes;
        let found = metadata.tensors();
        let mut tensors = HashMap::with_capacity(specs.len());
        for spec in specs {
            let info = found
                .get(&spec.name)
                .ok_or_else(|| LoadError::MissingTensor {
                    file: file.clone(),
                    tensor: spec.name.clone(),
                    expected: spec.shape.clone(),
                })?;
            if info.shape != spec.shape {
                return Err(LoadError::Shape {
                    file,
                    tensor: spec.name.clone(),
                    expected: spec.shape.clone(),
                    found: info.shape.clone(),
                });
            }
            let dtype = storage_dtype(info.dtype).ok_or_else(|| LoadError::Dtype {
                file: file.clone(),
                tensor: spec.name.clone(),
                expected: spec.dtype,
                found: info.dtype.to_string(),
            })?;
            let (start, end) = info.data_offsets;
            let entry = Entry {
                dtype,
                shape: info.shape.clone(),
                range: data_start + start..data_start + end,
            };
            tensors.insert(spec.name.clone(), entry);
        }
        if found.len() != specs.len() {
            return Err(extra_tensor(file, &found, specs));
        }
        Ok(Self {
            file,
            bytes,
            data_start,
            tensors,
        })
    }

    pub(super) fn get<'a>(&'a self, name: &'a str) -> Result<TensorView<'a>, LoadError> {
        let entry = self
            .tensors
            .get(name)
            .ok_or_else(|| LoadError::MissingTensor {
                file: self.file.clone(),
                tensor: name.into(),
                expected: Vec::new(),
            })?;
        Ok(TensorView {
            name,
            shape: &entry.shape,
            dtype: entry.dtype,
            bytes: Cow::Borrowed(&self.bytes[entry.range.clone()]),
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.bytes.len() - self.data_start) as u64
    }

    pub(super) fn digest(&self) -> Digest {
        let bytes: &[u8] = &self.bytes;
        let (header, data) = bytes.split_at(self.data_start);
        let digest = Digest::of(header).with(&(data.len() as u64).to_le_bytes());
        (0..DIGEST_SAMPLES).fold(digest, |digest, sample| {
            let start = (data.len() as u128 * sample as u128 / DIGEST_SAMPLES as u128) as usize;
            let end = data.len().min(start + DIGEST_SAMPLE_BYTES);
            digest.with(&data[start..end])
        })
    }
}

fn storage_dtype(dtype: Dtype) -> Option<StorageDtype> {
    match dtype {
        Dtype::BF16 => Some(StorageDtype::Bf16),
        Dtype::F16 => Some(StorageDtype::F16),
        Dtype::F32 => Some(StorageDtype::F32),
        _ => None,
    }
}

/// The parser's error in words for an operator. A cut-off download is the common case, so it gets numbers.
fn reason(error: &SafeTensorError, bytes: &[u8]) -> String {
    match error {
        SafeTensorError::MetadataIncompleteBuffer
        | SafeTensorError::InvalidHeaderLength
        | SafeTensorError::HeaderTooSmall => match expected_length(bytes) {
            Some(expected) if expected > bytes.len() as u64 => format!(
                "is cut off: it has {} bytes, expected {expected}",
                bytes.len()
            ),
            Some(expected) => format!(
                "is too long: it has {} bytes, expected {expected}",
                bytes.len()
            ),
            None => format!(
                "is cut off or not a safetensors file: it has {} bytes",
                bytes.len()
            ),
        },
        other => format!("is not a readable safetensors file: {other}").replace('\n', " "),
    }
}

/// The length the header speaks of, if the header is whole.
fn expected_length(bytes: &[u8]) -> Option<u64> {
    let length = u64::from_le_bytes(*bytes.first_chunk::<LENGTH_BYTES>()?);
    let header_end = usize::try_from(length).ok()?.checked_add(LENGTH_BYTES)?;
    let header: HashMap<String, serde_json::Value> =
        serde_json::from_slice(bytes.get(LENGTH_BYTES..header_end)?).ok()?;
    let data_end = header
        .values()
        .filter_map(|tensor| tensor.get("data_offsets")?.get(1)?.as_u64())
        .max()?;
    data_end.checked_add(header_end as u64)
}

fn extra_tensor(
    file: String,
    found: &HashMap<String, &safetensors::tensor::TensorInfo>,
    specs: &[TensorSpec],
) -> LoadError {
    let known: HashSet<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    let (tensor, shape) = found
        .iter()
        .filter(|(name, _)| !known.contains(name.as_str()))
        .map(|(name, info)| (name.clone(), info.shape.clone()))
        .min()
        .unwrap_or_default();
    LoadError::ExtraTensor {
        file,
        tensor,
        found: shape,
        expected_count: specs.len(),
        found_count: found.len(),
    }
}
