//! burn's compute stream, for ordering other streams with it.

use std::sync::Arc;

use burn_cubecl::cubecl::Runtime;
use burn_cubecl::cubecl::cuda::CudaRuntime;
use burn_cubecl::cubecl::device::Device as _;
use burn_cubecl::cubecl::device_handle::DeviceHandle;
use burn_cuda::CudaDevice;
use cudarc::driver::sys::{self, CUevent_flags, CUevent_wait_flags, CUstream};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result};

use crate::failure::DeviceError;

type Server = <CudaRuntime as Runtime>::Server;

/// The stream on which burn computes on a GPU, as long as all threads compute
/// [on one stream](crate::streams::on_one_stream).
#[derive(Debug)]
pub struct ComputeStream {
    context: Arc<CudaContext>,
    stream: CUstream,
}

#[expect(unsafe_code, reason = "the pointer is the driver's")]
// SAFETY: any thread may record events on a stream and have it wait for others; burn keeps it until the process ends.
unsafe impl Send for ComputeStream {}
#[expect(unsafe_code, reason = "the pointer is the driver's")]
// SAFETY: as above; the driver locks what it changes.
unsafe impl Sync for ComputeStream {}

impl ComputeStream {
    /// burn's stream on a GPU, in the GPU's primary context.
    ///
    /// burn 0.21 exposes its stream only in the debug description of its server. The version of burn is pinned, and
    /// this function checks that the context of the stream that it finds is the GPU's.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if burn exposes no stream.
    pub fn of(device: &CudaDevice, context: Arc<CudaContext>) -> Result<Self, DeviceError> {
        let no_stream = DeviceError::of("burn shows no stream to order others with");
        let client = CudaRuntime::client(device);
        // The stream is created at first use.
        client.flush().map_err(|error| no_stream(error.to_string()))?;
        let server = DeviceHandle::<Server>::new(device.to_id());
        let shown = server
            .submit_blocking(|server| format!("{server:?}"))
            .map_err(|error| no_stream(format!("{error:?}")))?;
        let address = address_of_stream(&shown)
            .ok_or_else(|| no_stream("its server names no stream".to_owned()))?;
        let stream = address as CUstream;
        let found = context_of(stream).map_err(|error| no_stream(error.to_string()))?;
        if found != context.cu_ctx() {
            return Err(no_stream("the stream that its server names is of another GPU".to_owned()));
        }
        Ok(Self { context, stream })
    }

    /// The raw stream, for work that is started on it in place of burn's kernels.
    pub fn raw(&self) -> CUstream {
        self.stream
    }

    /// An event after all work that was enqueued so far.
    ///
    /// # Errors
    ///
    /// The driver's message.
    pub fn reached(&self) -> Result<CudaEvent, DriverError> {
        self.passed(None)
    }

    /// An event as of [`Self::reached`], created with flags.
    ///
    /// # Errors
    ///
    /// The driver's message.
    #[expect(unsafe_code, reason = "the stream is burn's")]
    pub fn passed(&self, kind: Option<CUevent_flags>) -> Result<CudaEvent, DriverError> {
        self.context.bind_to_thread()?;
        let reached = self.context.new_event(kind)?;
        // SAFETY: both are alive: the event until the end of the call, after which the driver keeps what it needs of
        // the event; the stream until the process ends.
        unsafe { result::event::record(reached.cu_event(), self.stream) }?;
        Ok(reached)
    }

    /// Makes another stream wait for all work that was enqueued so far.
    ///
    /// # Errors
    ///
    /// The driver's message.
    pub fn is_awaited_by(&self, other: &CudaStream) -> Result<(), DriverError> {
        other.wait(&self.reached()?)
    }

    /// Makes all later work on the stream wait for an event.
    ///
    /// # Errors
    ///
    /// The driver's message.
    #[expect(unsafe_code, reason = "the stream is burn's")]
    pub fn waits_for(&self, event: &CudaEvent) -> Result<(), DriverError> {
        self.context.bind_to_thread()?;
        let flags = CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both live, as above.
        unsafe { result::stream::wait_event(self.stream, event.cu_event(), flags) }
    }
}

/// The address of the first stream in a server's debug description, as in `sys: 0x7f00`.
fn address_of_stream(shown: &str) -> Option<usize> {
    let (_, after) = shown.split_once("sys: 0x")?;
    let digits = after.split(|c: char| !c.is_ascii_hexdigit()).next()?;
    usize::from_str_radix(digits, 16).ok().filter(|address| *address > 0)
}

/// The context of a stream.
#[expect(unsafe_code, reason = "the driver is written in C")]
fn context_of(stream: CUstream) -> Result<sys::CUcontext, DriverError> {
    let mut context = std::ptr::null_mut();
    // SAFETY: the pointer is to a variable for a context. The driver checks that it was given a stream.
    unsafe { sys::cuStreamGetCtx(stream, &raw mut context) }.result()?;
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::address_of_stream;

    #[test]
    fn the_first_stream_that_is_named_is_found() {
        let shown = "MultiStream { streams: [Some(StreamWrapper { stream: Stream { sys: 0x55d0a8, \
                     memory: 1 } }), Some(StreamWrapper { stream: Stream { sys: 0x1 } })] }";
        assert_eq!(address_of_stream(shown), Some(0x55_d0a8));
        for nothing in ["", "sys: none", "sys: 0x", "sys: 0x0"] {
            assert_eq!(address_of_stream(nothing), None, "{nothing}");
        }
    }
}
