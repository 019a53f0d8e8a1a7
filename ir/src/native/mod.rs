//! The native format: a model as a graph of operators, for models that are not transformers.
//!
//! A file is a JSON object. Its nodes are operators with attributes, its edges are tensors. Shapes and parameters are
//! inferred from the operators; a shape stated on an edge is only checked. The JSON Schema is
//! `models/graph.schema.json`, made by [`schema`]; examples are `models/*.json`.
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
//! `format` is `planner-graph`, `version` is 1, `name` is the name of the model. `nodes` and `edges` follow.
//! `description` (for readers) and `$schema` (for editors) are optional. Any other field is an error, as is an
//! attribute that a node's kind does not have.
//!
//! # Nodes
//!
//! A node has a unique `name`, a `kind`, and the attributes of that kind. Optional attributes have PyTorch's defaults.
//!
//! | kind | attributes (default) | inputs |
//! |---|---|---|
//! | `input` | `dims`, `shape`, `element` (`number`; `index` for tokens) | none |
//! | `linear` | `out_features`, `out_dims` (`["features"]`), `over` (last), `bias` (true) | x |
//! | `conv2d` | `out_channels`, `kernel`, `stride` (1), `padding` (0), `dilation` (1), `groups` (1), `bias` (true) | x |
//! | `conv_transpose2d` | those of `conv2d`, `output_padding` (0) | x |
//! | `upsample2d` | `output`, `mode` (`nearest`; `bilinear`, `bicubic`) | x |
//! | `max_pool2d`, `average_pool2d` | `kernel`, `stride` (`kernel`), `padding` (0), `ceil_mode` (false) | x |
//! | `adaptive_average_pool2d` | `output` | x |
//! | `gather` | | x |
//! | `flatten` | | x |
//! | `batch_norm` | `weight` (true), `bias` (true), `epsilon` (1e-5) | x |
//! | `group_norm` | `groups`, `weight` (true), `bias` (true), `epsilon` (1e-5) | x |
//! | `layer_norm` | `over` (last), `weight` (true), `bias` (true), `epsilon` (1e-5) | x |
//! | `rms_norm` | `over` (last), `weight` (true), `epsilon` (1e-5) | x |
//! | `gelu`, `gelu_tanh`, `relu`, `silu`, `tanh`, `sigmoid` | | x |
//! | `gated_activation` | `activation`: one of the six | gate, value |
//! | `scale`, `soft_cap`, `clamp` | `factor`; `cap`; `limit` | x |
//! | `dropout` | `rate` (0.5) | x |
//! | `softmax` | `over` (last) | x |
//! | `add` | | two or more of one shape |
//! | `multiply` | | a, b; b may lack dimensions |
//! | `elementwise` | `function`: one of the schema's | x, or a, b broadcast to each other |
//! | `product` | `over` | a, b |
//! | `reduce` | `function` (`sum`, `mean`, `max`, `norm`), `over` | x |
//! | `reshape` | `dims`, `shape` | x |
//! | `pad`, `take` | `dim`, `size` | x |
//! | `concat` | `over` | two or more; those that lack dimensions are broadcast |
//! | `slice` | `dim`, `size`, `start` (0) | x |
//! | `embedding` | `num_embeddings`, `embedding_dim`, `out_dim` (`hidden`) | indices |
//! | `embedding_bag` | the same | indices, those of a bag last |
//! | `attention` | `mask` (`full`; `causal`, `{"sliding_window": 512}`), `scale`, `soft_cap`, `dropout` (0) | q, k, v |
//! | `attention_scores`, `attention_values` | | q, k; probabilities, v |
//! | `rotary` | `theta` (10000), `features` (all), `scaling` (none) | x |
//! | `parameter` | `dims`, `shape` | none |
//! | `prepend_parameter`, `patches_to_sequence`, `first_token` | | x |
//! | `add_parameter` | `over` | x |
//! | `router` | `num_experts`, `top_k`, `bias` (false), `normalize` (true) | x |
//! | `dispatch` | `top_k` | x, probabilities |
//! | `grouped_linear` | `num_experts`, and those of `linear` | x |
//! | `combine` | | y, probabilities |
//! | `cross_entropy` | `over` (last) | logits |
//! | `mean_squared_error` | | prediction |
//!
//! `product` sums over dimensions that both inputs have, once for each index of the other dimensions that both have;
//! the output has the dimensions of a, then those that only b has. A node that is `tied_to` an earlier one shares the
//! parameters of the same names with it: a head that reads the table of an embedding, a layer that runs twice.
//!
//! `kernel`, `stride`, `padding` and `output` are one integer, or two for rows and columns.
//!
//! # Shapes
//!
//! Dimensions have names; the name decides how a dimension may be sharded: `batch`, `sequence`, `context`, `hidden`,
//! `heads`, `kv_heads`, `head_dim`, `groups`, `state`, `intermediate`, `experts`, `top_k`, `vocabulary`, `latent`,
//! `features`, `channels`, `height`, `width`. An input names them in `dims` and gives their sizes in `shape`,
//! outermost first: `"b"` for the batch, `"s"` for a sequence whose length is decided by the step, integers for the
//! rest.
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
//! An edge leads `from` a node `to` a node. The order of a node's inputs is the order in which its edges are listed,
//! unless each of these edges states its `slot`, from 0. `shape`, where stated, is that of the output of `from`.
//!
//! # Blocks
//!
//! The nodes are sorted topologically; where there is a choice, the node listed first comes first. They are then cut
//! into a chain of blocks, from which pipeline stages are made. A block ends wherever a single tensor is live, as
//! after each residual sum. Activations, dropout, batch norms, flattening and losses stay in the block of their
//! predecessor. A block has the name of its first operator. Tensors without consumers are outputs of the last block.
//! Such a tensor in the middle prevents cuts from there to the end; an input listed long before its use prevents them
//! from there to its use.

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
pub use limits::{MAX_ELEMENTS, MAX_PARAMETERS, MAX_SIZE};

use crate::graph::Graph;
use crate::text::json;

/// Reads the name and the graph of the model that `text` describes.
///
/// # Errors
///
/// [`NativeError`] where the text is not a graph of this format, or its operators do not fit.
pub fn read(text: &str) -> Result<(String, Graph), NativeError> {
    // These two fields are read first, since later versions may have other fields.
    let json: Value = json::read(text).map_err(NativeError::Json)?;
    if json["format"] != "planner-graph" {
        return Err(NativeError::Format { found: json["format"].to_string() });
    }
    if json["version"] != VERSION {
        return Err(NativeError::Version { found: json["version"].to_string() });
    }
    let file: File<RawNode> = json::read(text).map_err(NativeError::Json)?;
    let nodes = file.nodes.into_iter().enumerate();
    let nodes = nodes.map(|(index, raw)| node(index, raw)).collect::<Result<Vec<_>, _>>()?;
    Ok((file.name, assemble::graph(&nodes, &file.edges)?))
}

/// Returns the JSON Schema of the format.
#[cfg(feature = "schema")]
pub fn schema() -> Value {
    schemars::schema_for!(File<Node>).to_value()
}

fn node(index: usize, RawNode(attributes): RawNode) -> Result<Node, NativeError> {
    let name = attributes.get("name").and_then(Value::as_str);
    let name = name.map_or_else(|| format!("#{index}"), ToOwned::to_owned);
    Node::deserialize(&Value::Object(attributes.clone())).map_err(|error| {
        let problem = json::problem("", &error);
        // Values that were already parsed have no position, so the attribute with the unknown word is looked up.
        let is_of = |value: &Value| problem.starts_with(&format!("a field is `{}`,", text(value)));
        let field = attributes.iter().find(|(_, value)| is_of(value)).map(|(field, _)| field);
        let named = field.map(|field| problem.replacen("a field", &format!("`{field}`"), 1));
        NativeError::Node { node: name, problem: named.unwrap_or(problem) }
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
