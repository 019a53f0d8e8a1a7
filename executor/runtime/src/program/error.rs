//! Why a plan is not run.

use ir::graph::AdapterError;
use ir::layout::LayoutError;
use ir::model::ModelError;
use ir::plan::PLAN_VERSION;
use ir::schedule::GenerateError;

/// Why a plan cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// Written by a program with another format.
    #[error(
        "the plan has version {version}, but this program reads {PLAN_VERSION}\nhint: make it again with `{command}`"
    )]
    Version {
        /// The version in the file.
        version: u64,
        /// The command in the file.
        command: String,
    },
    /// Something else that is JSON.
    #[error("this is {found}, not a plan\nhint: {instead}")]
    NotAPlan {
        /// What it is.
        found: &'static str,
        /// What would work.
        instead: &'static str,
    },
    /// Not JSON, or not of the form of a plan.
    #[error(
        "no plan that can be read: line {line}, column {column}: {problem}\nhint: `planner search MODEL \
         --gpus N -o plan.json` writes one"
    )]
    Json {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What is wrong.
        problem: String,
    },
    /// The model in the plan cannot be read, or not run.
    #[error("the plan's `model`: {0}")]
    Model(#[from] ModelError),
    /// The model in the plan has no graph.
    #[error("the plan's `model`: {0}")]
    Graph(#[from] AdapterError),
    /// The layout is not valid for model, batch and ranks.
    #[error("the plan's `layout`: {0}")]
    Layout(#[from] LayoutError),
    /// The schedule cannot be made.
    #[error("the plan's `layout`: {0}")]
    Schedule(#[from] GenerateError),
    /// Two parts of the plan disagree.
    #[error("the plan contradicts itself: {0}\nhint: make it again with its `provenance.command`")]
    Contradiction(String),
    /// Something that can be planned, but is not run.
    #[error("{what} is not run yet{}", .instead.as_ref().map_or(String::new(), |i| format!("\nhint: {i}")))]
    Unsupported {
        /// What it is.
        what: String,
        /// What would work.
        instead: Option<String>,
    },
}

pub(super) fn unsupported(what: impl Into<String>) -> ProgramError {
    ProgramError::Unsupported { what: what.into(), instead: None }
}
