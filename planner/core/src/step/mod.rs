//! A training step: the work and the memory of every pipeline rank of a layout.
//!
//! [`Shape`] costs the passes of each class of blocks once. [`Assignment`] puts blocks on stages and sums their passes.
//! [`Step`] adds the layout's messages, reductions and updates, in the form that the simulator runs. Its time, lower
//! bound, memory, breakdown and timeline all derive from it.

mod assignment;
mod bound;
mod breakdown;
mod chain;
mod copies;
mod held;
mod holdings;
mod memo;
mod memory;
mod messages;
mod offload;
mod orders;
mod ranks;
mod replicas;
mod shape;
mod simulated;
mod states;
mod tasks;
mod work;

pub use assignment::{Assignment, Stage};
pub use chain::ChainIndex;
pub use holdings::Holdings;
pub use memo::Memo;
pub use memory::{ALLOCATOR_SLACK_PERCENT, CONTEXT};
pub use memory::{in_flight, libraries, slack, with_slack};
pub use orders::Orders;
pub use ranks::PipelineRanks;
pub(crate) use replicas::BUCKET_PARAMETERS;
pub(crate) use replicas::exchanges_each_micro_batch;
pub use shape::{BlockCosts, CostsByHardware, Shape, ShapeKey};
pub(crate) use simulated::title;
pub use simulated::{Evaluation, SimulateError, Simulated};
pub use tasks::{Members, Peer, Task, TaskId, TaskKind, TasksError};
pub use work::Step;
