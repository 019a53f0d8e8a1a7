//! Files of weights and checkpoints.
//!
//! [`Weights`] reads models as Hugging Face publishes them, and [`WeightsWriter`] writes them: whole tensors, with the
//! names and the orientation that [`Naming`] gives. A training checkpoint has weights and optimizer state in the ranks'
//! shards, so nothing is gathered to write it; [`State`] reads the shards of any layout for any other.

mod directory;
mod error;
mod hash;
mod identity;
mod manifest;
mod names;
mod parameter;
mod scalar;
mod shard;
mod state;
mod tensors;
mod weights;
mod weights_writer;
mod writer;

pub use directory::{Latest, latest};
pub use error::CheckpointError;
pub use identity::ModelIdentity;
pub use manifest::{LossScale, OptimizerState, TrainingState};
pub use names::{Fused, Naming, Orientation, Stored};
pub use parameter::{Form, ModelParameter, ParameterId};
pub use shard::{Piece, PieceKind, Shard};
pub use state::State;
pub use weights::Weights;
pub use weights_writer::WeightsWriter;
pub use writer::Writer;
