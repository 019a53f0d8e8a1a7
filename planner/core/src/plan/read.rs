//! Reads plan files, and refuses those that contradict themselves.

use cost_models::clusters::{UnknownRates, check_rates};
use ir::graph::{AdapterError, GraphError, Recompute};
use ir::layout::{Layout, LayoutError, LayoutSpec, ZeroStage};
use ir::model::{GraphOptions, Model, ModelError};
use ir::plan::{PLAN_VERSION, Plan, PlannedModel, Training};
use ir::text::json::{self, JsonError};
use ir::units::Seconds;
use traces::timeline::training_step;

use super::make::{planned_ranks, sha256_of};
use crate::partition::prefix_sums;
use crate::problem::{Problem, ProblemError, attention_kernel};
use crate::search::{EvaluatedPlan, model_flops_utilization, simulated, tokens_per_second_per_gpu};
use crate::step::{PipelineRanks, Simulated};

/// Reason why a text is not a usable plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A text that is not JSON, or not of the form of a plan.
    #[error("{0}")]
    Json(JsonError),
    /// A timeline, where a plan was expected.
    #[error("this is a timeline, not a plan\nhint: `planner chart` draws it")]
    Timeline,
    /// A plan written by a program with another format version.
    #[error(
        "the plan has version {version}, but this program reads {PLAN_VERSION}\nhint: make it again \
         with `{command}`"
    )]
    Version {
        /// The version in the file.
        version: u64,
        /// The command in the file.
        command: String,
    },
    /// The model in the plan cannot be read.
    #[error("the plan's `model`")]
    Model(#[from] ModelError),
    /// The model in the plan has no graph.
    #[error("the plan's `model`")]
    Graph(#[from] AdapterError),
    /// The layout recomputes modules that the model does not have.
    #[error("the plan's `layout`")]
    Recompute(#[source] GraphError),
    /// The cluster in the plan is not usable.
    #[error("the plan's `cluster`")]
    Cluster(#[from] ir::cluster::ClusterError),
    /// The framework in the plan is not usable.
    #[error("the plan's `framework`")]
    Framework(#[from] ir::framework::FrameworkError),
    /// The cluster in the plan names rates that this program does not have.
    #[error("the plan's `cluster`")]
    Rates(#[from] UnknownRates),
    /// The problem cannot be posed.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The layout is not valid for model, batch and GPUs.
    #[error("the plan's `layout`")]
    Layout(#[from] LayoutError),
    /// Two parts of the plan disagree.
    #[error("the plan contradicts itself: {0}\nhint: make it again with its `provenance.command`")]
    Contradiction(String),
}

/// A plan with the problem that it solves.
#[derive(Debug)]
pub struct CheckedPlan {
    /// The plan as written.
    pub plan: Plan,
    /// Model of the plan.
    pub model: Model,
    /// The problem, built from the contents of the plan.
    pub problem: Problem,
    /// The plan's layout and stages, evaluated by this program.
    pub found: EvaluatedPlan,
    /// The runners-up, evaluated by this program.
    pub runners_up: Vec<EvaluatedPlan>,
    /// Timeline of the plan's step.
    pub simulated: Simulated,
}

/// Relative difference that rounding in decimal form may make between a sum and its parts.
const ROUNDING: f64 = 1e-9;

/// Reads a plan and checks that its parts agree.
///
/// # Errors
///
/// [`PlanError`], with what disagrees.
pub fn read(text: &str) -> Result<CheckedPlan, PlanError> {
    let value: serde_json::Value = json::read(text).map_err(PlanError::Json)?;
    if value.get("traceEvents").is_some() {
        return Err(PlanError::Timeline);
    }
    let version = value.get("version").and_then(serde_json::Value::as_u64);
    if let Some(version) = version.filter(|version| *version != u64::from(PLAN_VERSION)) {
        let command = value.pointer("/provenance/command").and_then(serde_json::Value::as_str);
        let command = command.unwrap_or("planner search").to_owned();
        return Err(PlanError::Version { version, command });
    }
    let plan: Plan = json::read(text).map_err(PlanError::Json)?;
    plan.cluster.check()?;
    check_rates(&plan.cluster)?;
    plan.framework.check()?;
    if sha256_of(&plan.cluster) != plan.provenance.cluster_sha256 {
        let text = "`cluster` is not the one of `provenance.cluster_sha256`".to_owned();
        return Err(PlanError::Contradiction(text));
    }
    let model = Model::from_json(&plan.model.description.to_string(), &plan.model.name)?;
    let PlannedModel { multi_token_prediction, dropout, .. } = plan.model;
    let attention = attention_kernel(&plan.framework);
    let options = GraphOptions { attention, multi_token_prediction, dropout };
    let graph = model.training_graph(options, plan.model.adapters.as_ref())?;
    // All plans of one search recompute the same modules, if any.
    let layouts = std::iter::once(&plan.layout).chain(plan.runners_up.iter().map(|it| &it.layout));
    let modules = layouts.into_iter().find_map(|layout| layout.recompute.modules());
    let graph = match modules {
        Some(modules) => graph.recomputing(modules).map_err(PlanError::Recompute)?,
        None => graph,
    };
    let problem =
        Problem::new(graph, plan.training, &plan.cluster, plan.framework.clone(), plan.num_gpus)?;
    let problem =
        problem.with_headroom(plan.headroom_bytes).with_expert_load(plan.expert_load.clone())?;
    let problem = problem.with_documents(plan.documents.clone())?;
    let layout = Layout::new(plan.layout, &problem.limits)?;
    plan.training.replication().check_layout(&layout)?;
    problem.check_groups(&layout)?;
    let stage_ends = check_stages(&plan, &layout, &problem)?;
    check_sums(&plan, &problem)?;
    let runners_up = runners_up(&plan, &problem)?;
    let (found, mut simulated) = simulated(&problem, layout, &stage_ends);
    if planned_ranks(&problem, &found) != plan.ranks {
        let text = "`ranks` are not those of `cluster`, `layout` and `stages`".to_owned();
        return Err(PlanError::Contradiction(text));
    }
    name_timeline(&mut simulated, &plan.model.name, &plan.cluster.name, &problem, &layout);
    Ok(CheckedPlan { plan, model, problem, found, runners_up, simulated })
}

/// Completes the timeline of a step, whose title is its layout: adds the model and cluster to the title, and sets the
/// work of the step and the settings that distinguish its plan from others.
pub fn name_timeline(
    simulated: &mut Simulated,
    model: &str,
    cluster: &str,
    problem: &Problem,
    layout: &LayoutSpec,
) {
    let (timeline, training) = (&mut simulated.simulation.timeline, &problem.training);
    timeline.title = format!("{model} on {cluster}: {}", timeline.title);
    timeline.work = training_step(model, training.global_batch_size, training.sequence_length);
    timeline.setting = setting(problem, layout);
}

/// Settings of a plan that its title lacks, in few words. Defaults are left out, except ZeRO and recompute, in which
/// plans with the same title differ.
fn setting(problem: &Problem, layout: &LayoutSpec) -> String {
    let Training { global_batch_size, sequence_length, precision, .. } = problem.training;
    let LayoutSpec { micro_batch_size, zero_stage, zero_shard, recompute, offload, .. } = *layout;
    let mut parts = vec![format!("batch {global_batch_size}")];
    if problem.limits.has_sequence {
        parts.push(format!("sequence {sequence_length}"));
    }
    parts.push(format!("micro-batch size {micro_batch_size}"));
    let ranks = layout.data_parallel * layout.context_parallel;
    parts.push(match zero_stage {
        ZeroStage::None => "no ZeRO".to_owned(),
        _ if zero_shard < ranks => format!("ZeRO-{} over {zero_shard}", zero_stage.number()),
        _ => format!("ZeRO-{}", zero_stage.number()),
    });
    parts.push(match recompute {
        Recompute::None => "no recompute".to_owned(),
        _ => format!("recompute {recompute}"),
    });
    if offload.is_some() {
        parts.push(format!("offload {}", offload.to_string().replace(',', "+")));
    }
    parts.push(precision.to_string());
    parts.push(problem.hardware.framework.name.clone());
    parts.join(", ")
}

/// Ends of the stages, checked to cover the chain in order and to be on the right ranks.
fn check_stages(plan: &Plan, layout: &Layout, problem: &Problem) -> Result<Vec<usize>, PlanError> {
    let contradiction = |text: String| Err(PlanError::Contradiction(text));
    let num_stages = layout.num_stages();
    let ranks = PipelineRanks::of(layout);
    if plan.stages.len() != num_stages as usize {
        return contradiction(format!(
            "{} `stages`, but the layout has {num_stages}",
            plan.stages.len()
        ));
    }
    let mut ends = Vec::with_capacity(plan.stages.len());
    let mut next = 0;
    for (index, stage) in (0..).zip(&plan.stages) {
        let rank = ranks.first_with(index as usize) as u32;
        if stage.stage != index || stage.pipeline_rank != rank {
            return contradiction(format!("`stages[{index}]` is not stage {index} on rank {rank}"));
        }
        if stage.first_block != next || stage.num_blocks == 0 {
            return contradiction(format!(
                "`stages[{index}]` has {} blocks from {}, but must have some from {next}",
                stage.num_blocks, stage.first_block
            ));
        }
        next = next.saturating_add(stage.num_blocks);
        ends.push(next as usize);
    }
    let blocks = problem.graph.num_blocks();
    if next as usize != blocks {
        return contradiction(format!("`stages` have {next} blocks, but the model has {blocks}"));
    }
    Ok(ends)
}

/// Evaluates the runners-up, and checks that they fit the problem. Some may be faster than the plan, which was chosen
/// for all stacks that its framework may stand for.
fn runners_up(plan: &Plan, problem: &Problem) -> Result<Vec<EvaluatedPlan>, PlanError> {
    let mut all = Vec::with_capacity(plan.runners_up.len());
    for (index, runner_up) in plan.runners_up.iter().enumerate() {
        let layout = Layout::new(runner_up.layout, &problem.limits)?;
        plan.training.replication().check_layout(&layout)?;
        problem.check_groups(&layout)?;
        let sums = prefix_sums(runner_up.stage_blocks.iter().map(|count| *count as usize));
        let (ends, end) = (&sums[1..], sums[sums.len() - 1]);
        let covers = end == problem.graph.num_blocks() && !runner_up.stage_blocks.contains(&0);
        if !covers || ends.len() != layout.num_stages() as usize {
            return Err(PlanError::Contradiction(format!(
                "`runners_up[{index}]` has {} `stage_blocks` of {end} blocks, but its layout has {} stages and the model {} \
                 blocks",
                ends.len(),
                layout.num_stages(),
                problem.graph.num_blocks()
            )));
        }
        let (time, sum) = (runner_up.step_time_seconds, runner_up.breakdown.total());
        let agrees = (sum - time).abs() <= ROUNDING * sum.abs().max(1e-9);
        if !agrees {
            return Err(PlanError::Contradiction(format!(
                "`runners_up[{index}]` has `step_time_seconds` {time}, but its breakdown adds up to {sum}"
            )));
        }
        all.push(simulated(problem, layout, ends).0);
    }
    Ok(all)
}

/// Checks that parameters, time and memory are the sums of their parts.
fn check_sums(plan: &Plan, problem: &Problem) -> Result<(), PlanError> {
    let contradiction = |text: String| Err(PlanError::Contradiction(text));
    let parameters = problem.parameters().total;
    if parameters != plan.model.num_parameters {
        let stated = plan.model.num_parameters;
        return contradiction(format!("{stated} parameters, but the model has {parameters}"));
    }
    let prediction = &plan.prediction;
    let time = prediction.breakdown.total();
    // Written so that a time that is not a number fails too.
    let agrees = (time - prediction.step_time_seconds).abs() <= ROUNDING * time.abs().max(1e-9);
    if !agrees || prediction.step_time_seconds <= 0.0 {
        return contradiction(format!(
            "`step_time_seconds` {}, but its breakdown adds up to {time}",
            prediction.step_time_seconds
        ));
    }
    let step = Seconds::new(prediction.step_time_seconds);
    for (name, stated, follows) in [
        (
            "tokens_per_second_per_gpu",
            prediction.tokens_per_second_per_gpu,
            tokens_per_second_per_gpu(problem, step),
        ),
        ("mfu", prediction.mfu, model_flops_utilization(problem, step)),
    ] {
        let agrees = (stated / follows - 1.0).abs() <= ROUNDING;
        if !agrees {
            return contradiction(format!(
                "`{name}` {stated}, but {follows} follows from `step_time_seconds`"
            ));
        }
    }
    let memory = prediction.memory.total();
    if memory != prediction.peak_memory_bytes {
        return contradiction(format!(
            "`peak_memory_bytes` {}, but its lines add up to {}",
            prediction.peak_memory_bytes.get(),
            memory.get()
        ));
    }
    Ok(())
}
