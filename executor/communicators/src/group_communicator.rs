//! Collectives of a group: composed ones, and blocking ones.

use burn::tensor::backend::Backend;
use executor_kernels::array::Array;
use traces::timeline::Stream;

use super::error::Result;
use super::{ArraySpec, CollectiveCall, Communicator, Group, InFlight, Reduction};

impl<B: Backend> dyn Communicator<B> + '_ {
    /// The group of all ranks.
    pub fn world(&self) -> Group {
        Group::new((0..self.num_ranks()).collect::<Vec<_>>())
    }

    /// The collectives of a group on a stream.
    pub fn on<'a>(&'a self, group: &'a Group, stream: Stream) -> GroupCommunicator<'a, B> {
        GroupCommunicator { communicator: self, group, stream }
    }
}

/// A group that includes this rank, on a stream, with blocking collectives and collectives that are composed of others.
/// For their errors see [`Communicator`].
#[derive(Clone, Copy)]
pub struct GroupCommunicator<'a, B: Backend> {
    communicator: &'a (dyn Communicator<B> + 'a),
    group: &'a Group,
    stream: Stream,
}

#[expect(clippy::missing_errors_doc, reason = "their errors are those of communicators")]
impl<B: Backend> GroupCommunicator<'_, B> {
    /// Starts a collective that returns one array on this rank.
    pub fn start(&self, call: CollectiveCall<B>) -> Result<InFlight<Array<B>>> {
        let arrays = self.communicator.start(self.group, self.stream, call)?;
        Ok(arrays.map(|mut arrays| arrays.pop().expect("it leaves one array")))
    }

    /// The array of rank `root`; other ranks give none.
    pub fn broadcast(&self, root: u32, array: Option<Array<B>>) -> Result<Array<B>> {
        self.start(CollectiveCall::Broadcast { root, array })?.wait()
    }

    /// On rank `root` the reduction of all arrays, elsewhere none.
    pub fn reduce(
        &self,
        root: u32,
        array: Array<B>,
        reduction: Reduction,
    ) -> Result<Option<Array<B>>> {
        let mut arrays = self.run(CollectiveCall::Reduce { root, array, reduction })?;
        Ok(arrays.pop())
    }

    /// The reduction of all arrays, on each rank.
    pub fn all_reduce(&self, array: Array<B>, reduction: Reduction) -> Result<Array<B>> {
        self.start(CollectiveCall::AllReduce { array, reduction })?.wait()
    }

    /// On rank `root` the arrays of all ranks, in the order of the group, elsewhere none. Sizes may differ.
    ///
    /// Each rank but the root sends its array to the root: `S / n`.
    pub fn gather(&self, root: u32, array: Array<B>) -> Result<Option<Vec<Array<B>>>> {
        let root_position = self.group.position_of(root);
        if self.communicator.rank() != root {
            self.exchange(vec![(root, array)], Vec::new(), None)?;
            return Ok(None);
        }
        let mut arrays = self.exchange(Vec::new(), self.group.others(root), None)?;
        arrays.insert(root_position, array);
        Ok(Some(arrays))
    }

    /// This rank's part of `parts`. Only the root gives `parts`, one for each rank in the order of the group. Sizes may
    /// differ.
    ///
    /// The root sends `(n - 1) / n S`.
    pub fn scatter(&self, root: u32, parts: Option<Vec<Array<B>>>) -> Result<Array<B>> {
        let root_position = self.group.position_of(root);
        if self.communicator.rank() != root {
            let mut arrays = self.exchange(Vec::new(), vec![root], None)?;
            return Ok(arrays.pop().expect("one was to come"));
        }
        let mut parts = parts.expect("the root of a scatter gives the parts");
        assert_eq!(
            parts.len(),
            self.group.len(),
            "there is a part for each rank of {}",
            self.group
        );
        let own = parts.remove(root_position);
        let sends = self.group.others(root).into_iter().zip(parts).collect();
        self.exchange(sends, Vec::new(), None)?;
        Ok(own)
    }

    /// The parts that all ranks of the group send to this rank, in the order of the group. This rank sends `parts[i]`
    /// to the `i`-th rank. Sizes may differ and be zero.
    ///
    /// If each rank gives the `shapes` of the parts that it receives, no control messages are sent; all elements must
    /// then have one type. Either all ranks give shapes, or none does.
    ///
    /// Each rank sends each other rank its part: `(n - 1) / n S`.
    pub fn all_to_all(
        &self,
        mut parts: Vec<Array<B>>,
        shapes: Option<&[Vec<usize>]>,
    ) -> Result<Vec<Array<B>>> {
        let own_rank = self.communicator.rank();
        let (len, position) = (self.group.len(), self.group.position_of(own_rank));
        assert_eq!(parts.len(), len, "there is a part for each rank of {}", self.group);
        let own = parts.remove(position);
        let others = self.group.others(own_rank);
        let specs = shapes.map(|shapes| {
            assert_eq!(shapes.len(), len, "there is a shape for each rank of {}", self.group);
            let spec =
                |shape: &Vec<usize>| ArraySpec { element: own.dtype(), shape: shape.clone() };
            [&shapes[..position], &shapes[position + 1..]].concat().iter().map(spec).collect()
        });
        let mut sends: Vec<_> = others.iter().copied().zip(parts).collect();
        // Starts with the next rank, so that not all send to the same rank at once.
        sends.rotate_left(position);
        let mut arrays = self.exchange(sends, others, specs)?;
        arrays.insert(position, own);
        Ok(arrays)
    }

    /// The arrays of all ranks in the order of the group. Sizes may differ; for `shapes` see [`Self::all_to_all`].
    ///
    /// Each rank sends its array to each other rank: `(n - 1) / n S`.
    pub fn all_gather(
        &self,
        array: Array<B>,
        shapes: Option<&[Vec<usize>]>,
    ) -> Result<Vec<Array<B>>> {
        self.all_to_all(vec![array; self.group.len()], shapes)
    }

    /// Waits until all ranks of the group have called it. Sends no bytes.
    pub fn barrier(&self) -> Result<()> {
        self.run(CollectiveCall::Barrier).map(drop)
    }

    fn exchange(
        &self,
        sends: Vec<(u32, Array<B>)>,
        receives: Vec<u32>,
        specs: Option<Vec<ArraySpec>>,
    ) -> Result<Vec<Array<B>>> {
        self.run(CollectiveCall::Exchange { sends, receives, specs })
    }

    fn run(&self, call: CollectiveCall<B>) -> Result<Vec<Array<B>>> {
        self.communicator.start(self.group, self.stream, call)?.wait()
    }
}
