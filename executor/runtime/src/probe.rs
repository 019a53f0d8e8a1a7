//! Times of single operators within a rank's passes.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use burn::tensor::backend::Backend;
use executor_kernels::clock::now;
use executor_kernels::failure::unless_failed;
use ir::graph::{OpId, Pass};

/// Time of an operator in a pass, including all work since the operator before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lap {
    /// Index of its block in the chain.
    pub block: usize,
    /// The operator.
    pub op: OpId,
    /// The pass.
    pub pass: Pass,
    /// Time in seconds.
    pub time: f64,
}

/// Times of a step, operator by operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Laps {
    /// Operators, in the order in which they ran.
    pub operators: Vec<Lap>,
    /// Time of flattening gradients, in seconds.
    pub gradients: f64,
}

/// Timer of operators; costs nothing while it is off.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    /// Start of the current lap; none while the probe is off.
    since: Cell<Option<Instant>>,
    laps: RefCell<Laps>,
}

impl Probe {
    /// Starts the probe.
    pub(crate) fn start(&self) {
        *self.laps.borrow_mut() = Laps::default();
        self.since.set(Some(now()));
    }

    /// Stops the probe, and returns its times.
    pub(crate) fn finish(&self) -> Laps {
        self.since.set(None);
        std::mem::take(&mut self.laps.borrow_mut())
    }

    /// Begins a lap: time since the last lap is not counted.
    pub(crate) fn begin<B: Backend>(&self, device: &B::Device) {
        if self.since.get().is_some() {
            self.since.set(Some(reached::<B>(device)));
        }
    }

    /// Ends an operator's lap.
    pub(crate) fn lap<B: Backend>(&self, device: &B::Device, block: usize, op: OpId, pass: Pass) {
        let Some(since) = self.since.get() else { return };
        let end = reached::<B>(device);
        let time = end.duration_since(since).as_secs_f64();
        self.laps.borrow_mut().operators.push(Lap { block, op, pass, time });
        self.since.set(Some(end));
    }

    /// Times the flattening of gradients.
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

/// Waits for the device, and returns the time then.
fn reached<B: Backend>(device: &B::Device) -> Instant {
    unless_failed(B::sync(device));
    now()
}
