//! Attention over the ring: turn, write, score, mix, for all rows at once.
//!
//! Every step reads the whole ring under a mask, so shapes do not depend on how far a row is.

use candle_core::{D, DType, Result, Tensor};

use super::Constants;
use super::plan::{Plan, Turn};
use super::ring::TensorRing;

/// Rotates, writes and attends; `qkv` is `[n, 3 * heads * dim]`, the answer `[n, heads * dim]`.
pub(super) fn attend(
    constants: &Constants,
    ring: &TensorRing,
    plan: &Plan,
    qkv: &Tensor,
) -> Result<Tensor> {
    let (heads, dim, rows, t) = (ring.heads.count, ring.heads.dim, plan.rows.len(), plan.t);
    let n = rows * t;
    let qkv = qkv.reshape((n, 3, heads, dim))?;
    let qk = qkv.narrow(1, 0, 2)?.contiguous()?; // [n, 2, heads, dim]
    let turned = match &plan.turn {
        Some(turn) => rotate(&qk, ring, turn)?,
        None => qk.clone(),
    };
    // [n, heads, dim] to [rows, heads, t, dim]
    let by_head = |x: &Tensor| {
        x.reshape((rows, t, heads, dim))?
            .transpose(1, 2)?
            .contiguous()
    };
    let part = |x: &Tensor, index: usize| by_head(&x.narrow(1, index, 1)?.contiguous()?);
    let store = |x: &Tensor| finite(constants, x)?.to_dtype(ring.dtype());
    let query = |x: &Tensor| (part(x, 0)? * (1.0 / (dim as f64).sqrt()))?.to_dtype(ring.dtype());

    let near = query(&turned)?;
    let (key, value) = (store(&part(&turned, 1)?)?, store(&part(&qkv, 2)?)?);
    let write = || {
        let shape = (rows * heads, t, dim);
        ring.write(
            &plan.rows,
            &plan.cells,
            &key.reshape(shape)?,
            &value.reshape(shape)?,
        )
    };
    if !plan.own_keys {
        write()?;
    }
    let ring_rows = |all: &Tensor| all.narrow(0, plan.rows.start, rows);
    let (keys, values) = (ring_rows(&ring.keys)?, ring_rows(&ring.values)?); // [rows, heads, cells, dim]
    let score = |query: &Tensor| {
        let scores = query.matmul(&keys.t()?)?;
        let scores = if plan.own_keys {
            Tensor::cat(&[&scores, &query.matmul(&key.t()?)?], 3)?
        } else {
            scores
        };
        scores.to_dtype(DType::F32)
    };
    let mut scores = score(&near)?; // [rows, heads, t, seen]
    if let Some((turn, pinned)) = &plan.pinned {
        let far = score(&query(&rotate(&qk, ring, turn)?)?)?;
        scores = pinned
            .broadcast_as(scores.shape())?
            .where_cond(&far, &scores)?;
    }
    let weights = softmax(&scores.broadcast_add(&plan.bias)?)?.to_dtype(ring.dtype())?;
    let cells = ring.cells;
    let mixed = if plan.own_keys {
        let old = weights.narrow(3, 0, cells)?.contiguous()?.matmul(&values)?;
        let own = weights.narrow(3, cells, t)?.contiguous()?.matmul(&value)?;
        (old.to_dtype(DType::F32)? + own.to_dtype(DType::F32)?)?
    } else {
        weights.matmul(&values)?.to_dtype(DType::F32)?
    };
    if plan.own_keys {
        write()?;
    }
    mixed
        .transpose(1, 2)?
        .contiguous()?
        .reshape((n, heads * dim))
}

/// Turns neighbouring pairs of `x` `[n, _, heads, dim]`: `x cos + swapped(x) sin`.
fn rotate(x: &Tensor, ring: &TensorRing, turn: &Turn) -> Result<Tensor> {
    let Some(swap) = &ring.swap else {
        return Ok(x.clone());
    };
    let swapped = x.index_select(swap, D::Minus1)?;
    x.broadcast_mul(&turn.cos)? + swapped.broadcast_mul(&turn.sin)?
}

/// `x` with zeros in place of what is not finite. A row that failed leaves its cells behind, and the row's next
/// holder multiplies cells out of its sight by zero. The failure itself still shows in the row's output.
fn finite(constants: &Constants, x: &Tensor) -> Result<Tensor> {
    let keep = x.abs()?.broadcast_le(&constants.finite_max)?;
    keep.where_cond(x, &constants.zero.broadcast_as(x.shape())?)
}

/// Over the last dimension.
fn softmax(scores: &Tensor) -> Result<Tensor> {
    let shifted = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?;
    let weights = shifted.exp()?;
    weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)
}
