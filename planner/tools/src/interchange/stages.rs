//! What each stage of a pipeline has.

use ir::graph::Graph;

/// What a stage of the pipeline has of a transformer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageParts {
    /// Whether it has the embedding.
    pub embedding: bool,
    /// Layers.
    pub layers: u32,
    /// Modules for multi-token prediction.
    pub prediction_modules: u32,
    /// Whether it has head and loss.
    pub head: bool,
}

/// What blocks for multi-token prediction are called.
const PREDICTION: &str = "mtp";

/// What stages of so many blocks each have: the first block is the embedding, the last the head.
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

/// Whether every stage has as many layers, the first the embedding too, and the last the head and all modules for
/// multi-token prediction.
pub(super) fn is_even(stages: &[StageParts]) -> bool {
    let last = stages.len().saturating_sub(1);
    stages.iter().enumerate().all(|(index, stage)| {
        stage.layers == stages[0].layers
            && stage.embedding == (index == 0)
            && stage.head == (index == last)
            && (index == last || stage.prediction_modules == 0)
    })
}
