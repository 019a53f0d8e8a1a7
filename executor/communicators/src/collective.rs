//! Collectives as values, which a communicator starts.

use burn::tensor::backend::Backend;
use executor_kernels::array::Array;

use super::array_spec::ArraySpec;

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
