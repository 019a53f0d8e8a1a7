//! Builds a chain of blocks from a file's nodes and edges.

use std::collections::{BTreeMap, BTreeSet};

use super::convert;
use super::error::NativeError;
use super::file::{Edge, Node};
use super::kind::NodeKind;
use super::limits::{MAX_ELEMENTS, MAX_PARAMETERS};
use super::wiring::Wiring;
use crate::graph::{Block, BlockBuilder, Dim, Extent, Graph, OpKind, Parameter, Tensor, Value};

/// Builds the graph of `nodes` and `edges`.
pub(super) fn graph(nodes: &[Node], edges: &[Edge]) -> Result<Graph, NativeError> {
    let wiring = Wiring::new(nodes, edges)?;
    check_inputs(nodes, &wiring)?;
    let order = wiring.order(nodes)?;
    let mut assembly = Assembly {
        nodes,
        wiring: &wiring,
        outputs: vec![None; nodes.len()],
        num_parameters: 0,
        parameters: BTreeMap::new(),
    };
    let groups = wiring.cut(nodes, &order);
    let mut blocks: Vec<(Block, u32)> = Vec::with_capacity(groups.len());
    for (index, group) in groups.iter().enumerate() {
        let leaving = match group.last() {
            Some(last) if index + 1 < groups.len() => vec![*last],
            _ => wiring.sinks().collect(),
        };
        let block = assembly.block(group, &leaving)?;
        let block = match blocks.last() {
            Some((before, _)) => block.after(before),
            None => block,
        };
        blocks.push((block, 1));
    }
    assembly.check_edges(edges)?;
    Ok(Graph::new(blocks)?)
}

/// Checks that inputs have no incoming edge and are used, and that every operator has an input edge.
fn check_inputs(nodes: &[Node], wiring: &Wiring) -> Result<(), NativeError> {
    let num_inputs = nodes.iter().filter(|node| node.kind.is_source()).count();
    if num_inputs == nodes.len() {
        return Err(NativeError::Empty { num_inputs });
    }
    for (node, sources) in nodes.iter().zip(&wiring.inputs) {
        let is_input = matches!(node.kind, NodeKind::Input { .. });
        let problem = match sources.first() {
            Some(source) if is_input => {
                format!("is an input, but `{}` leads to it", nodes[*source].name)
            }
            Some(_) if node.kind.is_source() => "is a parameter, which takes no input".to_owned(),
            None if !node.kind.is_source() => "no edge leads to it".to_owned(),
            _ => continue,
        };
        return Err(NativeError::Node { node: node.name.clone(), problem });
    }
    match wiring.sinks().find(|sink| matches!(nodes[*sink].kind, NodeKind::Input { .. })) {
        Some(sink) => Err(NativeError::UnusedInput { node: nodes[sink].name.clone() }),
        None => Ok(()),
    }
}

struct Assembly<'a> {
    nodes: &'a [Node],
    wiring: &'a Wiring,
    /// Output tensor of each node, where it has been inferred.
    outputs: Vec<Option<Tensor>>,
    /// Number of parameters of the blocks so far.
    num_parameters: u64,
    /// Parameters of the nodes processed so far that have any, by name.
    parameters: BTreeMap<&'a str, Vec<Parameter>>,
}

impl Assembly<'_> {
    /// Builds the block of the nodes `group`; its outputs are those of the nodes `leaving`.
    fn block(&mut self, group: &[usize], leaving: &[usize]) -> Result<Block, NativeError> {
        let first = group.iter().find(|node| !self.wiring.inputs[**node].is_empty());
        let name = first.map_or("", |node| self.nodes[*node].name.as_str());
        let mut block = BlockBuilder::new(name);
        let mut values = BTreeMap::new();
        // Outputs of earlier blocks come before data.
        let taken = group.iter().flat_map(|node| &self.wiring.inputs[*node]);
        for node in taken.filter(|node| !group.contains(node)) {
            self.value(&mut block, &mut values, *node);
        }
        for node in group {
            let sources = &self.wiring.inputs[*node];
            let inputs: Vec<Value> =
                sources.iter().map(|source| self.value(&mut block, &mut values, *source)).collect();
            let value = self.add(&mut block, *node, &inputs)?;
            values.insert(*node, value);
        }
        let outputs: Vec<Value> =
            leaving.iter().map(|node| self.value(&mut block, &mut values, *node)).collect();
        let block = block.finish(outputs);
        self.count_parameters(&block)?;
        Ok(block)
    }

    /// Output of `node` within `block`: computed there, or an input from an earlier block.
    fn value(
        &self,
        block: &mut BlockBuilder,
        values: &mut BTreeMap<usize, Value>,
        node: usize,
    ) -> Value {
        *values.entry(node).or_insert_with(|| {
            let tensor = self.outputs[node].clone().expect("what a node takes is known before it");
            block.input(self.nodes[node].name.clone(), tensor)
        })
    }

    fn add(
        &mut self,
        block: &mut BlockBuilder,
        node: usize,
        inputs: &[Value],
    ) -> Result<Value, NativeError> {
        let Node { name, kind, tied_to } = &self.nodes[node];
        let wrong = |problem| NativeError::Node { node: name.clone(), problem };
        let value = match kind {
            NodeKind::Input { dims, shape, element } => {
                let tensor = convert::input(dims, shape, *element).map_err(wrong)?;
                block.input(name.clone(), tensor)
            }
            NodeKind::Parameter { dims, shape } => {
                let kind = convert::parameter(dims, shape).map_err(wrong)?;
                block.push(name.clone(), kind, &[])?
            }
            kind => {
                if let NodeKind::EmbeddingBag { embedding_dim, .. } = kind {
                    let rows = block.tensor(inputs[0]).dims.iter().map(|dim| dim.extent);
                    let width = Extent::Fixed(embedding_dim.0);
                    check_elements(name, "what it reads, for each sample,", rows.chain([width]))?;
                }
                let kind = convert::operator(kind, block.tensor(inputs[0])).map_err(wrong)?;
                let policy = recompute(&kind);
                let value = block.push(name.clone(), kind, inputs)?;
                policy(block, value);
                value
            }
        };
        if let Some(target) = tied_to {
            self.tie(block, value, name, target)?;
        }
        let tensor = block.tensor(value);
        check_tensor(name, tensor)?;
        self.outputs[node] = Some(tensor.clone());
        self.parameters.insert(name, block.parameters(value).to_vec());
        Ok(value)
    }

    /// Ties the parameters of a node to those of an earlier node with the same names.
    fn tie(
        &mut self,
        block: &mut BlockBuilder,
        value: Value,
        name: &str,
        target: &str,
    ) -> Result<(), NativeError> {
        let wrong = |problem| NativeError::Node { node: name.to_owned(), problem };
        let Some(known) = self.parameters.get(target) else {
            let problem = format!("`tied_to` names `{target}`, which no earlier node is called");
            return Err(wrong(problem));
        };
        let mut num_tied = 0;
        for Parameter { name, dims, .. } in block.parameters(value).to_vec() {
            let Some(same) = known.iter().find(|it| it.name == name) else { continue };
            let sides = |dims: &[Dim]| {
                let mut sizes: Vec<_> = dims.iter().map(|dim| dim.extent.fixed()).collect();
                sizes.sort_unstable();
                sizes
            };
            if sides(&same.dims) != sides(&dims) {
                return Err(wrong(format!("its {name} has not the size of that of `{target}`")));
            }
            block.tie(value, &name, same.tied_to.as_deref().unwrap_or(target));
            num_tied += 1;
        }
        if num_tied == 0 {
            return Err(wrong(format!("`{target}` has no parameter that it could be tied to")));
        }
        Ok(())
    }

    /// Adds the parameters of `block` to the total; their dimensions must be fixed.
    fn count_parameters(&mut self, block: &Block) -> Result<(), NativeError> {
        for node in block.nodes() {
            for parameter in node.op.own_parameters() {
                let mut elements = Some(1u64);
                for dim in &parameter.dims {
                    let Extent::Fixed(size) = dim.extent else {
                        let problem = format!(
                            "its {} would depend on the {}, which is not fixed",
                            parameter.name, dim.name
                        );
                        return Err(NativeError::Node { node: node.op.name.clone(), problem });
                    };
                    elements = elements.and_then(|elements| elements.checked_mul(size));
                }
                let total = elements.and_then(|elements| elements.checked_add(self.num_parameters));
                self.num_parameters =
                    total.filter(|total| *total <= MAX_PARAMETERS).ok_or_else(|| {
                        let node = node.op.name.clone();
                        let what = "the parameters up to here";
                        NativeError::TooLarge { node, what, limit: MAX_PARAMETERS }
                    })?;
            }
        }
        Ok(())
    }

    /// Compares the shapes that edges state with those inferred from the operators.
    fn check_edges(&self, edges: &[Edge]) -> Result<(), NativeError> {
        let tensors: BTreeMap<&str, &Tensor> = self
            .nodes
            .iter()
            .zip(&self.outputs)
            .filter_map(|(node, tensor)| Some((node.name.as_str(), tensor.as_ref()?)))
            .collect();
        for edge in edges {
            let Some(stated) = &edge.shape else { continue };
            let stated: Vec<Extent> =
                stated.iter().map(|extent| convert::extent(*extent)).collect();
            let inferred = tensors[edge.from.as_str()];
            if !inferred.dims.iter().map(|dim| dim.extent).eq(stated.iter().copied()) {
                let stated: Vec<String> = stated.iter().map(ToString::to_string).collect();
                return Err(NativeError::StatedShape {
                    from: edge.from.clone(),
                    to: edge.to.clone(),
                    stated: format!("[{}]", stated.join(", ")),
                    inferred: Box::new(inferred.clone()),
                });
            }
        }
        Ok(())
    }
}

/// Selective recompute of an operator: norms, activations and other operators that are cheap relative to their bytes.
fn recompute(kind: &OpKind) -> fn(&mut BlockBuilder, Value) {
    match kind {
        OpKind::Norm { .. }
        | OpKind::Activation(_)
        | OpKind::Elementwise(_)
        | OpKind::GatedActivation(_)
        | OpKind::ClampedSwiGlu { .. }
        | OpKind::SoftCap { .. }
        | OpKind::Clamp { .. }
        | OpKind::AttentionScores
        | OpKind::Softmax { .. } => BlockBuilder::recompute_selectively,
        OpKind::AttentionValues => BlockBuilder::end_selective_region,
        _ => |_, _| {},
    }
}

/// Checks that the names of a tensor's dimensions are distinct and its elements can be counted.
fn check_tensor(node: &str, tensor: &Tensor) -> Result<(), NativeError> {
    let mut names = BTreeSet::new();
    if let Some(twice) = tensor.dims.iter().find(|dim| !names.insert(dim.name)) {
        let problem =
            format!("puts out {tensor}, which has two dimensions called `{}`", twice.name);
        return Err(NativeError::Node { node: node.to_owned(), problem });
    }
    let extents = tensor.dims.iter().map(|dim| dim.extent);
    check_elements(node, "its output, for each sample,", extents)
}

/// Checks that the number of elements is within the limit.
fn check_elements(
    node: &str,
    what: &'static str,
    extents: impl Iterator<Item = Extent>,
) -> Result<(), NativeError> {
    let elements = extents.filter_map(Extent::fixed).try_fold(1u64, u64::checked_mul);
    match elements {
        Some(elements) if elements <= MAX_ELEMENTS => Ok(()),
        _ => Err(NativeError::TooLarge { node: node.to_owned(), what, limit: MAX_ELEMENTS }),
    }
}
