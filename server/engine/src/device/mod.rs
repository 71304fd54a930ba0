//! Where the network computes: the CPU or an NVIDIA GPU, and whether that can work before anything is tried.
//!
//! Lives here: what is asked for ([`Choice`]), what it comes to ([`Target`]), why not ([`DeviceError`]), and the memory
//! a batch needs ([`Sizing`]). A device is only opened (`cuda`) once `probe` has found driver, libraries and device, since
//! the bindings panic when one is missing.
//! May not live here: operations, weights.
//! Start reading at [`resolve`].

mod memory;
mod probe;

use std::fmt;

pub use memory::{Breakdown, GPU_FIXED_BYTES, MemoryError, Sizing};

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The first GPU if this build and this machine can use one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU with this number, counted as the driver does.
    Cuda(usize),
}

/// Where the network will compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Our own kernels on the CPU.
    Cpu,
    /// The GPU with this number.
    Cuda(usize),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Cpu => f.write_str("cpu"),
            Target::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// What a [`Choice`] comes to on this machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Where.
    pub target: Target,
    /// With [`Choice::Auto`] on a CPU: what stands in the way of a GPU.
    pub instead_of_gpu: Option<DeviceError>,
}

/// A GPU as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Number of the device, from 0.
    pub number: usize,
    /// Product name.
    pub name: String,
    /// Newest CUDA version that the driver runs, major and minor.
    pub cuda_version: (i32, i32),
    /// Version of the driver, where the system says it.
    pub driver: Option<String>,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Memory that is free now.
    pub memory_free_bytes: u64,
    /// All memory.
    pub memory_total_bytes: u64,
}

/// Oldest driver branch that runs the kernels of this build. Source: the compiler's PTX version, 9.0.
pub const DRIVER_MIN: u32 = 580;
/// The CUDA version which that driver reports.
pub const CUDA_VERSION_MIN: (i32, i32) = (13, 0);

/// Why a GPU cannot be used: one line, with the cure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// Compiled without the feature `cuda`.
    #[error("this build has no GPU support; use a build with the feature cuda, or --device cpu")]
    NotBuiltIn,
    /// There is no driver library.
    #[error(
        "no NVIDIA driver found (libcuda.so.1 cannot be opened); install driver {DRIVER_MIN} or newer, in a container also start it with --gpus all"
    )]
    NoDriver,
    /// The driver is older than the kernels.
    #[error("the NVIDIA driver runs CUDA {}.{}, this build needs {}.{}; install driver {DRIVER_MIN} or newer",
        found.0, found.1, CUDA_VERSION_MIN.0, CUDA_VERSION_MIN.1)]
    DriverTooOld {
        /// Newest CUDA version that it runs.
        found: (i32, i32),
    },
    /// A library of the toolkit is not where the loader looks.
    #[error("{library} cannot be opened; install the CUDA {}.x run-time libraries and name their folder in LD_LIBRARY_PATH",
        CUDA_VERSION_MIN.0)]
    LibraryMissing {
        /// Its file name without a version.
        library: &'static str,
    },
    /// The driver sees no device.
    #[error(
        "the NVIDIA driver sees no GPU; check nvidia-smi, CUDA_VISIBLE_DEVICES, and in a container --gpus all"
    )]
    NoDevice,
    /// There are devices, but not this one.
    #[error("there is no cuda:{number}, the driver sees {count} GPUs, numbered from 0")]
    NoSuchDevice {
        /// The number asked for.
        number: usize,
        /// How many there are.
        count: usize,
    },
    /// The kernels of this build are for another kind of GPU.
    #[error("cuda:{number} has compute capability {}.{} and cannot run this build's kernels (8.0 and newer): {what}",
        found.0, found.1)]
    OtherArchitecture {
        /// The device.
        number: usize,
        /// Its compute capability.
        found: (i32, i32),
        /// The driver's words.
        what: String,
    },
    /// The driver failed.
    #[error("cuda:{number} cannot be used: {what}")]
    Failed {
        /// The device.
        number: usize,
        /// The driver's words.
        what: String,
    },
}

/// What `choice` comes to on this machine. Touches driver and libraries, but starts nothing on a device.
///
/// # Errors
/// [`DeviceError`]: a GPU was asked for by number and cannot be used.
pub fn resolve(choice: Choice) -> Result<Resolved, DeviceError> {
    let found = |target| Resolved {
        target,
        instead_of_gpu: None,
    };
    match choice {
        Choice::Cpu => Ok(found(Target::Cpu)),
        Choice::Cuda(number) => probe::usable(number).map(|()| found(Target::Cuda(number))),
        Choice::Auto => Ok(match probe::usable(0) {
            Ok(()) => found(Target::Cuda(0)),
            Err(err) => Resolved {
                target: Target::Cpu,
                instead_of_gpu: Some(err),
            },
        }),
    }
}

/// Describes the GPU `number`.
///
/// # Errors
/// [`DeviceError`]: it cannot be used.
pub fn info(number: usize) -> Result<DeviceInfo, DeviceError> {
    probe::info(number)
}

/// The GPU `number`, after a first kernel has run on it.
///
/// # Errors
/// [`DeviceError`]: it cannot be used.
#[cfg(feature = "cuda")]
pub fn open(number: usize) -> Result<crate::cuda::Gpu, DeviceError> {
    use crate::cuda::{Gpu, OpenError};
    probe::usable(number)?;
    Gpu::new(number).map_err(|error| match error {
        OpenError::Failed(error) => DeviceError::Failed {
            number,
            what: error.what,
        },
        OpenError::Kernels(what) => DeviceError::OtherArchitecture {
            number,
            found: info(number).map_or((0, 0), |info| info.capability),
            what,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_there_on_every_machine() {
        assert_eq!(
            resolve(Choice::Cpu),
            Ok(Resolved {
                target: Target::Cpu,
                instead_of_gpu: None
            })
        );
    }

    #[test]
    fn auto_takes_a_gpu_that_works_or_says_what_stands_in_the_way() {
        let resolved = resolve(Choice::Auto).expect("auto always comes to something");
        match resolved.instead_of_gpu {
            None => assert_eq!(resolved.target, Target::Cuda(0)),
            Some(reason) => {
                assert_eq!(resolved.target, Target::Cpu);
                assert_eq!(resolve(Choice::Cuda(0)), Err(reason));
            }
        }
    }

    #[test]
    fn every_reason_is_one_line_with_a_cure_or_the_facts() {
        let reasons = [
            (DeviceError::NotBuiltIn, "--device cpu"),
            (DeviceError::NoDriver, "install driver 580"),
            (
                DeviceError::DriverTooOld { found: (12, 8) },
                "runs CUDA 12.8, this build needs 13.0; install driver 580",
            ),
            (
                DeviceError::LibraryMissing {
                    library: "libcublas.so",
                },
                "libcublas.so cannot be opened; install",
            ),
            (DeviceError::NoDevice, "check nvidia-smi"),
            (
                DeviceError::NoSuchDevice {
                    number: 3,
                    count: 2,
                },
                "no cuda:3, the driver sees 2 GPUs",
            ),
            (
                DeviceError::OtherArchitecture {
                    number: 0,
                    found: (7, 5),
                    what: "no kernel image".into(),
                },
                "capability 7.5 and cannot run this build's kernels (8.0 and newer): no kernel image",
            ),
            (
                DeviceError::Failed {
                    number: 1,
                    what: "out of memory".into(),
                },
                "cuda:1 cannot be used: out of memory",
            ),
        ];
        for (reason, part) in reasons {
            let line = reason.to_string();
            assert!(line.contains(part) && !line.contains('\n'), "{line}");
        }
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_build_without_gpu_support_says_so() {
        assert_eq!(resolve(Choice::Cuda(0)), Err(DeviceError::NotBuiltIn));
        assert_eq!(info(0), Err(DeviceError::NotBuiltIn));
    }
}
