//! Errors of export and import.

use ir::layout::LayoutError;
use planner_core::problem::ProblemError;

use super::options::OptionError;
use super::shell::ShellError;
use super::target::Target;

/// A part of a plan that a tool does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The unsupported part.
    pub what: String,
    /// An option or setting that works instead.
    pub works: Option<String>,
    /// True if the part changes no predicted time or memory, so that a plan without it has the same prediction.
    pub is_free: bool,
}

impl Lack {
    pub(super) fn new(what: impl Into<String>, works: impl Into<String>) -> Self {
        Self { what: what.into(), works: Some(works.into()), is_free: false }
    }

    /// A part that changes predicted time or memory, and for which there is no substitute.
    pub(super) fn without_remedy(what: impl Into<String>) -> Self {
        Self { what: what.into(), works: None, is_free: false }
    }

    /// A part that changes what is computed, but no predicted time or memory.
    pub(super) fn free(what: impl Into<String>) -> Self {
        Self { what: what.into(), works: None, is_free: true }
    }
}

/// Error of an export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The tool does not support the whole plan.
    #[error("{} cannot run this plan: {}{}", target.tool(), listed(lacks), hint(lacks, *target))]
    Lacks {
        /// The tool.
        target: Target,
        /// Unsupported parts.
        lacks: Vec<Lack>,
    },
    /// The tool does not support the model, and no other layout changes that.
    #[error("{} cannot be given this model: {}", target.tool(), listed(lacks))]
    Model {
        /// The tool.
        target: Target,
        /// Unsupported parts of the model.
        lacks: Vec<Lack>,
    },
    /// The tool does not support the plan, and no layout near it fits in memory.
    #[error(
        "{} cannot run this plan, and no layout near it fits: {}\nhint: `planner search --framework {}` \
         finds what it runs", target.tool(), listed(lacks), target.framework().name
    )]
    NothingNear {
        /// The tool.
        target: Target,
        /// Unsupported parts.
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

/// Hint for settings of a tool that is known but that the planner cannot read.
pub(super) const OTHER: &str =
    "`planner evaluate MODEL --layout ..` takes the layout that they give";

/// Error of an import.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The script cannot be read.
    #[error(transparent)]
    Shell(#[from] ShellError),
    /// The options cannot be read.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The settings belong to no known tool, or lack a value that the plan needs.
    #[error("{what}\nhint: {works}")]
    Unknown {
        /// Missing or unknown part.
        what: String,
        /// Input that works.
        works: String,
    },
    /// Nothing in the settings starts a known program.
    #[error("{what}\nhint: {works}")]
    NothingStarts {
        /// What the settings have instead.
        what: String,
        /// Input that works.
        works: String,
    },
    /// The problem cannot be posed.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The layout is not valid.
    #[error("the layout that the settings give")]
    Layout(#[from] LayoutError),
    /// The settings describe another model.
    #[error("the settings are of another model than `{model}`: {}", differences.join("; "))]
    Model {
        /// Name of the model that was given.
        model: String,
        /// Differences between the settings and the model.
        differences: Vec<String>,
    },
    /// Ranks, sequences or layers do not divide evenly, or the command line contradicts the settings.
    #[error("{what}\nhint: {works}")]
    Divides {
        /// Kind of quantity.
        of: Divided,
        /// An option, and a value of it that agrees with the others.
        instead: Option<(&'static str, u64)>,
        /// Description of the quantities.
        what: String,
        /// Values that work.
        works: String,
    },
}

impl ImportError {
    pub(crate) fn unknown(what: impl Into<String>, works: impl Into<String>) -> Self {
        Self::Unknown { what: what.into(), works: works.into() }
    }

    pub(super) fn divides(of: Divided, what: impl Into<String>, works: impl Into<String>) -> Self {
        Self::Divides { of, instead: None, what: what.into(), works: works.into() }
    }

    /// An error of numbers that do not divide, with a value of an option that would agree with the others.
    pub(super) fn divides_unless(
        of: Divided,
        what: String,
        option: &'static str,
        value: u64,
    ) -> Self {
        let works = format!("`{option}` {value}");
        Self::Divides { of, instead: Some((option, value)), what, works }
    }

    /// Error that the model lacks what the settings train.
    pub(super) fn unbuilt(error: &impl ToString) -> Self {
        Self::unknown(error.to_string(), "a model that has what the settings are of")
    }

    /// Error for settings of a tool that is known but that the planner cannot read.
    pub(super) fn of_other(what: impl Into<String>) -> Self {
        Self::NothingStarts { what: what.into(), works: OTHER.to_owned() }
    }

    /// Returns whether the only program that the settings start belongs to a tool that is known but not read.
    pub(super) fn is_of_other(&self) -> bool {
        matches!(self, Self::NothingStarts { works, .. } if works == OTHER)
    }

    /// The error and what would work, in one line.
    pub(crate) fn in_one_line(&self) -> String {
        self.to_string().replace("\nhint: ", "; what would work: ")
    }
}

/// Quantity that does not divide, or that was stated twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divided {
    /// Ranks, into replicas and the ranks of each.
    Ranks,
    /// A batch, into micro-batches and replicas.
    Batch,
    /// Layers, into stages.
    Stages,
    /// Replicas, into groups that each shard a full copy of the states.
    ShardGroups,
    /// None: the settings and the command line state different values.
    Stated,
}
