//! Numbers of files as tensors of the device.
//!
//! A tensor goes to the device at once, so host memory holds one converted tensor at most.

use std::borrow::Cow;

use candle_core::{DType, Device, Result, Tensor};
use half::bf16;
use half::slice::HalfBitsSliceExt;

use crate::backend::Data;

/// A matrix `[out, in]`.
pub struct TensorWeight(pub(super) Tensor);

/// A vector of f32.
pub struct TensorVector(pub(super) Tensor);

/// An embedding table `[ids + 1, width]`; the last entry is zero and stands for "nothing".
pub struct TensorTable {
    pub(super) entries: Tensor,
    pub(super) ids: usize,
}

impl TensorTable {
    pub(super) fn new(
        rows: usize,
        width: usize,
        data: &Data<'_>,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let nothing = Tensor::zeros((1, width), dtype, device)?;
        let entries = Tensor::cat(&[&tensor(data, (rows, width), dtype, device)?, &nothing], 0)?;
        Ok(Self { entries, ids: rows })
    }
}

/// `data` as `dtype`, which is f32 or bf16.
pub(super) fn tensor(
    data: &Data<'_>,
    shape: (usize, usize),
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    match (data, dtype) {
        (Data::Bf16(bits), DType::BF16) => {
            Tensor::from_slice(bits.reinterpret_cast::<bf16>(), shape, device)
        }
        (Data::F32(values), DType::BF16) => {
            let values: Vec<bf16> = values.iter().map(|&value| bf16::from_f32(value)).collect();
            Tensor::from_vec(values, shape, device)
        }
        (data, _) => match data.to_f32() {
            Cow::Borrowed(values) => Tensor::from_slice(values, shape, device),
            Cow::Owned(values) => Tensor::from_vec(values, shape, device),
        },
    }
}

/// How a table is kept: as the file has it, so that bf16 files take half the memory whatever the matrices are.
pub(super) fn table_dtype(data: &Data<'_>, dtype: DType) -> DType {
    match data {
        Data::Bf16(_) => DType::BF16,
        Data::F32(_) => dtype,
    }
}
