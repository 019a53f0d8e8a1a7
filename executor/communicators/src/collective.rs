//! Collectives as data, for a communicator to start.

use burn::tensor::backend::Backend;
use executor_kernels::array::Array;

use super::array_spec::ArraySpec;

/// The reduction of the arrays of a group to one, element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Product of the elements.
    Product,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

impl Reduction {
    /// All reductions.
    pub const ALL: [Self; 4] = [Self::Sum, Self::Product, Self::Max, Self::Min];

    /// The reduction of two arrays, rounded to their element type.
    pub fn combine<B: Backend>(self, left: Array<B>, right: Array<B>) -> Array<B> {
        match self {
            Self::Sum => left + right,
            Self::Product => left * right,
            Self::Max => left.maximum(right),
            Self::Min => left.minimum(right),
        }
    }
}

/// A collective, with this rank's input arrays.
///
/// `S` in the volumes below is the size of the whole buffer, as in `ir::collective`, and `n` the size of the group. A
/// group of one rank sends nothing. Reductions combine in the order of the group, from its first rank to its last, so
/// results do not depend on how a buffer was cut, bit for bit.
#[derive(Clone, Debug)]
pub enum CollectiveCall<B: Backend> {
    /// Returns the array of rank `root` on each rank.
    ///
    /// Along a binomial tree: the root sends `S` to at most `log2 n` ranks, rounded up, and all ranks together send `(n
    /// - 1) S`.
    Broadcast {
        /// The rank that gives the array.
        root: u32,
        /// The root's array; ignored on other ranks.
        array: Option<Array<B>>,
    },
    /// Returns the reduction of all arrays on rank `root`, and nothing elsewhere.
    ///
    /// A reduce-scatter, then a gather of the parts at the root: the root sends `(n - 1) / n S`, each other rank `S`.
    Reduce {
        /// The rank that gets the result.
        root: u32,
        /// This rank's array.
        array: Array<B>,
        /// Reduction of the arrays.
        reduction: Reduction,
    },
    /// Returns the reduction of all arrays on each rank.
    ///
    /// A reduce-scatter and an all-gather of the array cut as evenly as its elements allow: each
    /// rank sends `2 (n - 1) / n S`.
    AllReduce {
        /// This rank's array.
        array: Array<B>,
        /// Reduction of the arrays.
        reduction: Reduction,
    },
    /// Returns the arrays of all ranks, which have one shape, joined in the order of the group.
    ///
    /// Each rank sends its array to each other rank: `(n - 1) / n S`.
    AllGather {
        /// This rank's array.
        array: Array<B>,
        /// The dimension along which arrays are joined.
        dim: usize,
    },
    /// Returns this rank's part of the reduction of all arrays, which have one shape.
    ///
    /// Each rank sends each part to the rank where it is combined: `(n - 1) / n S`.
    ReduceScatter {
        /// This rank's array.
        array: Array<B>,
        /// The dimension along which arrays are cut.
        dim: usize,
        /// Sizes of the parts along `dim`, in the order of the group.
        sizes: Vec<usize>,
        /// Reduction of the arrays.
        reduction: Reduction,
    },
    /// Sends arrays to ranks of the group, and returns the arrays that others send to this one. All ranks of the group
    /// call it, and the sends of one rank are the receives of others.
    Exchange {
        /// Receivers with their arrays. Each receiver occurs once, and none is this rank.
        sends: Vec<(u32, Array<B>)>,
        /// Senders, in the order of the returned arrays.
        receives: Vec<u32>,
        /// Specs of the received arrays, if all ranks know them: then no control messages are sent.
        specs: Option<Vec<ArraySpec>>,
    },
    /// Waits until all ranks of the group have called it. Sends no bytes, and returns nothing.
    Barrier,
}

/// Number of elements of each part of an array that is cut as evenly as possible: the first parts are longer.
pub(super) fn even_sizes(num_elements: usize, num_parts: usize) -> Vec<usize> {
    let size = |part| num_elements / num_parts + usize::from(part < num_elements % num_parts);
    (0..num_parts).map(size).collect()
}

/// A rank's parent and children in the binomial tree of a broadcast among `len` ranks, by positions in the group.
///
/// Places are counted from the root. In the round of reach `r`, the places below `r` have the array and send it `r`
/// places further. So a place receives the array in the round of its highest bit.
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
