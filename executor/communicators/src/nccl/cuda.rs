//! The engine that calls NCCL with the arrays of burn's CUDA backend.
//!
//! NCCL has separate streams: one for each stream of the timeline, and one for each direction between two ranks. Events
//! on the device order NCCL's reads and writes with burn's computation: a call waits for earlier computation, and
//! computation waits for a call whose result it reads. No thread of the host waits for the device here. The memory of a
//! call is held until computation waits for the end of the call, or the call has ended.
//!
//! A `Guard` ends calls that do not end themselves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use burn_cuda::CudaDevice;
use cudarc::driver::{CudaContext, CudaStream};
use executor_kernels::array::Array;
use executor_kernels::clock::Point;
use executor_kernels::cuda::compute_stream::ComputeStream;
use executor_kernels::cuda::{Cuda, context_of};
use executor_kernels::failure::DeviceError;
use executor_kernels::lock::lock;
use traces::timeline::Stream;

use super::communicator::{CudaCommunicator, marked};
use super::engine::{Engine, LibraryCommunicator, Membership};
use super::guard::Guard;
use super::library::{Library, of_driver};
use crate::error::Result;
use crate::rendezvous::Connection;

/// NCCL on one GPU.
pub struct NcclEngine {
    library: Arc<Library>,
    context: Arc<CudaContext>,
    compute: Arc<ComputeStream>,
    device: CudaDevice,
    /// NCCL's stream for each stream of the timeline.
    streams: Mutex<BTreeMap<Stream, Arc<CudaStream>>>,
    /// All joined communicators, which outlive their callers and are released at the end.
    guards: Mutex<Vec<Arc<Guard>>>,
    limit: Duration,
}

impl NcclEngine {
    /// NCCL on a GPU, one of [`devices`](executor_kernels::cuda::devices), with `limit` as the longest time of a call.
    ///
    /// # Errors
    ///
    /// NCCL is missing, or the GPU cannot be used.
    pub fn open(device: CudaDevice, limit: Duration) -> Result<Self, DeviceError> {
        let library = Library::load()?;
        let failed = format!("GPU {} cannot be used", device.index);
        let unusable = DeviceError::of(&failed);
        let context = context_of(&device).map_err(|error| unusable(error.to_string()))?;
        let compute = ComputeStream::of(&device, Arc::clone(&context))
            .map_err(|error| unusable(error.to_string()))?;
        Ok(Self {
            library,
            context,
            compute: Arc::new(compute),
            device,
            streams: Mutex::default(),
            guards: Mutex::default(),
            limit,
        })
    }

    /// Identifier of the GPU, unique in the cluster.
    ///
    /// # Errors
    ///
    /// The driver reports none.
    pub fn device_id(&self) -> Result<Vec<u8>> {
        let id = self.context.uuid().map_err(of_driver("cuDeviceGetUuid"))?;
        Ok(id.bytes.iter().map(|byte| byte.cast_unsigned()).collect())
    }

    /// NCCL's version, as in `2.27.5`.
    ///
    /// # Errors
    ///
    /// NCCL reports none.
    pub fn version(&self) -> Result<String> {
        self.library.version()
    }

    /// NCCL's stream for a stream of the timeline; without one, a new stream.
    fn stream(&self, stream: Option<Stream>) -> Result<Arc<CudaStream>> {
        let new = || self.context.new_stream().map_err(of_driver("cuStreamCreate"));
        let Some(stream) = stream else { return new() };
        let mut streams = lock(&self.streams);
        if let Some(known) = streams.get(&stream) {
            return Ok(Arc::clone(known));
        }
        let made = new()?;
        streams.insert(stream, Arc::clone(&made));
        Ok(made)
    }
}

impl Engine<Cuda> for NcclEngine {
    fn new_id(&self) -> Result<Vec<u8>> {
        self.library.new_id()
    }

    fn join(
        &self,
        id: &[u8],
        membership: Membership,
        run: Arc<Connection>,
    ) -> Result<Box<dyn LibraryCommunicator<Cuda>>> {
        self.context.bind_to_thread().map_err(of_driver("cuCtxSetCurrent"))?;
        let stream = self.stream(membership.stream)?;
        let raw = self.library.join(id, membership.position, membership.ranks.len())?;
        let guard = Arc::new(Guard::new(raw, &membership, &run, self.limit));
        Guard::start(&guard)?;
        lock(&self.guards).push(Arc::clone(&guard));
        guard.wait_for_members()?;
        Ok(Box::new(CudaCommunicator {
            guard,
            stream,
            compute: Arc::clone(&self.compute),
            device: self.device.clone(),
        }))
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn marked(&self, array: Array<Cuda>) -> Result<(Array<Cuda>, Option<Point>)> {
        let (array, mark) = marked(array, &self.compute)?;
        Ok((array, Some(mark)))
    }

    fn finish(&self) -> Result<()> {
        lock(&self.guards).iter().try_for_each(|guard| guard.wait_for_calls())
    }

    fn close(&self) {
        lock(&self.guards).iter().for_each(|guard| guard.abort());
    }
}
