//! From named tensors of a file to matrices, tables and vectors of a device.

use std::ops::Range;

use slots::engine::EngineError;

use crate::backend::{Backend, Data};
use crate::weights::{LoadError, TensorView, Tensors};

/// A network that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file is not what it should be.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The device refused.
    #[error(transparent)]
    Device(#[from] EngineError),
}

/// Puts tensors of one file onto one backend.
pub struct Loader<'a, B> {
    /// Where they go.
    pub backend: &'a mut B,
    /// Where they come from.
    pub tensors: &'a Tensors,
}

/// The numbers of a tensor as the backends take them.
fn data<'a>(view: &'a TensorView<'_>) -> Data<'a> {
    match view.bf16_bits() {
        Some(bits) => Data::Bf16(bits),
        None => Data::F32(view.f32_values()),
    }
}

impl<B: Backend> Loader<'_, B> {
    /// The whole matrix `name`; all dimensions but the first are columns.
    pub fn matrix(&mut self, name: &str) -> Result<B::Weight, BuildError> {
        let view = self.tensors.get(name)?;
        let rows = view.shape[0];
        let cols = view.elements() / rows;
        Ok(self.backend.weight(rows, cols, data(&view))?)
    }

    /// Parts of the matrix `name`, each a range of its rows.
    pub fn parts(
        &mut self,
        name: &str,
        ranges: impl Iterator<Item = Range<usize>>,
    ) -> Result<Vec<B::Weight>, BuildError> {
        let view = self.tensors.get(name)?;
        let cols = view.elements() / view.shape[0];
        let all = data(&view);
        ranges
            .map(|rows| {
                let part = all.slice(rows.start * cols..rows.end * cols);
                Ok(self.backend.weight(rows.len(), cols, part)?)
            })
            .collect()
    }

    /// The matrix `name`, always in f32: the codec's.
    pub fn codec_matrix(&mut self, name: &str) -> Result<B::Weight, BuildError> {
        let view = self.tensors.get(name)?;
        let rows = view.shape[0];
        let cols = view.elements() / rows;
        Ok(self.backend.weight_f32(rows, cols, data(&view))?)
    }

    /// The vector `name`, whatever its number of dimensions.
    pub fn vector(&mut self, name: &str) -> Result<B::Vector, BuildError> {
        let values = self.values(name)?;
        Ok(self.backend.vector(&values)?)
    }

    /// The embedding table `name`.
    pub fn table(&mut self, name: &str) -> Result<B::Table, BuildError> {
        let view = self.tensors.get(name)?;
        let (rows, dim) = (view.shape[0], view.shape[1]);
        Ok(self.backend.table(rows, dim, data(&view))?)
    }

    /// The numbers of `name` as they are, on the host.
    pub fn values(&self, name: &str) -> Result<Vec<f32>, BuildError> {
        Ok(self.tensors.get(name)?.to_f32())
    }
}
