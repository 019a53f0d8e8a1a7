//! A straggler: a rank that is slowed down.

use std::time::Instant;

use executor_kernels::ops::Kernels;
use ir::replication::Straggler;

use crate::rank::{Layer, Rank};

/// The layer that waits after each pass, on the rank that is the straggler.
pub(super) fn layer<B: Kernels>(rank: &Rank<B>) -> Option<Box<dyn Layer<B>>> {
    let straggler = rank.program.settings.straggler?;
    (straggler.rank == rank.env.place.rank).then(|| Box::new(straggler) as _)
}

impl<B: Kernels> Layer<B> for Straggler {
    fn after_pass(&mut self, start: Instant) {
        std::thread::sleep(start.elapsed().mul_f64(self.factor - 1.0));
    }
}
