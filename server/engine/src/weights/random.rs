//! Random weights of any size, for machines without the gated files.
//!
//! Lives here: a generator for each tensor, seeded by its name. The values are scaled so that activations stay finite;
//! they mean nothing.

use std::borrow::Cow;
use std::collections::HashMap;

use super::{Digest, LoadError, TensorView};
use crate::config::{StorageDtype, TensorSpec};

/// Numbers of a tensor that are drawn; larger tensors repeat them, since drawing billions takes longer than measuring.
/// Odd and prime, so that no two rows of a matrix are alike.
const PERIOD: usize = 1_048_573;

#[derive(Debug)]
pub(super) struct RandomTensors {
    seed: u64,
    specs: HashMap<String, TensorSpec>,
}

impl RandomTensors {
    pub(super) fn new(specs: Vec<TensorSpec>, seed: u64) -> Self {
        let specs = specs
            .into_iter()
            .map(|spec| (spec.name.clone(), spec))
            .collect();
        Self { seed, specs }
    }

    pub(super) fn get<'a>(&'a self, name: &'a str) -> Result<TensorView<'a>, LoadError> {
        let spec = self
            .specs
            .get(name)
            .ok_or_else(|| LoadError::MissingTensor {
                file: "random weights".into(),
                tensor: name.into(),
                expected: Vec::new(),
            })?;
        let mut bytes = Vec::with_capacity(spec.elements() * spec.dtype.bytes());
        let mut state = Digest::of(&self.seed.to_le_bytes()).with(name.as_bytes()).0 as u64;
        let distribution = Distribution::of(spec);
        for _ in 0..spec.elements().min(PERIOD) {
            let value = distribution.draw(&mut state);
            match spec.dtype {
                StorageDtype::Bf16 => {
                    bytes.extend_from_slice(&half::bf16::from_f32(value).to_le_bytes());
                }
                StorageDtype::F16 => {
                    bytes.extend_from_slice(&half::f16::from_f32(value).to_le_bytes());
                }
                StorageDtype::F32 => bytes.extend_from_slice(&value.to_le_bytes()),
            }
        }
        let whole = spec.elements() * spec.dtype.bytes();
        while bytes.len() < whole {
            bytes.extend_from_within(..bytes.len().min(whole - bytes.len()));
        }
        Ok(TensorView {
            name,
            shape: &spec.shape,
            dtype: spec.dtype,
            bytes: Cow::Owned(bytes),
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        let bytes = |spec: &TensorSpec| (spec.elements() * spec.dtype.bytes()) as u64;
        self.specs.values().map(bytes).sum()
    }

    pub(super) fn digest(&self) -> Digest {
        Digest::of(b"random").with(&self.seed.to_le_bytes())
    }
}

/// Uniform numbers around a centre.
struct Distribution {
    centre: f32,
    half_width: f32,
}

impl Distribution {
    fn of(spec: &TensorSpec) -> Self {
        let around = |centre, half_width| Self { centre, half_width };
        let name = spec.name.as_str();
        if name.ends_with("cluster_usage") || name.ends_with("_initialized") {
            around(1.0, 0.0)
        } else if name.ends_with(".alpha") || name.contains(".norm") && name.ends_with(".weight") {
            around(1.0, 0.1)
        } else if name.ends_with(".scale") {
            around(0.3, 0.1)
        } else if name.ends_with(".bias") {
            around(0.0, 0.05)
        } else if name.ends_with("embedding_sum") {
            around(0.0, 1.7)
        } else {
            // A uniform number of half width sqrt(3 / n) has variance 1 / n.
            let fan_in: usize = spec.shape.iter().skip(1).product();
            around(0.0, (3.0 / fan_in.max(1) as f32).sqrt())
        }
    }

    fn draw(&self, state: &mut u64) -> f32 {
        // SplitMix64.
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = *state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let unit = (bits >> 40) as f32 / (1u64 << 24) as f32;
        self.centre + self.half_width * (2.0 * unit - 1.0)
    }
}
