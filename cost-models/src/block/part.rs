//! Parts of passes.

use ir::graph::{Axis, Exchange};
use ir::units::{Bytes, Flops, Nanos};

use crate::StridedGroup;

/// A part of a pass; parts run one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BlockPart {
    /// Runs kernels.
    Kernels(KernelSequence),
    /// Waits for the host, which launches more slowly than the device runs.
    Host(Nanos),
    /// Begins an exchange, without waiting for it.
    Start(TimedExchange),
    /// Waits until all exchanges along the axis that have begun are over.
    Wait(Axis),
}

/// Kernels, one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelSequence {
    /// Time with nothing overlapped.
    pub time: Nanos,
    /// FLOPs of their products.
    pub flops: Flops,
    /// Bytes that they read and write.
    pub touched: Bytes,
}

/// An exchange with its time alone on its links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedExchange {
    /// The exchange.
    pub exchange: Exchange,
    /// Ranks that take part.
    pub group: StridedGroup,
    /// Time of the whole exchange.
    pub whole: Nanos,
    /// Time to wait for the exchange: less than the whole, where pieces of it overlap parts of a kernel.
    pub time: Nanos,
}
