//! Times of collectives.

use std::cell::Cell;

use burn::tensor::backend::Backend;
use executor_communicators::{CommunicationError, Communicator, Group, Reduction, Traffic};
use executor_kernels::array::{Element, ElementExt};
use executor_runtime::training::gather;
use ir::collective::Collective;
use ir::units::{Bytes, Seconds};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use traces::collectives::Operation;
use traces::timeline::Stream;

use super::call::{GroupOperation, bus_factor, planned_bytes};
use super::contents::{Contents, Numbers};
use super::error::CollectiveError;
use crate::measure::{Measured, Repeats, Times, measure};

/// An operation to time, with its repetitions.
#[derive(Clone, Copy, Debug)]
pub struct TimingPlan {
    /// The operation.
    pub operation: Operation,
    /// The reduction of reducing operations.
    pub reduction: Reduction,
    /// Element type of buffers.
    pub element: Element,
    /// Calls before the timed ones.
    pub warm_ups: u32,
    /// Timed calls.
    pub iterations: u32,
}

/// Sizes of buffers, in geometric steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    /// The smallest size.
    pub least: Bytes,
    /// Upper bound of sizes.
    pub most: Bytes,
    /// Ratio of one size to the size before.
    pub factor: u64,
}

impl SizeRange {
    /// All sizes.
    pub fn all(self) -> impl Iterator<Item = Bytes> {
        let next = move |bytes: &Bytes| bytes.get().checked_mul(self.factor).map(Bytes::new);
        std::iter::successors(Some(self.least), next).take_while(move |bytes| *bytes <= self.most)
    }
}

/// Measurement of an operation on a buffer of one size, in the form that it has in the JSON of `executor collectives`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedCollective {
    /// The operation.
    #[serde(serialize_with = "as_text", deserialize_with = "from_text")]
    pub operation: Operation,
    /// Number of ranks of a group.
    pub num_ranks: u32,
    /// Number of groups that run at once.
    pub num_groups: u32,
    /// Bytes of the whole buffer, as [`ir::collective::Collective`] counts it.
    #[serde(rename = "size_bytes")]
    pub bytes: Bytes,
    /// Number of elements as nccl-tests counts it: of the buffer, or of a slot of it where ranks have slots.
    pub count: u64,
    /// The median, over the calls, of the time on the slowest rank.
    #[serde(rename = "time_seconds")]
    pub median: Seconds,
    /// The lower quartile: the time with little disturbance by other work of the machine.
    #[serde(rename = "lower_quartile_seconds")]
    pub quartile: Seconds,
    /// The minimum.
    #[serde(rename = "least_seconds")]
    pub least: Seconds,
    /// Number of wrong elements, over all ranks.
    pub num_wrong: u64,
    /// Bytes that each rank sent in a call.
    #[serde(rename = "sent_bytes_by_rank")]
    pub sent: Vec<Bytes>,
    /// Bytes that each rank is planned to send.
    #[serde(rename = "planned_bytes_by_rank")]
    pub planned: Vec<Bytes>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands fields over so")]
fn as_text<S: Serializer>(operation: &Operation, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(operation)
}

fn from_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Operation, D::Error> {
    let text = String::deserialize(deserializer)?;
    Operation::named(&text).ok_or_else(|| D::Error::custom(format!("no operation `{text}`")))
}

/// Report of a rank.
#[derive(Debug, Serialize, Deserialize)]
struct RankReport {
    times: Times,
    num_wrong: u64,
    sent: Bytes,
    planned: Bytes,
}

/// Groups of `size` ranks whose members are `stride` apart; they cover all ranks. `size stride` divides `num_ranks`.
pub fn groups(num_ranks: u32, size: u32, stride: u32) -> Vec<Group> {
    let domain = size * stride;
    let first = (0..num_ranks).filter(|rank| rank % domain < stride);
    let group = |first: u32| (0..size).map(|nth| first + nth * stride).collect::<Vec<_>>();
    first.map(|first| Group::new(group(first))).collect()
}

/// Times an operation on buffers of about `bytes`, in all of `groups` at the same time; each rank is in one group. Only
/// rank 0 gets the result.
///
/// Every call begins when all ranks are ready, and ends when the last of them has its result.
///
/// # Errors
///
/// [`CollectiveError`] where a rank stopped.
pub fn time<B: Backend>(
    communicator: &dyn Communicator<B>,
    groups: &[Group],
    contents: &Contents,
    plan: &TimingPlan,
    bytes: Bytes,
    device: &B::Device,
) -> Result<Option<TimedCollective>, CollectiveError> {
    let rank = communicator.rank();
    let own = groups.iter().find_map(|group| Some((group, group.position(rank)?)));
    let (group, position) = own.expect("each rank is in one of the groups");
    let (position, num_ranks) = (position as u32, group.len() as u32);
    let num_slots = u64::from(contents.num_slots());
    let length = (bytes.get() / num_slots / plan.element.num_bytes()).max(1);
    let bytes = Bytes::new(length * num_slots * plan.element.num_bytes());
    let world = communicator.world();
    let (operation, reduction) = (plan.operation, plan.reduction);
    let given = contents.given::<B>(position, length as usize, plan.element, device);
    let call = GroupOperation { communicator, group, operation, reduction };
    let before = Cell::new(Traffic::default());
    let ready = || {
        communicator.on(&world, Stream::Host).barrier()?;
        before.set(communicator.traffic());
        Ok::<_, CommunicationError>(())
    };
    let repeats = Repeats { warm_ups: plan.warm_ups, times: plan.iterations, in_a_row: 1 };
    let Measured { times, last } =
        measure::<B, _, _>(device, repeats, ready, || call.run(given.clone()))?;
    let report = RankReport {
        times,
        num_wrong: contents.num_wrong(position, length as usize, last.as_ref()),
        sent: communicator.traffic().since(&before.take()).total(),
        planned: planned_bytes(operation, position, num_ranks, bytes),
    };
    let Some(ranks) = gather(communicator, &report, device)? else { return Ok(None) };
    let times: Vec<Times> = ranks.iter().map(|rank| rank.times.clone()).collect();
    let times = Times::slowest(&times);
    let has_slots = matches!(
        plan.operation,
        Operation::Gather
            | Operation::Scatter
            | Operation::Collective(
                Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll
            )
    );
    Ok(Some(TimedCollective {
        operation: plan.operation,
        num_ranks,
        num_groups: groups.len() as u32,
        bytes,
        count: if has_slots { length } else { length * num_slots },
        median: Seconds::new(times.median()),
        quartile: Seconds::new(times.lower_quartile()),
        least: Seconds::new(times.least()),
        num_wrong: ranks.iter().map(|rank| rank.num_wrong).sum(),
        sent: ranks.iter().map(|rank| rank.sent).collect(),
        planned: ranks.iter().map(|rank| rank.planned).collect(),
    }))
}

impl TimedCollective {
    /// Algorithm bandwidth: bytes over time.
    pub fn algorithm_bandwidth(&self) -> f64 {
        self.bytes.as_f64() / self.median.get()
    }

    /// Bus bandwidth: algorithm bandwidth times [`bus_factor`].
    pub fn bus_bandwidth(&self) -> f64 {
        self.algorithm_bandwidth() * bus_factor(self.operation, self.num_ranks)
    }
}

/// Contents of buffers for the operation that a plan times.
impl TimingPlan {
    /// Contents of the ranks' buffers before and after.
    pub fn contents(&self, num_ranks: u32) -> Contents {
        Contents::new(self.operation, num_ranks, self.reduction, Numbers::Exact)
    }
}
