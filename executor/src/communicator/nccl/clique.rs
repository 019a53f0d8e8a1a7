//! A clique of NCCL's, called with the arrays of burn's CUDA backend.

use std::ffi::c_void;
use std::sync::Arc;

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cuda::CudaDevice;
use cudarc::driver::{CudaEvent, CudaStream, DriverError};

use super::engine::{Call, Clique, Form, Membership};
use super::guard::Guard;
use super::library::{RawCall, RawKind, of_driver};
use crate::array::Array;
use crate::clock::{Point, Spans};
use crate::communicator::{Arriving, CommunicationError, Underway};
use crate::cuda::Cuda;
use crate::cuda::clock::TIMED;
use crate::cuda::compute_stream::ComputeStream;

pub(super) struct NcclClique {
    pub(super) guard: Arc<Guard>,
    pub(super) stream: Arc<CudaStream>,
    pub(super) compute: Arc<ComputeStream>,
    pub(super) membership: Membership,
    pub(super) device: CudaDevice,
}

impl Clique<Cuda> for NcclClique {
    #[expect(unsafe_code, reason = "NCCL takes addresses")]
    fn call(
        &mut self,
        calls: Vec<Call<Cuda>>,
    ) -> Result<Arriving<Vec<Option<Array<Cuda>>>>, CommunicationError> {
        let Some(first) = calls.first() else { return Ok(Arriving::here(Vec::new())) };
        let name = name(first);
        let marks: Option<Vec<Point>> = calls.iter().map(mark).collect();
        self.stream.context().bind_to_thread().map_err(of_driver("cuCtxSetCurrent"))?;
        let prepared: Vec<Prepared> =
            calls.into_iter().map(|call| self.prepare(call)).collect::<Result<_, _>>()?;
        let raw: Vec<RawCall> = prepared.iter().flat_map(Prepared::raw).collect();
        // burn has enqueued all that writes what is read here, and all that used the memory of the results before:
        // their addresses were asked for after it.
        match marks {
            Some(marks) => marks.iter().try_for_each(|mark| self.waits_for(mark)),
            None => self.compute.is_awaited_by(&self.stream),
        }
        .map_err(of_driver("cuStreamWaitEvent"))?;
        let noted = Spans::current();
        let timing = noted.is_some().then_some(TIMED);
        let event = || self.stream.record_event(timing).map(Arc::new);
        // After the waits: the call begins when all that it reads is there.
        let begin =
            noted.as_ref().map(|_| event()).transpose().map_err(of_driver("cuEventRecord"))?;
        let stream = self.stream.cu_stream().cast::<c_void>();
        let over = self.guard.call(
            name,
            // SAFETY: the addresses are of memory that `prepared` holds, as large as its call needs. It goes on to
            // hold it in `InUse`, which gives it back only once burn's stream has been told to wait for the end of
            // the call, or that has come. burn changes no array of which there is another handle, as there is here,
            // and nobody reads the results before.
            |clique| unsafe { clique.start(&raw, stream) },
            || event().map_err(of_driver("cuEventRecord")),
        )?;
        if let (Some(spans), Some(begin)) = (noted, begin) {
            spans.add(Point(begin), Point(Arc::<CudaEvent>::clone(&over)));
        }
        let results = prepared.iter().map(Prepared::result).collect();
        let compute = Arc::clone(&self.compute);
        let in_use = InUse { over: Some(over), compute, _memory: prepared };
        Ok(Arriving::with(results, Box::new(in_use)))
    }
}

impl NcclClique {
    /// Has the stream wait for what was noted of computation.
    fn waits_for(&self, Point(noted): &Point) -> Result<(), DriverError> {
        let event = noted.downcast_ref::<CudaEvent>().expect("this engine notes events");
        self.stream.wait(event)
    }

    /// A call with its memory.
    fn prepare(&self, call: Call<Cuda>) -> Result<Prepared, CommunicationError> {
        let prepare = |kind, array: Option<Array<Cuda>>, result: Option<Form>| {
            Prepared::new(kind, array, result, &self.device)
        };
        let Membership { position, ranks, .. } = &self.membership;
        let form_of_elements = |array: &Array<Cuda>, count: usize| {
            Some(Form { element: array.dtype(), shape: vec![count] })
        };
        match call {
            Call::AllReduce { array, reduction } => {
                let form = Form::of(&array);
                prepare(RawKind::AllReduce(reduction), Some(array), Some(form))
            }
            Call::Reduce { root, array, reduction } => {
                let form = (*position == root).then(|| Form::of(&array));
                prepare(RawKind::Reduce(root, reduction), Some(array), form)
            }
            Call::ReduceScatter { array, pieces, reduction } => {
                let form = form_of_elements(&array, array.num_elements() / ranks.len());
                let prepared = prepare(RawKind::ReduceScatter(reduction), Some(array), form)?;
                Ok(Prepared { pieces, ..prepared })
            }
            Call::AllGather { array, pieces } => {
                let form = form_of_elements(&array, array.num_elements() * ranks.len());
                let prepared = prepare(RawKind::AllGather, Some(array), form)?;
                Ok(Prepared { pieces, ..prepared })
            }
            Call::Broadcast { root, form, array } => {
                prepare(RawKind::Broadcast(root), array, Some(form))
            }
            Call::Send { to, array, .. } => prepare(RawKind::Send(to), Some(array), None),
            Call::Receive { from, form } => prepare(RawKind::Receive(from), None, Some(form)),
        }
    }
}

/// What was noted of computation for a call that reads an array and writes none; none where that is not so.
fn mark(call: &Call<Cuda>) -> Option<Point> {
    match call {
        Call::Send { after, .. } => after.clone(),
        _ => None,
    }
}

/// An array whose elements lie one after the other, and an event after all that burn has enqueued so far, by which it
/// is written.
pub(super) fn marked(
    array: Array<Cuda>,
    compute: &ComputeStream,
) -> Result<(Array<Cuda>, Point), CommunicationError> {
    let held = Held::new(array)?;
    let reached = compute.reached().map_err(of_driver("cuEventRecord"))?;
    Ok((held.array, Point(Arc::new(reached))))
}

/// NCCL's function for a call.
fn name(call: &Call<Cuda>) -> &'static str {
    match call {
        Call::AllReduce { .. } => "ncclAllReduce",
        Call::Reduce { .. } => "ncclReduce",
        Call::ReduceScatter { .. } => "ncclReduceScatter",
        Call::AllGather { .. } => "ncclAllGather",
        Call::Broadcast { .. } => "ncclBroadcast",
        Call::Send { .. } => "ncclSend",
        Call::Receive { .. } => "ncclRecv",
    }
}

/// Memory that a call on NCCL's stream uses.
struct InUse {
    /// None once computation waits for it.
    over: Option<Arc<CudaEvent>>,
    compute: Arc<ComputeStream>,
    _memory: Vec<Prepared>,
}

impl Underway for InUse {
    fn join(mut self: Box<Self>) -> Result<(), CommunicationError> {
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
        // burn writes to memory that is free without asking NCCL. That the driver fails here is told by the next
        // call to it.
        if let Some(over) = self.over.take()
            && !over.is_complete()
        {
            let _ = self.compute.waits_for(&over);
        }
    }
}

/// A call, and what holds its memory.
struct Prepared {
    kind: RawKind,
    source: Option<Held>,
    destination: Option<(Held, Form)>,
    /// Parts of both, one after the other, of which each is a call.
    pieces: usize,
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
        Ok(Self { kind, source, destination, pieces: 1 })
    }

    fn raw(&self) -> impl Iterator<Item = RawCall> {
        let array = match (&self.kind, &self.source, &self.destination) {
            (RawKind::ReduceScatter(_), _, Some((held, _))) | (_, Some(held), _) => &held.array,
            (_, None, Some((held, _))) => &held.array,
            (_, None, None) => unreachable!("each call reads or writes something"),
        };
        let (kind, pieces, element) = (self.kind, self.pieces, array.dtype());
        let num_elements = array.num_elements() / pieces;
        let address = move |held: Option<&Held>, piece: usize| {
            held.map_or(0, |held| held.address + (held.num_bytes() / pieces * piece) as u64)
        };
        let destination = self.destination.as_ref().map(|(held, _)| held);
        (0..pieces).map(move |piece| RawCall {
            kind,
            source: address(self.source.as_ref(), piece),
            destination: address(destination, piece),
            num_elements,
            element,
        })
    }

    fn result(&self) -> Option<Array<Cuda>> {
        self.destination.as_ref().map(|(held, form)| held.array.clone().reshape(&form.shape))
    }
}

impl Held {
    fn num_bytes(&self) -> usize {
        self.array.num_elements() * self.array.dtype().size()
    }

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
