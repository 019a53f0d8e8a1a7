//! One call of a collective, from one flat array to another.

use burn::tensor::backend::Backend;
use executor_communicators::{
    CollectiveCall, CommunicationError, Communicator, Group, Reduction, Tag,
};
use executor_kernels::array::Array;
use ir::collective::Collective;
use ir::units::Bytes;
use traces::collectives::Operation;
use traces::timeline::Stream;

/// The stream of all calls but send-receive.
const STREAM: Stream = Stream::Tensor;

/// An operation among the ranks of a group. The root is its first rank.
#[derive(Clone, Copy)]
pub struct GroupOperation<'a, B: Backend> {
    /// The communicator of this rank.
    pub communicator: &'a dyn Communicator<B>,
    /// The participating ranks.
    pub group: &'a Group,
    /// The operation.
    pub operation: Operation,
    /// The reduction of reducing operations.
    pub reduction: Reduction,
}

impl<B: Backend> GroupOperation<'_, B> {
    /// The rank's result for its input. Both are the filled slots of the rank's buffer, in order; none where it has no
    /// filled slots.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    ///
    /// # Panics
    ///
    /// If the rank has no input where the operation needs one.
    pub fn run(&self, given: Option<Array<B>>) -> Result<Option<Array<B>>, CommunicationError> {
        let Self { communicator, group, reduction, .. } = *self;
        let (all, root) = (communicator.on(group, STREAM), group.ranks()[0]);
        let joined = |parts| Array::concat(parts, 0);
        let have = |given: Option<Array<B>>| given.expect("the rank has something to give");
        let in_parts = |given: Option<Array<B>>| self.in_parts(&have(given));
        Ok(match self.operation {
            Operation::Collective(Collective::AllReduce) => {
                Some(all.all_reduce(have(given), reduction)?)
            }
            Operation::Collective(Collective::AllGather) => {
                let call = CollectiveCall::AllGather { array: have(given), dim: 0 };
                Some(all.start(call)?.wait()?)
            }
            Operation::Collective(Collective::ReduceScatter) => {
                let array = have(given);
                let sizes = self.sizes(&array);
                let call = CollectiveCall::ReduceScatter { array, dim: 0, sizes, reduction };
                Some(all.start(call)?.wait()?)
            }
            Operation::Collective(Collective::AllToAll) => {
                Some(joined(all.all_to_all(in_parts(given), None)?))
            }
            Operation::Collective(Collective::Broadcast) => Some(all.broadcast(root, given)?),
            Operation::Collective(Collective::SendReceive) => Some(self.pass_on(have(given))?),
            Operation::Reduce => all.reduce(root, have(given), reduction)?,
            Operation::Gather => all.gather(root, have(given))?.map(joined),
            Operation::Scatter => {
                let parts = given.map(|given| self.in_parts(&given));
                Some(all.scatter(root, parts)?)
            }
        })
    }

    fn in_parts(&self, array: &Array<B>) -> Vec<Array<B>> {
        array.split(0, &self.sizes(array))
    }

    /// Sizes of the equal parts of an array, one for each rank.
    fn sizes(&self, array: &Array<B>) -> Vec<usize> {
        vec![array.num_elements() / self.group.len(); self.group.len()]
    }

    /// Sends to the next rank of the group, and receives from the one before.
    fn pass_on(&self, array: Array<B>) -> Result<Array<B>, CommunicationError> {
        let (ranks, n) = (self.group.ranks(), self.group.len());
        let own = self.communicator.rank();
        let position = self.group.position(own).expect("a rank calls operations of its own groups");
        let tag = Tag::Stream(Stream::Send);
        self.communicator.send(ranks[(position + 1) % n], tag, array)?;
        self.communicator.receive(ranks[(position + n - 1) % n], tag)
    }
}

/// Factor by which an operation's bandwidth, its bytes over its time, is multiplied so that it compares with the
/// bandwidth of the links, whatever the number of ranks.
///
/// # Source
///
/// NVIDIA, nccl-tests, `doc/PERFORMANCE.md`, and the functions `..GetBw` of `src/`, which have gather and scatter too.
pub fn bus_factor(operation: Operation, num_ranks: u32) -> f64 {
    match operation {
        Operation::Collective(collective) => collective.volume_factor(num_ranks),
        Operation::Gather | Operation::Scatter => Collective::AllGather.volume_factor(num_ranks),
        Operation::Reduce => 1.0,
    }
}

/// Bytes that the rank at `position` of `num_ranks` sends in an operation on a buffer of `bytes`, by the algorithms
/// that [`Communicator`] states. The root is at position 0; `bytes` is a multiple of the number of ranks.
pub fn planned_bytes(operation: Operation, position: u32, num_ranks: u32, bytes: Bytes) -> Bytes {
    let n = u64::from(num_ranks);
    let slot = Bytes::new(bytes.get() / n);
    let is_root = position == 0;
    match operation {
        Operation::Collective(Collective::AllReduce) => slot * (2 * (n - 1)),
        Operation::Collective(
            Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll,
        ) => slot * (n - 1),
        Operation::Collective(Collective::Broadcast) => {
            // Position p sends to p + 2^k for each 2^k above p.
            let reach = (0..u32::BITS).map(|bit| 1u64 << bit);
            let children = reach.filter(|r| *r > position.into() && u64::from(position) + r < n);
            bytes * children.count() as u64
        }
        Operation::Collective(Collective::SendReceive) => bytes,
        Operation::Reduce => slot * (if is_root { n - 1 } else { n }),
        Operation::Gather => slot * u64::from(!is_root),
        Operation::Scatter => slot * (if is_root { n - 1 } else { 0 }),
    }
}
