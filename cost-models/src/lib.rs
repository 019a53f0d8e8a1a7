//! Costs of operators, bytes and messages.
//!
//! [`Device`] times kernels on one GPU, [`Network`] times messages between several. Both are made
//! once from a checked [`ir::cluster::Cluster`] and are pure from then on.

pub mod block;
pub mod clusters;
pub mod collectives;
pub mod constants;
mod fitted;
pub mod frameworks;
pub mod hardware;
pub mod kernels;
pub mod residuals;
pub mod states;

pub use collectives::{Collective, Network, StridedGroup};
pub use hardware::{Hardware, HostShare};
pub use ir::cluster::Precision;
pub use kernels::{
    Basis, Bound, Device, MatmulFormat, MatmulShape, SelfAttentionShape, Timing, TrainingRates,
};
