//! An NVIDIA GPU: one context, one stream, the kernels of this build, cuBLAS for products.
//!
//! Everything goes into the one stream, in order; events are switched off, since nothing else needs ordering. The caller
//! has made sure that driver and libraries are there (`device::probe`): the bindings panic where one is missing.

#![allow(unsafe_code)]

use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;

use cudarc::cublas::result as blas;
use cudarc::cublas::sys as blas_sys;
use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUdeviceptr, CUfunction, CUgraphInstantiate_flags, CUmemPool_attribute,
    CUmemorytype, CUresult, CUstreamCaptureMode,
};
use cudarc::driver::{CudaContext, CudaGraph, CudaStream, DriverError, result, sys};
use slots::engine::EngineError;

use crate::backend::Done;

use super::args::{Address, Kernel};
use super::buffers::THREADS;
use super::machine::{Machine, Op, Pieces, Product};
use super::tape::perform;

/// The kernels for all architectures that are built for, and as PTX for later ones; empty in a build without a compiler.
static FATBIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.fatbin"));

/// What cuBLAS may use for itself; with a fixed size its choices do not depend on what else is allocated.
const WORKSPACE_BYTES: usize = 32 << 20;

/// A GPU.
pub struct Gpu {
    number: usize,
    name: String,
    stream: Arc<CudaStream>,
    /// By [`Kernel`].
    functions: Functions,
    products: Blas,
    workspace: GpuMemory,
}

/// Memory of a GPU.
pub struct GpuMemory {
    at: CUdeviceptr,
    stream: Arc<CudaStream>,
}

impl Drop for GpuMemory {
    fn drop(&mut self) {
        if self.stream.context().bind_to_thread().is_ok() {
            // SAFETY: allocated on this stream and not freed before; what uses it was asked for earlier.
            let _ = unsafe { result::free_async(self.at, self.stream.cu_stream()) };
        }
    }
}

/// A recorded tick.
pub struct Graph(CudaGraph);

// SAFETY: it is launched by the one thread that has `&mut` of the `Gpu`, never by two at once.
unsafe impl Send for Graph {}

struct Functions(Vec<CUfunction>);

// SAFETY: handles of a module that is never unloaded; the driver takes them on any thread.
unsafe impl Send for Functions {}

struct Blas(blas_sys::cublasHandle_t);

// SAFETY: a handle may be used by one thread at a time, which `&mut` of its owner makes sure of.
unsafe impl Send for Blas {}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: made by cuBLAS and not destroyed before.
        let _ = unsafe { blas::destroy_handle(self.0) };
    }
}

/// Why a GPU could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// It cannot run this build's kernels; the driver's words.
    Kernels(String),
    /// The driver failed.
    Failed(EngineError),
}

impl From<EngineError> for OpenError {
    fn from(error: EngineError) -> Self {
        Self::Failed(error)
    }
}

impl Gpu {
    /// The GPU `number`, after a first kernel has run.
    ///
    /// # Errors
    /// [`OpenError`], with the driver's words.
    pub fn new(number: usize) -> Result<Self, OpenError> {
        let context = answer(CudaContext::new(number))?;
        // SAFETY: all memory is used on one stream only, so uses are ordered without events.
        unsafe { context.disable_event_tracking() };
        answer(keep_freed_memory(&context))?;
        let stream = answer(context.new_stream())?;
        if FATBIN.is_empty() {
            let what = "this build holds none: it was made without NVIDIA's compiler";
            return Err(OpenError::Kernels(what.to_owned()));
        }
        // SAFETY: a whole fatbin, as the compiler wrote it.
        let module = answer(unsafe { result::module::load_data(FATBIN.as_ptr().cast()) })
            .map_err(|error| OpenError::Kernels(error.what))?;
        let function = |kernel: &Kernel| {
            let name = CString::new(kernel.name()).expect("names hold no zero");
            // SAFETY: the module was just loaded.
            answer(unsafe { result::module::get_function(module, name) })
        };
        let functions = Kernel::ALL
            .iter()
            .map(function)
            .collect::<Result<_, EngineError>>()?;
        let workspace = allocate(&stream, WORKSPACE_BYTES)?;
        let handle = products(blas::create_handle())?;
        // SAFETY: handle, stream and workspace live as long as the `Gpu` that holds all three.
        unsafe {
            products(blas::set_stream(handle, stream.cu_stream().cast()))?;
            let set = blas_sys::cublasSetWorkspace_v2(
                handle,
                workspace.at as *mut c_void,
                WORKSPACE_BYTES,
            );
            products(set.result())?;
        }
        let mut gpu = Self {
            number,
            name: answer(context.name())?,
            stream,
            functions: Functions(functions),
            products: Blas(handle),
            workspace,
        };
        gpu.first_kernel()?;
        Ok(gpu)
    }

    /// That kernels of this build run on this architecture is found out here and not in a call.
    fn first_kernel(&mut self) -> Done {
        let memory = self.allocate(8)?;
        let at = memory.at;
        self.write(at, bytemuck::bytes_of(&[1.0f32, 2.0]))?;
        let args = super::args::EachArgs {
            from: at,
            to: at + 4,
            count: 1,
        };
        self.launch(Kernel::AddTo, [1, 1], bytemuck::bytes_of(&args))?;
        let mut sum = [0.0f32; 2];
        self.read(at, bytemuck::cast_slice_mut(&mut sum))?;
        match sum {
            [1.0, 3.0] => Ok(()),
            other => Err(EngineError {
                what: format!("1 + 2 came out as {}", other[1]),
            }),
        }
    }

    /// Makes the device fail as a broken kernel would: it writes where no memory is. Nothing works on it afterwards, in
    /// this process. The driver's words, if it noticed.
    pub fn provoke_fault(mut self) -> Option<String> {
        let nowhere = super::args::EachArgs {
            from: 8,
            to: 8,
            count: 1,
        };
        let args = bytemuck::bytes_of(&nowhere);
        let launched = self.launch(Kernel::AddTo, [1, 1], args);
        let first = launched.and_then(|()| self.synchronize()).err();
        // It stays so.
        let again = self.write(self.workspace.at, &[0; 4]).err();
        first.and(again).map(|error| error.what)
    }

    fn bind(&self) -> Done {
        answer(self.stream.context().bind_to_thread())
    }
}

fn allocate(stream: &Arc<CudaStream>, bytes: usize) -> Result<GpuMemory, EngineError> {
    answer(stream.context().bind_to_thread())?;
    // SAFETY: used on this stream only.
    let at = unsafe { result::malloc_async(stream.cu_stream(), bytes.max(1)) };
    match at {
        Ok(at) => Ok(GpuMemory {
            at,
            stream: Arc::clone(stream),
        }),
        Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Err(EngineError {
            what: format!("the GPU has no {} MiB of memory left", bytes >> 20),
        }),
        Err(error) => answer(Err(error)),
    }
}

/// By default the driver gives freed memory back to the system whenever somebody waits for the device; it is to stay in
/// the pool.
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

/// The driver's answer as ours.
fn answer<T>(result: Result<T, DriverError>) -> Result<T, EngineError> {
    result.map_err(|error| EngineError {
        what: match error.error_string() {
            Ok(text) => text.to_string_lossy().into_owned(),
            Err(_) => format!("{error:?}"),
        },
    })
}

fn products<T>(result: Result<T, blas::CublasError>) -> Result<T, EngineError> {
    result.map_err(|error| EngineError {
        what: format!("cuBLAS: {:?}", error.0),
    })
}

impl Machine for Gpu {
    type Memory = GpuMemory;
    type Graph = Graph;

    fn describe(&self) -> String {
        format!("cuda:{} ({})", self.number, self.name)
    }

    fn allocate(&mut self, bytes: usize) -> Result<GpuMemory, EngineError> {
        allocate(&self.stream, bytes)
    }

    fn address(memory: &GpuMemory) -> Address {
        memory.at
    }

    fn zero(&mut self, at: Address, bytes: usize) -> Done {
        self.bind()?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the backend asks for memory that it owns; here and below.
        answer(unsafe { result::memset_d8_async(at, 0, bytes, self.stream.cu_stream()) })
    }

    fn write(&mut self, at: Address, bytes: &[u8]) -> Done {
        self.bind()?;
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: ordinary memory is read before this returns (CUDA driver API, "API synchronization behavior").
        answer(unsafe { result::memcpy_htod_async(at, bytes, self.stream.cu_stream()) })
    }

    fn read(&mut self, at: Address, out: &mut [u8]) -> Done {
        self.bind()?;
        // SAFETY: it is waited for while `out` is borrowed.
        answer(unsafe { result::memcpy_dtoh_async(out, at, self.stream.cu_stream()) })?;
        answer(self.stream.synchronize())
    }

    fn copy(&mut self, pieces: Pieces) -> Done {
        self.bind()?;
        let stream = self.stream.cu_stream();
        match pieces {
            Pieces { bytes: 0, .. } | Pieces { count: 0, .. } => Ok(()),
            Pieces {
                from,
                to,
                bytes,
                count: 1,
                ..
            } => {
                // SAFETY: the backend names memory that it owns.
                answer(unsafe { result::memcpy_dtod_async(to, from, bytes, stream) })
            }
            pieces => {
                let copy = CUDA_MEMCPY2D {
                    srcXInBytes: 0,
                    srcY: 0,
                    srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
                    srcHost: std::ptr::null(),
                    srcDevice: pieces.from,
                    srcArray: std::ptr::null_mut(),
                    srcPitch: pieces.from_stride,
                    dstXInBytes: 0,
                    dstY: 0,
                    dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
                    dstHost: std::ptr::null_mut(),
                    dstDevice: pieces.to,
                    dstArray: std::ptr::null_mut(),
                    dstPitch: pieces.to_stride,
                    WidthInBytes: pieces.bytes,
                    Height: pieces.count,
                };
                // SAFETY: as above; the structure is read before this returns.
                answer(unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream) }.result())
            }
        }
    }

    fn launch(&mut self, kernel: Kernel, blocks: [u32; 2], args: &[u8]) -> Done {
        self.bind()?;
        let mut params = [args.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: one structure, which is copied before this returns, as this kernel declares it.
        answer(unsafe {
            result::launch_kernel(
                self.functions.0[kernel as usize],
                (blocks[0], blocks[1], 1),
                (THREADS as u32, 1, 1),
                0,
                self.stream.cu_stream(),
                &mut params,
            )
        })
    }

    fn product(&mut self, product: Product) -> Done {
        self.bind()?;
        use blas_sys::{cublasComputeType_t, cublasGemmAlgo_t, cublasOperation_t, cudaDataType};
        let (one, of_y) = (1.0f32, if product.add { 1.0f32 } else { 0.0 });
        let kind = match product.half {
            true => cudaDataType::CUDA_R_16BF,
            false => cudaDataType::CUDA_R_32F,
        };
        let (outputs, lanes, inputs) = (
            product.outputs as c_int,
            product.lanes as c_int,
            product.inputs as c_int,
        );
        if product.lanes == 0 {
            return Ok(());
        }
        // Row-major `[lanes, outputs]` is column-major `[outputs, lanes]`.
        // SAFETY: the product names memory of these shapes that the backend owns.
        products(unsafe {
            blas::gemm_ex(
                self.products.0,
                cublasOperation_t::CUBLAS_OP_T,
                cublasOperation_t::CUBLAS_OP_N,
                outputs,
                lanes,
                inputs,
                (&raw const one).cast(),
                product.weights as *const c_void,
                kind,
                inputs,
                product.x as *const c_void,
                kind,
                inputs,
                (&raw const of_y).cast(),
                product.y as *mut c_void,
                cudaDataType::CUDA_R_32F,
                outputs,
                cublasComputeType_t::CUBLAS_COMPUTE_32F,
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        })
    }

    fn capture(&mut self, ops: &[Op]) -> Result<Graph, EngineError> {
        self.bind()?;
        // What was asked for before is no part of it.
        answer(self.stream.synchronize())?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        answer(self.stream.begin_capture(mode))?;
        let performed = perform(self, ops);
        // Ended in any case, or the stream would stay in this mode.
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = answer(self.stream.end_capture(flags));
        performed?;
        match graph? {
            Some(graph) => {
                answer(graph.upload())?;
                Ok(Graph(graph))
            }
            None => Err(EngineError {
                what: "the driver recorded nothing".into(),
            }),
        }
    }

    fn replay(&mut self, graph: &Graph) -> Done {
        answer(graph.0.launch())
    }

    fn synchronize(&mut self) -> Done {
        self.bind()?;
        answer(self.stream.synchronize())
    }
}
