//! What goes wrong with a collective.

use executor_communicators::CommunicationError;
use traces::collectives::Operation;

/// Why collectives were not measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// Another rank stopped, or cannot be reached.
    #[error(transparent)]
    Communication(#[from] CommunicationError),
    /// A rank ended with what it should not have.
    #[error(
        "{operation} of {num_ranks} ranks is wrong in {num_wrong} of {num_slots} slots: rank {rank} has \
         {found} in slot {slot}, not {expected}"
    )]
    Wrong {
        /// Which.
        operation: Operation,
        /// Ranks that took part.
        num_ranks: u32,
        /// Slots with another number than they must have, over all ranks.
        num_wrong: usize,
        /// All slots.
        num_slots: usize,
        /// The first rank with a wrong slot.
        rank: u32,
        /// Its first wrong slot.
        slot: u32,
        /// What is there.
        found: String,
        /// What must be there.
        expected: String,
    },
}
