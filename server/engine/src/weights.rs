//! Model folders: names, storage types and shapes checked once, numbers read where they lie.
//!
//! Lives here: [`Checkpoint`] (a folder), [`Tensors`] (one file's tensors), [`TensorView`] (one tensor), and what can be
//! wrong with them.
//! May not live here: devices, layers, what a tensor is for.

mod checkpoint;
mod digest;
mod error;
mod file;
mod random;

use std::borrow::Cow;
use std::path::Path;

pub use checkpoint::{Checkpoint, StaticFiles};
pub use digest::Digest;
pub use error::LoadError;

use crate::config::{StorageDtype, TensorSpec};
use file::TensorFile;
use random::RandomTensors;

/// The tensors of one weight file, wherever they come from.
#[derive(Debug)]
pub struct Tensors(Source);

#[derive(Debug)]
enum Source {
    File(TensorFile),
    Random(RandomTensors),
}

impl Tensors {
    /// Maps the file at `path` into memory and checks that it holds exactly the tensors of `specs`.
    ///
    /// The numbers stay on disk until they are read. A file that is shortened or overwritten by somebody else while it
    /// is mapped cannot be noticed: reading past the new end ends the process with SIGBUS, and changed bytes are read
    /// as they are. Replace model files by renaming new ones over them.
    ///
    /// # Errors
    /// [`LoadError`]: one line that names the file, the tensor, what was expected and what was found.
    pub fn map(path: &Path, specs: &[TensorSpec]) -> Result<Self, LoadError> {
        TensorFile::map(path, specs).map(|file| Self(Source::File(file)))
    }

    /// The same for bytes that are part of the program; `name` stands in for the path in errors.
    ///
    /// # Errors
    /// As [`Tensors::map`].
    pub fn from_static(
        name: &str,
        bytes: &'static [u8],
        specs: &[TensorSpec],
    ) -> Result<Self, LoadError> {
        TensorFile::from_static(name, bytes, specs).map(|file| Self(Source::File(file)))
    }

    /// Random numbers in the shapes of `specs`, made tensor by tensor when they are read; sizes a machine without the
    /// weights. The same seed gives the same numbers.
    pub fn random(specs: Vec<TensorSpec>, seed: u64) -> Self {
        Self(Source::Random(RandomTensors::new(specs, seed)))
    }

    /// The tensor `name`.
    ///
    /// # Errors
    /// [`LoadError::MissingTensor`]: there is none of that name.
    pub fn get<'a>(&'a self, name: &'a str) -> Result<TensorView<'a>, LoadError> {
        match &self.0 {
            Source::File(file) => file.get(name),
            Source::Random(random) => random.get(name),
        }
    }

    /// Bytes of all tensors as they are stored.
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Source::File(file) => file.bytes(),
            Source::Random(random) => random.bytes(),
        }
    }

    /// A cheap identity: lengths, header, and samples of the numbers.
    pub fn digest(&self) -> Digest {
        match &self.0 {
            Source::File(file) => file.digest(),
            Source::Random(random) => random.digest(),
        }
    }
}

/// One tensor as it is stored.
#[derive(Clone, Debug)]
pub struct TensorView<'a> {
    /// Name in the file.
    pub name: &'a str,
    /// Row-major shape.
    pub shape: &'a [usize],
    /// How the numbers are stored.
    pub dtype: StorageDtype,
    /// The numbers, little-endian, row-major.
    pub bytes: Cow<'a, [u8]>,
}

impl TensorView<'_> {
    /// Numbers in the tensor.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// All numbers as f32; exact, whatever they are stored as.
    pub fn to_f32(&self) -> Vec<f32> {
        floats(self.dtype, &self.bytes)
    }

    /// The numbers as f32 without a copy where they are stored so and aligned.
    pub fn f32_values(&self) -> Cow<'_, [f32]> {
        match self.dtype {
            StorageDtype::F32 => match bytemuck::try_cast_slice(&self.bytes) {
                Ok(values) if cfg!(target_endian = "little") => Cow::Borrowed(values),
                _ => Cow::Owned(self.to_f32()),
            },
            _ => Cow::Owned(self.to_f32()),
        }
    }

    /// The upper halves of the f32 numbers, if the tensor is stored as bfloat16; without a copy where they are aligned.
    pub fn bf16_bits(&self) -> Option<Cow<'_, [u16]>> {
        if self.dtype != StorageDtype::Bf16 {
            return None;
        }
        Some(match bytemuck::try_cast_slice(&self.bytes) {
            Ok(bits) if cfg!(target_endian = "little") => Cow::Borrowed(bits),
            _ => Cow::Owned(halves(&self.bytes).collect()),
        })
    }
}

/// Numbers of type `dtype` stored little-endian in `bytes`, as f32.
pub(crate) fn floats(dtype: StorageDtype, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        StorageDtype::Bf16 => halves(bytes)
            .map(|bits| f32::from_bits(u32::from(bits) << 16))
            .collect(),
        StorageDtype::F16 => halves(bytes)
            .map(|bits| half::f16::from_bits(bits).to_f32())
            .collect(),
        StorageDtype::F32 => bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&chunk| f32::from_le_bytes(chunk))
            .collect(),
    }
}

fn halves(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes
        .as_chunks::<2>()
        .0
        .iter()
        .map(|&chunk| u16::from_le_bytes(chunk))
}
