//! Exchanges: the ways in which gradients of replicas are summed.

use std::sync::Arc;

use executor_communicators::{
    CollectiveCall, CommunicationError, Communicator, InFlight, Reduction,
};
use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use ir::collective::Collective;
use ir::schedule::{Action, ActionKind};
use traces::timeline::{Activity, Stream};

use crate::host::Host;
use crate::mesh::ReplicaGroups;
use crate::recorder::Recorder;

/// The gradient of a unit, with the unit's number.
pub(crate) struct UnitGradient<B: Kernels> {
    pub(crate) unit: usize,
    pub(crate) gradient: Array<B>,
}

/// Sums of gradients.
pub(crate) enum Sums<B: Kernels> {
    /// The sums in one array, one after the other, of these lengths.
    Together(InFlight<Array<B>>, Vec<usize>),
    /// The sum of each unit; none where this rank does not receive it.
    Each(Vec<Option<Array<B>>>),
}

impl<B: Kernels> Sums<B> {
    pub(crate) fn wait(self) -> Result<Vec<Option<Array<B>>>, CommunicationError> {
        Ok(match self {
            Self::Together(sum, lens) => {
                sum.wait()?.split(0, &lens).into_iter().map(Some).collect()
            }
            Self::Each(sums) => sums,
        })
    }
}

/// The communicator of a rank, and the recorder of its events.
pub(crate) struct Link<B: Kernels> {
    pub(crate) communicator: Arc<dyn Communicator<B>>,
    pub(crate) recorder: Arc<Recorder>,
}

impl<B: Kernels> Link<B> {
    /// Runs a collective of gradients, which belongs to no micro-batch.
    pub(crate) fn reduce<T>(
        &self,
        collective: Collective,
        bytes: u64,
        run: impl FnOnce() -> Result<T, CommunicationError>,
    ) -> Result<T, CommunicationError> {
        self.run(collective, ActionKind::ReduceGrad, bytes, run)
    }

    /// Runs a collective of parameters or gradients, which belongs to no micro-batch.
    pub(crate) fn run<T>(
        &self,
        collective: Collective,
        kind: ActionKind,
        bytes: u64,
        run: impl FnOnce() -> Result<T, CommunicationError>,
    ) -> Result<T, CommunicationError> {
        let action = Action { stage: 0, kind, micro_batch: 0 };
        self.recorder.record(Stream::Data, Activity::Collective { collective, action }, bytes, run)
    }
}

/// A way in which gradients of replicas are summed.
pub(crate) trait GradientExchange<B: Kernels>: Send + Sync {
    /// The sums of a bucket's gradients, or their shards, where this rank receives them.
    fn sum(
        &self,
        link: &Link<B>,
        replicas: &ReplicaGroups,
        bucket: Vec<UnitGradient<B>>,
    ) -> Result<Sums<B>, CommunicationError>;

    /// Bytes of gradients that are held between steps.
    fn num_bytes(&self) -> u64 {
        0
    }

    /// Returns whether the exchange needs a thread even where collectives are asynchronous.
    fn needs_thread(&self) -> bool {
        false
    }
}

/// All-reduce, or reduce-scatter to the ranks that shard.
pub(crate) struct Reduce;

impl<B: Kernels> GradientExchange<B> for Reduce {
    fn sum(
        &self,
        link: &Link<B>,
        replicas: &ReplicaGroups,
        bucket: Vec<UnitGradient<B>>,
    ) -> Result<Sums<B>, CommunicationError> {
        let gradients: Vec<Array<B>> = bucket.into_iter().map(|entry| entry.gradient).collect();
        let shards = replicas.shard.len();
        let lens: Vec<usize> = gradients.iter().map(|g| g.num_elements() / shards).collect();
        let bytes: u64 = gradients.iter().map(Array::num_bytes).sum();
        let mut sum = if shards > 1 {
            // The gradient of one unit is in the order of sending; the gradients of several units are reordered by
            // shard.
            let whole = if gradients.len() == 1 {
                gradients.into_iter().next().expect("there is one")
            } else {
                let of_shard = |index: usize| {
                    let parts = gradients.iter().zip(&lens);
                    parts.map(move |(g, len)| g.narrow(0, index * len..(index + 1) * len))
                };
                Array::concat((0..shards).flat_map(of_shard).collect(), 0)
            };
            link.reduce(Collective::ReduceScatter, bytes, || {
                let (sizes, reduction) =
                    (vec![whole.num_elements() / shards; shards], Reduction::Sum);
                let call = CollectiveCall::ReduceScatter { array: whole, dim: 0, sizes, reduction };
                link.communicator.on(&replicas.shard, Stream::Data).start(call)
            })?
        } else {
            InFlight::done(Array::concat(gradients, 0))
        };
        if replicas.replicate.len() > 1 {
            let bytes = bytes / shards as u64;
            sum = link.reduce(Collective::AllReduce, bytes, || {
                sum.then(|array| {
                    let call = CollectiveCall::AllReduce { array, reduction: Reduction::Sum };
                    link.communicator.on(&replicas.replicate, Stream::Data).start(call)
                })
            })?;
        }
        Ok(Sums::Together(sum, lens))
    }
}

/// [`Reduce`], with the sums copied to the host.
pub(crate) struct ReduceToHost<B: Kernels>(pub(crate) Arc<Host<B>>);

impl<B: Kernels> GradientExchange<B> for ReduceToHost<B> {
    fn sum(
        &self,
        link: &Link<B>,
        replicas: &ReplicaGroups,
        bucket: Vec<UnitGradient<B>>,
    ) -> Result<Sums<B>, CommunicationError> {
        let units: Vec<usize> = bucket.iter().map(|entry| entry.unit).collect();
        let sums = Reduce.sum(link, replicas, bucket)?.wait()?;
        for (unit, sum) in units.iter().zip(sums) {
            self.0.add_gradient(*unit, sum.expect("a reduction leaves a shard here"));
        }
        Ok(Sums::Each(units.iter().map(|_| None).collect()))
    }

    /// Copies to the host occupy a thread.
    fn needs_thread(&self) -> bool {
        true
    }
}

/// A gather to the first replica, which alone gets the sum.
pub(crate) struct GatherToFirst;

impl<B: Kernels> GradientExchange<B> for GatherToFirst {
    fn sum(
        &self,
        link: &Link<B>,
        replicas: &ReplicaGroups,
        bucket: Vec<UnitGradient<B>>,
    ) -> Result<Sums<B>, CommunicationError> {
        let group = &replicas.replicate;
        let root = group.ranks()[0];
        let sum = |UnitGradient { gradient, .. }: UnitGradient<B>| {
            link.reduce(Collective::SendReceive, gradient.num_bytes(), || {
                let all = link.communicator.on(group, Stream::Data).gather(root, gradient)?;
                Ok(all.and_then(|all| all.into_iter().reduce(|sum, next| sum + next)))
            })
        };
        bucket.into_iter().map(sum).collect::<Result<_, _>>().map(Sums::Each)
    }
}
