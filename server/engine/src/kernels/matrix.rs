//! A weight matrix in the storage the products read.

/// How the elements of a [`Matrix`] are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Dtype {
    /// 32-bit floats.
    F32,
    /// The upper half of a 32-bit float.
    Bf16,
    /// Blocks of 32 signed bytes along the columns with one scale.
    Q8_0,
}

/// A weight `[rows, cols]`: `rows` outputs from `cols` inputs.
pub struct Matrix {
    pub(super) dtype: Dtype,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) data: Vec<f32>,
}

impl Matrix {
    /// Packs `data`, row-major `[rows, cols]`.
    ///
    /// # Panics
    /// When `data` has not `rows * cols` elements.
    pub fn from_f32(dtype: Dtype, rows: usize, cols: usize, data: &[f32]) -> Matrix {
        assert_eq!(
            data.len(),
            rows * cols,
            "a matrix needs rows * cols elements"
        );
        let data = match dtype {
            Dtype::F32 => data.to_vec(),
            Dtype::Bf16 | Dtype::Q8_0 => data
                .iter()
                .map(|v| half::bf16::from_f32(*v).to_f32())
                .collect(),
        };
        Matrix {
            dtype,
            rows,
            cols,
            data,
        }
    }

    /// Packs bf16 bit patterns, row-major `[rows, cols]`. Exact for [`Dtype::F32`] and [`Dtype::Bf16`].
    ///
    /// # Panics
    /// When `bits` has not `rows * cols` elements.
    pub fn from_bf16_bits(dtype: Dtype, rows: usize, cols: usize, bits: &[u16]) -> Matrix {
        let data: Vec<f32> = bits
            .iter()
            .map(|b| half::bf16::from_bits(*b).to_f32())
            .collect();
        Matrix::from_f32(dtype, rows, cols, &data)
    }

    /// Number of outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes of memory the elements take.
    pub fn bytes(&self) -> usize {
        self.data.len() * 4
    }

    /// How the elements are stored.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }
}
