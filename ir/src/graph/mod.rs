//! The model as a graph of operators.
//!
//! A [`Graph`] is a chain of blocks. Blocks that repeat are stored once, as a class with a count, so a
//! model of 126 layers costs what its three distinct blocks cost. Each [`Block`] is a directed
//! acyclic graph of operators whose shapes are symbolic in batch and sequence.

mod adapters;
mod block;
mod builder;
mod derive;
mod elementwise;
mod flops;
mod gradients;
mod infer;
mod keeps;
mod kernels;
mod loss;
mod mask;
mod modules;
mod numerics;
mod offload;
mod op;
mod op_id;
mod parameter;
mod place;
mod placement;
mod recomputable;
mod recompute;
mod sharded;
mod sharding;
mod split_rules;
mod splits;
mod switches;
mod tensor;
mod weights;
mod window;
mod work;

#[cfg(test)]
mod tests;

pub use adapters::{ALL_LINEAR, AdapterError, AdapterPart, Adapters, adapted_layer, module_paths};
pub use block::{Block, BlockRun, ClassId, Graph, GraphError, Node, OpId, ParameterCounts};
pub use builder::{BlockBuilder, Value};
pub use elementwise::{Elementwise, ReduceFunction, Upsampling};
pub use flops::ForwardFlops;
pub use keeps::Keeps;
pub use loss::{Loss, LossGradient, LossKind, USUAL_CHUNKS};
pub use mask::AttentionMask;
pub use modules::{LayerModule, ModuleSet};
pub use numerics::{
    AlibiSlopes, ExpertGroups, PositionBias, Real, RotaryPairs, RotaryScaling, Rotation,
    RouterScores, Routing, Scores,
};
pub use offload::{OffloadModule, OffloadModules};
pub use op::{Activation, EmbeddedRows, Learning, NormKind, Op, OpKind, Recurrence};
pub use parameter::{Cut, Parameter};
pub use placement::{Placement, Placements};
pub use recomputable::Recomputable;
pub use recompute::{
    BlockRecompute, ParseRecomputeError, Recompute, RecomputeModule, RecomputeModules,
};
pub use sharding::{ContextParallelKind, Sharding};
pub use splits::{
    AxisPlacement, ByMeshAxis, MESH_AXES, SharedParameter, SplitDim, SplitExchange, SplitOp,
};
pub use switches::{CudaGraphs, EmbeddingTable, ExpertOverlap, Switches, TokenDispatcher};
pub use tensor::{Dim, DimName, ElementType, Extent, Sizes, Tensor};
pub use weights::{QUANTISED_BLOCK, WeightFormat};
pub use window::Window2d;
pub use work::{
    AttentionShape, Axis, BlockWork, DocumentSizes, Exchange, FrozenParameters, Kernel, KernelWork,
    LocalParameters, Pass, RoutedTokens, Saved, SavedPart, ShapeCounts, ShardContext,
};
