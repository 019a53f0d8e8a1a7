//! What may be wrong with a native graph.

use super::file::VERSION;
use crate::graph::{GraphError, Tensor};
use crate::text::json;

/// Why a text is not a graph that can be planned for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NativeError {
    /// Not JSON, or not of the form of a graph outside of the attributes of nodes.
    #[error("not a native graph, line {line}, column {column}: {problem}")]
    Json {
        /// What the parser expected or found.
        problem: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// JSON of another format.
    #[error("{}; that of a native graph is \"planner-graph\"", stated("format", found))]
    Format {
        /// What it is, as JSON; `null` if it is absent.
        found: String,
    },
    /// A version of the format that this build does not know.
    #[error("{}; this build reads version {}", stated("version", found), VERSION)]
    Version {
        /// What it is, as JSON; `null` if it is absent.
        found: String,
    },
    /// A node with attributes that are missing, unknown or out of range.
    #[error("node `{node}`: {problem}")]
    Node {
        /// Its name, or `#3` if it has none.
        node: String,
        /// Which attribute, and what would do.
        problem: String,
    },
    /// A node of a kind that there is not.
    #[error("node `{node}` is of unknown kind `{kind}`; known are {known}")]
    UnknownKind {
        /// Its name.
        node: String,
        /// What it claims to be.
        kind: String,
        /// The kinds that there are.
        known: String,
    },
    /// Two nodes of one name.
    #[error("two nodes are called `{name}`: numbers {first} and {second} of `nodes`, from 0")]
    DuplicateNode {
        /// The name.
        name: String,
        /// Position of the first.
        first: usize,
        /// Position of the second.
        second: usize,
    },
    /// An edge from or to a node that there is not.
    #[error("edge `{from}` -> `{to}`: there is no node `{missing}`")]
    DanglingEdge {
        /// Where the edge comes from.
        from: String,
        /// Where it goes.
        to: String,
        /// Which of the two is missing.
        missing: String,
    },
    /// Slots that do not number the inputs of a node.
    #[error(
        "the {} edges into `{node}` state slots {stated}, but must state each of 0 to {} once, or none \
         at all", num_edges, num_edges - 1
    )]
    Slots {
        /// The node.
        node: String,
        /// How many edges lead to it.
        num_edges: usize,
        /// What they state, in the order of the file; `-` for none.
        stated: String,
    },
    /// Nodes that wait for each other.
    #[error("nodes form a cycle: {}", cycle(nodes))]
    Cycle {
        /// The nodes, each before the one that takes its output; the last leads to the first.
        nodes: Vec<String>,
    },
    /// An input that no operator takes.
    #[error("input `{node}` is not used: no edge leads from it")]
    UnusedInput {
        /// Its name.
        node: String,
    },
    /// An operator that cannot take what it is given.
    #[error(transparent)]
    Operator(#[from] GraphError),
    /// A shape stated on an edge that is not the shape that follows from the operators.
    #[error("edge `{from}` -> `{to}` states shape {stated}, but `{from}` puts out {inferred}")]
    StatedShape {
        /// Where the edge comes from.
        from: String,
        /// Where it goes.
        to: String,
        /// What it states.
        stated: String,
        /// What follows from the operators.
        inferred: Box<Tensor>,
    },
    /// More elements than can be planned for.
    #[error("node `{node}`: {what} would exceed {} elements, the most that is read", limit)]
    TooLarge {
        /// Where the limit is passed.
        node: String,
        /// What is too large.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// No operators.
    #[error("the graph has no operators (inputs: {num_inputs})")]
    Empty {
        /// How many inputs there are.
        num_inputs: usize,
    },
}

impl NativeError {
    /// What would work instead, where that can be told.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownKind { kind, known, .. } => {
                let known: Vec<String> = known.split(", ").map(|it| format!("`{it}`")).collect();
                let near = json::nearest_of(kind, &known.join(", "))?.to_owned();
                Some(format!("`{near}` is the nearest"))
            }
            Self::Version { found } if found == "null" => {
                Some(format!("`\"version\": {VERSION}` says which version of the format it is"))
            }
            _ => None,
        }
    }

    /// What kept `text` from being read.
    pub(super) fn json(text: &str, error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        Self::Json { problem: json::problem(text, error), line, column }
    }
}

/// What a field has, or that it is not there.
fn stated(field: &str, found: &str) -> String {
    match found {
        "null" => format!("`{field}` is missing"),
        found => format!("`{field}` is {found}"),
    }
}

/// `a` -> `b` -> `a`.
fn cycle(nodes: &[String]) -> String {
    nodes
        .iter()
        .chain(nodes.first())
        .map(|node| format!("`{node}`"))
        .collect::<Vec<_>>()
        .join(" -> ")
}
