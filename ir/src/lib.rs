//! The nouns of distributed training: units, model and its graph, cluster, layout, plan.
//!
//! Everything here is a value. Nothing here knows costs, time or files: those belong to
//! `cost-models`, `simulator` and the two commands.

#[macro_use]
mod named_enum;

pub mod cluster;
pub mod collective;
pub mod documents;
pub mod expert_load;
pub mod framework;
pub mod graph;
pub mod layout;
pub mod model;
pub mod native;
pub mod optimizer;
pub mod plan;
pub mod replication;
pub mod schedule;
pub mod text;
pub mod units;
