//! Products, norms, activations, lookups and the nearest codebook entry, over `[n, width]` in f32.
//!
//! Norms and activations stay in f32; a product runs in the type of its weight and gives f32 back.

use candle_core::{D, DType, Device, Result, Tensor};

use super::weights::{TensorTable, TensorVector, TensorWeight};

/// Entries of one quantizer layer, with what finds the nearest.
pub struct TensorCodebook {
    /// `[codes, dim]`.
    entries: Tensor,
    /// `-|E_j|^2 / 2`: the nearest entry has the largest `r . E_j - |E_j|^2 / 2`; `[1, codes]`.
    bias: Tensor,
    /// 0, 1, .. as f32; `[1, codes]`.
    index: Tensor,
    /// What an entry counts that is not the nearest; `[1, 1]`, larger than any index.
    beyond: Tensor,
    zero: Tensor,
}

/// Indices up to here are exact in f32.
const CODES_MAX: usize = 1 << 24;

impl TensorCodebook {
    pub(super) fn new(codes: usize, dim: usize, entries: &[f32], device: &Device) -> Result<Self> {
        if codes > CODES_MAX || entries.len() != codes * dim {
            candle_core::bail!(
                "a codebook of {codes} entries of {dim} cannot hold {} numbers",
                entries.len()
            );
        }
        let bias: Vec<f32> = entries
            .chunks_exact(dim)
            .map(|entry| {
                (-0.5
                    * entry
                        .iter()
                        .map(|&v| f64::from(v) * f64::from(v))
                        .sum::<f64>()) as f32
            })
            .collect();
        let index: Vec<f32> = (0..codes).map(|code| code as f32).collect();
        Ok(Self {
            entries: Tensor::from_slice(entries, (codes, dim), device)?,
            bias: Tensor::from_vec(bias, (1, codes), device)?,
            index: Tensor::from_vec(index, (1, codes), device)?,
            beyond: Tensor::from_slice(&[codes as f32], (1, 1), device)?,
            zero: Tensor::zeros((1, 1), DType::F32, device)?,
        })
    }

    /// Index of the nearest entry for each row of `residual` `[n, dim]`, u32 `[n]`, and the residual without it.
    ///
    /// The lowest index wins a tie, and a row with a NaN gets 0: the device's own argmax promises neither.
    pub(super) fn take(&self, residual: &Tensor) -> Result<(Tensor, Tensor)> {
        let scores = residual
            .matmul(&self.entries.t()?)?
            .broadcast_add(&self.bias)?; // [n, codes]
        let best = scores.max_keepdim(D::Minus1)?; // [n, 1]
        let shape = scores.shape();
        let candidates = scores.broadcast_eq(&best)?.where_cond(
            &self.index.broadcast_as(shape)?,
            &self.beyond.broadcast_as(shape)?,
        )?;
        let lowest = candidates.min_keepdim(D::Minus1)?; // [n, 1]
        let found = lowest.broadcast_lt(&self.beyond)?;
        let codes = found.where_cond(&lowest, &self.zero.broadcast_as(lowest.shape())?)?;
        let codes = codes.to_dtype(DType::U32)?.flatten_all()?;
        let rest = residual.sub(&self.entries.index_select(&codes, 0)?)?;
        Ok((codes, rest))
    }
}

/// `x Wᵀ`, `[n, out]`.
pub(super) fn linear(w: &TensorWeight, x: &Tensor) -> Result<Tensor> {
    let w = &w.0;
    x.to_dtype(w.dtype())?.matmul(&w.t()?)?.to_dtype(DType::F32)
}

/// `y + scale ⊙ (x Wᵀ)`.
pub(super) fn linear_add(
    w: &TensorWeight,
    x: &Tensor,
    scale: Option<&TensorVector>,
    y: &Tensor,
) -> Result<Tensor> {
    let product = linear(w, x)?;
    match scale {
        Some(scale) => y.add(&product.broadcast_mul(&scale.0)?),
        None => y.add(&product),
    }
}

pub(super) fn rms_norm(x: &Tensor, alpha: &TensorVector, eps: f32) -> Result<Tensor> {
    x.broadcast_div(&root_mean_square(x, eps)?)?
        .broadcast_mul(&alpha.0)
}

pub(super) fn layer_norm(
    x: &Tensor,
    weight: &TensorVector,
    bias: &TensorVector,
    eps: f32,
) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    centred
        .broadcast_div(&root_mean_square(&centred, eps)?)?
        .broadcast_mul(&weight.0)?
        .broadcast_add(&bias.0)
}

/// `sqrt(mean(x^2) + eps)`, `[n, 1]`.
fn root_mean_square(x: &Tensor, eps: f32) -> Result<Tensor> {
    let share = 1.0 / x.dim(D::Minus1)? as f64;
    x.sqr()?
        .sum_keepdim(D::Minus1)?
        .affine(share, f64::from(eps))?
        .sqrt()
}

/// `silu(a) ⊙ b` of `[a | b]`, each half `hidden` wide.
pub(super) fn silu_gate(ab: &Tensor, hidden: usize) -> Result<Tensor> {
    ab.narrow(1, 0, hidden)?
        .silu()?
        .mul(&ab.narrow(1, hidden, hidden)?)
}

/// Ids of all tables at once, `[tables, n]` from `[n, tables]`; a negative id becomes the entry of zeros.
pub(super) fn upload_ids(tables: &[&TensorTable], ids: &[i32], device: &Device) -> Result<Tensor> {
    let n = ids.len() / tables.len();
    let mut entries = Vec::with_capacity(ids.len());
    for (column, table) in tables.iter().enumerate() {
        for lane in 0..n {
            let id = ids[lane * tables.len() + column];
            let entry = usize::try_from(id).unwrap_or(table.ids);
            if entry > table.ids || (id >= 0 && entry == table.ids) {
                candle_core::bail!("id {id} is out of range, the table has {}", table.ids);
            }
            entries.push(entry as u32);
        }
    }
    Tensor::from_vec(entries, (tables.len(), n), device)
}

/// The sum over tables of their entries, table by table, f32 `[n, width]`.
pub(super) fn embed_sum(tables: &[&TensorTable], ids: &[i32], device: &Device) -> Result<Tensor> {
    let ids = upload_ids(tables, ids, device)?;
    let mut sum: Option<Tensor> = None;
    for (column, table) in tables.iter().enumerate() {
        let entries = table
            .entries
            .index_select(&ids.get(column)?, 0)?
            .to_dtype(DType::F32)?;
        sum = Some(match sum {
            Some(sum) => sum.add(&entries)?,
            None => entries,
        });
    }
    sum.ok_or_else(|| candle_core::Error::Msg("a sum of no tables".into()))
}
