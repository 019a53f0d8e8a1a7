//! Ranks: each interprets its own list of the schedule's actions on tensors of a burn backend.
//!
//! The crate knows plans, operators and a communicator, but never which transport carries messages, which device
//! computes, or the arguments of a command.

pub mod base;
pub mod batches;
mod block;
pub mod case;
pub mod checkpoint;
mod compression;
pub mod data;
mod exchange;
mod flat_parameter;
mod frozen;
mod gradient;
mod host;
mod kept_inputs;
mod mapped;
pub mod merge;
pub mod mesh;
mod offloaded;
pub mod optimizer;
pub mod parameters;
pub mod probe;
pub mod program;
pub mod quantised;
pub mod rank;
mod recorder;
mod reducer;
mod scaler;
pub(crate) mod server;
pub mod settings;
mod sharded;
mod states;
pub mod training;

mod weight;
