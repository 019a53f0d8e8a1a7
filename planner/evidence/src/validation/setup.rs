//! Mapping of a measured run to the input of a prediction: problem, layout and partition.
//!
//! Layers are spread evenly, with the embedding on the first stage and the head on the last. If only the layers
//! together with these two divide evenly, the two count as layers. If neither divides, the partition minimises the time
//! of the slowest stage. nanotron instead spreads layers by the size of their weights, including the head's. A run of a
//! single layer is timed as one forward and backward of that layer.

use cost_models::{clusters, frameworks};
use ir::cluster::Cluster;
use ir::framework::Framework;
use ir::graph::Graph;
use ir::layout::Layout;
use ir::model::{AttentionKernel, GraphOptions, Model};
use serde_json::Value;

use super::contradictions;
use super::gpus;
use super::habits::with_habits;
use super::run::{MeasuredPlan, MeasuredRun, Unsupported};
use planner_core::problem::{Problem, ProblemError, hardware};
use planner_core::step::{ChainIndex, PipelineRanks, Shape, ShapeKey};

/// Input of a prediction.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Model, training and GPUs.
    pub problem: Problem,
    /// Layout of the step.
    pub layout: Layout,
    /// End of each stage, in blocks.
    pub stage_ends: Vec<usize>,
    /// True if the run is the forward and backward of one layer.
    pub is_layer: bool,
    /// Cluster of the run, as stated.
    pub cluster: Cluster,
}

impl Setup {
    /// The setup of a run.
    ///
    /// # Errors
    ///
    /// What cannot be represented, is missing, or contradicts something else in the run.
    pub fn of(run: &MeasuredRun) -> Result<Self, Unsupported> {
        Self::with(run, None)
    }

    /// The setup of a run; with another framework, if one is given.
    ///
    /// # Errors
    ///
    /// As for [`Self::of`].
    pub fn with(run: &MeasuredRun, framework: Option<&Framework>) -> Result<Self, Unsupported> {
        let plan = run.plan.as_ref().map_err(Unsupported::clone)?;
        let preset = clusters::preset(&plan.cluster.preset);
        let preset = preset.ok_or_else(|| unsupported("its cluster", &plan.cluster.preset))?;
        let cluster = gpus::cluster(&plan.cluster, preset)?;
        let graph = graph(plan, &run.id)?;
        let framework = framework
            .cloned()
            .or_else(|| frameworks::preset(&plan.framework))
            .ok_or_else(|| Unsupported::new(format!("framework `{}`", plan.framework)))?;
        let framework = with_habits(&framework, &plan.habits)
            .map_err(|error| unsupported("its habits", error))?;
        let impossible = |error: ProblemError| Unsupported::new(error.to_string());
        let hardware = hardware(&cluster, framework, &plan.training).map_err(impossible)?;
        let problem = Problem::on(graph, plan.training, hardware, plan.num_gpus)
            .and_then(|problem| problem.with_documents(plan.documents.clone()))
            .and_then(|problem| problem.with_expert_load(plan.expert_load.clone()))
            .map_err(impossible)?
            .with_vocabulary_parallel(plan.shares_vocabulary);
        let layout = Layout::new(plan.layout, &problem.limits)
            .map_err(|error| unsupported("its layout", error))?;
        let [p, m, v] = [layout.pipeline_parallel, layout.num_micro_batches, layout.virtual_stages];
        layout
            .schedule
            .check_numbers(p, m, v)
            .map_err(|error| unsupported("its schedule", error))?;
        let stage_ends = stage_ends(plan, &problem, &layout)?;
        let seconds = run.step_time_seconds.clone()?.filter(|_| !plan.is_layer);
        contradictions::check(plan, &problem, &layout, seconds)?;
        Ok(Self { problem, layout, stage_ends, is_layer: plan.is_layer, cluster })
    }
}

fn unsupported(what: &str, error: impl std::fmt::Display) -> Unsupported {
    Unsupported::new(format!("{what}: {error}"))
}

fn graph(plan: &MeasuredPlan, name: &str) -> Result<Graph, Unsupported> {
    let model = Model::from_json(&Value::from(plan.model.clone()).to_string(), name)
        .map_err(|error| unsupported("its model", error))?;
    let facts = plan.graph;
    let options = GraphOptions {
        attention: if facts.stores_scores {
            AttentionKernel::Unfused
        } else {
            AttentionKernel::Flash
        },
        dropout: facts.dropout,
        multi_token_prediction: facts.multi_token_prediction,
    };
    let graph = model.graph(options).map_err(|error| unsupported("its model", error))?;
    let graph = match &plan.adapters {
        Some(adapters) => {
            graph.with_adapters(adapters).map_err(|error| unsupported("its adapters", error))?
        }
        None => graph,
    };
    match plan.layout.recompute.modules() {
        Some(modules) => {
            graph.recomputing(modules).map_err(|error| unsupported("its recompute", error))
        }
        None => Ok(graph),
    }
}

/// End of each stage, in blocks.
fn stage_ends(
    plan: &MeasuredPlan,
    problem: &Problem,
    layout: &Layout,
) -> Result<Vec<usize>, Unsupported> {
    let (blocks, num_stages) = (problem.graph.num_blocks(), layout.num_stages() as usize);
    if num_stages > blocks {
        return Err(Unsupported::new(format!("{blocks} blocks on {num_stages} stages")));
    }
    // The chain consists of the embedding, the layers, and the head.
    let layers = blocks.saturating_sub(2);
    if !plan.balances_stages && problem.hardware.framework.name == "nanotron" {
        return ends_by_weights(plan, num_stages, blocks);
    }
    let even = |of_first: usize, of_stage: usize| {
        let end = |stage: usize| {
            if stage + 1 == num_stages { blocks } else { of_first + stage * of_stage }
        };
        (0..num_stages).map(end).collect()
    };
    if !plan.balances_stages && layers > 0 && layers.is_multiple_of(num_stages) {
        return Ok(even(1 + layers / num_stages, layers / num_stages));
    }
    if !plan.balances_stages && blocks.is_multiple_of(num_stages) {
        return Ok(even(blocks / num_stages, blocks / num_stages));
    }
    let chain = ChainIndex::new(problem);
    let shape = Shape::new(problem, &chain, ShapeKey::of(layout, problem));
    shape
        .balanced(problem, &chain, layout.recompute, num_stages, &PipelineRanks::of(layout))
        .map(|ends| ends.to_vec())
        .ok_or_else(|| Unsupported::new(format!("{blocks} blocks on {num_stages} stages")))
}

/// Ends of stages by weights: a rank takes layers until its share of all weights is exceeded; the layer that exceeds it
/// is included.
///
/// # Source
///
/// nanotron, `build_model` in `src/nanotron/models/base.py`, and `get_block_compute_costs`.
fn ends_by_weights(
    plan: &MeasuredPlan,
    num_stages: usize,
    blocks: usize,
) -> Result<Vec<usize>, Unsupported> {
    let size = |field: &str| {
        let size = plan.model.get(field).and_then(Value::as_f64);
        size.ok_or_else(|| Unsupported::new(format!("its model: `{field}` is missing")))
    };
    let [hidden, inner, vocabulary] =
        [size("hidden_size")?, size("intermediate_size")?, size("vocab_size")?];
    let layer = 4.0 * hidden * hidden + 3.0 * inner * hidden;
    let all = layer * (blocks.saturating_sub(2)) as f64 + vocabulary * hidden;
    let exceeds = |stage: usize| {
        // The embedding is not counted.
        let share = all * (stage + 1) as f64 / num_stages as f64;
        (share / layer) as usize + 2
    };
    let ends: Vec<usize> = (0..num_stages)
        .map(|stage| if stage + 1 == num_stages { blocks } else { exceeds(stage) })
        .collect();
    if ends.is_sorted_by(|end, next| end < next) {
        return Ok(ends);
    }
    Err(Unsupported::new(format!("{blocks} blocks on {num_stages} stages, by nanotron's rule")))
}
