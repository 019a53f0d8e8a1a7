//! The operators of a whole model, block after block.

use std::collections::{BTreeMap, BTreeSet};

use ir::graph::{Block, ClassId, Graph, Keeps, Node, OpId, OpKind, Tensor};

/// An operator, with the sources of its inputs.
#[derive(Clone, Debug)]
pub struct Operator<'a> {
    /// Name, with the position of its block where several blocks are alike.
    pub name: String,
    /// Class of its block.
    pub class: ClassId,
    /// Position of its block in the chain.
    pub block: usize,
    /// The operator in its block.
    pub node: Node<'a>,
    /// For each input, the operator that makes it; `None` for data.
    pub inputs: Vec<Option<usize>>,
    /// True if a gradient of its output is needed.
    pub requires_grad: bool,
    /// For each input, true if no earlier operator saves it for backward.
    pub saves_first: Vec<bool>,
}

/// All operators of a model except its inputs, each after the operators that it reads.
#[derive(Clone, Debug)]
pub struct Operators<'a> {
    graph: &'a Graph,
    /// The operators.
    pub all: Vec<Operator<'a>>,
}

/// A tensor: the output of an operator; or data, given by the position of the block and the id of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Made(usize),
    Data(usize, OpId),
}

impl<'a> Operators<'a> {
    /// The operators of `graph`.
    pub fn new(graph: &'a Graph) -> Self {
        let mut all: Vec<Operator<'a>> = Vec::new();
        let mut is_saved: BTreeMap<Source, bool> = BTreeMap::new();
        // Outputs of the block before, with their operators.
        let mut given: Vec<(usize, &Tensor)> = Vec::new();
        for (position, class) in graph.blocks().enumerate() {
            let block = graph.class(class);
            let mut sources = taken(block, position, &given);
            for node in block.nodes().filter(|node| node.op.kind != OpKind::Input) {
                let inputs: Vec<Source> =
                    block.inputs(node.id).iter().map(|id| sources[id]).collect();
                let kept = node.op.keeps();
                let mut saves = |source: Source, keeps: Keeps| {
                    let is_kept = kept.contains(&keeps);
                    let was_saved = is_saved.entry(source).or_default();
                    let is_first = is_kept && !*was_saved;
                    *was_saved |= is_kept;
                    is_first
                };
                let saves_first =
                    inputs.iter().enumerate().map(|(slot, it)| saves(*it, Keeps::Input(slot)));
                let saves_first = saves_first.collect();
                let index = all.len();
                saves(Source::Made(index), Keeps::Output);
                let made = |source: &Source| match source {
                    Source::Made(index) => Some(*index),
                    Source::Data(..) => None,
                };
                let inputs: Vec<Option<usize>> = inputs.iter().map(made).collect();
                let from_inputs = inputs.iter().flatten().any(|input| all[*input].requires_grad);
                let name = graph.op_name(position, class, node.id);
                let requires_grad = from_inputs || node.op.is_trained();
                sources.insert(node.id, Source::Made(index));
                all.push(Operator {
                    name,
                    class,
                    block: position,
                    node,
                    inputs,
                    requires_grad,
                    saves_first,
                });
            }
            let made = block.outputs().iter().filter_map(|id| match sources[id] {
                Source::Made(index) => Some((index, &block.op(*id).output)),
                Source::Data(..) => None,
            });
            given = made.collect();
        }
        Self { graph, all }
    }

    /// The block of an operator.
    pub fn block_of(&self, operator: &Operator<'_>) -> &'a Block {
        self.graph.class(operator.class)
    }

    /// Operators of each block, in the order of forward and of backward.
    pub fn blocks(&self) -> [Vec<Vec<usize>>; 2] {
        let all: Vec<usize> = (0..self.all.len()).collect();
        let alike = |a: &usize, b: &usize| self.all[*a].block == self.all[*b].block;
        let forward: Vec<Vec<usize>> = all.chunk_by(alike).map(<[usize]>::to_vec).collect();
        let backward = forward.iter().rev().map(|block| block.iter().rev().copied().collect());
        [forward.clone(), backward.collect()]
    }

    /// For each operator, the operators that read its output, each with its input slot.
    pub fn readers(&self) -> Vec<Vec<(usize, usize)>> {
        let mut readers = vec![Vec::new(); self.all.len()];
        for (reader, operator) in self.all.iter().enumerate() {
            for (slot, input) in operator.inputs.iter().enumerate() {
                if let Some(maker) = input {
                    readers[*maker].push((reader, slot));
                }
            }
        }
        readers
    }

    /// Number of gradients of the output of `maker` that are added up; products that run as one have one gradient
    /// together.
    pub fn num_gradients(&self, maker: usize, readers: &[(usize, usize)], is_fused: bool) -> u64 {
        if !self.all[maker].requires_grad {
            return 0;
        }
        let product = |(reader, _): &(usize, usize)| match &self.all[*reader].node.op.kind {
            OpKind::Linear { contracted, .. } if is_fused => Some(contracted),
            _ => None,
        };
        let products: BTreeSet<_> = readers.iter().filter_map(product).collect();
        let others = readers.iter().filter(|reader| product(reader).is_none()).count();
        (products.len() + others) as u64
    }
}

/// Sources of a block's inputs. Each output of the block before goes to the first free input of the same shape; all
/// other inputs are data.
fn taken(block: &Block, position: usize, given: &[(usize, &Tensor)]) -> BTreeMap<OpId, Source> {
    let inputs: Vec<Node<'_>> =
        block.nodes().filter(|node| node.op.kind == OpKind::Input).collect();
    let mut sources: BTreeMap<OpId, Source> =
        inputs.iter().map(|node| (node.id, Source::Data(position, node.id))).collect();
    let mut free: Vec<&Node<'_>> = inputs.iter().collect();
    for (maker, tensor) in given {
        if let Some(at) = free.iter().position(|node| node.op.output == **tensor) {
            sources.insert(free.remove(at).id, Source::Made(*maker));
        }
    }
    sources
}
