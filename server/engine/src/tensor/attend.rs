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
    let store = |x: &Tensor| finite(constants, x)?.to_dtype(ring.dtype());
    // Part `index` of [n, _, heads, dim] as [rows, heads, t, dim].
    let part = |x: &Tensor, index: usize| {
        x.narrow(1, index, 1)?
            .reshape((rows, t, heads, dim))?
            .transpose(1, 2)?
            .contiguous()
    };
    let turned = store(&turn(&qkv, ring, &plan.turn)?)?; // [n, 3, heads, dim]
    let (near, key, value) = (part(&turned, 0)?, part(&turned, 1)?, part(&turned, 2)?);
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
    if let Some((far, pinned)) = &plan.pinned {
        let query = qkv.narrow(1, 0, 1)?.contiguous()?;
        let far = score(&part(&store(&turn(&query, ring, far)?)?, 0)?)?;
        scores = pinned
            .broadcast_as(scores.shape())?
            .where_cond(&far, &scores)?;
    }
    let scores = scores.broadcast_add(&plan.bias)?;
    let weights = scores
        .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
        .exp()?;
    let sum = weights.sum_keepdim(D::Minus1)?; // [rows, heads, t, 1]
    let weights = weights.to_dtype(ring.dtype())?;
    let mix = |weights: &Tensor, values: &Tensor| weights.matmul(values)?.to_dtype(DType::F32);
    let mixed = if plan.own_keys {
        let old = mix(&weights.narrow(3, 0, ring.cells)?.contiguous()?, &values)?;
        (old + mix(&weights.narrow(3, ring.cells, t)?.contiguous()?, &value)?)?
    } else {
        mix(&weights, &values)?
    };
    if plan.own_keys {
        write()?;
    }
    mixed
        .broadcast_div(&sum)?
        .transpose(1, 2)?
        .contiguous()?
        .reshape((n, heads * dim))
}

/// Turns neighbouring pairs of `x` `[n, _, heads, dim]`: `x cos + swapped(x) sin`.
fn turn(x: &Tensor, ring: &TensorRing, turn: &Turn) -> Result<Tensor> {
    let straight = x.broadcast_mul(&turn.cos)?;
    match (&ring.swap, &turn.sin) {
        (Some(swap), Some(sin)) => {
            straight + x.index_select(swap, D::Minus1)?.broadcast_mul(sin)?
        }
        _ => Ok(straight),
    }
}

/// `x` with zeros in place of what is not finite. A row that failed leaves its cells behind, and the row's next
/// holder multiplies cells out of its sight by zero. The failure itself still shows in the row's output.
fn finite(constants: &Constants, x: &Tensor) -> Result<Tensor> {
    let keep = x.abs()?.broadcast_le(&constants.finite_max)?;
    keep.where_cond(x, &constants.zero.broadcast_as(x.shape())?)
}
