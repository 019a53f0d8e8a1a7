//! Errors of collectives.

use executor_communicators::CommunicationError;
use traces::collectives::Operation;

/// Errors of measuring collectives.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// Another rank stopped, or cannot be reached.
    #[error(transparent)]
    Communication(#[from] CommunicationError),
    /// A rank ended with a wrong result.
    #[error(
        "{operation} of {num_ranks} ranks is wrong in {num_wrong} of {num_slots} slots: rank {rank} has \
         {found} in slot {slot}, not {expected}"
    )]
    Wrong {
        /// The operation.
        operation: Operation,
        /// Number of participating ranks.
        num_ranks: u32,
        /// Number of wrong slots, over all ranks.
        num_wrong: usize,
        /// Number of all slots.
        num_slots: usize,
        /// The first rank with a wrong slot.
        rank: u32,
        /// Its first wrong slot.
        slot: u32,
        /// The content found.
        found: String,
        /// The content expected.
        expected: String,
    },
}
