//! Training data: windows of a token file in a random order, or synthetic vectors.
//!
//! Every sample has a global index, from 0; its content depends on that index and the seed alone. Step `k`, from 0, of
//! global batch size `B` takes the `B` samples from `k B` on, and each rank reads the samples that it needs. So the
//! data are the same in every layout, data-parallel shards are disjoint, and training resumes from a checkpoint by its
//! step number.

mod error;
pub(crate) mod masking;
mod permutation;
mod samples;
mod synthetic;
mod tokens;

pub use error::DataError;
pub use samples::{Samples, Sampling};
pub use synthetic::SyntheticSamples;
pub use tokens::{TokenFormat, Tokens};
