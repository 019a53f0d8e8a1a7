//! What every tool is told of a plan, in no tool's words.

use ir::graph::Graph;
use ir::layout::LayoutSpec;
use ir::model::transformer::{FeedForward, Mixture};
use ir::model::{Description, Model, Transformer};
use ir::plan::{Plan, Training};
use ir::text::printable;

use super::imported::Imported;
use super::run::Run;
use super::stages::{StageParts, parts};

/// A plan as tools are told it: derived from the plan once.
#[derive(Clone, Debug)]
pub struct ExportView<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Its model, where that is a transformer.
    pub transformer: Option<&'a Transformer>,
    /// Its layout.
    pub layout: LayoutSpec,
    /// How it is trained.
    pub training: Training,
    /// The same and its stages, as settings of a tool state them.
    pub(super) settings: Imported,
    /// What each stage has, in the order of the model.
    pub stages: Vec<StageParts>,
    /// What of the plan was changed, and what else its files should say.
    pub notes: Vec<String>,
}

impl<'a> ExportView<'a> {
    /// That of a plan whose model has this graph.
    pub fn new(plan: &'a Plan, model: &'a Model, graph: &Graph, notes: Vec<String>) -> Self {
        let transformer = match &model.description {
            Description::Transformer(transformer) => Some(&**transformer),
            _ => None,
        };
        let (layout, training) = (plan.layout, plan.training);
        let counts: Vec<u32> = plan.stages.iter().map(|stage| stage.num_blocks).collect();
        let stages = parts(&counts, graph);
        let settings = Imported::of_plan(plan);
        Self { plan, transformer, layout, training, settings, stages, notes }
    }

    /// Layers of the model.
    pub fn num_layers(&self) -> u32 {
        self.stages.iter().map(|stage| stage.layers).sum()
    }

    /// Modules for multi-token prediction that are trained.
    pub fn num_prediction_modules(&self) -> u32 {
        self.stages.iter().map(|stage| stage.prediction_modules).sum()
    }

    /// What options are written of.
    pub(super) fn run(&self) -> Run<'_> {
        Run {
            settings: &self.settings,
            stages: self.stages.clone(),
            has_experts: self.has_experts(),
        }
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
