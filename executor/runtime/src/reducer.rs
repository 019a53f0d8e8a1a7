//! Reduction of gradients over replicas, and gathering of sharded parameters, while other work goes on.

use std::collections::VecDeque;
use std::sync::Arc;

use executor_communicators::{
    CollectiveCall, CommunicationError, Communicator, Group, InFlight, JobHandle, Queue, Reduction,
};
use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use ir::collective::Collective;
use ir::replication::{DataParallelMethod, Replication};
use ir::schedule::{Action, ActionKind};
use traces::timeline::{Activity, Stream};

use crate::compression::Compressor;
use crate::host::{Host, Placed};
use crate::mesh::Replicas;
use crate::recorder::Recorder;
use crate::settings::Settings;

/// Gradients of a unit on their way.
struct InBucket<B: Kernels> {
    unit: usize,
    gradient: Array<B>,
}

/// Weights that are gathered: those of each array of a unit.
pub(crate) type Gathering<B> = JobHandle<InFlight<Vec<Array<B>>>>;

/// Sums of gradients.
enum Sums<B: Kernels> {
    /// One after the other, of these lengths.
    Together(InFlight<Array<B>>, Vec<usize>),
    /// One by one, where they come to this rank.
    Each(Vec<Option<Array<B>>>),
}

impl<B: Kernels> Sums<B> {
    fn wait(self) -> Result<Vec<Option<Array<B>>>, CommunicationError> {
        Ok(match self {
            Self::Together(sum, lens) => {
                sum.wait()?.split(0, &lens).into_iter().map(Some).collect()
            }
            Self::Each(sums) => sums,
        })
    }
}

/// How gradients of replicas become their sum.
enum Exchange<B: Kernels> {
    /// Reduced to all ranks, or to those that have the shards.
    Reduce,
    /// By something smaller in their place.
    Compressed(Compressor<B>),
    /// Gathered by the first replica, which alone gets the sum.
    Gather,
}

impl<B: Kernels> Exchange<B> {
    fn new(replication: Replication, seed: u64) -> Self {
        match replication {
            Replication { compression: Some(compression), .. } => {
                Self::Compressed(Compressor::new(compression, seed))
            }
            Replication { method: DataParallelMethod::ParameterServer, .. } => Self::Gather,
            _ => Self::Reduce,
        }
    }
}

/// Starts collectives over data-parallel ranks, in order.
pub(crate) struct Reducer<B: Kernels> {
    communicator: Arc<dyn Communicator<B>>,
    recorder: Arc<Recorder>,
    /// A thread that does them beside computation; none where they go on beside it by themselves.
    queue: Option<Queue>,
    bucket_bytes: u64,
    exchange: Arc<Exchange<B>>,
    bucket: Vec<InBucket<B>>,
    bucket_replicas: Option<Replicas>,
    /// Reductions in flight: their units, and the sums.
    in_flight: VecDeque<(Vec<usize>, JobHandle<Sums<B>>)>,
    /// Where sums go that are not kept on the device.
    host: Option<Arc<Host<B>>>,
}

impl<B: Kernels> Reducer<B> {
    pub(crate) fn new(
        communicator: Arc<dyn Communicator<B>>,
        recorder: Arc<Recorder>,
        settings: &Settings,
        host: Option<Arc<Host<B>>>,
    ) -> Self {
        // Copies from the host take the time of a thread.
        let is_asynchronous = communicator.is_asynchronous() && host.is_none();
        let queue =
            (!is_asynchronous).then(|| Queue::new(format!("data of rank {}", communicator.rank())));
        Self {
            communicator,
            recorder,
            queue,
            bucket_bytes: settings.bucket_bytes,
            exchange: Arc::new(Exchange::new(settings.replication, settings.seed)),
            bucket: Vec::new(),
            bucket_replicas: None,
            in_flight: VecDeque::new(),
            host,
        }
    }

    /// Puts a unit's gradient into the bucket, and starts reducing the bucket once it is full.
    ///
    /// # Source
    ///
    /// Li et al. 2020, *PyTorch Distributed* (arXiv 2006.15704), section 3.2.
    pub(crate) fn reduce(&mut self, unit: usize, gradient: Array<B>, replicas: &Replicas) {
        if self.bucket_replicas.as_ref().is_some_and(|other| other != replicas) {
            self.flush();
        }
        self.bucket_replicas = Some(replicas.clone());
        self.bucket.push(InBucket { unit, gradient });
        let bytes: u64 = self.bucket.iter().map(|entry| entry.gradient.num_bytes()).sum();
        if bytes >= self.bucket_bytes {
            self.flush();
        }
    }

    /// Starts reducing what is in the bucket.
    pub(crate) fn flush(&mut self) {
        let Some(replicas) = self.bucket_replicas.take() else { return };
        let bucket = std::mem::take(&mut self.bucket);
        let units = bucket.iter().map(|entry| entry.unit).collect();
        let exchange = Arc::clone(&self.exchange);
        let communicator = Arc::clone(&self.communicator);
        let recorder = Arc::clone(&self.recorder);
        let host = self.host.clone();
        let pending = self.start(move || {
            let all = |bucket: Vec<InBucket<B>>| bucket.into_iter().map(|entry| entry.gradient);
            let communicator = communicator.as_ref();
            match exchange.as_ref() {
                Exchange::Reduce => {
                    let units: Vec<usize> = bucket.iter().map(|entry| entry.unit).collect();
                    let gradients = all(bucket).collect();
                    let sums = reduced(communicator, &recorder, &replicas, gradients)?;
                    let Some(host) = host else { return Ok(sums) };
                    for (unit, sum) in units.iter().zip(sums.wait()?) {
                        host.add_gradient(*unit, sum.expect("a reduction leaves a shard here"));
                    }
                    Ok(Sums::Each(units.iter().map(|_| None).collect()))
                }
                Exchange::Compressed(compressor) => {
                    let group = &replicas.replicate;
                    let sum = |InBucket { unit, gradient }| {
                        compressed(communicator, &recorder, group, compressor, unit, gradient)
                    };
                    bucket.into_iter().map(sum).collect::<Result<_, _>>().map(Sums::Each)
                }
                Exchange::Gather => {
                    let group = &replicas.replicate;
                    let sum = |gradient| gathered(communicator, &recorder, group, gradient);
                    all(bucket).map(sum).collect::<Result<_, _>>().map(Sums::Each)
                }
            }
        });
        self.in_flight.push_back((units, pending));
    }

    /// Does a job after all that were started before, beside what this thread goes on to do.
    fn start<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, CommunicationError> + Send + 'static,
    ) -> JobHandle<T> {
        match &self.queue {
            Some(queue) => queue.start(job),
            None => JobHandle::done(job()),
        }
    }

    /// What is held of gradients between steps.
    pub(crate) fn num_bytes(&self) -> u64 {
        match self.exchange.as_ref() {
            Exchange::Compressed(compressor) => compressor.num_bytes(),
            Exchange::Reduce | Exchange::Gather => 0,
        }
    }

    /// Waits for all reductions: the units with the shards of their sums, of those that come to this rank.
    pub(crate) fn finish(&mut self) -> Result<Vec<(usize, Array<B>)>, CommunicationError> {
        self.flush();
        let mut sums = Vec::new();
        while let Some((units, pending)) = self.in_flight.pop_front() {
            let here = units.into_iter().zip(pending.wait()?.wait()?);
            sums.extend(here.filter_map(|(unit, sum)| Some((unit, sum?))));
        }
        Ok(sums)
    }

    /// Starts gathering the shards of a unit's parameters: of each array all ranks' parts, in order. Those on the
    /// host are copied to the device before.
    pub(crate) fn gather(&self, shards: Vec<Placed<B>>, replicas: &Replicas) -> Gathering<B> {
        let communicator = Arc::clone(&self.communicator);
        let recorder = Arc::clone(&self.recorder);
        let group = replicas.shard.clone();
        let host = self.host.clone();
        self.start(move || {
            let on_device = |shard: Placed<B>| match (shard, &host) {
                (Placed::Device(shard), _) => shard,
                (Placed::Host(shard), Some(host)) => host.brought(shard, ActionKind::Unshard),
                (Placed::Host(_), None) => panic!("only an offload puts shards on the host"),
            };
            let shards: Vec<Array<B>> = shards.into_iter().map(on_device).collect();
            if group.len() == 1 {
                return Ok(InFlight::done(shards));
            }
            let bytes = shards.iter().map(Array::num_bytes).sum::<u64>() * group.len() as u64;
            recorder.record(Stream::Data, gathering(), bytes, || {
                let whole = |array| {
                    let call = CollectiveCall::AllGather { array, dim: 0 };
                    communicator.on(&group, Stream::Data).start(call)
                };
                Ok(InFlight::all(shards.into_iter().map(whole).collect::<Result<_, _>>()?))
            })
        })
    }
}

/// The shards of the sums of `gradients`.
fn reduced<B: Kernels>(
    communicator: &dyn Communicator<B>,
    recorder: &Recorder,
    replicas: &Replicas,
    gradients: Vec<Array<B>>,
) -> Result<Sums<B>, CommunicationError> {
    let shards = replicas.shard.len();
    let lens: Vec<usize> = gradients.iter().map(|g| g.num_elements() / shards).collect();
    let bytes: u64 = gradients.iter().map(Array::num_bytes).sum();
    let mut sum = if shards > 1 {
        // The gradients of one unit lie as they are sent; those of several are put in the order of their shards.
        let whole = if gradients.len() == 1 {
            gradients.into_iter().next().expect("there is one")
        } else {
            let of_shard = |index: usize| {
                let parts = gradients.iter().zip(&lens);
                parts.map(move |(g, len)| g.narrow(0, index * len..(index + 1) * len))
            };
            Array::concat((0..shards).flat_map(of_shard).collect(), 0)
        };
        recorder.record(Stream::Data, reducing(Collective::ReduceScatter), bytes, || {
            let (sizes, reduction) = (vec![whole.num_elements() / shards; shards], Reduction::Sum);
            let call = CollectiveCall::ReduceScatter { array: whole, dim: 0, sizes, reduction };
            communicator.on(&replicas.shard, Stream::Data).start(call)
        })?
    } else {
        InFlight::done(Array::concat(gradients, 0))
    };
    if replicas.replicate.len() > 1 {
        let bytes = bytes / shards as u64;
        sum = recorder.record(Stream::Data, reducing(Collective::AllReduce), bytes, || {
            sum.then(|array| {
                let call = CollectiveCall::AllReduce { array, reduction: Reduction::Sum };
                communicator.on(&replicas.replicate, Stream::Data).start(call)
            })
        })?;
    }
    Ok(Sums::Together(sum, lens))
}

/// The sum of a unit's gradients by something smaller in their place.
fn compressed<B: Kernels>(
    communicator: &dyn Communicator<B>,
    recorder: &Recorder,
    group: &Group,
    compressor: &Compressor<B>,
    unit: usize,
    gradient: Array<B>,
) -> Result<Option<Array<B>>, CommunicationError> {
    let kind =
        if compressor.is_reducible() { Collective::AllReduce } else { Collective::AllGather };
    let bytes = compressor.buffer_bytes(&gradient, group);
    recorder.record(Stream::Data, reducing(kind), bytes, || {
        compressor.sum(communicator, group, unit, gradient).map(Some)
    })
}

/// The sum of a unit's gradients, on the first of the group alone.
fn gathered<B: Kernels>(
    communicator: &dyn Communicator<B>,
    recorder: &Recorder,
    group: &Group,
    gradient: Array<B>,
) -> Result<Option<Array<B>>, CommunicationError> {
    let bytes = gradient.num_bytes();
    let root = group.ranks()[0];
    recorder.record(Stream::Data, reducing(Collective::SendReceive), bytes, || {
        let all = communicator.on(group, Stream::Data).gather(root, gradient)?;
        Ok(all.and_then(|all| all.into_iter().reduce(|sum, next| sum + next)))
    })
}

/// Collectives of parameters and gradients belong to no micro-batch.
fn activity(collective: Collective, kind: ActionKind) -> Activity {
    Activity::Collective { collective, action: Action { stage: 0, kind, micro_batch: 0 } }
}

/// Parameters come together.
fn gathering() -> Activity {
    activity(Collective::AllGather, ActionKind::Unshard)
}

/// Gradients do.
fn reducing(collective: Collective) -> Activity {
    activity(collective, ActionKind::ReduceGrad)
}
