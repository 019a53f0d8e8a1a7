//! Errors of reading a native graph.

use super::file::VERSION;
use crate::graph::{GraphError, Tensor};
use crate::text::json::JsonError;

/// Errors of a text that is not a valid native graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NativeError {
    /// Text that is not JSON, or an object that is not a graph, apart from attributes of nodes.
    #[error("not a native graph, {0}")]
    Json(JsonError),
    /// JSON of another format.
    #[error("{}; that of a native graph is \"planner-graph\"", stated("format", found))]
    Format {
        /// The value found, as JSON; `null` where the field is absent.
        found: String,
    },
    /// A version of the format that this build does not know.
    #[error("{}; this build reads version {}", stated("version", found), VERSION)]
    Version {
        /// The value found, as JSON; `null` where the field is absent.
        found: String,
    },
    /// A node with missing, unknown or invalid attributes.
    #[error("node `{node}`: {problem}")]
    Node {
        /// The name of the node; `#3` for a node without a name at index 3.
        node: String,
        /// The attribute, and its valid values.
        problem: String,
    },
    /// Two nodes with the same name.
    #[error("two nodes are called `{name}`: numbers {first} and {second} of `nodes`, from 0")]
    DuplicateNode {
        /// The name.
        name: String,
        /// Index of the first node.
        first: usize,
        /// Index of the second node.
        second: usize,
    },
    /// An edge from or to a node that does not exist.
    #[error("edge `{from}` -> `{to}`: there is no node `{missing}`")]
    DanglingEdge {
        /// Source node of the edge.
        from: String,
        /// Target node of the edge.
        to: String,
        /// The one that does not exist.
        missing: String,
    },
    /// Slots of edges that do not number the inputs of a node.
    #[error(
        "the {} edges into `{node}` state slots {stated}, but must state each of 0 to {} once, or none \
         at all", num_edges, num_edges - 1
    )]
    Slots {
        /// The node.
        node: String,
        /// Number of edges into the node.
        num_edges: usize,
        /// Slots of these edges, in the order of the file; `-` where none is stated.
        stated: String,
    },
    /// Nodes that depend on each other in a cycle.
    #[error("nodes form a cycle: {}", cycle(nodes))]
    Cycle {
        /// The nodes; each precedes a consumer of its output, and the consumer of the last is the
        /// first.
        nodes: Vec<String>,
    },
    /// An input that no operator takes.
    #[error("input `{node}` is not used: no edge leads from it")]
    UnusedInput {
        /// The input's name.
        node: String,
    },
    /// An operator that does not accept its inputs.
    #[error(transparent)]
    Operator(#[from] GraphError),
    /// A shape stated on an edge that differs from the shape inferred from the operators.
    #[error("edge `{from}` -> `{to}` states shape {stated}, but `{from}` puts out {inferred}")]
    StatedShape {
        /// Source node of the edge.
        from: String,
        /// Target node of the edge.
        to: String,
        /// The stated shape.
        stated: String,
        /// The inferred tensor.
        inferred: Box<Tensor>,
    },
    /// More elements than the limit.
    #[error("node `{node}`: {what} would exceed {} elements, the most that is read", limit)]
    TooLarge {
        /// Node at which the limit is exceeded.
        node: String,
        /// Quantity that is too large.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// No operators.
    #[error("the graph has no operators (inputs: {num_inputs})")]
    Empty {
        /// Number of input nodes.
        num_inputs: usize,
    },
}

impl NativeError {
    /// Returns a hint that names a working alternative, where one is known.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Version { found } if found == "null" => {
                Some(format!("`\"version\": {VERSION}` says which version of the format it is"))
            }
            _ => None,
        }
    }
}

/// Text on a field's value, or on its absence.
fn stated(field: &str, found: &str) -> String {
    match found {
        "null" => format!("`{field}` is missing"),
        found => format!("`{field}` is {found}"),
    }
}

/// Text of a cycle: `a` -> `b` -> `a`.
fn cycle(nodes: &[String]) -> String {
    nodes
        .iter()
        .chain(nodes.first())
        .map(|node| format!("`{node}`"))
        .collect::<Vec<_>>()
        .join(" -> ")
}
