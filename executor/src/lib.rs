//! Runs plans: each rank interprets its own list of the schedule's actions on tensors of a burn backend.

mod alone;
pub mod array;
pub mod base;
pub mod batches;
mod block;
pub mod calibration;
pub mod check;
pub mod checkpoint;
pub mod clock;
pub mod collectives;
pub mod communicator;
mod compression;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod data;
pub mod failure;
mod frozen;
mod gradient;
mod host;
mod lock;
mod mapped;
mod measure;
pub mod merge;
pub mod mesh;
mod offloaded;
pub mod ops;
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
mod states;
pub mod streams;
pub mod training;
mod unit;
#[cfg(feature = "wgpu")]
pub mod wgpu;
