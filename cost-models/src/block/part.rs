//! The parts that passes consist of.

use ir::graph::{Axis, Exchange};
use ir::units::Nanos;

use crate::Group;

/// A part of a pass. Parts follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// Kernels.
    Kernels(Nanos),
    /// The device waits for the host to launch more.
    Host(Nanos),
    /// An exchange begins, and the next part does not wait for it.
    Start(TimedExchange),
    /// Nothing, until all exchanges along the axis that began are over.
    Wait(Axis),
}

/// An exchange with its time if nothing else crosses its links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedExchange {
    /// What is exchanged.
    pub exchange: Exchange,
    /// Between whom.
    pub group: Group,
    /// How long it takes.
    pub whole: Nanos,
    /// How long it is to be waited for: less where pieces of it run beside parts of a kernel.
    pub time: Nanos,
}
