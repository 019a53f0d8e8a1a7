//! `planner explain`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cost_models::block::{Term, TermWork, terms};
use cost_models::kernels::Bound;
use ir::graph::{Axis, Pass};
use ir::plan::Plan;
use planner_core::plan::CheckedPlan;
use planner_core::problem::GivenStages;
use planner_core::search::{RESOLUTION, utilization_with_every_pair};
use planner_core::step::ShapeKey;
use serde::Serialize;

use super::answer::Answer;
use super::args::ExplainArgs;
use super::constants::describe_calibration;
use super::describe::{describe_adapters, describe_draws, describe_peak, describe_replication};
use super::files::read_plan;
use super::questions::with_schedule;
use super::ranks::fullest_rank;
use super::tables::{percent, text_table};

pub(crate) fn explain(args: &ExplainArgs) -> anyhow::Result<Answer> {
    let checked = read_plan(&args.plan)?;
    let kernels = kernel_rows(&checked);
    let runners_up = losses(&checked.plan);
    let explanation = Explanation { plan: &checked.plan, kernels, runners_up };
    args.format.print(&explanation, || describe(&checked, &explanation))
}

/// JSON output of `explain`.
#[derive(Debug, Serialize)]
struct Explanation<'a> {
    plan: &'a Plan,
    kernels: Vec<KernelRow>,
    runners_up: Vec<Loss>,
}

/// A runner-up with its loss relative to the plan, in seconds: the total, and by part of the step.
#[derive(Debug, Serialize)]
struct Loss {
    layout: String,
    schedule: String,
    loses_seconds: f64,
    parts_seconds: BTreeMap<&'static str, f64>,
}

/// Time of one operator, on one rank for one micro-batch, in one class of blocks.
#[derive(Clone, Debug, Serialize)]
struct KernelRow {
    /// The group of GPUs for which these times hold, if GPUs are of several kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    block: String,
    blocks: u32,
    operator: String,
    forward_seconds: f64,
    backward_seconds: f64,
    bound_by: String,
}

impl KernelRow {
    fn total(&self) -> f64 {
        (self.forward_seconds + self.backward_seconds) * f64::from(self.blocks)
    }
}

/// Operators on the GPUs of each group, sorted by their time over the whole model, longest first.
fn kernel_rows(checked: &CheckedPlan) -> Vec<KernelRow> {
    (0..checked.problem.num_groups()).flat_map(|group| kernel_rows_on(checked, group)).collect()
}

fn kernel_rows_on(checked: &CheckedPlan, group: usize) -> Vec<KernelRow> {
    let CheckedPlan { problem, found, .. } = checked;
    let key = ShapeKey::of(&found.layout, problem);
    let groups = key.groups();
    let counts = problem.graph.class_counts();
    let mut rows: Vec<KernelRow> = Vec::new();
    for (class, block) in problem.graph.classes() {
        let setting = key.setting(problem, class.0);
        let mut operators: BTreeMap<(usize, String), KernelRow> = BTreeMap::new();
        for term in terms(block, &setting, &groups, problem.hardware_of(group)) {
            let (kind, name, bound) = named(&term);
            let row = operators.entry((kind, name.clone())).or_insert_with(|| KernelRow {
                group: problem.name_of(group).map(str::to_owned),
                block: block.name().to_owned(),
                blocks: counts[class.0],
                operator: name,
                forward_seconds: 0.0,
                backward_seconds: 0.0,
                bound_by: bound,
            });
            match term.pass {
                Pass::Forward => row.forward_seconds += term.time.get(),
                Pass::InputGrad | Pass::WeightGrad => row.backward_seconds += term.time.get(),
            }
        }
        rows.extend(operators.into_values());
    }
    rows.sort_by(|a, b| b.total().total_cmp(&a.total()).then_with(|| a.operator.cmp(&b.operator)));
    rows
}

fn named(term: &Term) -> (usize, String, String) {
    match &term.work {
        TermWork::Kernel(_, bound) => {
            let bound = match bound {
                Bound::Compute => "tensor cores",
                Bound::Memory => "memory bandwidth",
                Bound::Launch => "kernel launch",
            };
            (0, term.op.clone(), bound.to_owned())
        }
        TermWork::Exchange(exchange, _) => {
            (1, format!("{} ({})", term.op, exchange.collective), links(exchange.axis).to_owned())
        }
    }
}

/// Links that a collective uses, from its axis.
const fn links(axis: Axis) -> &'static str {
    match axis {
        Axis::Tensor => "tensor links",
        Axis::ExpertTensor => "expert-tensor links",
        Axis::Context => "context links",
        Axis::Expert => "expert links",
    }
}

/// Bottleneck of each part of a step.
fn bound_of(part: &str, is_offloaded: bool) -> &'static str {
    match part {
        "compute" | "recompute" => "kernels, below",
        "pipeline bubble" => "stages waiting for each other",
        "optimizer" if is_offloaded => "memory bandwidth of the host",
        "optimizer" => "memory bandwidth and the host",
        "waiting for the host" => "launching kernels",
        _ => "links",
    }
}

/// Number of rows of the kernel table that are shown.
const KERNEL_ROWS: usize = 16;

fn describe(checked: &CheckedPlan, explanation: &Explanation<'_>) -> String {
    let CheckedPlan { plan, problem, found, .. } = checked;
    let layout = &found.layout;
    let prediction = &plan.prediction;
    let trained = problem.parameters().trained;
    let adapters = plan
        .model
        .adapters
        .as_ref()
        .map_or_else(String::new, |adapters| describe_adapters(adapters, trained) + "\n");
    let replication = describe_replication(&plan.training.replication());
    let mut text = format!(
        "{} on {}\n{adapters}{replication}{}, {} micro-batches of {}, recompute {}{}\n\n",
        plan.model.name,
        plan.cluster.gpus_in_words(plan.num_gpus),
        with_schedule(layout),
        layout.num_micro_batches,
        layout.micro_batch_size,
        layout.recompute,
        layout.recompute.describe().map_or(String::new(), |words| format!(" ({words})")),
    );
    let step = prediction.step_time_seconds;
    let all = format!(
        "MFU {}, {:.0} {}/s/GPU",
        percent(prediction.mfu),
        prediction.tokens_per_second_per_gpu,
        if problem.limits.has_sequence { "tokens" } else { "samples" },
    );
    let bound = |name| bound_of(name, layout.offload.optimizer).to_owned();
    let parts = prediction.breakdown.parts().into_iter().filter(|(_, seconds)| *seconds != 0.0);
    let parts = parts.map(|(name, seconds)| (name, seconds, bound(name)));
    let rows = parts.chain([("all", step, all)]).map(|(name, seconds, bound)| {
        [name.to_owned(), format!("{:.2}", seconds * 1e3), percent(seconds / step), bound]
    });
    let headings = ["time of a step", "ms", "share", "bound by"];
    text.push_str(&text_table(headings, &["time of a step", "bound by"], rows));
    text.push_str(&describe_draws(problem, found));
    text.push('\n');
    text.push_str(&describe_memory(checked));
    text.push('\n');
    text.push_str(&describe_stages(checked));
    text.push('\n');
    for kernels in explanation.kernels.chunk_by(|a, b| a.group == b.group) {
        text.push_str(&describe_kernels(kernels));
    }
    text.push_str(&describe_losses(plan, &explanation.runners_up));
    let hardware = &problem.hardware;
    text.push_str(&describe_calibration(&hardware.framework, &hardware.device.training_set));
    let _ = writeln!(
        text,
        "\nmfu counts {}, without masked pairs, over {} in {}; with every pair {}",
        match plan.model.adapters {
            Some(_) => "2 x forward of frozen weights and 3 x of all else",
            None => "3 x forward",
        },
        describe_peak(problem),
        plan.training.precision,
        percent(utilization_with_every_pair(problem, found.evaluation.step_time)),
    );
    let _ = writeln!(text, "made by: {}", plan.provenance.command);
    text
}

fn describe_memory(checked: &CheckedPlan) -> String {
    let CheckedPlan { plan, problem, found, .. } = checked;
    let heading = format!("memory of {}", fullest_rank(problem, found));
    let of_rank = problem.at_rank(&found.layout, found.evaluation.fullest_rank).hardware;
    let (total, memory) = (plan.prediction.peak_memory_bytes, of_rank.memory);
    let all = [("all", total), ("free", memory.saturating_sub(total))];
    let lines = plan.prediction.memory.lines().into_iter().chain(all);
    let rows = lines.filter(|(_, bytes)| bytes.get() > 0).map(|(name, bytes)| {
        let share = percent(bytes.as_f64() / memory.as_f64());
        [name.to_owned(), format!("{:.2}", bytes.as_gib()), share]
    });
    let host = match of_rank.host.filter(|_| plan.layout.offload.is_some()) {
        Some(host) => format!(
            "on its host: {} of {} ({})\n",
            plan.prediction.memory.host_bytes,
            host.memory(),
            plan.layout.offload
        ),
        None => String::new(),
    };
    text_table([&heading, "GiB", "share"], &[&heading], rows) + &host
}

/// Number of layers or blocks of each stage, counted as in `--stages`.
fn describe_stages(checked: &CheckedPlan) -> String {
    let plan = &checked.plan;
    let by_hand = if plan.stages_by_hand { " (given by hand)" } else { "" };
    let blocks: Vec<u32> = plan.stages.iter().map(|stage| stage.num_blocks).collect();
    let stages = GivenStages::of_blocks(&checked.model, &blocks);
    let (counts, counted) = stages.counts();
    let ends = match counted {
        "layers" if plan.stages.len() > 1 => "; the first has the embedding too, the last the head",
        "layers" => "; it has the embedding and the head too",
        _ => "",
    };
    let mut text = format!("{counted} of each stage, in the order of the model{by_hand}{ends}:");
    for (index, count) in counts.iter().enumerate() {
        let separator = if index % 16 == 0 { "\n  " } else { " " };
        let _ = write!(text, "{separator}{count}");
    }
    let groups = plan.ranks.chunk_by(|a, b| a.group == b.group);
    if !plan.layout.micro_batches_by_group.is_empty() {
        for ranks in groups {
            let of_batch = ranks[0].share_of_batch * plan.training.global_batch_size as f64;
            let p = plan.layout.pipeline_parallel as usize;
            let (replicas, group) = (ranks.len() / p, &ranks[0].group);
            let _ =
                write!(text, "\n  {replicas} replicas on {group}: {of_batch:.0} sequences each");
        }
        return text + "\n";
    }
    for ranks in groups {
        let (first, last) = (ranks[0].pipeline_rank, ranks[ranks.len() - 1].pipeline_rank);
        let layers: u32 = ranks.iter().map(|rank| rank.layers).sum();
        let _ = write!(
            text,
            "\n  pipeline ranks {first} to {last} on {}: {layers} layers",
            ranks[0].group
        );
    }
    text + "\n"
}

fn describe_kernels(kernels: &[KernelRow]) -> String {
    let headings = ["block", "x", "operator", "forward us", "backward us", "share", "bound by"];
    let total: f64 = kernels.iter().map(KernelRow::total).sum();
    let rows = kernels.iter().take(KERNEL_ROWS).map(|row| {
        [
            row.block.clone(),
            row.blocks.to_string(),
            row.operator.clone(),
            format!("{:.1}", row.forward_seconds * 1e6),
            format!("{:.1}", row.backward_seconds * 1e6),
            percent(row.total() / total),
            row.bound_by.clone(),
        ]
    });
    let rest: f64 = kernels.iter().skip(KERNEL_ROWS).map(KernelRow::total).sum();
    let group = kernels.first().and_then(|row| row.group.as_ref());
    let on = group.map_or_else(String::new, |group| format!(" on {group}"));
    let mut text = format!("kernels and collectives of a micro-batch{on}, dearest first:\n");
    text.push_str(&text_table(headings, &["block", "operator", "bound by"], rows));
    if rest > 0.0 {
        let _ =
            writeln!(text, "  and {} more: {}", kernels.len() - KERNEL_ROWS, percent(rest / total));
    }
    text
}

/// Loss of each runner-up: the total, and by part of the step.
fn losses(plan: &Plan) -> Vec<Loss> {
    let best = &plan.prediction.breakdown;
    plan.runners_up
        .iter()
        .map(|runner_up| Loss {
            layout: runner_up.layout.to_string(),
            schedule: runner_up.layout.schedule.to_string(),
            loses_seconds: runner_up.step_time_seconds - plan.prediction.step_time_seconds,
            parts_seconds: runner_up
                .breakdown
                .parts_above(best)
                .filter(|(_, difference)| *difference != 0.0)
                .collect(),
        })
        .collect()
}

fn describe_losses(plan: &Plan, losses: &[Loss]) -> String {
    if plan.runners_up.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\nrunners-up, and what they lose (a gain below {:.0} % cannot be told apart):\n",
        RESOLUTION * 100.0
    );
    for (loss, runner_up) in losses.iter().zip(&plan.runners_up) {
        let mut parts: Vec<_> = loss.parts_seconds.iter().collect();
        parts.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        let parts = parts.into_iter().take(3);
        let parts: Vec<String> =
            parts.map(|(name, seconds)| format!("{name} {:+.1} ms", *seconds * 1e3)).collect();
        let spec = &runner_up.layout;
        let _ = writeln!(
            text,
            "  {} {}, ZeRO {}, micro-batch {}, recompute {}: {:+.1} ms ({})",
            loss.layout,
            loss.schedule,
            spec.zero_stage.number(),
            spec.micro_batch_size,
            spec.recompute,
            loss.loses_seconds * 1e3,
            parts.join(", "),
        );
    }
    text
}
