//! Text output of `search` and `evaluate`.

use std::fmt::Write as _;

use indicatif::HumanCount;
use ir::documents::{Documents, Packing};
use ir::graph::{
    Adapters, CudaGraphs, DocumentSizes, ExpertOverlap, Recompute, Switches, TokenDispatcher,
};
use ir::plan::Breakdown;
use ir::replication::{DataParallelMethod, Replication};
use ir::schedule::ScheduleKind;
use ir::units::{Bytes, Seconds};
use planner::report::{Answered, Expectation};
use planner_core::problem::Problem;
use planner_core::search::space::Rejection;
use planner_core::search::{
    Chosen, EvaluatedPlan, OnNodes, Outcome, OverDraws, RESOLUTION, StopReason, WithLessHeadroom,
    largest_headroom, model_flops_utilization, utilization_with_every_pair,
};

use super::args::ProblemArgs;
use super::input::{Input, command};
use super::questions::with_schedule;
use super::ranks::{describe_ranks, fullest_rank};
use super::report::is_page;
use super::tables::{count, gib, percent, render, table, unit_of_rate};

/// Text output of `search` or `evaluate`, including the answers to further questions.
pub(crate) fn describe(
    input: &Input,
    args: &ProblemArgs,
    answer: &Answered,
    answers: &str,
) -> String {
    let Answered { outcome, shown, elapsed, named, best, lacks, headroom, .. } = answer;
    let mut text = describe_problem(input, args);
    if !lacks.is_empty() {
        let name = &input.framework.name;
        let _ = writeln!(text, "{name} cannot run this: it has no {}\n", lacks.join(", no "));
    }
    let less = outcome.with_less_headroom.as_ref();
    match shown.as_slice() {
        [] => {
            if *named {
                let closest: Vec<Row<'_>> = outcome.closest.iter().map(Row::named).collect();
                text.push_str(&plan_table(&input.problem, &closest));
                text.push('\n');
            }
            text.push_str(&match outcome.stop_reason {
                StopReason::Interrupted | StopReason::TimeLimit => describe_nothing_yet(outcome),
                _ => describe_misfit(input, answer),
            });
        }
        [first, ..] => {
            let rows = (1..).zip(shown).map(|(rank, it)| Row {
                rank: rank.to_string(),
                found: &it.found,
                likelihood: (!named).then_some(it.likelihood),
            });
            // A plan that fits only with less headroom is listed separately.
            let apart =
                less.map(|it| Row { rank: "*".to_owned(), found: &it.found, likelihood: None });
            let rows: Vec<Row<'_>> = rows.chain(apart).collect();
            text.push_str(&plan_table(&input.problem, &rows));
            if !named {
                text.push_str(&describe_order(&input.problem, shown));
            }
            text.push_str(&describe_best(&input.problem, &first.found, *headroom, less));
        }
    }
    text.push_str(&describe_gap(outcome));
    if let Some(OnNodes { outcome: of_best, nodes, .. }) = best
        && let Some(best) = of_best.plans.first()
        && let Some(found) = outcome.plans.first().or(outcome.closest.as_ref())
    {
        let best = (best, nodes.as_deref());
        let replication = input.problem.training.replication();
        let by = if replication == Replication::default() { "" } else { ", by all-reduce," };
        let has_headroom = input.problem.headroom() >= *headroom;
        text.push_str(&describe_loss(best, by, found, has_headroom.then_some(*headroom)));
    }
    text.push_str(answers);
    if !*named {
        let counts = &outcome.counts;
        let _ = writeln!(
            text,
            "\n{} layouts in {:.0} ms: {} played through, {} too large\nleft out by bounds: {} on time, \
             {} on memory",
            HumanCount(counts.candidates),
            elapsed.as_secs_f64() * 1e3,
            HumanCount(counts.played),
            HumanCount(counts.too_large),
            HumanCount(counts.pruned_by_time),
            HumanCount(counts.pruned_by_memory),
        );
    }
    match (&args.output, outcome.plans.is_empty()) {
        (Some(path), false) if is_page(path) => {
            let _ = writeln!(text, "wrote {}, a page for a browser", path.display());
        }
        (Some(path), false) => {
            let _ = writeln!(text, "wrote {0}; see `planner explain {0}`", path.display());
        }
        _ => {
            let _ = writeln!(text, "again: {}", command());
        }
    }
    text
}

pub(super) fn describe_problem(input: &Input, args: &ProblemArgs) -> String {
    let Input { file, cluster, problem, choices, .. } = input;
    let training = &problem.training;
    let parameters = problem.parameters();
    let active = if parameters.active < parameters.total - parameters.embedding {
        format!(", {} active", count(parameters.active as f64))
    } else {
        String::new()
    };
    let trained = input.adapters.as_ref().map_or_else(String::new, |adapters| {
        format!("\n{}", describe_adapters(adapters, parameters.trained))
    });
    let chosen = |open: bool| if open { " (default)" } else { "" };
    let batch = format!(
        "batch {}{}",
        training.global_batch_size,
        chosen(choices.global_batch_size.is_none())
    );
    let tokens = if problem.limits.has_sequence {
        format!(
            "sequence {}{}, {batch} = {} tokens",
            training.sequence_length,
            chosen(choices.sequence_length.is_none()),
            count((training.sequence_length * training.global_batch_size) as f64),
        )
    } else {
        batch
    };
    let replication = describe_replication(&training.replication());
    let documents = problem.sequences.as_ref().map_or_else(String::new, |it| {
        let Documents { lengths, packing } = &it.documents;
        let is_open = args.setting.packing.is_none();
        format!("documents {lengths}, packing {packing}{}\n", chosen(is_open))
    });
    let load = if problem.facts.has_experts {
        let is_open = args.setting.expert_load.is_none();
        format!("expert load {}{}\n", problem.expert_load.load, chosen(is_open))
    } else {
        String::new()
    };
    let stages = match &problem.stages {
        Some(stages) => format!("stages given by hand: {stages}\n"),
        None => String::new(),
    };
    format!(
        "{}: {} parameters{active}{trained}\n{}, cluster {}\n{tokens}; {}{}, {:?}{}\n{}\n{replication}{documents}{load}{stages}\n",
        file.model.name,
        count(parameters.total as f64),
        cluster.gpus_in_words(problem.limits.num_gpus),
        cluster.name,
        training.precision,
        chosen(choices.precision.is_none()),
        training.optimizer,
        chosen(choices.optimizer.is_none()),
        describe_framework(input, args.setting.framework.is_none()),
    )
}

/// The framework that runs the step; and for a framework by default, why the usual one was not chosen.
fn describe_framework(input: &Input, is_chosen: bool) -> String {
    let framework = &input.framework;
    let chosen = match &input.why_not_first {
        Some(why) => format!(" (default, as {why})"),
        None if is_chosen => " (default)".to_owned(),
        None => String::new(),
    };
    if framework.is_ideal() {
        let like = framework.measured_name();
        return format!(
            "framework ideal{chosen}: layouts are not limited to what a framework runs; kernels and habits of {like}"
        );
    }
    format!("framework {}{chosen}", framework.name)
}

/// A line on how replicas synchronize, if not by all-reduce of full gradients.
pub(crate) fn describe_replication(replication: &Replication) -> String {
    match replication {
        Replication { compression: Some(compression), .. } => {
            format!("replicas send {compression} of their gradients, with error feedback\n")
        }
        Replication { method: DataParallelMethod::AllReduce, .. } => String::new(),
        Replication { method, .. } => format!("replicas agree by {method}\n"),
    }
}

/// Adapters of a model, and the number of trained parameters.
pub(crate) fn describe_adapters(adapters: &Adapters, trained: u64) -> String {
    let Adapters { rank, alpha, targets, base_weights } = adapters;
    format!(
        "LoRA trains {} parameters: rank {rank}, alpha {alpha}, on {}; base weights {base_weights}",
        count(trained as f64),
        targets.join(", "),
    )
}

/// A row of a table of plans.
struct Row<'a> {
    /// Rank of the plan, or `*` if it is listed separately from the ranked ones.
    rank: String,
    found: &'a EvaluatedPlan,
    /// Probability that the plan is the fastest; `None` if the row is not ranked.
    likelihood: Option<f64>,
}

impl<'a> Row<'a> {
    fn named(found: &'a EvaluatedPlan) -> Self {
        Self { rank: "1".to_owned(), found, likelihood: None }
    }
}

/// Explains why the first plan is not the one with the shortest predicted step.
fn describe_order(problem: &Problem, shown: &[Chosen]) -> String {
    let place = shown.iter().position(|chosen| chosen.is_fastest);
    let Some(place) = place.filter(|place| *place > 0) else { return String::new() };
    let [first, fastest] = [0, place].map(|place| shown[place].found.evaluation.step_time.get());
    let gain = (first / fastest - 1.0) * 100.0;
    let faster = format!("{gain:.1} % faster than 1");
    let how = match problem.hardware.framework.stands_for.len() {
        0 if gain < 0.05 => "as fast as 1: the simplest stands first".to_owned(),
        0 if gain < RESOLUTION * 100.0 => {
            format!("{faster}, which cannot be told apart: the simplest stands first")
        }
        0 => format!("{faster}, but is less likely to be the fastest"),
        count => format!(
            "{faster}; the order is by what each loses in the mean of {count} frameworks that may run it"
        ),
    };
    format!("\n{} is predicted {how}\n", place + 1)
}

/// Description of the switches that differ from the usual ones.
fn switched_on(switches: Switches) -> String {
    let overlap = (switches.expert_overlap != ExpertOverlap::None)
        .then(|| "exchanges of experts beside another micro-batch".to_owned());
    let is_usual = switches.token_dispatcher == TokenDispatcher::default();
    let dispatcher = (!is_usual).then(|| format!("token dispatcher {}", switches.token_dispatcher));
    let is_none = switches.cuda_graphs == CudaGraphs::None;
    let graphs = (!is_none).then(|| format!("CUDA graphs of {}", switches.cuda_graphs));
    let words: Vec<String> = [dispatcher, overlap, graphs].into_iter().flatten().collect();
    words.join(", ")
}

fn plan_table(problem: &Problem, plans: &[Row<'_>]) -> String {
    let rate = unit_of_rate(problem.limits.has_sequence);
    let fastest = plans.first().map_or(0.0, |row| row.found.evaluation.step_time.get());
    let has_switches = plans.iter().any(|row| !row.found.layout.switches.are_usual());
    let is_ranked = plans.iter().any(|row| row.likelihood.is_some());
    let (step, scale) = match fastest {
        t if t >= 1.0 => ("step s", 1.0),
        t if t >= 1e-3 => ("step ms", 1e3),
        _ => ("step us", 1e6),
    };
    let mut headings =
        vec!["", "layout", "schedule", "ZeRO", "micro", "recompute", step, rate, "MFU", "GiB"];
    if is_ranked {
        headings.push("fastest");
    }
    // Unless a row says otherwise, one stage per rank means 1F1B, and several stages mean interleaved 1F1B.
    let is_implied = |it: &Row<'_>| {
        let layout = &it.found.layout;
        let is_usual = match layout.virtual_stages {
            1 => ScheduleKind::OneFOneB,
            _ => ScheduleKind::Interleaved,
        };
        layout.schedule == is_usual
    };
    let has_schedules = !is_ranked || !plans.iter().all(is_implied);
    if !has_schedules {
        headings.remove(2);
    }
    let mut rows = table(&headings, &["layout", "schedule", "recompute"]);
    for Row { rank, found, likelihood } in plans {
        let layout = &found.layout;
        let prediction = found.prediction(problem);
        let shards = layout.context_parallel * layout.data_parallel;
        let zero = if layout.zero_shard < shards {
            format!("{}/{}", layout.zero_stage.number(), layout.zero_shard)
        } else {
            layout.zero_stage.number().to_string()
        };
        let mut row = vec![
            rank.clone(),
            layout.to_string(),
            zero,
            layout.micro_batches(),
            match layout.recompute.modules() {
                Some(_) => "modules".to_owned(),
                None => layout.recompute.to_string(),
            },
            format!("{:.2}", prediction.step_time_seconds * scale),
            format!("{:.0}", prediction.tokens_per_second_per_gpu),
            percent(prediction.mfu),
            format!("{:.1}", prediction.peak_memory_bytes.as_gib()),
        ];
        if has_schedules {
            row.insert(2, layout.schedule.to_string());
        }
        row.extend(likelihood.map(|share| format!("{:.0} %", share * 100.0)));
        if is_ranked && likelihood.is_none() {
            row.push("-".to_owned());
        }
        rows.add_row(row);
    }
    let switched = if has_switches { describe_switches(plans) } else { String::new() };
    let modules = plans.iter().find_map(|row| row.found.layout.recompute.modules());
    let modules = modules.map_or_else(String::new, |modules| {
        format!("modules computed again: {}\n", Recompute::Modules(modules))
    });
    render(&rows) + &modules + &switched
}

/// Lines of switches, each with the rows that have them.
fn describe_switches(plans: &[Row<'_>]) -> String {
    let mut by_words: Vec<(String, Vec<&str>)> = Vec::new();
    for row in plans {
        let words = switched_on(row.found.layout.switches);
        match by_words.iter_mut().find(|(known, _)| *known == words) {
            Some((_, ranks)) => ranks.push(&row.rank),
            None => by_words.push((words, vec![&row.rank])),
        }
    }
    let lines = by_words.iter().filter(|(words, _)| !words.is_empty()).map(|(words, ranks)| {
        let of_all = ranks.len() == plans.len();
        let which = if of_all { "all".to_owned() } else { ranks.join(", ") };
        format!("  {which}: {words}\n")
    });
    format!("switched on\n{}", lines.collect::<String>())
}

/// Reason why the search stopped early.
fn why(outcome: &Outcome) -> &'static str {
    match outcome.stop_reason {
        StopReason::TimeLimit => "the time limit was reached",
        _ => "the search was interrupted",
    }
}

/// Message that the search stopped before it found a plan.
fn describe_nothing_yet(outcome: &Outcome) -> String {
    format!(
        "nothing found: {} when {} of {} layouts were left\nhint: a longer `--time-limit`, or fewer \
         choices, such as `--tp 8`\n",
        why(outcome),
        HumanCount(outcome.counts.open),
        HumanCount(outcome.counts.candidates),
    )
}

/// Largest possible gain of an unexplored layout over the best plan.
fn describe_gap(outcome: &Outcome) -> String {
    let (Some(best), Some(least)) = (outcome.plans.first(), outcome.least_left) else {
        return String::new();
    };
    let time = best.evaluation.step_time;
    let left = match outcome.counts.open {
        0 => "other nodes".to_owned(),
        open => format!("{} layouts", HumanCount(open)),
    };
    format!(
        "\n{}: this is the best so far; {left} were not looked at,\nand none of them takes less than \
         {least}, {:.1} % less\n",
        why(outcome),
        (1.0 - least / time) * 100.0,
    )
}

/// Breakdown of the best plan's time in one line, and lines about its memory and confidence.
fn describe_best(
    problem: &Problem,
    best: &EvaluatedPlan,
    headroom: Bytes,
    less: Option<&WithLessHeadroom>,
) -> String {
    let evaluation = &best.evaluation;
    let memory = evaluation.memory.total();
    let of = problem.at_rank(&best.layout, evaluation.fullest_rank).hardware.memory;
    format!(
        "\ntime:   {}\n{}memory: {} of {} on {}\n{}{}{}",
        shares(&evaluation.breakdown, evaluation.step_time.get()),
        [describe_draws(problem, best), describe_utilization(problem, best)].concat(),
        memory,
        of,
        fullest_rank(problem, best),
        describe_ranks(problem, best) + &describe_headroom(problem, best, headroom, less),
        describe_host(problem, best),
        Expectation::of(problem, best).describe(),
    )
}

/// Shares of a step's time by its parts, the largest first.
pub(super) fn shares(breakdown: &Breakdown, total: f64) -> String {
    let mut parts = breakdown.parts();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shares = parts.iter().filter(|(_, seconds)| seconds / total >= 0.005);
    let shares = shares.map(|(name, seconds)| format!("{name} {:.0} %", seconds / total * 100.0));
    shares.collect::<Vec<_>>().join("; ")
}

/// Text for routers that spread tokens unevenly, or documents of many lengths: what the step waits for, and how this
/// varies from step to step.
pub(crate) fn describe_draws(problem: &Problem, best: &EvaluatedPlan) -> String {
    let Some(draws) = best.over_draws(problem) else { return String::new() };
    let OverDraws { step_time, busiest, balanced, documents, .. } = draws;
    if busiest <= 1.0 && documents.is_none() {
        return String::new();
    }
    let [low, high] = [step_time.p10, step_time.p90].map(Seconds::new);
    let mut lines = Vec::new();
    if let Some(DocumentSizes { attended, padded, .. }) = documents {
        let is_packed =
            problem.sequences.as_ref().is_some_and(|it| it.documents.packing != Packing::None);
        let real = format!("{} of the tokens computed are real; ", percent(problem.real_share()));
        let real = if is_packed { real } else { String::new() };
        lines.push(format!(
            "documents: {real}the replica that all wait for has sequences of {padded}, each token of which is in a \
             document of {attended} on average"
        ));
    }
    if busiest > 1.0 {
        lines.push(format!(
            "experts: the busiest rank has {busiest:.2} times its share of tokens; {balanced} a step if all had the same"
        ));
    }
    lines.push(format!("drawn:  {low} to {high} in eight of ten draws"));
    lines.join("\n") + "\n"
}

/// Headroom of the plan, and the gain of the plan that fits only with less headroom.
fn describe_headroom(
    problem: &Problem,
    best: &EvaluatedPlan,
    headroom: Bytes,
    less: Option<&WithLessHeadroom>,
) -> String {
    let given = if headroom == problem.usual_headroom() { " by default" } else { "" };
    let rule = format!("{headroom} stay free{given} (`--headroom`)");
    let left = problem.headroom();
    if left < headroom {
        return format!(
            "        {rule}, but this plan leaves less; with `--headroom {}` it fits\n",
            gib(left)
        );
    }
    let gain = less.map_or_else(String::new, |WithLessHeadroom { found, headroom }| {
        let [time, faster] = [best, found].map(|it| it.evaluation.step_time);
        format!(
            "; with `--headroom {}` * takes {faster}, {:.0} % less",
            gib(*headroom),
            (1.0 - faster / time) * 100.0
        )
    });
    format!("        {rule}{gain}\n")
}

/// Definition of MFU, if a mask makes the counts with and without masked pairs differ.
fn describe_utilization(problem: &Problem, found: &EvaluatedPlan) -> String {
    let time = found.evaluation.step_time;
    let with_every_pair = utilization_with_every_pair(problem, time);
    if with_every_pair <= model_flops_utilization(problem, time) {
        return String::new();
    }
    let peak = describe_peak(problem);
    let precision = problem.training.precision;
    format!(
        "mfu:    over {peak} in {precision}, without masked pairs; with every pair {}\n",
        percent(with_every_pair)
    )
}

/// Peak rate that utilization refers to: that of a GPU, or for GPUs of several kinds that of all together.
pub(crate) fn describe_peak(problem: &Problem) -> String {
    match problem.groups {
        None => problem.hardware.peak.to_string(),
        Some(_) => format!("{} of all GPUs", problem.peak_of_all()),
    }
}

/// A line on the plan's memory on the hosts, for layouts with offload.
fn describe_host(problem: &Problem, found: &EvaluatedPlan) -> String {
    let Some(host) = problem.hardware.host.filter(|_| found.layout.offload.is_some()) else {
        return String::new();
    };
    let (used, offload) = (found.evaluation.memory.host_bytes, found.layout.offload);
    format!(
        "host:   {used} of {} of host memory for each GPU: {offload}; few measured steps have offload\n",
        host.memory()
    )
}

/// Loss of a named layout relative to the best layout, and the parts of the step that cause it. `headroom` is `None` if
/// the named layout leaves less memory free than required.
fn describe_loss(
    (best, nodes): (&EvaluatedPlan, Option<&str>),
    by: &str,
    named: &EvaluatedPlan,
    headroom: Option<Bytes>,
) -> String {
    let (best_time, time) = (best.evaluation.step_time, named.evaluation.step_time);
    if time <= best_time {
        let that = if headroom.is_some() { "" } else { " that leaves as much free" };
        return format!("no layout{that} is faster\n");
    }
    let (breakdown, of_best) = (&named.evaluation.breakdown, &best.evaluation.breakdown);
    let mut parts: Vec<(&str, f64)> = breakdown.parts_above(of_best).collect();
    parts.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    let parts: Vec<String> = parts
        .iter()
        .take(3)
        .filter(|(_, seconds)| seconds.abs() / time.get() >= 0.001)
        .map(|(name, seconds)| format!("{name} {}", Seconds::new(*seconds).signed()))
        .collect();
    format!(
        "the best layout{by} takes {best_time}: {}{}; this one {:.1} % more{}\n",
        with_schedule(&best.layout),
        nodes.map_or_else(String::new, |nodes| format!(" on {nodes}")),
        (time / best_time - 1.0) * 100.0,
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) },
    )
}

fn describe_misfit(input: &Input, answer: &Answered) -> String {
    let Answered { outcome, least_gpus, memory_saving, .. } = answer;
    let mut text = "no layout fits:\n".to_owned();
    let offloads = outcome.closest.as_ref().is_some_and(|it| it.layout.offload.is_some());
    for (reason, number) in &outcome.rejected {
        let or = if offloads && *reason == Rejection::Memory {
            ", or what it has of its host"
        } else {
            ""
        };
        let _ = writeln!(text, "  {:>9} {reason}{or}", HumanCount(*number).to_string());
    }
    if let Some(closest) = &outcome.closest {
        let layout = &closest.layout;
        let of_rank = input.problem.at_rank(layout, closest.evaluation.fullest_rank);
        let memory = of_rank.memory_budget;
        let too_much = match closest.excess(memory) {
            Bytes::ZERO => String::new(),
            excess => format!(", {excess} too much"),
        };
        let _ = writeln!(
            text,
            "closest: {}, micro-batch {}, recompute {}: needs {} of {memory}{too_much}",
            with_schedule(layout),
            layout.micro_batch_size,
            layout.recompute,
            closest.evaluation.memory.total(),
        );
        if of_rank.fits(&closest.evaluation.memory) {
            let left = gib(largest_headroom(&input.problem, closest));
            let _ = writeln!(text, "hint: it fits with less left free: `--headroom {left}`");
        }
        text.push_str(&describe_host(&input.problem, closest));
        for (name, bytes) in closest.evaluation.memory.lines() {
            if bytes.get() > 0 {
                let _ = writeln!(text, "  {:>12}  {name}", bytes.to_string());
            }
        }
    }
    if let Some(saving) = memory_saving {
        let gpus = input.problem.limits.num_gpus;
        let these = if gpus == 1 { "this GPU".to_owned() } else { format!("these {gpus} GPUs") };
        let _ = writeln!(text, "hint: `{saving}` fits on {these}");
    }
    match least_gpus {
        Some(gpus) if memory_saving.is_some() => {
            let _ = writeln!(text, "least without: {gpus} GPUs would do");
        }
        Some(gpus) => {
            let _ = writeln!(text, "least: {gpus} GPUs would do");
        }
        None if memory_saving.is_some() || !outcome.rejected.contains_key(&Rejection::Memory) => {}
        None => text.push_str("hint: a shorter sequence, a smaller batch or a larger GPU may do\n"),
    }
    text
}
