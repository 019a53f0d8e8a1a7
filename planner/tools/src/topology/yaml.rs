//! Trees of switches and blocks in YAML: Slurm's `topology.yaml`, and topograph's models.
//!
//! # Source
//!
//! Slurm's manual, `topology.yaml`: `tree` with `switches`, `block` with `blocks`. NVIDIA topograph, `tests/models`:
//! names of switches with `switches` and `nodes`, and below them a list of `blocks`.

use std::collections::BTreeMap;

use super::error::TopologyError;
use super::slurm::expanded;
use super::tree::{NodeTree, Switch};
use crate::interchange::tree::{Notation, Tree};

/// Switches and blocks by name, and their order in the file.
#[derive(Default)]
struct Named {
    order: Vec<String>,
    all: BTreeMap<String, Switch>,
}

impl Named {
    /// The switch with a name; it is added if it does not exist.
    fn of(&mut self, name: &str) -> &mut Switch {
        if !self.all.contains_key(name) {
            self.order.push(name.to_owned());
        }
        self.all.entry(name.to_owned()).or_default()
    }

    fn tree(&self, is_blocks: bool) -> Result<NodeTree, TopologyError> {
        NodeTree::of_switches(&self.order, &self.all, is_blocks)
    }
}

/// Reads a text; `None` if it is not YAML of a topology.
pub(super) fn read(text: &str) -> Option<Result<NodeTree, TopologyError>> {
    let read = Tree::read(text, Notation::Yaml).ok()?;
    if read.get("switches").or(read.get("blocks")).is_some() {
        return Some(of_topograph(&read));
    }
    let Tree::List(all) = &read else { return None };
    let is_default = |it: &&Tree| it.get("cluster_default").and_then(Tree::text) == Some("true");
    let has_nodes = |it: &&Tree| it.has_any(&["tree", "block"]);
    let default = all.iter().filter(is_default).find(has_nodes);
    Some(of_slurm(default.or_else(|| all.iter().find(has_nodes))?))
}

/// Reads one topology of Slurm's file.
fn of_slurm(topology: &Tree) -> Result<NodeTree, TopologyError> {
    let mut named = Named::default();
    let of = |kind: &str, list: &str| topology.get(kind)?.get(list).cloned();
    for one in of("tree", "switches").iter().flat_map(Tree::items) {
        let (nodes, below) = (names(one, "nodes")?, names(one, "children")?);
        *named.of(name_of(one, "switch")?) = Switch { nodes, below };
    }
    let blocks = of("block", "blocks");
    for one in blocks.iter().flat_map(Tree::items) {
        named.of(name_of(one, "block")?).nodes = names(one, "nodes")?;
    }
    named.tree(blocks.is_some())
}

/// Reads a model of topograph, where switches without nodes and without switches below them need no entry.
fn of_topograph(model: &Tree) -> Result<NodeTree, TopologyError> {
    let mut named = Named::default();
    for (name, one) in model.get("switches").map_or(&[][..], Tree::keys) {
        let (nodes, below) = (names(one, "nodes")?, names(one, "switches")?);
        named.of(name).nodes.extend(nodes);
        for name in &below {
            named.of(name);
        }
        named.of(name).below.extend(below);
    }
    let blocks = model.get("blocks");
    for one in blocks.into_iter().flat_map(Tree::items) {
        named.of(name_of(one, "switch")?).nodes.extend(names(one, "nodes")?);
    }
    named.tree(blocks.is_some())
}

/// The name of a switch or block, under a key.
fn name_of<'a>(one: &'a Tree, key: &str) -> Result<&'a str, TopologyError> {
    let text = one.get(key).and_then(Tree::text);
    text.ok_or_else(|| TopologyError::Entry { problem: format!("an entry has no `{key}`") })
}

/// Names under a key: a list in Slurm's bracket notation, or several; empty without the key.
fn names(one: &Tree, key: &str) -> Result<Vec<String>, TopologyError> {
    let patterns: Vec<&str> = match one.get(key) {
        None | Some(Tree::Null) => Vec::new(),
        Some(Tree::Value(text)) => vec![text],
        Some(list) => list.items().iter().filter_map(Tree::text).collect(),
    };
    let all = patterns.into_iter().map(expanded).collect::<Result<Vec<_>, _>>();
    Ok(all.map_err(|problem| TopologyError::Entry { problem })?.concat())
}
