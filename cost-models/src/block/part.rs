//! The parts that passes consist of.

use ir::graph::{Axis, Exchange};
use ir::units::{Bytes, Flops, Nanos};

use crate::Group;

/// A part of a pass. Parts follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// Kernels.
    Kernels(Kernels),
    /// The device waits for the host to launch more.
    Host(Nanos),
    /// An exchange begins, and the next part does not wait for it.
    Start(TimedExchange),
    /// Nothing, until all exchanges along the axis that began are over.
    Wait(Axis),
}

/// Kernels, one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kernels {
    /// How long they take if nothing runs beside them.
    pub time: Nanos,
    /// Operations of their products.
    pub flops: Flops,
    /// Bytes that they read and write.
    pub touched: Bytes,
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
