//! Looks for driver, libraries and devices in the order in which they can be missing.
//!
//! The CUDA bindings panic when a library is not there, so each is opened before the first call into it.

#[cfg(not(feature = "cuda"))]
pub(super) use without::{info, usable};

#[cfg(feature = "cuda")]
pub(super) use with::{info, usable};

#[cfg(not(feature = "cuda"))]
mod without {
    use crate::device::{DeviceError, DeviceInfo};

    pub fn usable(_number: usize) -> Result<(), DeviceError> {
        Err(DeviceError::NotBuiltIn)
    }

    pub fn info(_number: usize) -> Result<DeviceInfo, DeviceError> {
        Err(DeviceError::NotBuiltIn)
    }
}

#[cfg(feature = "cuda")]
mod with {
    use std::sync::Arc;

    use cudarc::driver::sys::CUresult;
    use cudarc::driver::{CudaContext, DriverError};

    use crate::device::{CUDA_VERSION_MIN, DeviceError, DeviceInfo};

    pub fn usable(number: usize) -> Result<(), DeviceError> {
        libraries()?;
        let version = cuda_version().map_err(|err| failed(number, &err))?;
        if version < CUDA_VERSION_MIN {
            return Err(DeviceError::DriverTooOld { found: version });
        }
        let count = match CudaContext::device_count() {
            Ok(count) => usize::try_from(count).unwrap_or(0),
            Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => 0,
            Err(err) => return Err(failed(number, &err)),
        };
        match count {
            0 => Err(DeviceError::NoDevice),
            _ if number >= count => Err(DeviceError::NoSuchDevice { number, count }),
            _ => Ok(()),
        }
    }

    pub fn info(number: usize) -> Result<DeviceInfo, DeviceError> {
        usable(number)?;
        describe(number).map_err(|err| failed(number, &err))
    }

    /// Driver first: the other library needs it.
    #[allow(unsafe_code)]
    fn libraries() -> Result<(), DeviceError> {
        // SAFETY: opening these runs NVIDIA's own initialisers and nothing else.
        unsafe {
            if !cudarc::driver::sys::is_culib_present() {
                return Err(DeviceError::NoDriver);
            }
            if !cudarc::cublas::sys::is_culib_present() {
                return Err(DeviceError::LibraryMissing {
                    library: "libcublas.so",
                });
            }
        }
        Ok(())
    }

    /// Newest CUDA version that the driver runs.
    #[allow(unsafe_code)]
    fn cuda_version() -> Result<(i32, i32), DriverError> {
        let mut version = 0;
        // SAFETY: writes one integer, needs no initialised driver.
        unsafe { cudarc::driver::sys::cuDriverGetVersion(&mut version) }.result()?;
        Ok((version / 1_000, version % 1_000 / 10))
    }

    fn describe(number: usize) -> Result<DeviceInfo, DriverError> {
        let context: Arc<CudaContext> = CudaContext::new(number)?;
        let (free, total) = context.mem_get_info()?;
        Ok(DeviceInfo {
            number,
            name: context.name()?,
            cuda_version: cuda_version()?,
            driver: driver_version(),
            capability: context.compute_capability()?,
            memory_free_bytes: free as u64,
            memory_total_bytes: total as u64,
        })
    }

    /// "580.65.06" out of the kernel module's own words.
    fn driver_version() -> Option<String> {
        let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
        let is_version = |word: &&str| {
            word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.')
        };
        text.lines()
            .next()?
            .split_whitespace()
            .find(is_version)
            .map(str::to_owned)
    }

    fn failed(number: usize, err: &DriverError) -> DeviceError {
        let text = err
            .error_string()
            .map(|text| text.to_string_lossy().into_owned());
        DeviceError::Failed {
            number,
            what: text.unwrap_or_else(|_| format!("{err:?}")),
        }
    }
}
