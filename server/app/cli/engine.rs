//! The real engine for the commands: which model, which device, which number formats.
//!
//! Lives here: from settings to a checkpoint and a backend. The only place of the program that names the real engine.
//! May not live here: threads, sockets, output.

use std::sync::Arc;
use std::thread;

use anyhow::anyhow;
use engine::backend::Backend;
use engine::backend::KvDtype as RingDtype;
use engine::config::ModelConfig;
#[cfg(not(feature = "cuda"))]
use engine::device::DeviceError;
use engine::device::{self, Sizing, Target};
use engine::kernels::Dtype as WeightDtype;
use engine::model::RingRule;
use engine::native::Native;
use engine::prepare::{CallMaker, DEMO_PERSONAS, TEACHER};
use engine::voice_model::{EngineOptions, Order as EngineOrder};
use engine::weights::Checkpoint;
use slots::engine::EngineError;

use super::doctor::machine::Memory;
use super::model_files::ModelFiles;
use crate::config::Config;
use crate::config::values::{
    DeviceChoice, Dtype, KvDtype, ModelName, Order, PinPrompt, Ring, SlotCount, ThreadCount,
};

/// Slots on a CPU unless asked otherwise: what a laptop serves with the demo beside everything else it does.
pub const CPU_SLOTS: usize = 4;
/// Seed of the random weights of `--model random`.
const RANDOM_SEED: u64 = 1;
/// Prompts whose snapshots are kept, of a model so small that they are no burden.
const PROMPTS_KEPT: usize = 64;
/// Up to this size of the weights in f32 a CPU keeps them so: they fit, and nothing is lost.
const F32_BYTES_MAX: u64 = 2 << 30;

/// Opens the model that the settings name.
///
/// # Errors
/// One line: what is not there, or which file, tensor and shape is wrong.
pub fn open_checkpoint(config: &Config) -> anyhow::Result<Arc<Checkpoint>> {
    let checkpoint = match (&config.model, config.model_dir()?) {
        (model, Some(dir)) => Checkpoint::open(&dir).map_err(|err| {
            // What the folder lacks says more than the first file that could not be opened.
            let problems = ModelFiles::inspect(&dir).problems;
            match problems.iter().find(|problem| !problem.is_harmless()) {
                Some(problem) => anyhow!("--model {model}: {problem}; {}", problem.cure(model)),
                None => anyhow!(err).context(format!("--model {model}")),
            }
        })?,
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
    // Prompts of half a window each, the longest there are.
    let prompt_bytes =
        2 * model.lm.num_layers * model.lm.dim * size_of::<f32>() * model.lm.context / 2;
    EngineOptions {
        prompt_cache_bytes: EngineOptions::PROMPT_CACHE_BYTES.min(PROMPTS_KEPT * prompt_bytes),
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

/// How many slots the settings want: on a GPU as many as fit into memory, of which `serve` offers those that are in time.
///
/// # Errors
/// The device cannot be used, or the asked number does not fit; one line with both numbers.
pub fn slots(config: &Config, checkpoint: &Checkpoint) -> anyhow::Result<usize> {
    let place = Place::new(config, checkpoint)?;
    let wanted = match (config.slots, place.target) {
        (SlotCount::Fixed(slots), _) => slots,
        (SlotCount::Auto, Target::Cpu) => CPU_SLOTS,
        (SlotCount::Auto, Target::Cuda(_)) => {
            let (sizing, free_bytes) = sizing(config, checkpoint)?;
            let fits = sizing.largest_slots_that_fit(checkpoint.config(), free_bytes);
            fits.max(1)
        }
    };
    check_memory(config, checkpoint, wanted)?;
    Ok(wanted)
}

/// The line that loads the published model, for an operator whose GPU idles beside the demo.
pub fn gpu_hint(config: &Config) -> Option<String> {
    let is_gpu = |resolved: device::Resolved| matches!(resolved.target, Target::Cuda(_));
    let found =
        config.model == ModelName::Demo && device::resolve(device::Choice::Auto).is_ok_and(is_gpu);
    found.then(|| {
        "this is the built-in demo; the GPU can serve the published model: \
         `vivavoce fetch nvidia/personaplex-7b-v1`, then `vivavoce serve --model nvidia/personaplex-7b-v1`"
            .to_owned()
    })
}

/// The settings' device in the engine's words.
pub fn device_choice(config: &Config) -> device::Choice {
    match config.device {
        DeviceChoice::Auto => device::Choice::Auto,
        DeviceChoice::Cpu => device::Choice::Cpu,
        DeviceChoice::Cuda(number) => device::Choice::Cuda(number as usize),
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

/// Where the settings let the network compute, and in which number formats.
#[derive(Clone, Copy, Debug)]
struct Place {
    target: Target,
    dtype: WeightDtype,
    kv_dtype: RingDtype,
}

impl Place {
    fn new(config: &Config, checkpoint: &Checkpoint) -> anyhow::Result<Self> {
        let resolved = device::resolve(device_choice(config))?;
        if let Some(reason) = &resolved.instead_of_gpu {
            tracing::debug!(%reason, "computing on the CPU");
        }
        let target = resolved.target;
        let dtype = match (config.dtype, target) {
            (Dtype::F32, _) => WeightDtype::F32,
            (Dtype::Bf16, _) => WeightDtype::Bf16,
            (Dtype::Q8_0, _) => WeightDtype::Q8_0,
            (Dtype::Auto, _) if 2 * checkpoint.stored_bytes().0 <= F32_BYTES_MAX => {
                WeightDtype::F32
            }
            (Dtype::Auto, _) => WeightDtype::Bf16,
        };
        let kv_dtype = match (config.kv_dtype, dtype) {
            (KvDtype::F32, _) | (KvDtype::Auto, WeightDtype::F32) => RingDtype::F32,
            (KvDtype::Bf16, _) | (KvDtype::Auto, _) => RingDtype::Bf16,
            (KvDtype::Fp8, _) if target == Target::Cpu => {
                anyhow::bail!("--kv-dtype fp8 needs a GPU; use bf16 or f32 on the CPU")
            }
            (KvDtype::Fp8, _) => RingDtype::Fp8,
        };
        Ok(Self {
            target,
            dtype,
            kv_dtype,
        })
    }
}

/// Number formats of the transformers' weights, and of their keys and values, for `checkpoint`.
///
/// # Errors
/// The device cannot be used; one line with the cure.
pub fn number_formats(
    config: &Config,
    checkpoint: &Checkpoint,
) -> anyhow::Result<(WeightDtype, RingDtype)> {
    let place = Place::new(config, checkpoint)?;
    Ok((place.dtype, place.kv_dtype))
}

/// Makes the GPU of the settings fail, and gives the driver's words.
///
/// # Errors
/// One line: there is no GPU, or it did not notice.
pub fn provoke_fault(config: &Config) -> anyhow::Result<String> {
    match device::resolve(device_choice(config))?.target {
        Target::Cpu => anyhow::bail!("--fault needs a GPU; a CPU does not fail on request"),
        #[cfg(feature = "cuda")]
        Target::Cuda(number) => {
            let words = device::open(number)?.provoke_fault();
            words.ok_or_else(|| {
                anyhow!("cuda:{number} wrote where no memory is, and nobody noticed")
            })
        }
        #[cfg(not(feature = "cuda"))]
        Target::Cuda(_) => Err(DeviceError::NotBuiltIn.into()),
    }
}

/// What memory is reckoned with, and the bytes that are free where it is needed.
///
/// # Errors
/// The device cannot be used; one line with the cure.
pub fn sizing(config: &Config, checkpoint: &Checkpoint) -> anyhow::Result<(Sizing, u64)> {
    let place = Place::new(config, checkpoint)?;
    let options = engine_options(config, checkpoint.config(), 1);
    let free_bytes = match place.target {
        // A system that does not say is not second-guessed.
        Target::Cpu => Memory::of_this_machine().map_or(u64::MAX, Memory::available),
        Target::Cuda(number) => device::info(number)?.memory_free_bytes,
    };
    let sizing = Sizing {
        target: place.target,
        dtype: place.dtype,
        kv_dtype: place.kv_dtype,
        depformer_steps: options.depformer_steps,
        prefill_chunk: options.prefill_chunk,
        prompt_cache_bytes: options.prompt_cache_bytes as u64,
    };
    Ok((sizing, free_bytes))
}

/// Refuses what would not fit in memory, before anything is allocated.
///
/// # Errors
/// One line with both numbers and the largest `--slots` that fits, or why the device cannot be used.
pub fn check_memory(config: &Config, checkpoint: &Checkpoint, slots: usize) -> anyhow::Result<()> {
    let (sizing, free_bytes) = sizing(config, checkpoint)?;
    let needed = sizing.check(checkpoint.config(), slots, free_bytes)?;
    tracing::debug!(bytes = needed.total(), free_bytes, "memory");
    Ok(())
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
    let Place {
        target,
        dtype,
        kv_dtype,
    } = Place::new(config, checkpoint)?;
    let threads = threads(config);
    Ok(match target {
        Target::Cpu => what.with(move || Ok(Native::new(dtype, kv_dtype, threads))),
        #[cfg(feature = "cuda")]
        Target::Cuda(number) => what.with(move || {
            let gpu = device::open(number).map_err(|error| EngineError {
                what: error.to_string(),
            })?;
            Ok(engine::cuda::Cuda::new(gpu, dtype, kv_dtype))
        }),
        #[cfg(not(feature = "cuda"))]
        Target::Cuda(_) => return Err(DeviceError::NotBuiltIn.into()),
    })
}
