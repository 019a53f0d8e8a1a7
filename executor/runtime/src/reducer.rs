//! Reduction of gradients over replicas, and gathering of sharded parameters, overlapped with other work.

use std::collections::VecDeque;
use std::sync::Arc;

use executor_communicators::{
    CollectiveCall, CommunicationError, Communicator, InFlight, JobHandle, Queue,
};
use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use ir::collective::Collective;
use ir::replication::{DataParallelMethod, Replication};
use ir::schedule::ActionKind;
use traces::timeline::Stream;

use crate::compression::Compressor;
use crate::exchange::{
    GatherToFirst, GradientExchange, Link, Reduce, ReduceToHost, Sums, UnitGradient,
};
use crate::host::{Host, Placed};
use crate::mesh::ReplicaGroups;
use crate::recorder::Recorder;
use crate::settings::Settings;

/// A gather of a unit's weights in flight: one whole array for each array of the unit.
pub(crate) type Gathering<B> = JobHandle<InFlight<Vec<Array<B>>>>;

/// The exchange of gradients that the settings ask for: an arm for each kind.
fn exchange<B: Kernels>(
    settings: &Settings,
    host: Option<Arc<Host<B>>>,
) -> Arc<dyn GradientExchange<B>> {
    let Replication { method, compression, .. } = settings.replication;
    match (compression, method, host) {
        (Some(compression), ..) => Arc::new(Compressor::new(compression, settings.seed)),
        (_, DataParallelMethod::ParameterServer, _) => Arc::new(GatherToFirst),
        (.., Some(host)) => Arc::new(ReduceToHost(host)),
        _ => Arc::new(Reduce),
    }
}

/// Starts collectives over data-parallel ranks, in order.
pub(crate) struct Reducer<B: Kernels> {
    link: Arc<Link<B>>,
    /// A thread for collectives; none where collectives are asynchronous by themselves.
    queue: Option<Queue>,
    bucket_bytes: u64,
    exchange: Arc<dyn GradientExchange<B>>,
    bucket: Vec<UnitGradient<B>>,
    bucket_replicas: Option<ReplicaGroups>,
    /// Reductions in flight: their units, and the sums.
    in_flight: VecDeque<(Vec<usize>, JobHandle<Sums<B>>)>,
}

impl<B: Kernels> Reducer<B> {
    pub(crate) fn new(
        communicator: Arc<dyn Communicator<B>>,
        recorder: Arc<Recorder>,
        settings: &Settings,
        host: Option<Arc<Host<B>>>,
    ) -> Self {
        let exchange = exchange(settings, host);
        let is_asynchronous = communicator.is_asynchronous() && !exchange.needs_thread();
        let queue =
            (!is_asynchronous).then(|| Queue::new(format!("data of rank {}", communicator.rank())));
        Self {
            link: Arc::new(Link { communicator, recorder }),
            queue,
            bucket_bytes: settings.bucket_bytes,
            exchange,
            bucket: Vec::new(),
            bucket_replicas: None,
            in_flight: VecDeque::new(),
        }
    }

    /// Puts a unit's gradient into the bucket, and starts reducing the bucket once it is full.
    ///
    /// # Source
    ///
    /// Li et al. 2020, *PyTorch Distributed* (arXiv 2006.15704), section 3.2.
    pub(crate) fn reduce(&mut self, unit: usize, gradient: Array<B>, replicas: &ReplicaGroups) {
        if self.bucket_replicas.as_ref().is_some_and(|other| other != replicas) {
            self.flush();
        }
        self.bucket_replicas = Some(replicas.clone());
        self.bucket.push(UnitGradient { unit, gradient });
        let bytes: u64 = self.bucket.iter().map(|entry| entry.gradient.num_bytes()).sum();
        if bytes >= self.bucket_bytes {
            self.flush();
        }
    }

    /// Starts reducing the bucket.
    pub(crate) fn flush(&mut self) {
        let Some(replicas) = self.bucket_replicas.take() else { return };
        let bucket = std::mem::take(&mut self.bucket);
        let units = bucket.iter().map(|entry| entry.unit).collect();
        let (exchange, link) = (Arc::clone(&self.exchange), Arc::clone(&self.link));
        let pending = self.start(move || exchange.sum(&link, &replicas, bucket));
        self.in_flight.push_back((units, pending));
    }

    /// Runs a job after all earlier jobs, overlapped with the calling thread if there is a queue.
    fn start<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, CommunicationError> + Send + 'static,
    ) -> JobHandle<T> {
        match &self.queue {
            Some(queue) => queue.start(job),
            None => JobHandle::done(job()),
        }
    }

    /// Bytes of gradients that are held between steps.
    pub(crate) fn num_bytes(&self) -> u64 {
        self.exchange.num_bytes()
    }

    /// Waits for all reductions. Returns the units with the shards of their sums that this rank receives.
    pub(crate) fn finish(&mut self) -> Result<Vec<(usize, Array<B>)>, CommunicationError> {
        self.flush();
        let mut sums = Vec::new();
        while let Some((units, pending)) = self.in_flight.pop_front() {
            let here = units.into_iter().zip(pending.wait()?.wait()?);
            sums.extend(here.filter_map(|(unit, sum)| Some((unit, sum?))));
        }
        Ok(sums)
    }

    /// Starts gathering the shards of a unit's parameters: for each array, all ranks' parts in order. Shards on the
    /// host are copied to the device first.
    pub(crate) fn gather(&self, shards: Vec<Placed<B>>, replicas: &ReplicaGroups) -> Gathering<B> {
        let (link, group) = (Arc::clone(&self.link), replicas.shard.clone());
        self.start(move || {
            let on_device = |shard: Placed<B>| shard.on_device(ActionKind::Unshard);
            let shards: Vec<Array<B>> = shards.into_iter().map(on_device).collect();
            if group.len() == 1 {
                return Ok(InFlight::done(shards));
            }
            let bytes = shards.iter().map(Array::num_bytes).sum::<u64>() * group.len() as u64;
            link.run(Collective::AllGather, ActionKind::Unshard, bytes, || {
                let whole = |array| {
                    let call = CollectiveCall::AllGather { array, dim: 0 };
                    link.communicator.on(&group, Stream::Data).start(call)
                };
                Ok(InFlight::all(shards.into_iter().map(whole).collect::<Result<_, _>>()?))
            })
        })
    }
}
