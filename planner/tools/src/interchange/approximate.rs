//! Search of the nearest plan that a tool runs.

use std::fmt::Display;

use ir::cluster::Precision;
use ir::framework::Framework;
use ir::graph::{Graph, LossGradient};
use ir::layout::Choice::Any;
use ir::layout::{Layout, LayoutSpec, PartialLayout};
use ir::plan::{Plan, Training};
use ir::replication::DataParallelMethod;

use super::error::{ExportError, Lack};
use super::lacks::named;
use super::target::Target;
use super::tools::tool;
use planner_core::plan::{self, CheckedPlan};
use planner_core::problem::{Problem, with_usual_modules};
use planner_core::search::{EvaluatedPlan, Go, LOOKED_AT, Request, search, simulated};

/// A plan that replaces one that the tool cannot run.
#[derive(Clone, Debug)]
pub(super) struct NearestPlan {
    /// The plan.
    pub(super) plan: Plan,
    /// Problem that the plan solves.
    pub(super) problem: Problem,
    /// Changes to the original plan, and their predicted cost, as lines of text.
    pub(super) changes: Vec<String>,
}

/// Parts of a layout to leave open, in the order in which they are tried: the smallest change first.
const PARTS: [fn(&mut PartialLayout); 12] = [
    |it| it.recompute = Any,
    |it| it.cuda_graphs = Any,
    |it| it.offload = Any,
    |it| it.expert_overlap = Any,
    |it| it.token_dispatcher = Any,
    |it| it.context_parallel_kind = Any,
    |it| it.sequence_parallel = Any,
    |it| it.expert_tensor_parallel = Any,
    |it| {
        it.zero_stage = Any;
        it.zero_shard = Any;
    },
    |it| {
        it.schedule = Any;
        it.virtual_stages = Any;
    },
    |it| {
        it.context_parallel = Any;
        it.context_parallel_kind = Any;
        it.data_parallel = Any;
        it.zero_shard = Any;
    },
    |it| {
        it.pipeline_parallel = Any;
        it.virtual_stages = Any;
        it.schedule = Any;
        it.tensor_parallel = Any;
        it.sequence_parallel = Any;
        it.expert_parallel = Any;
        it.expert_tensor_parallel = Any;
        it.token_dispatcher = Any;
        it.expert_overlap = Any;
        it.data_parallel = Any;
        it.zero_stage = Any;
        it.zero_shard = Any;
        it.micro_batch_size = Any;
    },
];

/// The best plan that a tool runs, with as much of the checked plan kept as possible. `still` returns the parts of a
/// plan that the tool cannot run, and `plain` is the model's graph without modules to recompute.
pub(super) fn nearest_plan(
    checked: &CheckedPlan,
    plain: &Graph,
    target: Target,
    lacks: &[Lack],
    still: &dyn Fn(&Plan, &Problem) -> Vec<Lack>,
) -> Result<NearestPlan, ExportError> {
    let nothing = || ExportError::NothingNear { target, lacks: lacks.to_vec() };
    let framework = target.framework();
    let training =
        nearest_training(&checked.plan.training, &checked.plan.layout, &framework, target);
    let facts = checked.problem.facts;
    let posed = |graph: Graph, training| {
        let (cluster, gpus) = (&checked.plan.cluster, checked.plan.num_gpus);
        let problem = Problem::new(graph, training, cluster, framework.clone(), gpus).ok()?;
        let problem = problem.with_expert_load(checked.plan.expert_load.clone()).ok()?;
        problem.with_documents(checked.plan.documents.clone()).ok()
    };
    let original = posed(checked.problem.graph.clone(), checked.plan.training);
    let whole = named(&checked.plan.layout, facts);
    let whole =
        PartialLayout { virtual_stages: checked.plan.layout.virtual_stages.into(), ..whole };
    let fits = |fixed: &PartialLayout| {
        let graph = match fixed.recompute.one() {
            None => with_usual_modules(plain.clone(), &framework, facts),
            Some(recompute) => match recompute.modules() {
                Some(modules) => plain.clone().recomputing(modules).ok()?,
                None => plain.clone(),
            },
        };
        let problem = posed(graph, training)?;
        let request =
            Request { fixed: *fixed, top: LOOKED_AT, find_closest: false, ..Request::default() };
        let outcome = search(&problem, &request, &mut |_| Go::On);
        let with_plan = |found| (made(checked, &problem, &found), found);
        let mut all = outcome.plans.into_iter().map(with_plan);
        let (plan, found) = all.find(|(plan, _)| still(plan, &problem).is_empty())?;
        Some((plan, found, problem))
    };
    // First the whole layout is kept, since a change of training may suffice; then one part at a time is left open;
    // then more and more parts together.
    let mut open = whole;
    let one_at_a_time = PARTS.iter().map(|part| {
        let mut fixed = whole;
        part(&mut fixed);
        fixed
    });
    let ever_more = PARTS.iter().map(|part| {
        part(&mut open);
        open
    });
    let ever_more: Vec<PartialLayout> = ever_more.collect();
    let tries = std::iter::once(whole).chain(one_at_a_time).chain(ever_more);
    let mut tries = tries.into_iter();
    let (plan, found, problem) = tries.find_map(|fixed| fits(&fixed)).ok_or_else(nothing)?;
    let before = original.and_then(|it| before(&it, checked));
    let changes = changes(&checked.plan, &plan, before, &found);
    Ok(NearestPlan { plan, problem, changes })
}

/// Step time, in seconds, of the original plan with the framework's habits.
fn before(problem: &Problem, checked: &CheckedPlan) -> Option<f64> {
    let layout = Layout::new(checked.plan.layout, &problem.limits).ok()?;
    let (found, _) = simulated(problem, layout, &checked.found.stage_ends);
    Some(found.evaluation.step_time.get())
}

/// The nearest training that a framework supports: wider formats replace unsupported narrow ones.
fn nearest_training(
    training: &Training,
    layout: &LayoutSpec,
    framework: &Framework,
    target: Target,
) -> Training {
    let abilities = &framework.abilities;
    let wider = Precision::ALL.into_iter().rev().filter(|it| {
        abilities.precisions.contains(it)
            && (it.input_bits() > training.precision.input_bits() || *it == training.precision)
    });
    let mut training = *training;
    // Of the two 16-bit formats, the one with the larger range.
    training.precision = wider.into_iter().next().unwrap_or(training.precision);
    training.bf16_moments &= abilities.moments.contains(&Precision::Bf16);
    training.no_master_weights &= abilities.no_master_weights;
    (tool(target).nearest_training)(&mut training, layout);
    let lacks = training.lacked_by(abilities);
    if !lacks.is_empty() {
        training.data_parallel_method = DataParallelMethod::AllReduce;
        training.gradient_compression = None;
    }
    training
}

fn made(checked: &CheckedPlan, problem: &Problem, found: &EvaluatedPlan) -> Plan {
    let Plan { cluster, model, provenance, .. } = &checked.plan;
    plan::make(problem, cluster, model.clone(), found, &[], provenance.clone())
}

/// Differences between two plans as lines of text, and their predicted cost.
fn changes(old: &Plan, new: &Plan, before: Option<f64>, found: &EvaluatedPlan) -> Vec<String> {
    let (from, to) = (&old.layout, &new.layout);
    let mut changed = Vec::new();
    let mut differ = |name: &str, from: &dyn Display, to: &dyn Display| {
        let (from, to) = (from.to_string(), to.to_string());
        if from != to {
            changed.push(format!("{name} {to} in the place of {from}"));
        }
    };
    differ("layout", from, to);
    let zero = |it: &LayoutSpec| format!("{} over {} ranks", it.zero_stage.number(), it.zero_shard);
    differ("ZeRO", &zero(from), &zero(to));
    differ("schedule", &from.schedule, &to.schedule);
    let micro = |it: &LayoutSpec| format!("{}x{}", it.num_micro_batches, it.micro_batch_size);
    differ("micro-batches", &micro(from), &micro(to));
    differ("recompute", &from.recompute, &to.recompute);
    differ("offload", &from.offload, &to.offload);
    differ("dispatcher", &from.switches.token_dispatcher, &to.switches.token_dispatcher);
    differ("overlap of experts", &from.switches.expert_overlap, &to.switches.expert_overlap);
    differ("CUDA graphs", &from.switches.cuda_graphs, &to.switches.cuda_graphs);
    let (a, b) = (&old.training, &new.training);
    differ("precision", &a.precision, &b.precision);
    differ("optimizer", &format!("{:?}", a.optimizer), &format!("{:?}", b.optimizer));
    differ("replicas agree by", &a.data_parallel_method, &b.data_parallel_method);
    let sent = |it: &Training| {
        it.gradient_compression.map_or_else(|| "whole".to_owned(), |it| it.to_string())
    };
    differ("gradients sent", &sent(a), &sent(b));
    let sums = |it: &Training| if it.fp32_gradients { "fp32" } else { "16 bits" }.to_owned();
    differ("gradients in", &sums(a), &sums(b));
    differ("moments in", &a.moments(), &b.moments());
    differ("master weights", &!a.no_master_weights, &!b.no_master_weights);
    let loss = |plan: &Plan| match plan.framework.kernels.loss.gradient {
        LossGradient::Chunked => "chunked".to_owned(),
        LossGradient::WithHead => "fused with the head".to_owned(),
        _ => "of all logits at once".to_owned(),
    };
    differ("loss", &loss(old), &loss(new));
    let blocks = |plan: &Plan| {
        let counts = plan.stages.iter().map(|stage| stage.num_blocks.to_string());
        counts.collect::<Vec<_>>().join(",")
    };
    differ("blocks of stages", &blocks(old), &blocks(new));
    let now = found.evaluation.step_time.get();
    let cost = match before {
        Some(before) => format!(
            "approximation: predicted {now:.4} s a step, {:+.1} % of the {before:.4} s that the plan would take here",
            (now / before - 1.0) * 100.0
        ),
        None => format!("approximation: predicted {now:.4} s a step"),
    };
    std::iter::once(cost)
        .chain(changed.into_iter().map(|it| format!("approximation: {it}")))
        .collect()
}
