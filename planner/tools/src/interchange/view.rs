//! The parts of a plan that exports need, in a form independent of tools.

use ir::documents::Documents;
use ir::graph::Graph;
use ir::layout::LayoutSpec;
use ir::model::transformer::{Correction, FeedForward, Mixture};
use ir::model::{Description, Model, Transformer};
use ir::plan::{Plan, Training};
use ir::text::printable;

use super::imported::Imported;
use super::run::Run;
use super::stages::{StageParts, parts};

/// A plan with quantities derived from it once, as the input of all exports.
#[derive(Clone, Debug)]
pub struct ExportView<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Model of the plan, if that is a transformer.
    pub transformer: Option<&'a Transformer>,
    /// Layout of the plan.
    pub layout: LayoutSpec,
    /// Training: batch, precision, optimizer.
    pub training: Training,
    /// Layout, training and stages as imported settings have them.
    pub(super) settings: Imported,
    /// Parts of the model on each stage, in the order of the model.
    pub stages: Vec<StageParts>,
    /// Changes to the plan, and other remarks that the files state.
    pub notes: Vec<String>,
}

impl<'a> ExportView<'a> {
    /// The view of a plan whose model has this graph.
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

    /// Number of layers of the model.
    pub fn num_layers(&self) -> u32 {
        self.stages.iter().map(|stage| stage.layers).sum()
    }

    /// Number of modules for multi-token prediction that are trained.
    pub fn num_prediction_modules(&self) -> u32 {
        self.stages.iter().map(|stage| stage.prediction_modules).sum()
    }

    /// Input of the option tables.
    pub(super) fn run(&self) -> Run<'_> {
        Run {
            settings: &self.settings,
            stages: self.stages.clone(),
            has_experts: self.has_experts(),
        }
    }

    /// Returns whether the model has experts.
    pub fn has_experts(&self) -> bool {
        self.mixtures().next().is_some()
    }

    /// Returns whether its routers choose experts with a bias that is not trained by gradients.
    pub fn corrects_routing(&self) -> bool {
        self.mixtures().any(|it| it.correction != Correction::None)
    }

    /// The mixtures of experts among the model's layers.
    pub(super) fn mixtures(&self) -> impl Iterator<Item = &Mixture> {
        let layers = self.transformer.iter().flat_map(|it| &it.layers);
        layers.filter_map(|it| match &it.layer.feed_forward {
            FeedForward::Mixture(mixture) => Some(mixture),
            FeedForward::Dense(_) | FeedForward::None => None,
        })
    }

    /// Number of nodes that the plan uses, and number of GPUs on each.
    pub fn nodes(&self) -> [u32; 2] {
        let (gpus, cluster) = (self.plan.num_gpus, &self.plan.cluster);
        let of_groups = cluster.groups.iter().map(|it| it.cluster.gpus_per_node).max();
        if let Some(most) = of_groups {
            return [cluster.num_nodes(gpus), most];
        }
        let node = cluster.gpus_per_node;
        if gpus <= node { [1, gpus] } else { [gpus.div_ceil(node), node] }
    }

    /// Order of the nodes by which ranks are numbered, if the plan depends on it.
    fn order_of_nodes(&self) -> Option<String> {
        let Plan { hosts, cluster, .. } = self.plan;
        let kinds = cluster.groups.iter().map(|it| format!("{} of {}", it.nodes, it.cluster.name));
        let nodes: Vec<String> = if hosts.is_empty() { kinds.collect() } else { hosts.clone() };
        (!nodes.is_empty()).then(|| format!("nodes in this order: {}", nodes.join(", ")))
    }

    /// Comment at the head of a file, as lines with `#`: the plan, the tool, the prediction, the command.
    pub fn heading(&self, tool: &str) -> String {
        let Plan { model, cluster, framework, prediction, num_gpus, provenance, .. } = self.plan;
        let gib = prediction.peak_memory_bytes.as_gib();
        let mut lines = vec![
            format!("{} on {}: {}", model.name, cluster.gpus_in_words(*num_gpus), self.layout),
            format!("for {tool}"),
            format!(
                "predicted with the habits of {}: {:.4} s a step, {:.0} tokens/s on each GPU, {gib:.1} GiB",
                framework.name, prediction.step_time_seconds, prediction.tokens_per_second_per_gpu
            ),
            format!("plan: {} (planner {})", provenance.command, provenance.planner_version),
        ];
        if let Some(Documents { lengths, packing }) = &self.plan.documents {
            lines.push(format!(
                "documents of {lengths}, packing {packing}: the data, no setting here"
            ));
        }
        lines.extend(self.order_of_nodes());
        lines.extend(self.notes.iter().cloned());
        // Each line follows a comment mark, so it must be one printable line.
        lines.iter().flat_map(|line| ["# ".into(), printable(line), "\n".into()]).collect()
    }
}
