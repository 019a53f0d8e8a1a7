//! A communicator of NCCL for arrays of burn's CUDA backend.

use std::ffi::c_void;
use std::sync::Arc;

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cuda::CudaDevice;
use cudarc::driver::{CudaEvent, CudaStream, DriverError};
use executor_kernels::array::Array;
use executor_kernels::clock::{Point, Spans};
use executor_kernels::cuda::Cuda;
use executor_kernels::cuda::clock::TIMED;
use executor_kernels::cuda::compute_stream::ComputeStream;

use super::engine::{LibraryCall, LibraryCommunicator, LibraryFunction};
use super::guard::Guard;
use super::library::{RawCall, of_driver};
use crate::error::Result;
use crate::{ArraySpec, CommunicationError, DeviceWork, InFlight};

pub(super) struct CudaCommunicator {
    pub(super) guard: Arc<Guard>,
    pub(super) stream: Arc<CudaStream>,
    pub(super) compute: Arc<ComputeStream>,
    pub(super) device: CudaDevice,
}

impl LibraryCommunicator<Cuda> for CudaCommunicator {
    #[expect(unsafe_code, reason = "NCCL takes addresses")]
    fn start(&mut self, calls: Vec<LibraryCall<Cuda>>) -> Result<InFlight<Vec<Array<Cuda>>>> {
        let Some(first) = calls.first() else { return Ok(InFlight::done(Vec::new())) };
        let name = first.function.name();
        let marks: Option<Vec<Point>> = calls.iter().map(|call| call.after.clone()).collect();
        self.stream.context().bind_to_thread().map_err(of_driver("cuCtxSetCurrent"))?;
        let prepared: Vec<Prepared> = calls
            .into_iter()
            .map(|call| Prepared::new(call, &self.device))
            .collect::<Result<_>>()?;
        let raw: Vec<RawCall> = prepared.iter().flat_map(Prepared::raw).collect();
        // burn has enqueued all kernels that write the inputs, and all kernels that used the memory of the results
        // before: the addresses were requested after these kernels.
        match marks {
            Some(marks) => marks.iter().try_for_each(|mark| self.waits_for(mark)),
            None => self.compute.is_awaited_by(&self.stream),
        }
        .map_err(of_driver("cuStreamWaitEvent"))?;
        let noted = Spans::current();
        let timing = noted.is_some().then_some(TIMED);
        let event = || self.stream.record_event(timing).map(Arc::new);
        // Recorded after the waits: the call begins when its inputs are ready.
        let begin =
            noted.as_ref().map(|_| event()).transpose().map_err(of_driver("cuEventRecord"))?;
        let stream = self.stream.cu_stream().cast::<c_void>();
        let over = self.guard.call(
            name,
            // SAFETY: the addresses are of memory that `prepared` holds, as large as its call needs. `InUse` then holds
            // this memory, and releases it only once burn's stream waits for the end of the call, or the call has
            // ended. burn changes no array that has another handle, and `prepared` holds such a handle. Nobody reads
            // the results earlier.
            |communicator| unsafe { communicator.start(&raw, stream) },
            || event().map_err(of_driver("cuEventRecord")),
        )?;
        if let (Some(spans), Some(begin)) = (noted, begin) {
            spans.add(Point(begin), Point(Arc::<CudaEvent>::clone(&over)));
        }
        let results = prepared.iter().filter_map(Prepared::result).collect();
        let compute = Arc::clone(&self.compute);
        let in_use = InUse { over: Some(over), compute, _memory: prepared };
        Ok(InFlight::with(results, Box::new(in_use)))
    }
}

impl CudaCommunicator {
    /// Makes the stream wait for a point of computation.
    fn waits_for(&self, Point(noted): &Point) -> Result<(), DriverError> {
        let event = noted.downcast_ref::<CudaEvent>().expect("this engine notes events");
        self.stream.wait(event)
    }
}

/// A contiguous array, and an event after all work that burn has enqueued so far, including the kernels that write it.
pub(super) fn marked(array: Array<Cuda>, compute: &ComputeStream) -> Result<(Array<Cuda>, Point)> {
    let operand = AddressedArray::new(array)?;
    let reached = compute.reached().map_err(of_driver("cuEventRecord"))?;
    Ok((operand.array, Point(Arc::new(reached))))
}

/// Memory that a call on NCCL's stream uses.
struct InUse {
    /// Event at the end of the call; none once computation waits for it.
    over: Option<Arc<CudaEvent>>,
    compute: Arc<ComputeStream>,
    _memory: Vec<Prepared>,
}

impl DeviceWork for InUse {
    fn join(mut self: Box<Self>) -> Result<()> {
        match self.over.take() {
            Some(over) => self.compute.waits_for(&over).map_err(of_driver("cuStreamWaitEvent")),
            None => Ok(()),
        }
    }

    fn is_over(&self) -> bool {
        self.over.as_ref().is_none_or(|over| over.is_complete())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        // burn writes to freed memory without checking whether NCCL still uses it. A failure of the driver here is
        // reported by the next call to it.
        if let Some(over) = self.over.take()
            && !over.is_complete()
        {
            let _ = self.compute.waits_for(&over);
        }
    }
}

/// A call with the memory that it reads and writes.
struct Prepared {
    function: LibraryFunction,
    source: Option<AddressedArray>,
    destination: Option<(AddressedArray, ArraySpec)>,
    /// Number of consecutive parts of source and destination. Each part is one call.
    pieces: usize,
}

/// A contiguous tensor and its address, which stays valid while this is held.
struct AddressedArray {
    array: Array<Cuda>,
    address: u64,
}

impl Prepared {
    fn new(call: LibraryCall<Cuda>, device: &CudaDevice) -> Result<Self> {
        let LibraryCall { function, array, result, pieces, after: _ } = call;
        let source = array.map(AddressedArray::new).transpose()?;
        let place = |spec: ArraySpec| {
            // One-dimensional, because burn may lay out rows with gaps.
            let empty = Array::empty_of(&[spec.num_elements()], spec.element, device);
            AddressedArray::new(empty).map(|place| (place, spec))
        };
        let destination = result.map(place).transpose()?;
        Ok(Self { function, source, destination, pieces })
    }

    fn raw(&self) -> impl Iterator<Item = RawCall> {
        let (function, pieces) = (self.function, self.pieces);
        let operands =
            [self.source.as_ref(), self.destination.as_ref().map(|(operand, _)| operand)];
        let arrays = operands.iter().flatten().map(|operand| &operand.array);
        let part = arrays.min_by_key(|array| array.num_elements());
        let part = part.expect("each call reads or writes something");
        let (num_elements, element) = (part.num_elements() / pieces, part.dtype());
        (0..pieces).map(move |piece| {
            let address = |operand: &AddressedArray| {
                operand.address + operand.array.num_bytes() / pieces as u64 * piece as u64
            };
            let [source, destination] = operands.map(|operand| operand.map_or(0, address));
            RawCall { function, source, destination, num_elements, element }
        })
    }

    fn result(&self) -> Option<Array<Cuda>> {
        self.destination.as_ref().map(|(operand, spec)| operand.array.clone().reshape(&spec.shape))
    }
}

impl AddressedArray {
    fn new(array: Array<Cuda>) -> Result<Self> {
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
