//! Collectives as values, which a communicator starts, and those that are composed of others.

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};
use traces::timeline::Stream;

use super::error::Result;
use super::{Communicator, Group, InFlight};
use crate::array::Array;

/// The reduction of the arrays of a group to one, element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their product.
    Product,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

impl Reduction {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Sum, Self::Product, Self::Max, Self::Min];

    /// Two arrays as one, rounded to their element type.
    pub fn combine<B: Backend>(self, left: Array<B>, right: Array<B>) -> Array<B> {
        match self {
            Self::Sum => left + right,
            Self::Product => left * right,
            Self::Max => left.maximum(right),
            Self::Min => left.minimum(right),
        }
    }
}

/// Element type and shape of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArraySpec {
    /// Type of its elements.
    pub element: DType,
    /// Sizes of its dimensions.
    pub shape: Vec<usize>,
}

impl ArraySpec {
    /// The spec of an array.
    pub fn of<B: Backend>(array: &Array<B>) -> Self {
        Self { element: array.dtype(), shape: array.shape() }
    }

    /// The spec of an array with another size along a dimension.
    pub fn resized(&self, dim: usize, size: usize) -> Self {
        let mut shape = self.shape.clone();
        shape[dim] = size;
        Self { element: self.element, shape }
    }

    /// Number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of all elements.
    pub fn num_bytes(&self) -> u64 {
        (self.num_elements() * self.element.size()) as u64
    }
}

/// A collective, with the arrays that this rank gives to it.
///
/// `S` in the volumes below is the size of the whole buffer, as `ir::collective` has it, and `n` the size of the group.
/// A group of one rank sends nothing. Reductions combine in the order of the group, from its first rank to its last, so
/// a result does not depend on how a buffer was cut, bit for bit.
#[derive(Clone, Debug)]
pub enum CollectiveCall<B: Backend> {
    /// Leaves the array of rank `root` on each rank.
    ///
    /// Goes down a binomial tree: the root sends `S` to at most `log2 n` ranks, rounded up, and all
    /// ranks together send `(n - 1) S`.
    Broadcast {
        /// The rank whose array it is.
        root: u32,
        /// Its array; those of other ranks are ignored.
        array: Option<Array<B>>,
    },
    /// Leaves all arrays as one on rank `root`, and nothing elsewhere.
    ///
    /// A reduce-scatter, whose parts go to the root: the root sends `(n - 1) / n S`, each other
    /// rank `S`.
    Reduce {
        /// The rank that has the result.
        root: u32,
        /// This rank's array.
        array: Array<B>,
        /// The way in which arrays become one.
        reduction: Reduction,
    },
    /// Leaves all arrays as one on each rank.
    ///
    /// A reduce-scatter and an all-gather of the array cut as evenly as its elements allow: each
    /// rank sends `2 (n - 1) / n S`.
    AllReduce {
        /// This rank's array.
        array: Array<B>,
        /// The way in which arrays become one.
        reduction: Reduction,
    },
    /// Leaves the arrays of all, which are of one shape, joined in the order of the group.
    ///
    /// Each rank sends its array to each other: `(n - 1) / n S`.
    AllGather {
        /// This rank's array.
        array: Array<B>,
        /// The dimension along which arrays are joined.
        dim: usize,
    },
    /// Leaves this rank's part of all arrays, which are of one shape, as one.
    ///
    /// Each rank sends each part to the rank where it is combined: `(n - 1) / n S`.
    ReduceScatter {
        /// This rank's array.
        array: Array<B>,
        /// The dimension along which arrays are cut.
        dim: usize,
        /// Sizes along it of the parts, in the order of the group.
        sizes: Vec<usize>,
        /// The way in which arrays become one.
        reduction: Reduction,
    },
    /// Sends arrays to ranks of the group, and leaves those that others send to this one. All ranks of the group
    /// call it, and the sends of one rank are the receives of others.
    Exchange {
        /// Receivers, each once and none of them this rank, and arrays.
        sends: Vec<(u32, Array<B>)>,
        /// Senders, in the order of the arrays that are left.
        receives: Vec<u32>,
        /// Specs of what is received, if all ranks know them: nobody needs to be asked.
        specs: Option<Vec<ArraySpec>>,
    },
    /// Waits until all ranks of the group have come here. Sends no bytes, and leaves nothing.
    Barrier,
}

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

/// A group of which a rank is one, on a stream: collectives composed of others, and those whose result is waited for at
/// once. Their errors: see [`Communicator`].
#[derive(Clone, Copy)]
pub struct GroupCommunicator<'a, B: Backend> {
    communicator: &'a (dyn Communicator<B> + 'a),
    group: &'a Group,
    stream: Stream,
}

#[expect(clippy::missing_errors_doc, reason = "their errors are those of communicators")]
impl<B: Backend> GroupCommunicator<'_, B> {
    /// Starts a collective that leaves one array on this rank.
    pub fn start(&self, call: CollectiveCall<B>) -> Result<InFlight<Array<B>>> {
        let arrays = self.communicator.start(self.group, self.stream, call)?;
        Ok(arrays.map(|mut arrays| arrays.pop().expect("it leaves one array")))
    }

    /// The array of rank `root`, which alone gives one.
    pub fn broadcast(&self, root: u32, array: Option<Array<B>>) -> Result<Array<B>> {
        self.start(CollectiveCall::Broadcast { root, array })?.wait()
    }

    /// On rank `root` all arrays as one, elsewhere none.
    pub fn reduce(
        &self,
        root: u32,
        array: Array<B>,
        reduction: Reduction,
    ) -> Result<Option<Array<B>>> {
        let mut arrays = self.run(CollectiveCall::Reduce { root, array, reduction })?;
        Ok(arrays.pop())
    }

    /// All arrays as one, on each rank.
    pub fn all_reduce(&self, array: Array<B>, reduction: Reduction) -> Result<Array<B>> {
        self.start(CollectiveCall::AllReduce { array, reduction })?.wait()
    }

    /// On rank `root` the arrays of all, in the order of the group, elsewhere none. Sizes may differ.
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

    /// The rank's own of the parts that `root`, which alone gives them, has for each rank in the
    /// order of the group. Sizes may differ.
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

    /// The parts that all ranks of the group have for this one, in the order of the group, if this one has
    /// `parts[i]` for the `i`-th. Sizes may differ and be zero.
    ///
    /// If this rank knows the shapes of what all have for it, as all ranks do or none, nobody needs to be asked;
    /// all elements are of one type then.
    ///
    /// Each rank sends each part to its rank: `(n - 1) / n S`.
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
        // From the next rank on, so that not all send to the same rank at once.
        sends.rotate_left(position);
        let mut arrays = self.exchange(sends, others, specs)?;
        arrays.insert(position, own);
        Ok(arrays)
    }

    /// The arrays of all, in the order of the group. Sizes may differ; shapes may be known, as in [`Self::all_to_all`].
    ///
    /// Each rank sends its array to each other: `(n - 1) / n S`.
    pub fn all_gather(
        &self,
        array: Array<B>,
        shapes: Option<&[Vec<usize>]>,
    ) -> Result<Vec<Array<B>>> {
        self.all_to_all(vec![array; self.group.len()], shapes)
    }

    /// Waits until all ranks of the group have come here. Sends no bytes.
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

/// Numbers of elements of the parts of an array that is cut as evenly as its elements allow: the first ones are longer.
pub(super) fn even_sizes(num_elements: usize, num_parts: usize) -> Vec<usize> {
    let size = |part| num_elements / num_parts + usize::from(part < num_elements % num_parts);
    (0..num_parts).map(size).collect()
}

/// A rank's parent and children in the binomial tree of a broadcast among `len` ranks, by positions in the group.
///
/// Places are counted from the root. In the round of reach `r` the places below `r`, which have the array, send it to
/// those `r` further on; so a place receives in the round of its highest bit.
pub(super) fn broadcast_tree(
    position: usize,
    root: usize,
    len: usize,
) -> (Option<usize>, Vec<usize>) {
    let place = (position + len - root) % len;
    let at = |place: usize| (place + root) % len;
    let round = place.checked_ilog2();
    let reaches = (round.map_or(0, |round| round + 1)..usize::BITS).map(|bit| 1 << bit);
    let children = reaches.map(|reach: usize| place + reach).take_while(|child| *child < len);
    (round.map(|round| at(place - (1 << round))), children.map(at).collect())
}
