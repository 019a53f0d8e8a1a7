//! Structure of the file.

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::attributes::Extent;
use super::kind::NodeKind;
use crate::text::{printable, printable_value};

/// The version of the format that is read.
pub(super) const VERSION: u64 = 1;

/// A model as a graph of operators, for the planner.
///
/// Shapes and parameters follow from the operators; a shape stated on an edge is checked.
#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", schemars(rename = "Graph"))]
pub(super) struct File<N> {
    /// Location of this file's JSON Schema, for editors.
    #[serde(rename = "$schema")]
    #[expect(dead_code, reason = "for editors only")]
    schema: Option<String>,
    /// Always `planner-graph`.
    #[expect(dead_code, reason = "checked before all else")]
    format: Format,
    /// Version of the format.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1)))]
    #[expect(dead_code, reason = "checked before all else")]
    version: u64,
    /// Name of the model.
    #[serde(deserialize_with = "crate::text::name")]
    pub(super) name: String,
    /// Description of the model, and the source of its sizes.
    #[expect(dead_code, reason = "for people only")]
    description: Option<String>,
    /// Operators and data inputs, in any order. Of several nodes that could come next, the first listed does.
    pub(super) nodes: Vec<N>,
    /// The tensors that go from node to node.
    pub(super) edges: Vec<Edge>,
}

/// Value of `format`, which distinguishes a native graph from other JSON.
#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
enum Format {
    #[serde(rename = "planner-graph")]
    PlannerGraph,
}

/// A node before its kind is parsed, so that errors can state its name.
#[derive(Debug)]
pub(super) struct RawNode(pub(super) Map<String, Value>);

impl<'de> Deserialize<'de> for RawNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Attributes;
        impl<'de> Visitor<'de> for Attributes {
            type Value = RawNode;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a node, as in {\"name\": \"relu1\", \"kind\": \"relu\"}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<RawNode, A::Error> {
                let mut map = Map::new();
                while let Some((key, value)) = access.next_entry::<String, Value>()? {
                    let (key, value) = (printable(&key).into_owned(), printable_value(value));
                    if map.contains_key(&key) {
                        return Err(de::Error::custom(format!("`{key}` is stated twice")));
                    }
                    map.insert(key, value);
                }
                Ok(RawNode(map))
            }
        }
        deserializer.deserialize_map(Attributes)
    }
}

/// A tensor from one node to another.
#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "an edge, as in {\"from\": \"conv1\", \"to\": \"relu1\"}")]
pub(super) struct Edge {
    /// The node whose output the tensor is.
    #[serde(deserialize_with = "crate::text::name")]
    pub(super) from: String,
    /// The node that reads the tensor.
    #[serde(deserialize_with = "crate::text::name")]
    pub(super) to: String,
    /// Index of the input of `to`, from 0. Either all edges into a node state it, or none: then inputs have the order
    /// in which the edges are listed.
    pub(super) slot: Option<u64>,
    /// Shape of the tensor, outermost dimension first. It is checked against the shape that follows from the
    /// operators.
    pub(super) shape: Option<Vec<Extent>>,
}

/// An operator, or an input of the model.
#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("unevaluatedProperties" = false)))]
pub(super) struct Node {
    /// Unique name of the node.
    pub(super) name: String,
    /// An earlier node with which this one shares the parameters of the same names: a head that reads the table of an
    /// embedding, a layer that runs twice.
    pub(super) tied_to: Option<String>,
    /// Operation of the node, with its attributes.
    #[serde(flatten)]
    pub(super) kind: NodeKind,
}
