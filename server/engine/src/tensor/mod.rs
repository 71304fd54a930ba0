//! The operations of a tick on candle's tensors: the network computed by other people's code, slowly, as a witness in
//! tests. Nothing is served with it.
//!
//! Lives here: [`TensorBackend`], which maps each operation of the trait to a file of this folder.
//! Promises: lanes are all rows of the batch, and every operation has the same shapes whoever is seated, so a row's
//! bits do not depend on the others; an idle lane's rings and carries keep their bits; nothing waits for the device
//! but `download`, `synchronize` and the codes of `quantize`.
//! May not live here: names of tensors in files, tokens, the choice of a device (`device`).

mod attend;
mod backend;
mod convolve;
mod math;
mod plan;
mod ring;

mod weights;

use candle_core::{DType, Device, Result as CandleResult, Tensor};
use slots::engine::EngineError;

use crate::backend::KvDtype;
use crate::kernels::Dtype;

use convolve::Gathers;
use plan::Plans;

pub use convolve::{TensorCarry, TensorConv, TensorConvTr};
pub use math::TensorCodebook;
pub use ring::{TensorRing, TensorRingPart};
pub use weights::{TensorTable, TensorVector, TensorWeight};

/// Activations `[n, width]` in f32; empty until something was put in.
#[derive(Default)]
pub struct TensorBuf(Option<Tensor>);

impl TensorBuf {
    fn get(&self) -> CandleResult<&Tensor> {
        self.0.as_ref().ok_or_else(|| {
            candle_core::Error::Msg("a buffer was read before it was written".into())
        })
    }
}

/// The network on a candle device.
pub struct TensorBackend {
    device: Device,
    dtype: DType,
    kv_dtype: DType,
    constants: Constants,
    plans: Plans,
    gathers: Gathers,
    /// Which lanes took part last, and the same on the device.
    mask: Option<(Vec<bool>, Tensor)>,
}

/// Scalars that comparisons need, uploaded once.
struct Constants {
    zero: Tensor,
    /// Larger magnitudes are kept out of the rings; representable in bf16.
    finite_max: Tensor,
}

/// Largest magnitude that enters a ring. A masked cell is multiplied by zero, so it must be finite.
const RING_MAGNITUDE_MAX: f32 = 3.0e38;

impl TensorBackend {
    /// The transformers' matrices and tables stored as `dtype`, their keys and values as `kv_dtype`; the codec is f32.
    ///
    /// # Errors
    /// [`EngineError`]: the device cannot hold these types, or refused.
    pub fn new(device: Device, dtype: Dtype, kv_dtype: KvDtype) -> Result<Self, EngineError> {
        let dtype = match dtype {
            Dtype::F32 => DType::F32,
            Dtype::Bf16 => DType::BF16,
            Dtype::Q8_0 => {
                return Err(EngineError {
                    what: "q8_0 is a CPU format; use bf16 or f32 on this device".into(),
                });
            }
        };
        let kv_dtype = match kv_dtype {
            KvDtype::F32 => DType::F32,
            KvDtype::Bf16 => DType::BF16,
            KvDtype::Fp8 => {
                return Err(EngineError {
                    what: "keys and values as tensors are f32 or bf16".into(),
                });
            }
        };
        let scalar = |value: f32| answer(Tensor::from_slice(&[value], 1, &device));
        let constants = Constants {
            zero: scalar(0.0)?,
            finite_max: scalar(RING_MAGNITUDE_MAX)?,
        };
        Ok(Self {
            device,
            dtype,
            kv_dtype,
            constants,
            plans: Plans::default(),
            gathers: Gathers::default(),
            mask: None,
        })
    }

    /// `[lanes, 1, 1]`, 1 where the lane takes part.
    fn active_mask(&mut self, active: &[bool]) -> CandleResult<Tensor> {
        if let Some((known, mask)) = &self.mask
            && known == active
        {
            return Ok(mask.clone());
        }
        let mask = byte_mask(active, &self.device)?;
        self.mask = Some((active.to_vec(), mask.clone()));
        Ok(mask)
    }
}

/// `[n, 1, 1]` bytes.
fn byte_mask(values: &[bool], device: &Device) -> CandleResult<Tensor> {
    let bytes: Vec<u8> = values.iter().map(|&value| value.into()).collect();
    Tensor::from_vec(bytes, (values.len(), 1, 1), device)
}

/// candle's answer as ours: the first line says what failed, the rest is a backtrace.
fn answer<T>(result: CandleResult<T>) -> Result<T, EngineError> {
    result.map_err(|err| {
        let text = err.to_string();
        EngineError {
            what: text
                .lines()
                .next()
                .unwrap_or("the device failed")
                .to_owned(),
        }
    })
}
