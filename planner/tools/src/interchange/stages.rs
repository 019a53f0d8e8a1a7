//! Parts of a transformer on each pipeline stage.

use ir::graph::Graph;

/// Parts of a transformer on one pipeline stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageParts {
    /// True if the stage has the embedding.
    pub embedding: bool,
    /// Number of layers.
    pub layers: u32,
    /// Number of modules for multi-token prediction.
    pub prediction_modules: u32,
    /// True if the stage has the head and the loss.
    pub head: bool,
}

/// Prefix of the names of blocks for multi-token prediction.
const PREDICTION: &str = "mtp";

/// Number of layers of a model: its blocks, except the embedding, the head and the modules for multi-token prediction.
pub(crate) fn num_layers(graph: &Graph) -> usize {
    let names = graph.blocks().map(|class| graph.class(class).name());
    let modules = names.filter(|name| name.starts_with(PREDICTION)).count();
    graph.num_blocks().saturating_sub(2 + modules)
}

/// Parts of stages with `counts` blocks, where the first block is the embedding and the last is the head.
pub(super) fn parts(counts: &[u32], graph: &Graph) -> Vec<StageParts> {
    let names: Vec<&str> = graph.blocks().map(|class| graph.class(class).name()).collect();
    let last = names.len().saturating_sub(1);
    let mut next = 0;
    let mut of_stage = |count: &u32| {
        let mut parts = StageParts::default();
        let first = next;
        next += *count as usize;
        for index in first..next {
            match names.get(index) {
                _ if index == 0 => parts.embedding = true,
                _ if index == last => parts.head = true,
                Some(name) if name.starts_with(PREDICTION) => parts.prediction_modules += 1,
                _ => parts.layers += 1,
            }
        }
        parts
    };
    counts.iter().map(&mut of_stage).collect()
}

/// Returns whether all stages have equal numbers of layers, the first has the embedding, and the last the head and all
/// modules for multi-token prediction.
pub(super) fn is_even(stages: &[StageParts]) -> bool {
    let last = stages.len().saturating_sub(1);
    stages.iter().enumerate().all(|(index, stage)| {
        stage.layers == stages[0].layers
            && stage.embedding == (index == 0)
            && stage.head == (index == last)
            && (index == last || stage.prediction_modules == 0)
    })
}
