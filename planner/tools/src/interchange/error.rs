//! Why a plan cannot be written for a tool, or a tool's settings cannot be read.

use ir::layout::LayoutError;
use planner_core::problem::ProblemError;

use super::options::OptionError;
use super::shell::ShellError;
use super::target::Target;

/// Something of a plan that a tool cannot say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// What.
    pub what: String,
    /// What would work instead.
    pub works: Option<String>,
    /// Whether it changes no time and no memory that is predicted, so that a plan without it is the same plan.
    pub is_free: bool,
}

impl Lack {
    pub(super) fn new(what: impl Into<String>, works: impl Into<String>) -> Self {
        Self { what: what.into(), works: Some(works.into()), is_free: false }
    }
}

/// Why a plan cannot be written for a tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The tool cannot say all of it.
    #[error("{} cannot run this plan: {}{}", target.tool(), listed(lacks), hint(lacks, *target))]
    Lacks {
        /// For which.
        target: Target,
        /// What it cannot say.
        lacks: Vec<Lack>,
    },
    /// The tool cannot say the model, and no other layout changes that.
    #[error("{} cannot be given this model: {}", target.tool(), listed(lacks))]
    Model {
        /// For which.
        target: Target,
        /// What it cannot say.
        lacks: Vec<Lack>,
    },
    /// Nothing near it fits either.
    #[error(
        "{} cannot run this plan, and no layout near it fits: {}\nhint: `planner search --framework {}` \
         finds what it runs", target.tool(), listed(lacks), target.framework().name
    )]
    NothingNear {
        /// For which.
        target: Target,
        /// What it cannot say.
        lacks: Vec<Lack>,
    },
}

fn listed(lacks: &[Lack]) -> String {
    lacks.iter().flat_map(|lack| ["\n  ", &lack.what]).collect()
}

fn hint(lacks: &[Lack], target: Target) -> String {
    if lacks.iter().all(|lack| lack.is_free) {
        return "\nhint: `--approximate` leaves that out, which changes no predicted time"
            .to_owned();
    }
    let works: Vec<&str> = lacks.iter().filter_map(|lack| lack.works.as_deref()).collect();
    let works = if works.is_empty() { String::new() } else { format!("{}; or ", works.join("; ")) };
    format!(
        "\nhint: {works}`--approximate` writes the nearest plan that it runs and says what that costs; `planner \
         search --framework {}` finds the best",
        target.framework().name
    )
}

/// Why settings become no plan.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The script cannot be read.
    #[error(transparent)]
    Shell(#[from] ShellError),
    /// The options cannot be read.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// It is no file of a tool that is known.
    #[error("{what}\nhint: {works}")]
    Unknown {
        /// What is missing.
        what: String,
        /// What would work.
        works: String,
    },
    /// The problem cannot be posed.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The layout is not valid.
    #[error("the layout that the settings give")]
    Layout(#[from] LayoutError),
    /// The settings are of another model.
    #[error("the settings are of another model than `{model}`: {}", differences.join("; "))]
    Model {
        /// The model that was given.
        model: String,
        /// What differs.
        differences: Vec<String>,
    },
    /// Ranks, sequences or layers do not divide.
    #[error("{what}\nhint: {works}")]
    Divides {
        /// Of what.
        of: Divided,
        /// An option, and the number with which it agrees with the others.
        instead: Option<(&'static str, u64)>,
        /// What does not.
        what: String,
        /// What would.
        works: String,
    },
}

/// What is divided, or was stated twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divided {
    /// Ranks, into replicas and their parts.
    Ranks,
    /// A batch, into micro-batches and replicas.
    Batch,
    /// Layers, into stages.
    Stages,
    /// Nothing: settings and command line say two different things.
    Stated,
}
