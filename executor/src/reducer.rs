//! Reduction of gradients over replicas, and gathering of sharded parameters, while other work goes on.

use std::collections::VecDeque;
use std::sync::Arc;

use ir::collective::Collective;
use ir::schedule::{Action, ActionKind};
use traces::timeline::{Activity, Stream};

use crate::array::Array;
use crate::communicator::{CommunicationError, Communicator, Pending, Queue, Reduction};
use crate::mesh::Replicas;
use crate::ops::Kernels;
use crate::recorder::Recorder;

/// Gradients of a unit on their way.
struct InBucket<B: Kernels> {
    unit: usize,
    gradient: Array<B>,
}

/// A reduction that has been started: its units, and their sums once it is done.
type Started<B> = (Vec<usize>, Pending<Vec<Array<B>>>);

/// Starts collectives over data-parallel ranks on a thread of their own, in order.
pub(crate) struct Reducer<B: Kernels> {
    communicator: Arc<dyn Communicator<B>>,
    recorder: Arc<Recorder>,
    queue: Queue,
    bucket_bytes: u64,
    bucket: Vec<InBucket<B>>,
    bucket_replicas: Option<Replicas>,
    started: VecDeque<Started<B>>,
}

impl<B: Kernels> Reducer<B> {
    pub(crate) fn new(
        communicator: Arc<dyn Communicator<B>>,
        recorder: Arc<Recorder>,
        bucket_bytes: u64,
    ) -> Self {
        let queue = Queue::new(format!("data of rank {}", communicator.rank()));
        Self {
            communicator,
            recorder,
            queue,
            bucket_bytes,
            bucket: Vec::new(),
            bucket_replicas: None,
            started: VecDeque::new(),
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
        let (units, gradients): (Vec<usize>, Vec<Array<B>>) =
            self.bucket.drain(..).map(|entry| (entry.unit, entry.gradient)).unzip();
        let communicator = Arc::clone(&self.communicator);
        let recorder = Arc::clone(&self.recorder);
        let pending = self
            .queue
            .start(move || reduced(communicator.as_ref(), &recorder, &replicas, gradients));
        self.started.push_back((units, pending));
    }

    /// Waits for all reductions: the units with the shards of their sums.
    pub(crate) fn finish(&mut self) -> Result<Vec<(usize, Array<B>)>, CommunicationError> {
        self.flush();
        let mut sums = Vec::new();
        while let Some((units, pending)) = self.started.pop_front() {
            sums.extend(units.into_iter().zip(pending.wait()?));
        }
        Ok(sums)
    }

    /// Starts gathering the shards of a unit's parameters: of each array all ranks' parts, in order.
    pub(crate) fn gather(
        &self,
        shards: Vec<Array<B>>,
        replicas: &Replicas,
    ) -> Pending<Vec<Array<B>>> {
        let communicator = Arc::clone(&self.communicator);
        let recorder = Arc::clone(&self.recorder);
        let group = replicas.shard.clone();
        self.queue.start(move || {
            let bytes = shards.iter().map(Array::num_bytes).sum::<u64>() * group.len() as u64;
            recorder.record(Stream::Data, activity(Collective::AllGather), bytes, || {
                let whole = |shard| {
                    let parts = communicator.all_gather(&group, Stream::Data, shard)?;
                    Ok(Array::concat(parts, 0))
                };
                shards.into_iter().map(whole).collect()
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
) -> Result<Vec<Array<B>>, CommunicationError> {
    let shards = replicas.shard.len();
    let lens: Vec<usize> = gradients.iter().map(|g| g.num_elements() / shards).collect();
    let bytes: u64 = gradients.iter().map(Array::num_bytes).sum();
    let mut sum = if shards > 1 {
        let part = |index: usize| {
            let parts = gradients.iter().zip(&lens);
            let parts = parts.map(|(g, len)| g.narrow(0, index * len..(index + 1) * len));
            Array::concat(parts.collect(), 0)
        };
        let parts = (0..shards).map(part).collect();
        recorder.record(Stream::Data, activity(Collective::ReduceScatter), bytes, || {
            communicator.reduce_scatter(&replicas.shard, Stream::Data, parts, Reduction::Sum)
        })?
    } else {
        Array::concat(gradients, 0)
    };
    if replicas.replicate.len() > 1 {
        let bytes = sum.num_bytes();
        sum = recorder.record(Stream::Data, activity(Collective::AllReduce), bytes, || {
            communicator.all_reduce(&replicas.replicate, Stream::Data, sum, Reduction::Sum)
        })?;
    }
    Ok(sum.split(0, &lens))
}

/// Collectives of parameters and gradients belong to no micro-batch.
fn activity(collective: Collective) -> Activity {
    let kind = match collective {
        Collective::AllGather => ActionKind::Unshard,
        _ => ActionKind::ReduceGrad,
    };
    Activity::Collective { collective, action: Action { stage: 0, kind, micro_batch: 0 } }
}
