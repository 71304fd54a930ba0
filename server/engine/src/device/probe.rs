//! Looks for driver, libraries and devices in the order in which they can be missing, and makes candle's device.
//!
//! The CUDA bindings panic when a library is not there, so each is opened before the first call into it.

#[cfg(not(feature = "cuda"))]
pub(super) use without::{info, open, usable};

#[cfg(feature = "cuda")]
pub(super) use with::{info, open, usable};

#[cfg(not(feature = "cuda"))]
mod without {
    use candle_core::Device;

    use crate::device::{DeviceError, DeviceInfo};

    pub fn usable(_number: usize) -> Result<(), DeviceError> {
        Err(DeviceError::NotBuiltIn)
    }

    pub fn info(_number: usize) -> Result<DeviceInfo, DeviceError> {
        Err(DeviceError::NotBuiltIn)
    }

    pub fn open(_number: usize) -> Result<Device, DeviceError> {
        Err(DeviceError::NotBuiltIn)
    }
}

#[cfg(feature = "cuda")]
mod with {
    use std::sync::Arc;

    use candle_core::{DType, Device, Tensor};
    use cudarc::driver::sys::{CUmemPool_attribute, CUresult};
    use cudarc::driver::{CudaContext, DriverError, result};

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

    pub fn open(number: usize) -> Result<Device, DeviceError> {
        usable(number)?;
        let device = make(number)?;
        match first_kernel(&device) {
            Ok(()) => Ok(device),
            Err(err) => Err(DeviceError::OtherArchitecture {
                number,
                found: CudaContext::new(number)
                    .and_then(|context| context.compute_capability())
                    .unwrap_or((0, 0)),
                built_for: option_env!("CUDA_COMPUTE_CAP")
                    .map_or(String::new(), |cap| format!(" (built for {cap})")),
                what: first_line(&err),
            }),
        }
    }

    /// Driver first: the other libraries need it.
    #[cfg(feature = "dynamic-loading")]
    #[allow(unsafe_code)]
    fn libraries() -> Result<(), DeviceError> {
        // SAFETY: opening these runs NVIDIA's own initialisers and nothing else.
        let (driver, others) = unsafe {
            use cudarc::{cublas, cublaslt, curand, driver};
            let driver = driver::sys::is_culib_present();
            let others: [(&'static str, bool); 3] = match driver {
                true => [
                    ("libcublas.so", cublas::sys::is_culib_present()),
                    ("libcublasLt.so", cublaslt::sys::is_culib_present()),
                    ("libcurand.so", curand::sys::is_culib_present()),
                ],
                false => [("", true); 3],
            };
            (driver, others)
        };
        if !driver {
            return Err(DeviceError::NoDriver);
        }
        match others.iter().find(|(_, is_there)| !is_there) {
            Some((library, _)) => Err(DeviceError::LibraryMissing { library }),
            None => Ok(()),
        }
    }

    /// Linked the plain way the process would not have started without them.
    #[cfg(not(feature = "dynamic-loading"))]
    fn libraries() -> Result<(), DeviceError> {
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

    /// One stream for all threads: the default one would be another on each. Events order several streams; there is
    /// one.
    #[allow(unsafe_code)]
    fn make(number: usize) -> Result<Device, DeviceError> {
        let device = Device::new_cuda_with_stream(number).map_err(|err| DeviceError::Failed {
            number,
            what: first_line(&err),
        })?;
        if let Device::Cuda(cuda) = &device {
            // SAFETY: every tensor of this device lives on its one stream, so uses are ordered without events.
            unsafe { cuda.disable_event_tracking() };
            keep_freed_memory(cuda.cuda_stream().context()).map_err(|err| failed(number, &err))?;
        }
        Ok(device)
    }

    /// Operations allocate and free within a step. By default the driver gives freed memory back to the system whenever
    /// somebody waits for the device, several times a tick; it is to stay in the pool.
    #[allow(unsafe_code)]
    fn keep_freed_memory(context: &CudaContext) -> Result<(), DriverError> {
        if !context.has_async_alloc() {
            return Ok(());
        }
        let mut threshold_bytes = u64::MAX;
        let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the device comes from a live context, and this attribute is a 64-bit number that is read at once.
        unsafe {
            let pool = result::device::get_default_mem_pool(context.cu_device())?;
            result::mem_pool::set_attribute(pool, attribute, (&raw mut threshold_bytes).cast())
        }
    }

    /// Kernels are compiled by the driver at their first use: that this works is found out here and not in a call.
    fn first_kernel(device: &Device) -> candle_core::Result<()> {
        let two = Tensor::ones(1, DType::F32, device)?
            .affine(1.0, 1.0)?
            .to_vec1::<f32>()?;
        match two[..] {
            [2.0] => Ok(()),
            _ => candle_core::bail!("1 + 1 came out as {two:?}"),
        }
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

    fn first_line(err: &candle_core::Error) -> String {
        err.to_string()
            .lines()
            .next()
            .unwrap_or("no reason given")
            .to_owned()
    }
}
