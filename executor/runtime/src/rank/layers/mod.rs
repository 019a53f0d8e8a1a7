//! The layers of the training loop.

mod activation_offload;
mod asynchronous;
mod parameter_server;
mod ring_averaging;
mod straggler;

use std::sync::Arc;

use executor_kernels::ops::Kernels;

use super::{Layer, Rank};
use crate::host::Host;

/// The layers that the program of a rank needs; `host` receives what is offloaded.
pub(super) fn layers<B: Kernels>(
    rank: &mut Rank<B>,
    host: Option<&Arc<Host<B>>>,
) -> Vec<Box<dyn Layer<B>>> {
    let all = [
        activation_offload::layer(rank, host),
        asynchronous::layer(rank),
        parameter_server::layer(rank),
        ring_averaging::layer(rank),
        straggler::layer(rank),
    ];
    all.into_iter().flatten().collect()
}
