//! What every tool is told of a plan, in no tool's words.

use ir::graph::Graph;
use ir::layout::LayoutSpec;
use ir::model::transformer::{FeedForward, Mixture};
use ir::model::{Description, Model, Transformer};
use ir::plan::{Plan, Training};
use ir::text::printable;

/// A plan as tools are told it: derived from the plan once.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Its model, where that is a transformer.
    pub transformer: Option<&'a Transformer>,
    /// Its layout.
    pub layout: LayoutSpec,
    /// How it is trained.
    pub training: Training,
    /// What each stage has, in the order of the model.
    pub stages: Vec<StageParts>,
    /// What of the plan was changed, and what else its files should say.
    pub notes: Vec<String>,
}

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

impl<'a> Setting<'a> {
    /// That of a plan whose model has this graph.
    pub fn new(plan: &'a Plan, model: &'a Model, graph: &Graph, notes: Vec<String>) -> Self {
        let transformer = match &model.description {
            Description::Transformer(transformer) => Some(&**transformer),
            _ => None,
        };
        let (layout, training) = (plan.layout, plan.training);
        let stages = parts(plan, graph);
        Self { plan, transformer, layout, training, stages, notes }
    }

    /// Layers of the model.
    pub fn num_layers(&self) -> u32 {
        self.stages.iter().map(|stage| stage.layers).sum()
    }

    /// Modules for multi-token prediction that are trained.
    pub fn num_prediction_modules(&self) -> u32 {
        self.stages.iter().map(|stage| stage.prediction_modules).sum()
    }

    /// Whether every stage has as many layers, the first the embedding too and the last the head.
    pub fn is_even(&self) -> bool {
        let last = self.stages.len().saturating_sub(1);
        let modules = self.num_prediction_modules();
        self.stages.iter().enumerate().all(|(index, stage)| {
            stage.layers == self.stages[0].layers
                && stage.embedding == (index == 0)
                && stage.head == (index == last)
                && stage.prediction_modules == if index == last { modules } else { 0 }
        })
    }

    /// Replicas, counting those that share a sequence.
    pub fn replicas(&self) -> u32 {
        self.layout.context_parallel * self.layout.data_parallel
    }

    /// Whether the model has experts.
    pub fn has_experts(&self) -> bool {
        self.mixtures().next().is_some()
    }

    /// Whether its routers choose by a correction that is not trained.
    pub fn corrects_routing(&self) -> bool {
        self.mixtures().any(|it| it.corrects_choice)
    }

    fn mixtures(&self) -> impl Iterator<Item = &Mixture> {
        let layers = self.transformer.iter().flat_map(|it| &it.layers);
        layers.filter_map(|it| match &it.layer.feed_forward {
            FeedForward::Mixture(mixture) => Some(mixture),
            FeedForward::Dense(_) => None,
        })
    }

    /// Nodes that the plan takes, and GPUs of each.
    pub fn nodes(&self) -> [u32; 2] {
        let (gpus, node) = (self.plan.num_gpus, self.plan.cluster.gpus_per_node);
        if gpus <= node { [1, gpus] } else { [gpus.div_ceil(node), node] }
    }

    /// Lines that say what the files are of.
    pub fn heading(&self, tool: &str) -> Vec<String> {
        let Plan { model, cluster, framework, prediction, num_gpus, provenance, .. } = self.plan;
        let gib = prediction.peak_memory_bytes.as_gib();
        let mut lines = vec![
            format!("{} on {num_gpus} x {}: {}", model.name, cluster.gpu.name, self.layout),
            format!("for {tool}"),
            format!(
                "predicted with the habits of {}: {:.4} s a step, {:.0} tokens/s on each GPU, {gib:.1} GiB",
                framework.name, prediction.step_time_seconds, prediction.tokens_per_second_per_gpu
            ),
            format!("plan: {} (planner {})", provenance.command, provenance.planner_version),
        ];
        lines.extend(self.notes.iter().cloned());
        // Each stands behind a mark of a comment, which ends with the line.
        lines.into_iter().map(|line| printable(&line).into_owned()).collect()
    }
}

/// What each stage has: the first block is the embedding, the last the head.
fn parts(plan: &Plan, graph: &Graph) -> Vec<StageParts> {
    let names: Vec<&str> = graph.blocks().map(|class| graph.class(class).name()).collect();
    let last = names.len().saturating_sub(1);
    let of_stage = |first: u32, count: u32| {
        let mut parts = StageParts::default();
        for index in first as usize..(first + count) as usize {
            match names.get(index) {
                _ if index == 0 => parts.embedding = true,
                _ if index == last => parts.head = true,
                Some(name) if name.starts_with(PREDICTION) => parts.prediction_modules += 1,
                _ => parts.layers += 1,
            }
        }
        parts
    };
    plan.stages.iter().map(|stage| of_stage(stage.first_block, stage.num_blocks)).collect()
}
