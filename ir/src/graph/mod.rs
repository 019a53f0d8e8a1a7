//! The model as a graph of operators.
//!
//! A [`Graph`] is a chain of blocks. Blocks that repeat are kept once, as a class with a count, so a
//! model of 126 layers costs what its three distinct blocks cost. Each [`Block`] is a directed
//! acyclic graph of operators whose shapes are symbolic in batch and sequence.

mod block;
mod builder;
mod derive;
mod flops;
mod infer;
mod kernels;
mod op;
mod placement;
mod sharded;
mod sharding;
mod tensor;
mod work;

#[cfg(test)]
mod tests;

pub use block::{Block, ClassId, Graph, GraphError, Node, OpId, ParameterCounts, Run};
pub use builder::{BlockBuilder, Value};
pub use flops::ForwardFlops;
pub use op::{
    Activation, AttentionMask, Cut, Keeps, NormKind, Op, OpKind, Parameter, Recomputable, Window2d,
};
pub use placement::{Placement, Placements};
pub use sharding::Sharding;
pub use tensor::{Dim, DimName, Element, Extent, Sizes, Tensor};
pub use work::{
    AttentionShape, Axis, BlockWork, Exchange, Kernel, KernelWork, LocalParameters, Pass,
    Recompute, Saved, SavedPart, Setting,
};
