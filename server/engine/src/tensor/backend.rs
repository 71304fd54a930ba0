//! [`TensorBackend`] as a [`Backend`]: each operation by name, none of its arithmetic.

use std::ops::Range;

use candle_core::{DType, Tensor};
use slots::engine::EngineError;

use crate::backend::{
    Backend, ConvShape, ConvTrShape, Data, Done, Heads, Lanes, Query, WriteOrder,
};

use super::convolve::{TensorCarry, TensorConv, TensorConvTr};
use super::math::{self, TensorCodebook};
use super::ring::{TensorRing, TensorRingPart};
use super::weights::{self, TensorTable, TensorVector, TensorWeight};
use super::{TensorBackend, TensorBuf, answer, attend};

/// Puts what `make` gives into `out`.
fn into(out: &mut TensorBuf, make: impl FnOnce() -> candle_core::Result<Tensor>) -> Done {
    out.0 = Some(answer(make())?);
    Ok(())
}

/// Replaces what `inout` holds by what `make` gives for it.
fn replace(
    inout: &mut TensorBuf,
    make: impl FnOnce(&Tensor) -> candle_core::Result<Tensor>,
) -> Done {
    let new = answer(inout.get().and_then(make))?;
    inout.0 = Some(new);
    Ok(())
}

impl Backend for TensorBackend {
    type Buf = TensorBuf;
    type Weight = TensorWeight;
    type Vector = TensorVector;
    type Table = TensorTable;
    type Ring = TensorRing;
    type RingPart = TensorRingPart;
    type Conv = TensorConv;
    type ConvTr = TensorConvTr;
    type Carry = TensorCarry;
    type Codebook = TensorCodebook;

    fn padded(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        let device = match self.device.location() {
            candle_core::DeviceLocation::Cpu => "cpu, as tensors".to_owned(),
            candle_core::DeviceLocation::Cuda { gpu_id } => format!("cuda:{gpu_id}"),
            candle_core::DeviceLocation::Metal { gpu_id } => format!("metal:{gpu_id}"),
        };
        format!(
            "{device}, weights {}, kv {}",
            self.dtype.as_str(),
            self.kv_dtype.as_str()
        )
    }

    fn synchronize(&mut self) -> Done {
        answer(self.device.synchronize())
    }

    fn weight(
        &mut self,
        rows: usize,
        cols: usize,
        data: Data<'_>,
    ) -> Result<TensorWeight, EngineError> {
        answer(weights::tensor(
            &data,
            (rows, cols),
            self.dtype,
            &self.device,
        ))
        .map(TensorWeight)
    }

    fn weight_f32(
        &mut self,
        rows: usize,
        cols: usize,
        data: Data<'_>,
    ) -> Result<TensorWeight, EngineError> {
        answer(weights::tensor(
            &data,
            (rows, cols),
            DType::F32,
            &self.device,
        ))
        .map(TensorWeight)
    }

    fn vector(&mut self, data: &[f32]) -> Result<TensorVector, EngineError> {
        answer(Tensor::from_slice(data, data.len(), &self.device)).map(TensorVector)
    }

    fn table(
        &mut self,
        rows: usize,
        dim: usize,
        data: Data<'_>,
    ) -> Result<TensorTable, EngineError> {
        let dtype = weights::table_dtype(&data, self.dtype);
        answer(TensorTable::new(rows, dim, &data, dtype, &self.device))
    }

    fn table_f32(
        &mut self,
        rows: usize,
        dim: usize,
        data: Data<'_>,
    ) -> Result<TensorTable, EngineError> {
        answer(TensorTable::new(rows, dim, &data, DType::F32, &self.device))
    }

    fn conv(
        &mut self,
        shape: ConvShape,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<TensorConv, EngineError> {
        answer(TensorConv::new(shape, weight, bias, &self.device))
    }

    fn conv_tr(
        &mut self,
        shape: ConvTrShape,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<TensorConvTr, EngineError> {
        answer(TensorConvTr::new(shape, weight, bias, &self.device))
    }

    fn codebook(
        &mut self,
        codes: usize,
        dim: usize,
        entries: &[f32],
    ) -> Result<TensorCodebook, EngineError> {
        answer(TensorCodebook::new(codes, dim, entries, &self.device))
    }

    fn ring(
        &mut self,
        rows: usize,
        heads: Heads,
        cells: usize,
        codec: bool,
    ) -> Result<TensorRing, EngineError> {
        let dtype = if codec { DType::F32 } else { self.kv_dtype };
        answer(TensorRing::new(rows, heads, cells, dtype, &self.device))
    }

    fn ring_save(
        &mut self,
        ring: &TensorRing,
        row: usize,
        cells: Range<usize>,
    ) -> Result<TensorRingPart, EngineError> {
        answer(ring.save(row, cells))
    }

    fn ring_load(&mut self, ring: &mut TensorRing, row: usize, part: &TensorRingPart) -> Done {
        answer(ring.load(row, part))
    }

    fn ring_part_bytes(part: &TensorRingPart) -> usize {
        part.bytes()
    }

    fn carry(&mut self, rows: usize, conv: &TensorConv) -> Result<TensorCarry, EngineError> {
        let shape = conv.shape;
        answer(TensorCarry::new(
            rows,
            shape.carry(),
            shape.channels_in,
            shape.replicate,
            &self.device,
        ))
    }

    fn carry_tr(&mut self, rows: usize, conv: &TensorConvTr) -> Result<TensorCarry, EngineError> {
        answer(TensorCarry::new(
            rows,
            1,
            conv.shape.channels_in,
            false,
            &self.device,
        ))
    }

    fn carry_reset(&mut self, carry: &mut TensorCarry, row: usize) -> Done {
        answer(carry.reset(row))
    }

    fn upload(&mut self, data: &[f32], width: usize, out: &mut TensorBuf) -> Done {
        into(out, || {
            Tensor::from_slice(data, (data.len() / width, width), &self.device)
        })
    }

    fn download(&mut self, buf: &TensorBuf, out: &mut Vec<f32>) -> Done {
        *out = answer(buf.get().and_then(|x| x.flatten_all()?.to_vec1()))?;
        Ok(())
    }

    fn embed_sum(&mut self, tables: &[&TensorTable], ids: &[i32], out: &mut TensorBuf) -> Done {
        into(out, || math::embed_sum(tables, ids, &self.device))
    }

    fn embed_add(&mut self, table: &TensorTable, ids: &[i32], inout: &mut TensorBuf) -> Done {
        replace(inout, |x| {
            x.add(&math::embed_sum(&[table], ids, &self.device)?)
        })
    }

    fn linear(&mut self, w: &TensorWeight, x: &TensorBuf, y: &mut TensorBuf) -> Done {
        into(y, || math::linear(w, x.get()?))
    }

    fn linear_add(
        &mut self,
        w: &TensorWeight,
        x: &TensorBuf,
        scale: Option<&TensorVector>,
        y: &mut TensorBuf,
    ) -> Done {
        replace(y, |y| math::linear_add(w, x.get()?, scale, y))
    }

    fn rms_norm(
        &mut self,
        x: &TensorBuf,
        alpha: &TensorVector,
        eps: f32,
        y: &mut TensorBuf,
    ) -> Done {
        into(y, || math::rms_norm(x.get()?, alpha, eps))
    }

    fn layer_norm(
        &mut self,
        x: &TensorBuf,
        weight: &TensorVector,
        bias: &TensorVector,
        eps: f32,
        y: &mut TensorBuf,
    ) -> Done {
        into(y, || math::layer_norm(x.get()?, weight, bias, eps))
    }

    fn attend(
        &mut self,
        ring: &mut TensorRing,
        queries: &[Query],
        order: WriteOrder,
        qkv: &TensorBuf,
        out: &mut TensorBuf,
    ) -> Done {
        let plan = answer(self.plans.get(ring, queries, order, &self.device))?;
        into(out, || {
            attend::attend(&self.constants, ring, plan, qkv.get()?)
        })
    }

    fn silu_gate(&mut self, ab: &TensorBuf, hidden: usize, y: &mut TensorBuf) -> Done {
        into(y, || math::silu_gate(ab.get()?, hidden))
    }

    fn gelu(&mut self, x: &mut TensorBuf) -> Done {
        replace(x, Tensor::gelu_erf)
    }

    fn elu(&mut self, x: &mut TensorBuf) -> Done {
        replace(x, |x| x.elu(1.0))
    }

    fn add(&mut self, from: &TensorBuf, to: &mut TensorBuf) -> Done {
        replace(to, |to| to.add(from.get()?))
    }

    fn copy(&mut self, from: &TensorBuf, to: &mut TensorBuf) -> Done {
        // Operations make new tensors and never write into old ones, so a shared one is as good as a copy.
        into(to, || from.get().cloned())
    }

    fn conv_step(
        &mut self,
        conv: &TensorConv,
        carry: &mut TensorCarry,
        lanes: &Lanes,
        x: &TensorBuf,
        y: &mut TensorBuf,
        add: bool,
    ) -> Done {
        let active = answer(self.active_mask(&lanes.active))?;
        let new = answer(
            x.get()
                .and_then(|x| conv.step(carry, &mut self.gathers, lanes, &active, x)),
        )?;
        if add {
            replace(y, |y| y.add(&new))
        } else {
            into(y, || Ok(new))
        }
    }

    fn conv_tr_step(
        &mut self,
        conv: &TensorConvTr,
        carry: &mut TensorCarry,
        lanes: &Lanes,
        x: &TensorBuf,
        y: &mut TensorBuf,
    ) -> Done {
        let active = answer(self.active_mask(&lanes.active))?;
        into(y, || conv.step(carry, lanes, &active, x.get()?))
    }

    fn quantize(
        &mut self,
        book: &TensorCodebook,
        residual: &mut TensorBuf,
        codes: &mut Vec<u32>,
    ) -> Done {
        let (found, rest) = answer(residual.get().and_then(|residual| book.take(residual)))?;
        residual.0 = Some(rest);
        *codes = answer(found.to_vec1())?;
        Ok(())
    }
}
