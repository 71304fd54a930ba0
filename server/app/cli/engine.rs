//! The real engine for the commands: which model, which device, which number formats.
//!
//! Lives here: from settings to a checkpoint and a backend. The only place of the program that names the real engine.
//! May not live here: threads, sockets, output.

use std::sync::Arc;
use std::thread;

use anyhow::Context;
use engine::backend::Backend;
use engine::config::ModelConfig;
use engine::kernels::{Dtype as WeightDtype, KvDtype as RingDtype};
use engine::model::RingRule;
use engine::native::Native;
use engine::prepare::{CallMaker, DEMO_PERSONAS, TEACHER};
use engine::voice_model::{EngineOptions, Order as EngineOrder};
use engine::weights::Checkpoint;
use slots::engine::EngineError;

use crate::config::Config;
use crate::config::values::{
    DeviceChoice, Dtype, KvDtype, ModelName, Order, PinPrompt, Ring, SlotCount, ThreadCount,
};

/// Slots on a CPU unless asked otherwise: what a laptop serves with the demo beside everything else it does.
pub const CPU_SLOTS: usize = 4;
/// Seed of the random weights of `--model random`.
const RANDOM_SEED: u64 = 1;
/// Up to this size of the weights in f32 a CPU keeps them so: they fit, and nothing is lost.
const F32_BYTES_MAX: u64 = 2 << 30;

/// Opens the model that the settings name.
///
/// # Errors
/// One line: what is not there, or which file, tensor and shape is wrong.
pub fn open_checkpoint(config: &Config) -> anyhow::Result<Arc<Checkpoint>> {
    let checkpoint = match (&config.model, config.model_dir()?) {
        (_, Some(dir)) => {
            Checkpoint::open(&dir).with_context(|| format!("model {}", config.model))?
        }
        (ModelName::Random, None) => Checkpoint::random(ModelConfig::published(), RANDOM_SEED)?,
        (_, None) => Checkpoint::demo()?,
    };
    Ok(Arc::new(checkpoint))
}

/// Turns wishes into calls; the demo's default persona is its general one.
pub fn call_maker(config: &Config, checkpoint: &Arc<Checkpoint>) -> CallMaker {
    match config.model {
        ModelName::Demo => CallMaker::new(Arc::clone(checkpoint), &DEMO_PERSONAS),
        _ => CallMaker::new(Arc::clone(checkpoint), &[TEACHER]),
    }
}

/// How the settings want the engine built for `slots` rows.
pub fn engine_options(config: &Config, model: &ModelConfig, slots: usize) -> EngineOptions {
    EngineOptions {
        order: match config.order {
            Order::Sooner => EngineOrder::Sooner,
            Order::Overlapped => EngineOrder::Overlapped,
        },
        ring: match config.ring {
            Ring::Full => RingRule::Full,
            Ring::Short => RingRule::Short,
        },
        pin_prompt: match config.pin_prompt {
            PinPrompt::On => true,
            PinPrompt::Off => false,
            // The demo carries its state in its own codes and expects the plain window.
            PinPrompt::Auto => config.model != ModelName::Demo,
        },
        ..EngineOptions::serving(model, slots)
    }
}

/// How many slots the settings want.
pub fn slots(config: &Config) -> usize {
    match config.slots {
        SlotCount::Auto => CPU_SLOTS,
        SlotCount::Fixed(slots) => slots,
    }
}

/// Threads of the CPU's kernels.
pub fn threads(config: &Config) -> usize {
    match config.threads {
        ThreadCount::Auto => thread::available_parallelism().map_or(1, usize::from),
        ThreadCount::Fixed(threads) => threads,
    }
}

/// What is done with whichever backend the settings choose.
pub trait WithBackend {
    /// What comes of it.
    type Output;

    /// `make` gives a fresh backend each time.
    fn with<B: Backend>(
        self,
        make: impl Fn() -> Result<B, EngineError> + Send + Sync + 'static,
    ) -> Self::Output;
}

/// Number format of the transformers' weights for `checkpoint` on a CPU.
pub fn weight_dtype(config: &Config, checkpoint: &Checkpoint) -> WeightDtype {
    match config.dtype {
        Dtype::F32 => WeightDtype::F32,
        Dtype::Bf16 => WeightDtype::Bf16,
        Dtype::Q8_0 => WeightDtype::Q8_0,
        Dtype::Auto if 2 * checkpoint.stored_bytes().0 <= F32_BYTES_MAX => WeightDtype::F32,
        Dtype::Auto => WeightDtype::Bf16,
    }
}

/// Number format of keys and values beside weights of `dtype` on a CPU.
fn ring_dtype(config: &Config, dtype: WeightDtype) -> anyhow::Result<RingDtype> {
    Ok(match (config.kv_dtype, dtype) {
        (KvDtype::F32, _) | (KvDtype::Auto, WeightDtype::F32) => RingDtype::F32,
        (KvDtype::Bf16, _) | (KvDtype::Auto, _) => RingDtype::Bf16,
        (KvDtype::Fp8, _) => anyhow::bail!("--kv-dtype fp8 is not offered on a CPU; use bf16"),
    })
}

/// Does `what` on the device that the settings choose.
///
/// # Errors
/// The device cannot be used; one line with the cure.
pub fn with_backend<W: WithBackend>(
    config: &Config,
    checkpoint: &Checkpoint,
    what: W,
) -> anyhow::Result<W::Output> {
    match config.device {
        DeviceChoice::Auto | DeviceChoice::Cpu => {
            let dtype = weight_dtype(config, checkpoint);
            let kv = ring_dtype(config, dtype)?;
            let threads = threads(config);
            Ok(what.with(move || Ok(Native::new(dtype, kv, threads))))
        }
        DeviceChoice::Cuda(number) => {
            anyhow::bail!(
                "--device cuda:{number}: this build has no GPU support; build it with --features cuda"
            )
        }
    }
}
