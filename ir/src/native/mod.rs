//! The native format: a model as a graph of operators, for what is not a transformer.
//!
//! A file is a JSON object. Its nodes are operators with attributes, its edges are tensors. Shapes
//! and parameters follow from the operators; a shape that an edge states is checked, never believed.
//! `models/graph.schema.json` is the JSON Schema, [`schema`] makes it, `models/*.json` are examples.
//!
//! ```
//! let text = r#"{
//!   "format": "planner-graph",
//!   "version": 1,
//!   "name": "toy-mlp",
//!   "nodes": [
//!     {"name": "x", "kind": "input", "dims": ["batch", "features"], "shape": ["b", 10]},
//!     {"name": "net1", "kind": "linear", "out_features": 10},
//!     {"name": "relu", "kind": "relu"},
//!     {"name": "net2", "kind": "linear", "out_features": 5},
//!     {"name": "loss", "kind": "mean_squared_error"}
//!   ],
//!   "edges": [
//!     {"from": "x", "to": "net1", "shape": ["b", 10]},
//!     {"from": "net1", "to": "relu"},
//!     {"from": "relu", "to": "net2"},
//!     {"from": "net2", "to": "loss", "shape": ["b", 5]}
//!   ]
//! }"#;
//! let (name, graph) = ir::native::read(text)?;
//! assert_eq!(name, "toy-mlp");
//! assert_eq!(graph.parameter_counts().total, 165);
//! // Two blocks: net1 and its activation, net2 and the loss.
//! assert_eq!(graph.num_blocks(), 2);
//! # Ok::<(), ir::native::NativeError>(())
//! ```
//!
//! # Top level
//!
//! `format` is `planner-graph`, `version` is 1, `name` is what the model is called. `nodes` and
//! `edges` follow. `description` and `$schema` may be there, for people and for editors. Anything
//! else is an error, as is an attribute that a kind does not have.
//!
//! # Nodes
//!
//! A node has a `name` of its own, a `kind`, and the attributes of that kind. What may be left out
//! defaults to what it does in PyTorch.
//!
//! | kind | attributes (default) | inputs |
//! |---|---|---|
//! | `input` | `dims`, `shape`, `element` (`number`; `index` for tokens) | none |
//! | `linear` | `out_features`, `out_dims` (`["features"]`), `over` (last), `bias` (true) | x |
//! | `conv2d` | `out_channels`, `kernel`, `stride` (1), `padding` (0), `groups` (1), `bias` (true) | x |
//! | `max_pool2d`, `average_pool2d` | `kernel`, `stride` (`kernel`), `padding` (0) | x |
//! | `adaptive_average_pool2d` | `output` | x |
//! | `gather` | | x |
//! | `flatten` | | x |
//! | `batch_norm` | `weight` (true), `bias` (true) | x |
//! | `layer_norm` | `over` (last), `weight` (true), `bias` (true) | x |
//! | `rms_norm` | `over` (last), `weight` (true) | x |
//! | `gelu`, `relu`, `silu`, `tanh`, `sigmoid`, `dropout` | | x |
//! | `gated_activation` | `activation`: one of the five | gate, value |
//! | `softmax` | `over` (last) | x |
//! | `add` | | two or more of one shape |
//! | `multiply` | | a, b; b may lack dimensions |
//! | `concat` | `over` | two or more |
//! | `slice` | `dim`, `size` | x |
//! | `embedding` | `num_embeddings`, `embedding_dim`, `out_dim` (`hidden`) | indices |
//! | `attention` | `mask` (`full`; `causal`, `{"sliding_window": 4096}`) | q, k, v |
//! | `attention_scores`, `attention_values` | | q, k; probabilities, v |
//! | `rotary`, `prepend_parameter`, `patches_to_sequence`, `first_token` | | x |
//! | `add_parameter` | `over` | x |
//! | `router` | `num_experts`, `top_k`, `bias` (false) | x |
//! | `dispatch` | `top_k` | x, probabilities |
//! | `grouped_linear` | `num_experts`, and those of `linear` | x |
//! | `combine` | | y, probabilities |
//! | `cross_entropy` | `over` (last) | logits |
//! | `mean_squared_error` | | prediction |
//!
//! `kernel`, `stride`, `padding` and `output` are one integer, or two for rows and columns.
//!
//! # Shapes
//!
//! Dimensions have names, since the name decides how a dimension may be sharded: `batch`,
//! `sequence`, `context`, `hidden`, `heads`, `kv_heads`, `head_dim`, `intermediate`, `experts`,
//! `top_k`, `vocabulary`, `latent`, `features`, `channels`, `height`, `width`. An input names them in
//! `dims` and gives their sizes in `shape`, outermost first: `"b"` for the batch, `"s"` for a
//! sequence whose length the step decides, integers for the rest.
//!
//! ```json
//! {"name": "image", "kind": "input", "dims": ["batch", "channels", "height", "width"], "shape": ["b", 3, 224, 224]}
//! {"name": "tokens", "kind": "input", "dims": ["batch", "sequence"], "shape": ["b", "s"], "element": "index"}
//! {"name": "query", "kind": "linear", "over": ["hidden"], "out_features": [8, 64], "out_dims": ["heads", "head_dim"]}
//! ```
//!
//! No size exceeds [`MAX_SIZE`], no tensor [`MAX_ELEMENTS`] for each sample, no model
//! [`MAX_PARAMETERS`].
//!
//! # Edges
//!
//! An edge leads `from` a node `to` a node. A node that takes several tensors takes them in the
//! order in which its edges are listed, unless each of them states its `slot`, from 0. `shape`, if
//! there, is what `from` puts out.
//!
//! # Blocks
//!
//! The nodes are put in topological order, the first listed first where there is a choice, and cut
//! into a chain of blocks, which is what pipeline stages are made of. A block ends wherever a single
//! tensor goes on, as after each residual sum. Activations, dropout, batch norms, flattening and
//! losses stay with what they follow. A block is called what its first operator is called. What
//! nobody takes is an output of the last block; an output in the middle, or an input listed long
//! before it is used, leaves no cut between there and the end or its use.

mod assemble;
mod attributes;
mod convert;
mod error;
mod file;
mod kind;
mod limits;
mod wiring;

use serde::Deserialize;
use serde_json::Value;

pub use error::NativeError;
use file::{File, Node, RawNode, VERSION};
use kind::KINDS;
pub use limits::{MAX_ELEMENTS, MAX_PARAMETERS, MAX_SIZE};

use crate::graph::Graph;
use crate::text::json;

/// The name and the graph of the model that `text` describes.
///
/// # Errors
///
/// [`NativeError`] where the text is not a graph of this format, or its operators do not fit.
pub fn read(text: &str) -> Result<(String, Graph), NativeError> {
    let wrong = |error| NativeError::json(text, &error);
    // Of a later version, nothing but these two fields need be known.
    let json: Value = serde_json::from_str(text).map_err(wrong)?;
    if json["format"] != "planner-graph" {
        return Err(NativeError::Format { found: json["format"].to_string() });
    }
    if json["version"] != VERSION {
        return Err(NativeError::Version { found: json["version"].to_string() });
    }
    let file: File<RawNode> = serde_json::from_str(text).map_err(wrong)?;
    let nodes = file.nodes.into_iter().enumerate();
    let nodes = nodes.map(|(index, raw)| node(index, raw)).collect::<Result<Vec<_>, _>>()?;
    Ok((file.name, assemble::graph(&nodes, &file.edges)?))
}

/// The JSON Schema of the format.
pub fn schema() -> Value {
    schemars::schema_for!(File<Node>).to_value()
}

fn node(index: usize, RawNode(attributes): RawNode) -> Result<Node, NativeError> {
    let name = attributes.get("name").and_then(Value::as_str);
    let name = name.map_or_else(|| format!("#{index}"), ToOwned::to_owned);
    if let Some(Value::String(kind)) = attributes.get("kind")
        && !KINDS.contains(&kind.as_str())
    {
        return Err(NativeError::UnknownKind {
            node: name,
            kind: kind.clone(),
            known: KINDS.join(", "),
        });
    }
    Node::deserialize(Value::Object(attributes))
        .map_err(|error| NativeError::Node { node: name, problem: json::problem("", &error) })
}
