//! Rings full of noise, so that a step costs what it costs in a long call without the long call.

use slots::engine::EngineError;

use crate::backend::{Backend, Heads, Query, WriteOrder};
use crate::config::ModelConfig;

use super::Noise;

/// Positions that are written at once.
const CHUNK: usize = 64;

/// All cells of one row of a ring of the temporal transformer; fits every layer.
pub(crate) fn temporal_cells<B: Backend>(
    backend: &mut B,
    config: &ModelConfig,
) -> Result<B::RingPart, EngineError> {
    let lm = &config.lm;
    let heads = Heads {
        count: lm.num_heads,
        dim: lm.dim / lm.num_heads,
        rope_max_period: Some(lm.rope_max_period as f32),
    };
    cells(backend, heads, lm.context, false)
}

/// All cells of one row of a ring of the codec; fits every layer of both sides.
pub(crate) fn codec_cells<B: Backend>(
    backend: &mut B,
    config: &ModelConfig,
) -> Result<B::RingPart, EngineError> {
    let transformer = &config.mimi.transformer;
    let heads = Heads {
        count: transformer.num_heads,
        dim: transformer.dim / transformer.num_heads,
        rope_max_period: Some(transformer.rope_max_period as f32),
    };
    cells(backend, heads, transformer.context, true)
}

fn cells<B: Backend>(
    backend: &mut B,
    heads: Heads,
    cells: usize,
    codec: bool,
) -> Result<B::RingPart, EngineError> {
    let mut ring = backend.ring(1, heads, cells, codec)?;
    let width = 3 * heads.count * heads.dim;
    let mut noise = Noise::new(cells as u64);
    let (mut values, mut queries) = (Vec::new(), Vec::new());
    let (mut qkv, mut out) = (B::Buf::default(), B::Buf::default());
    for start in (0..cells).step_by(CHUNK) {
        queries.clear();
        // Each sees itself alone: only what is written counts.
        queries.extend((start..cells.min(start + CHUNK)).map(|position| Query {
            row: 0,
            position: position as u64,
            first: position as u64,
            pinned: 0,
            pinned_rotation: position as u64,
            active: true,
        }));
        noise.fill(queries.len() * width, 1.0, &mut values);
        backend.upload(&values, width, &mut qkv)?;
        let order = WriteOrder::EachThenAttend;
        backend.attend(&mut ring, &queries, order, &qkv, &mut out)?;
    }
    backend.ring_save(&ring, 0, 0..cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::KvDtype;
    use crate::kernels::Dtype;
    use crate::native::Native;

    #[test]
    fn no_cell_of_a_full_window_is_left_empty() {
        let mut backend = Native::new(Dtype::F32, KvDtype::F32, 1);
        let heads = Heads {
            count: 2,
            dim: 8,
            rope_max_period: Some(10_000.0),
        };
        let count = CHUNK + 7;
        let part = cells(&mut backend, heads, count, false).expect("the CPU does not fail");
        let mut ring = backend.ring(1, heads, count, false).expect("a ring");
        backend.ring_load(&mut ring, 0, &part).expect("it fits");
        for seen in 0..count {
            // A query on the cell before sees the cell alone, and its value comes out as it is.
            let position = (count + seen) as u64;
            let query = Query {
                row: 0,
                position,
                first: position - 1,
                pinned: 0,
                pinned_rotation: position,
                active: true,
            };
            let (mut ring, mut out) = (
                backend.ring(1, heads, count, false).expect("a ring"),
                Vec::new(),
            );
            backend.ring_load(&mut ring, 0, &part).expect("it fits");
            let qkv = vec![0.0; 3 * 16];
            backend
                .attend(
                    &mut ring,
                    &[query],
                    WriteOrder::AllThenAttend,
                    &qkv,
                    &mut out,
                )
                .expect("the CPU does not fail");
            assert!(out.iter().any(|&value| value != 0.0), "cell {seen}");
        }
    }
}
