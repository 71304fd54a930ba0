//! Nearest entries of a codebook.

use super::matmul::{Epilogue, Vectors, matmul};
use super::matrix::{Dtype, Matrix};
use super::pool::Pool;

/// A codebook `[codes, dim]` with what is needed to find the nearest entry quickly.
pub struct Codebook {
    codes: usize,
    dim: usize,
    entries: Vec<f32>,
    packed: Matrix,
    /// `-|E_j|^2 / 2`: the nearest entry has the largest `r . E_j - |E_j|^2 / 2`.
    bias: Vec<f32>,
}

impl Codebook {
    /// A codebook of entries, row-major `[codes, dim]`.
    ///
    /// # Panics
    /// When `data` has not `codes * dim` elements, or there are no codes.
    pub fn new(codes: usize, dim: usize, data: &[f32]) -> Codebook {
        assert!(
            codes > 0 && dim > 0 && data.len() == codes * dim,
            "a codebook needs codes * dim elements"
        );
        let half_norm = |entry: &[f32]| {
            (-0.5
                * entry
                    .iter()
                    .map(|v| f64::from(*v) * f64::from(*v))
                    .sum::<f64>()) as f32
        };
        Codebook {
            codes,
            dim,
            entries: data.to_vec(),
            packed: Matrix::from_f32(Dtype::F32, codes, dim, data),
            bias: data.chunks_exact(dim).map(half_norm).collect(),
        }
    }

    /// Writes the index of the nearest entry for each vector of `r`, `[out.len(), dim]`; the first one on ties, and
    /// 0 for a vector with a NaN. `scratch` is kept by the caller and grows to `out.len() * codes`.
    ///
    /// # Panics
    /// When `r` has not `out.len() * dim` elements.
    pub fn nearest(&self, pool: &Pool, r: &[f32], out: &mut [u32], scratch: &mut Vec<f32>) {
        assert_eq!(r.len(), out.len() * self.dim, "r must be [vectors, dim]");
        scratch.resize((out.len() * self.codes).max(scratch.len()), 0.0);
        let scores = &mut scratch[..out.len() * self.codes];
        let vectors = Vectors {
            data: r,
            outer: 1,
            outer_stride: 0,
            inner: out.len(),
            inner_stride: self.dim,
        };
        let epilogue = Epilogue {
            bias: Some(&self.bias),
            scale: None,
            add: false,
        };
        matmul(pool, &self.packed, vectors, scores, epilogue);
        for (code, scores) in out.iter_mut().zip(scores.chunks_exact(self.codes)) {
            let mut best = f32::NEG_INFINITY;
            *code = 0;
            for (index, score) in scores.iter().enumerate() {
                if *score > best {
                    (best, *code) = (*score, index as u32);
                }
            }
        }
    }

    /// Entry `code`, `[dim]`.
    ///
    /// # Panics
    /// When there is no such code.
    pub fn entry(&self, code: usize) -> &[f32] {
        &self.entries[code * self.dim..][..self.dim]
    }

    /// Number of entries.
    pub fn codes(&self) -> usize {
        self.codes
    }

    /// Elements of an entry.
    pub fn dim(&self) -> usize {
        self.dim
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_entry_is_found_and_the_first_of_equals_wins() {
        let book = Codebook::new(4, 2, &[0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0]);
        let mut codes = [9; 4];
        let r = [0.1, 0.1, 0.9, 0.1, -0.2, 2.0, f32::NAN, 0.0];
        book.nearest(&Pool::new(2), &r, &mut codes, &mut Vec::new());
        assert_eq!(codes, [0, 1, 2, 0]);
        assert_eq!(book.entry(2), [0.0, 1.0]);
    }
}
