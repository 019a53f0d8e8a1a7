//! Weights of a block that are gathered before they are read and freed afterwards, whether they are trained or not.

use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;

use crate::host::Placed;
use crate::mesh::ReplicaGroups;
use crate::weight::Weight;

/// The weights of some parameters of a block, as flat arrays that ranks may share.
pub(crate) trait Sharded<B: Kernels> {
    /// The ranks that hold the weights.
    fn replicas(&self) -> &ReplicaGroups;

    /// Returns whether the whole weights are gathered.
    fn is_gathered(&self) -> bool;

    /// This rank's shards of the flat arrays.
    fn shards(&self) -> Vec<Placed<B>>;

    /// Stores the whole flat arrays after a gather.
    fn set_gathered(&mut self, arrays: Vec<Array<B>>);

    /// Frees gathered weights if they are sharded.
    fn free(&mut self);

    /// The weight of a parameter, for operators.
    ///
    /// # Panics
    ///
    /// If the weights are not gathered.
    fn weight(&self, index: usize) -> Weight<B>;

    /// Bytes on the device, and on the host.
    fn num_bytes(&self) -> [u64; 2];
}
