//! How long collectives take.

use burn::tensor::backend::Backend;
use ir::units::{Bytes, Seconds};
use serde::{Deserialize, Serialize};
use traces::collectives::Operation;
use traces::timeline::Stream;

use super::call::{Call, planned_bytes};
use super::contents::{Contents, Numbers};
use super::error::CollectiveError;
use crate::array::{Element, ElementExt};
use crate::clock::now;
use crate::communicator::{Communicator, Group, Reduction};
use crate::failure::unless_failed;
use crate::statistics::{LOWER_QUARTILE, MEDIAN, quantile};
use crate::training::gather_text;

/// What is timed, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The operation.
    pub operation: Operation,
    /// How reductions combine.
    pub reduction: Reduction,
    /// What elements are.
    pub element: Element,
    /// Calls before those that count.
    pub warm_ups: u32,
    /// Calls that count.
    pub iterations: u32,
}

/// The sizes of buffers to go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The first.
    pub least: Bytes,
    /// None is larger.
    pub most: Bytes,
    /// From one to the next.
    pub factor: u64,
}

impl Sizes {
    /// All of them.
    pub fn all(self) -> impl Iterator<Item = Bytes> {
        let next = move |bytes: &Bytes| bytes.get().checked_mul(self.factor).map(Bytes::new);
        std::iter::successors(Some(self.least), next).take_while(move |bytes| *bytes <= self.most)
    }
}

/// An operation on a buffer of one size, as it was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The operation.
    pub operation: Operation,
    /// Ranks of a group.
    pub num_ranks: u32,
    /// Groups that acted at once.
    pub num_groups: u32,
    /// The whole buffer, as [`ir::collective::Collective`] counts it.
    pub bytes: Bytes,
    /// Elements that nccl-tests would name: those of the buffer, or of a slot of it where ranks have slots.
    pub count: u64,
    /// The median over the calls of the time on the slowest rank.
    pub median: Seconds,
    /// The lower quartile: what it takes while the machine does little else.
    pub quartile: Seconds,
    /// The least.
    pub least: Seconds,
    /// Elements with another number than they must have, over all ranks.
    pub num_wrong: u64,
    /// What each rank sent in a call.
    pub sent: Vec<Bytes>,
    /// What each rank was to send.
    pub planned: Vec<Bytes>,
}

/// What a rank tells of a measurement.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    seconds: Vec<f64>,
    num_wrong: u64,
    sent: u64,
    planned: u64,
}

/// All ranks in groups of `size`, whose members lie `stride` apart. `size stride` divides `num_ranks`.
pub fn groups(num_ranks: u32, size: u32, stride: u32) -> Vec<Group> {
    let domain = size * stride;
    let first = (0..num_ranks).filter(|rank| rank % domain < stride);
    let group = |first: u32| (0..size).map(|nth| first + nth * stride).collect::<Vec<_>>();
    first.map(|first| Group::new(group(first))).collect()
}

/// Times an operation on buffers of about `bytes` in all of `groups` at once, of which each rank is in
/// one. Rank 0 alone is told.
///
/// Every call begins when all ranks are ready and counts until the last of them has its result.
///
/// # Errors
///
/// [`CollectiveError`] where a rank stopped.
pub fn time<B: Backend>(
    communicator: &dyn Communicator<B>,
    groups: &[Group],
    contents: &Contents,
    plan: &Plan,
    bytes: Bytes,
    device: &B::Device,
) -> Result<Option<Row>, CollectiveError> {
    let rank = communicator.rank();
    let own = groups.iter().find_map(|group| Some((group, group.position(rank)?)));
    let (group, position) = own.expect("each rank is in one of the groups");
    let (position, num_ranks) = (position as u32, group.len() as u32);
    let num_slots = u64::from(contents.num_slots());
    let length = (bytes.get() / num_slots / plan.element.num_bytes()).max(1);
    let bytes = Bytes::new(length * num_slots * plan.element.num_bytes());
    let told = {
        let world = Group::new((0..communicator.num_ranks()).collect::<Vec<_>>());
        let length = length as usize;
        let given = contents.given::<B>(position, length, plan.element, device);
        let (operation, reduction) = (plan.operation, plan.reduction);
        let call = Call { communicator, group, operation, reduction };
        let mut seconds = Vec::new();
        let (mut sent, mut num_wrong) = (0, 0);
        for nth in 0..plan.warm_ups + plan.iterations {
            let given = given.clone();
            communicator.barrier(&world, Stream::Host)?;
            let before = communicator.traffic();
            let start = now();
            let result = call.run(given)?;
            synchronize::<B>(device);
            let time = start.elapsed();
            sent = communicator.traffic().since(&before).total().get();
            if nth >= plan.warm_ups {
                seconds.push(time.as_secs_f64());
            }
            if nth + 1 == plan.warm_ups + plan.iterations {
                num_wrong = contents.num_wrong(position, length, result.as_ref());
            }
        }
        let planned = planned_bytes(operation, position, num_ranks, bytes).get();
        Told { seconds, num_wrong, sent, planned }
    };
    let text = serde_json::to_string(&told).expect("numbers print as JSON");
    let Some(texts) = gather_text(communicator, &text, device)? else { return Ok(None) };
    let ranks = texts.iter().enumerate().map(|(rank, text)| {
        serde_json::from_str(text)
            .map_err(|error| CollectiveError::Garbled { rank, message: error.to_string() })
    });
    let ranks: Vec<Told> = ranks.collect::<Result<_, _>>()?;
    let slowest = |nth: usize| {
        ranks.iter().filter_map(|rank| rank.seconds.get(nth)).copied().fold(0.0, f64::max)
    };
    let times: Vec<f64> = (0..plan.iterations as usize).map(slowest).collect();
    let has_slots = matches!(
        plan.operation,
        Operation::Gather
            | Operation::Scatter
            | Operation::Collective(
                ir::collective::Collective::AllGather
                    | ir::collective::Collective::ReduceScatter
                    | ir::collective::Collective::AllToAll
            )
    );
    Ok(Some(Row {
        operation: plan.operation,
        num_ranks,
        num_groups: groups.len() as u32,
        bytes,
        count: if has_slots { length } else { length * num_slots },
        median: Seconds::new(quantile(&times, MEDIAN)),
        quartile: Seconds::new(quantile(&times, LOWER_QUARTILE)),
        least: Seconds::new(quantile(&times, 0.0)),
        num_wrong: ranks.iter().map(|rank| rank.num_wrong).sum(),
        sent: ranks.iter().map(|rank| Bytes::new(rank.sent)).collect(),
        planned: ranks.iter().map(|rank| Bytes::new(rank.planned)).collect(),
    }))
}

/// Waits until the device has done all that it was given.
pub(crate) fn synchronize<B: Backend>(device: &B::Device) {
    unless_failed(B::sync(device));
}

impl Row {
    /// Bytes over time.
    pub fn algorithm_bandwidth(&self) -> f64 {
        self.bytes.as_f64() / self.median.get()
    }

    /// The same as [`bus_factor`](super::bus_factor) has it.
    pub fn bus_bandwidth(&self) -> f64 {
        self.algorithm_bandwidth() * super::bandwidth::bus_factor(self.operation, self.num_ranks)
    }
}

/// Contents of what a plan times, in groups of `num_ranks`.
impl Plan {
    /// What its ranks have before and after.
    pub fn contents(&self, num_ranks: u32) -> Contents {
        Contents::new(self.operation, num_ranks, self.reduction, Numbers::Exact)
    }
}
