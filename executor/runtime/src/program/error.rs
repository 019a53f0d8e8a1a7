//! Errors of plans that cannot be run.

use ir::graph::AdapterError;
use ir::layout::LayoutError;
use ir::model::ModelError;
use ir::plan::PLAN_VERSION;
use ir::schedule::GenerateError;

/// Errors of plans that cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The plan has another format version.
    #[error(
        "the plan has version {version}, but this program reads {PLAN_VERSION}\nhint: make it again with `{command}`"
    )]
    Version {
        /// Version in the file.
        version: u64,
        /// Command in the file.
        command: String,
    },
    /// A JSON file of another kind.
    #[error("this is {found}, not a plan\nhint: {instead}")]
    NotAPlan {
        /// The kind of file.
        found: &'static str,
        /// Hint: an alternative.
        instead: &'static str,
    },
    /// A text that is not JSON, or not in the form of a plan.
    #[error(
        "no plan that can be read: line {line}, column {column}: {problem}\nhint: `planner search MODEL \
         --gpus N -o plan.json` writes one"
    )]
    Json {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// Description of the problem.
        problem: String,
    },
    /// The model in the plan cannot be read, or is not supported.
    #[error("the plan's `model`: {0}")]
    Model(#[from] ModelError),
    /// The model in the plan has no graph.
    #[error("the plan's `model`: {0}")]
    Graph(#[from] AdapterError),
    /// The layout is not valid for model, batch and ranks.
    #[error("the plan's `layout`: {0}")]
    Layout(#[from] LayoutError),
    /// The schedule cannot be generated.
    #[error("the plan's `layout`: {0}")]
    Schedule(#[from] GenerateError),
    /// Two parts of the plan disagree.
    #[error("the plan contradicts itself: {0}\nhint: make it again with its `provenance.command`")]
    Contradiction(String),
    /// A feature that can be planned, but that the executor does not support.
    #[error("{what} is not run yet{}", .instead.as_ref().map_or(String::new(), |i| format!("\nhint: {i}")))]
    Unsupported {
        /// The feature.
        what: String,
        /// Hint: a supported alternative.
        instead: Option<String>,
    },
}

pub(super) fn unsupported(what: impl Into<String>) -> ProgramError {
    ProgramError::Unsupported { what: what.into(), instead: None }
}

/// The same with a hint: a supported alternative.
pub(super) fn unsupported_but(what: impl Into<String>, instead: impl Into<String>) -> ProgramError {
    ProgramError::Unsupported { what: what.into(), instead: Some(instead.into()) }
}
