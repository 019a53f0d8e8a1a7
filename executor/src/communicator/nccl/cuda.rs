//! The engine that calls NCCL with the arrays of burn's CUDA backend.
//!
//! burn queues kernels on streams of its own, one for each thread that computes, which it does not
//! show. So the calling thread's stream, which waits for those on which the arrays were made, is
//! waited for before NCCL starts, and NCCL's before its results are used. Each clique has a stream
//! of its own. The threads that wait are those of [`Queue`](super::super::Queue)s wherever
//! communication goes on beside computation.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use burn::tensor::backend::Backend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cuda::CudaDevice;
use cudarc::driver::{CudaContext, CudaStream, DriverError};

use super::engine::{Call, Clique, Engine, Form, Watch};
pub use super::library::EngineError;
use super::library::{Library, RawCall, RawClique, RawKind};
use crate::array::Array;
use crate::communicator::CommunicationError;
use crate::cuda::Cuda;

/// How often a call's end is looked for at once, before others get the processor in between.
const NUM_SPINS: u32 = 200;

/// How long the thread then sleeps each time.
const NAP: Duration = Duration::from_micros(20);

/// NCCL on one GPU.
pub struct NcclEngine {
    library: Arc<Library>,
    context: Arc<CudaContext>,
    device: CudaDevice,
}

impl NcclEngine {
    /// NCCL on a GPU, one of [`devices`](crate::cuda::devices).
    ///
    /// # Errors
    ///
    /// NCCL is not there, or the GPU cannot be used.
    pub fn open(device: CudaDevice) -> Result<Self, EngineError> {
        let library = Library::load()?;
        let context = CudaContext::new(device.index).map_err(|error| EngineError::Device {
            index: device.index,
            message: error.to_string(),
        })?;
        Ok(Self { library, context, device })
    }

    /// What tells the GPU from all others of the cluster.
    ///
    /// # Errors
    ///
    /// The driver does not know.
    pub fn device_id(&self) -> Result<Vec<u8>, CommunicationError> {
        let id = self.context.uuid().map_err(of_driver("cuDeviceGetUuid"))?;
        Ok(id.bytes.iter().map(|byte| byte.cast_unsigned()).collect())
    }
}

impl Engine<Cuda> for NcclEngine {
    fn new_clique(&self) -> Result<Vec<u8>, CommunicationError> {
        self.library.new_id()
    }

    fn join(
        &self,
        id: &[u8],
        position: usize,
        len: usize,
        watch: Watch,
    ) -> Result<Box<dyn Clique<Cuda>>, CommunicationError> {
        self.context.bind_to_thread().map_err(of_driver("cuCtxSetCurrent"))?;
        let stream = self.context.new_stream().map_err(of_driver("cuStreamCreate"))?;
        let clique = self.library.join(id, position, len)?;
        Ok(Box::new(NcclClique {
            clique,
            stream,
            position,
            len,
            device: self.device.clone(),
            watch,
        }))
    }
}

struct NcclClique {
    clique: RawClique,
    stream: Arc<CudaStream>,
    position: usize,
    len: usize,
    device: CudaDevice,
    watch: Watch,
}

impl Clique<Cuda> for NcclClique {
    #[expect(unsafe_code, reason = "NCCL takes addresses")]
    fn call(
        &mut self,
        calls: Vec<Call<Cuda>>,
    ) -> Result<Vec<Option<Array<Cuda>>>, CommunicationError> {
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        (self.watch)()?;
        if self.clique.is_aborted() {
            let message = "an earlier call was given up".to_owned();
            return Err(CommunicationError::Library { call: "NCCL", message });
        }
        self.stream.context().bind_to_thread().map_err(of_driver("cuCtxSetCurrent"))?;
        let prepared: Vec<Prepared> =
            calls.into_iter().map(|call| self.prepare(call)).collect::<Result<_, _>>()?;
        let raw: Vec<RawCall> = prepared.iter().map(Prepared::raw).collect();
        // All kernels that write what is read here, and all that used the memory of the results
        // before, have ended after this: this thread's stream waits for theirs since their
        // addresses were asked for.
        Cuda::sync(&self.device).map_err(|error| CommunicationError::Library {
            call: "sync",
            message: error.to_string(),
        })?;
        // SAFETY: `prepared` holds all memory that the addresses are of, each as large as its call
        // needs, until the stream has come to its end, below. burn changes no tensor of which there
        // is another handle, as there is here, and nobody else has the results yet.
        let started = unsafe { self.clique.start(&raw, self.stream.cu_stream().cast::<c_void>()) };
        if let Err(error) = started.and_then(|()| self.wait()) {
            self.clique.abort();
            // The stream comes to its end now. An error here would be a consequence of the one that
            // is told.
            let _ = self.stream.synchronize();
            return Err(error);
        }
        Ok(prepared.into_iter().map(Prepared::result).collect())
    }
}

impl NcclClique {
    /// Waits until the stream has come to its end, or a rank has failed, so that it may not.
    fn wait(&self) -> Result<(), CommunicationError> {
        let event = self.stream.record_event(None).map_err(of_driver("cuEventRecord"))?;
        let mut num_looks: u32 = 0;
        loop {
            if event.try_is_complete().map_err(of_driver("cuEventQuery"))? {
                return self.clique.check();
            }
            num_looks = num_looks.saturating_add(1);
            if num_looks < NUM_SPINS {
                std::hint::spin_loop();
                continue;
            }
            (self.watch)()?;
            self.clique.check()?;
            std::thread::sleep(NAP);
        }
    }

    /// A call with its memory.
    fn prepare(&self, call: Call<Cuda>) -> Result<Prepared, CommunicationError> {
        let prepare = |kind, array: Option<Array<Cuda>>, result: Option<Form>| {
            Prepared::new(kind, array, result, &self.device)
        };
        match call {
            Call::AllReduce { array, reduction } => {
                let form = Form::of(&array);
                prepare(RawKind::AllReduce(reduction), Some(array), Some(form))
            }
            Call::Reduce { root, array, reduction } => {
                let form = (self.position == root).then(|| Form::of(&array));
                prepare(RawKind::Reduce(root, reduction), Some(array), form)
            }
            Call::ReduceScatter { array, reduction } => {
                let form =
                    Form { element: array.dtype(), shape: vec![array.num_elements() / self.len] };
                prepare(RawKind::ReduceScatter(reduction), Some(array), Some(form))
            }
            Call::AllGather { array } => {
                let form =
                    Form { element: array.dtype(), shape: vec![array.num_elements() * self.len] };
                prepare(RawKind::AllGather, Some(array), Some(form))
            }
            Call::Broadcast { root, form, array } => {
                prepare(RawKind::Broadcast(root), array, Some(form))
            }
            Call::Send { to, array } => prepare(RawKind::Send(to), Some(array), None),
            Call::Receive { from, form } => prepare(RawKind::Receive(from), None, Some(form)),
        }
    }
}

/// A call, and what holds its memory.
struct Prepared {
    kind: RawKind,
    source: Option<Held>,
    destination: Option<(Held, Form)>,
}

/// A tensor whose elements lie one after the other from an address on, which it holds.
struct Held {
    array: Array<Cuda>,
    address: u64,
}

impl Prepared {
    fn new(
        kind: RawKind,
        source: Option<Array<Cuda>>,
        result: Option<Form>,
        device: &CudaDevice,
    ) -> Result<Self, CommunicationError> {
        let source = source.map(Held::new).transpose()?;
        let destination = match result {
            None => None,
            Some(form) => {
                // In one dimension: rows of several may be laid out with gaps.
                let empty = Array::empty_of(&[form.num_elements()], form.element, device);
                Some((Held::new(empty)?, form))
            }
        };
        Ok(Self { kind, source, destination })
    }

    fn raw(&self) -> RawCall {
        let array = match (&self.kind, &self.source, &self.destination) {
            (RawKind::ReduceScatter(_), _, Some((held, _))) | (_, Some(held), _) => &held.array,
            (_, None, Some((held, _))) => &held.array,
            (_, None, None) => unreachable!("each call reads or writes something"),
        };
        RawCall {
            kind: self.kind,
            source: self.source.as_ref().map_or(0, |held| held.address),
            destination: self.destination.as_ref().map_or(0, |(held, _)| held.address),
            num_elements: array.num_elements(),
            element: array.dtype(),
        }
    }

    fn result(self) -> Option<Array<Cuda>> {
        self.destination.map(|(held, form)| held.array.reshape(&form.shape))
    }
}

impl Held {
    fn new(array: Array<Cuda>) -> Result<Self, CommunicationError> {
        let array = array.moved(into_contiguous, into_contiguous);
        // Both are tensors of CubeCL.
        let client = |tensor: &CubeTensor<_>| tensor.client.get_resource(tensor.handle.clone());
        let address = array
            .read(client, client)
            .map_err(|error| CommunicationError::Library {
                call: "get_resource",
                message: error.to_string(),
            })?
            .resource()
            .ptr;
        Ok(Self { array, address })
    }
}

fn of_driver(call: &'static str) -> impl Fn(DriverError) -> CommunicationError {
    move |error| CommunicationError::Library { call, message: error.to_string() }
}
