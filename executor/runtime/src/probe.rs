//! How long single operators take within a rank's passes.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use burn::tensor::backend::Backend;
use executor_kernels::clock::now;
use executor_kernels::failure::unless_failed;
use ir::graph::{OpId, Pass};

/// What an operator took in a pass, with all that the rank did since the operator before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lap {
    /// The number of its block in the chain.
    pub block: usize,
    /// The operator.
    pub op: OpId,
    /// The pass.
    pub pass: Pass,
    /// Seconds.
    pub time: f64,
}

/// What a step took, operator by operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Laps {
    /// Operators, in the order in which they ran.
    pub operators: Vec<Lap>,
    /// Putting gradients together: seconds.
    pub gradients: f64,
}

/// Takes the time of operators while it is on; otherwise it costs nothing.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    /// When the lap at hand began; none while the probe is off.
    since: Cell<Option<Instant>>,
    laps: RefCell<Laps>,
}

impl Probe {
    /// Takes times from now on.
    pub(crate) fn start(&self) {
        *self.laps.borrow_mut() = Laps::default();
        self.since.set(Some(now()));
    }

    /// What it found; it is off then.
    pub(crate) fn finish(&self) -> Laps {
        self.since.set(None);
        std::mem::take(&mut self.laps.borrow_mut())
    }

    /// A lap begins here: what was done since the last is none of an operator's.
    pub(crate) fn begin<B: Backend>(&self, device: &B::Device) {
        if self.since.get().is_some() {
            self.since.set(Some(reached::<B>(device)));
        }
    }

    /// An operator is done.
    pub(crate) fn lap<B: Backend>(&self, device: &B::Device, block: usize, op: OpId, pass: Pass) {
        let Some(since) = self.since.get() else { return };
        let end = reached::<B>(device);
        let time = end.duration_since(since).as_secs_f64();
        self.laps.borrow_mut().operators.push(Lap { block, op, pass, time });
        self.since.set(Some(end));
    }

    /// Gradients are put together.
    pub(crate) fn gradients<B: Backend, T>(
        &self,
        device: &B::Device,
        run: impl FnOnce() -> T,
    ) -> T {
        if self.since.get().is_none() {
            return run();
        }
        let start = reached::<B>(device);
        let result = run();
        let end = reached::<B>(device);
        self.laps.borrow_mut().gradients += end.duration_since(start).as_secs_f64();
        self.since.set(Some(end));
        result
    }
}

/// When the device has done all that it was given.
fn reached<B: Backend>(device: &B::Device) -> Instant {
    unless_failed(B::sync(device));
    now()
}
