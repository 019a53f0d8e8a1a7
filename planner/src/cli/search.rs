//! `planner search` and `planner evaluate`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ir::framework::IDEAL;
use ir::layout::PartialLayout;
use ir::plan::{Plan, PlannedModel, Training};
use ir::units::Bytes;
use planner::report::{Answered, SearchReport};
use planner_core::answers::{cheapest_number_of_gpus, least_memory};
use planner_core::plan;
use planner_core::problem::{Choices, Problem};
use planner_core::search::{
    BestNodes, EvaluatedPlan, LOOKED_AT, MemorySaving, OnNodes, Outcome, Progress, RESOLUTION,
    Request, StopReason, best_nodes, chosen, evaluate as evaluate_layouts, least_gpus,
    memory_saving, search as search_layouts, search_nodes, search_nodes_below,
    tokens_per_second_per_gpu,
};
use serde::Serialize;

use super::answer::Answer;
use super::args::{EvaluateArgs, Format, ProblemArgs, SearchArgs};
use super::describe::describe;
use super::impossible::{AskedFor, no_candidates};
use super::input::{
    Constraints, Input, command, read, warn_of_hardware, warn_of_long_sequence, warn_of_model,
    warn_of_nodes, warn_of_tools,
};
use super::interrupt::Limit;
use super::layout::LayoutArgs;
use super::picture::refuse_other_endings;
use super::questions::{Answers, Objective, QuestionArgs, describe_considered};
use super::report;
use command_line::destination::{
    check_output, refuse_to_overwrite, stdout_is_free, write_json, write_output,
};
use command_line::terminal::{print, print_json, tell};

pub(crate) fn search(args: &SearchArgs) -> anyhow::Result<Answer> {
    let request = Request {
        fixed: args.layout.over(&PartialLayout::default())?,
        top: args.top.max(LOOKED_AT),
        min_recompute: args.layout.min_recompute(),
        less_headroom: args.questions.objective == Objective::Time,
        ..Request::default()
    };
    answer(&args.problem, &args.layout, &request, Some(args), None)
}

/// Searches for the best completion of a named layout. Open tensor, context and pipeline degrees are not searched.
pub(crate) fn evaluate(args: &EvaluateArgs) -> anyhow::Result<Answer> {
    let fixed = args.layout.completed(&args.layout.over(&args.named)?);
    let min_recompute = args.layout.min_recompute();
    let less_headroom = true;
    let request = Request { fixed, top: 1, min_recompute, less_headroom, ..Request::default() };
    answer(&args.problem, &args.layout, &request, None, Some(&args.named))
}

/// The requested number of threads, limited to the machine's available parallelism.
fn capped(threads: usize, is_quiet: bool) -> usize {
    let cores = std::thread::available_parallelism().map_or(threads, std::num::NonZero::get);
    if threads > cores && !is_quiet {
        tell(&format!(
            "note: {cores} threads instead of {threads}: the machine runs no more at once"
        ));
    }
    threads.min(cores)
}

/// Checks before the search that the best plan can be written, and that it would not overwrite an input.
fn check_place(
    args: &ProblemArgs,
    layout: &LayoutArgs,
    search: Option<&SearchArgs>,
    output: &Path,
) -> anyhow::Result<()> {
    let draws = "`planner chart plan.json -o step.svg` draws a plan";
    refuse_other_endings(output, "a plan or its page", &["json", "html"], Some(draws))?;
    let setting = &args.setting;
    let named = [&setting.framework, &setting.document_lengths, &setting.expert_load];
    let named = named.into_iter().flatten().chain([&setting.cluster]).map(Path::new);
    let model = Some(args.model.as_path());
    let rates = search.and_then(|search| search.failures.failure_rates.as_deref());
    let files = [model, setting.topology.as_deref(), layout.schedule_file(), rates];
    for input in named.chain(files.into_iter().flatten()) {
        refuse_to_overwrite(input, output)?;
    }
    check_output(output, &[])
}

/// Runs a search for the best plans, or the evaluation of a `named` layout, and answers it.
fn answer(
    args: &ProblemArgs,
    layout: &LayoutArgs,
    request: &Request,
    search: Option<&SearchArgs>,
    named: Option<&PartialLayout>,
) -> anyhow::Result<Answer> {
    let is_named = named.is_some();
    let constraints =
        Constraints { stages: layout.stages.as_deref(), layout: request.fixed, is_named };
    let mut input = read(&args.model, args.gpus, &args.setting, &constraints)?;
    if let Some(output) = &args.output {
        check_place(args, layout, search, output)?;
    }
    if !args.quiet {
        warn_of_model(&args.model, &input.file.model);
        warn_of_long_sequence(&input.file.model, &input.problem.training);
        warn_of_hardware(&input.framework, &input.cluster);
    }
    if let Some(threads) = args.threads {
        let threads = capped(threads, args.quiet);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build_global().context("`--threads`")?;
    }
    let start = now();
    let limit = Limit::new(args.time_limit, args.quiet);
    let mut considered = String::new();
    if let Some(search) = search {
        considered = narrow(&mut input, &search.questions, request, &limit)?;
    }
    let (nodes, earlier) = choose_nodes(&mut input, request, is_named, &limit);
    considered += &nodes;
    let is_quiet = args.quiet || args.format == Format::Json;
    let headroom = input.problem.headroom();
    let (outcome, left) = observed_search(&input.problem, request, is_named, is_quiet, &limit);
    let outcome = outcome.or_earlier(earlier);
    if let Some(left) = left {
        input.problem = input.problem.with_headroom(left);
    }
    let elapsed = start.elapsed();
    if outcome.counts.candidates == 0 {
        let (problem, fixed) = (&input.problem, &request.fixed);
        return Err(no_candidates(&AskedFor { problem, options: layout, named, fixed }, &outcome));
    }
    if !args.quiet {
        warn_of_nodes(args.gpus, &input.cluster, &request.fixed);
    }
    let (memory_saving, least_gpus) = what_would_fit(&input, request, &outcome, &limit)?;
    let shown = chosen(&input.problem, &outcome.plans, search.map_or(1, |search| search.top));
    if !is_named
        && !is_quiet
        && let Some(first) = shown.first()
    {
        tell_of_better_batch(&input, request, &first.found, &limit)?;
    }
    let plan = args.output.as_ref().filter(|path| !report::is_page(path));
    if let [best, runners_up @ ..] = shown.as_slice() {
        let runners_up: Vec<EvaluatedPlan> = runners_up.iter().map(|it| it.found.clone()).collect();
        let made = make_plan(&input, args, &best.found, &runners_up);
        if !args.quiet {
            warn_of_tools(&input, &made);
        }
        if let Some(path) = plan {
            write_json(path, &made)?;
        }
    }
    let best = if is_named { best_of_all(&input.open, &limit) } else { None };
    let answers = match search {
        Some(search) => {
            search.questions.answer(&input, request, &shown, &search.failures, &limit)?
        }
        None => Answers::default(),
    };
    drop(limit);
    let found = if outcome.plans.is_empty() { Answer::NothingFits } else { Answer::Found };
    if !shown.is_empty() && !stdout_is_free(&args.output) {
        return Ok(found);
    }
    let lacks = input.lacks.clone();
    let named = is_named;
    let answer = Answered {
        outcome,
        shown,
        elapsed,
        least_gpus,
        memory_saving,
        named,
        best,
        lacks,
        headroom,
    };
    show(&input, args, &answer, answers, considered)?;
    Ok(found)
}

/// Writes the page of an answer, if one was requested, and prints the answer.
fn show(
    input: &Input,
    args: &ProblemArgs,
    answer: &Answered,
    answers: Answers,
    considered: String,
) -> anyhow::Result<()> {
    let page = args.output.as_ref().filter(|path| report::is_page(path));
    if let Some(path) = page.filter(|_| !answer.shown.is_empty()) {
        write_output(path, report::of_search(input, answer).as_bytes())?;
    }
    match args.format {
        Format::Json => {
            let Input { problem, file, cluster, .. } = input;
            let report = SearchReport::new(problem, &file.model, cluster, answer);
            print_json(&Whole { report, answers })?;
        }
        Format::Table => {
            let answers = answers.describe(input.problem.limits.has_sequence);
            print(&describe(input, args, answer, &(considered + &answers)))?;
        }
    }
    Ok(())
}

/// Narrows a problem with nodes of several kinds to the nodes with the fastest step. Returns a text about these nodes,
/// and the fastest plan on them.
fn choose_nodes(
    input: &mut Input,
    request: &Request,
    is_named: bool,
    limit: &Limit,
) -> (String, Option<Outcome>) {
    let best = best_nodes(&input.problem, request, &mut |_| limit.go());
    let Some(best) = best else { return Default::default() };
    let all = input.problem.limits.num_gpus;
    let own = input.framework.clone();
    let mut asked = best.problem.clone();
    asked.hardware.framework = own;
    input.lacks.retain(|lack| asked.unsupported(&request.fixed).contains(lack));
    let abilities = &input.framework.abilities;
    if !abilities.unlike_gpus && input.lacks.is_empty() {
        tell(&format!(
            "warning: {} does not run a pipeline on GPUs of several kinds, so each pipeline has one kind, and replicas on \
             different kinds have equal shares of the batch\nhint: `--framework {IDEAL}` or `--framework executor-cuda` for both",
            input.framework.name
        ));
    }
    let text = describe_nodes(&best, all, is_named);
    let BestNodes { problem, cluster, found, .. } = best;
    input.all_nodes = Some(std::mem::replace(&mut input.problem, problem));
    input.cluster = cluster;
    (text, found)
}

/// Text about the nodes that were chosen among nodes with `all` GPUs.
fn describe_nodes(best: &BestNodes, all: u32, is_named: bool) -> String {
    let BestNodes { problem, cluster, searched, choices, stop_reason, .. } = best;
    let of =
        if best.is_every_choice { "" } else { ", with all, none or a power of two of each kind" };
    let searched = format!("{searched} of {choices} choices of nodes were searched{of}");
    if best.found.is_none() {
        return format!("\nnodes: {searched}, and nothing was found on them\n");
    }
    let is_done = *stop_reason == StopReason::Exhausted;
    let no_faster = match (is_done, is_named) {
        (false, _) => "",
        (true, false) => ", with which no step is faster",
        (true, true) => ", with which this layout is no faster",
    };
    let left_out = match all - problem.limits.num_gpus {
        0 => String::new(),
        out => format!("; {out} of {all} GPUs are left out{no_faster}"),
    };
    let others =
        if is_done { ", and the others cannot be faster" } else { " before the search stopped" };
    format!("\nnodes: {}, in the order of ranks{left_out}; {searched}{others}\n", cluster.name)
}

/// If nothing fits: options that free memory and with which something fits on the same GPUs, and the smallest number of
/// GPUs on which something fits without such options.
fn what_would_fit(
    input: &Input,
    request: &Request,
    outcome: &Outcome,
    limit: &Limit,
) -> anyhow::Result<(Option<MemorySaving>, Option<u32>)> {
    let Input { file, problem, choices, cluster, .. } = input;
    let nothing_fits = outcome.plans.is_empty() && outcome.stop_reason == StopReason::Exhausted;
    if !nothing_fits || cluster.has_unlike_gpus() {
        return Ok((None, None));
    }
    let go = &mut || limit.go();
    let saving = memory_saving(problem, cluster, request, go)?;
    let least = least_gpus(&file.model, problem, choices, cluster, request, go)?;
    Ok((saving, least.filter(|gpus| *gpus > problem.limits.num_gpus)))
}

/// Hints on stderr at a batch near the given one that is a multiple of the number of GPUs, if its throughput is higher
/// by more than [`RESOLUTION`].
fn tell_of_better_batch(
    input: &Input,
    request: &Request,
    best: &EvaluatedPlan,
    limit: &Limit,
) -> anyhow::Result<()> {
    let (problem, choices) = (input.on_all_nodes(), &input.choices);
    let gpus = u64::from(problem.limits.num_gpus);
    let batch = problem.training.global_batch_size;
    if choices.global_batch_size.is_none() || batch < gpus || batch.is_multiple_of(gpus) {
        return Ok(());
    }
    let rate = |problem: &Problem, found: &EvaluatedPlan| {
        tokens_per_second_per_gpu(problem, found.evaluation.step_time)
    };
    let own = rate(problem, best);
    let mut better: Option<(u64, f64)> = None;
    for size in [batch / gpus * gpus, (batch / gpus + 1) * gpus] {
        let training = Training { global_batch_size: size, ..problem.training };
        let other = problem.with_training(training)?;
        let least_gain = better.map_or(RESOLUTION, |(_, gain)| gain);
        let most = best.evaluation.step_time * (size as f64 / batch as f64 / (1.0 + least_gain));
        let found = search_nodes_below(&other, request, most.into(), &mut |_| limit.go()).outcome;
        let gain = found.plans.first().map_or(0.0, |found| rate(&other, found) / own - 1.0);
        better = better.into_iter().chain((gain > least_gain).then_some((size, gain))).last();
    }
    if let Some((size, gain)) = better {
        let what = if problem.limits.has_sequence { "tokens" } else { "samples" };
        tell(&format!(
            "hint: `--global-batch-size {size}`, which {gpus} GPUs divide, does {:.0} % more {what} a second than {batch}",
            gain * 100.0
        ));
    }
    Ok(())
}

/// JSON of a search's report with the answers to further questions.
#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    report: SearchReport,
    #[serde(flatten)]
    answers: Answers,
}

/// Restricts a problem to the best one by an objective other than time; returns a text about it.
fn narrow(
    input: &mut Input,
    questions: &QuestionArgs,
    request: &Request,
    limit: &Limit,
) -> anyhow::Result<String> {
    let go = &mut || limit.go();
    let problem = &input.problem;
    anyhow::ensure!(
        questions.objective == Objective::Time || problem.groups.is_none(),
        "`--objective` with GPUs of several kinds: only the time of a step is minimised\nhint: leave it out, or a \
         cluster of one kind"
    );
    anyhow::ensure!(
        !questions.front || problem.groups.is_none(),
        "`--front` also plans for half of the GPUs, which it cannot choose among several kinds\nhint: leave it out, or \
         a cluster of one kind"
    );
    match questions.objective {
        Objective::Time => Ok(String::new()),
        Objective::Gpus => {
            let Input { file, choices, cluster, .. } = &*input;
            // The batch is the same for all numbers of GPUs.
            let choices =
                Choices { global_batch_size: Some(problem.training.global_batch_size), ..*choices };
            let least = least_gpus(&file.model, problem, &choices, cluster, request, go)?;
            let all = problem.limits.num_gpus;
            let Some(least) = least.filter(|least| *least <= all) else { return Ok(String::new()) };
            input.problem = problem.with_gpus(least)?;
            let how = if limit.was_reached() { "enough, and fewer may be" } else { "the fewest" };
            Ok(format!(
                "\nobjective gpus: {least} of {all} are {how}, on which a plan is found to fit\n"
            ))
        }
        Objective::Memory => {
            let Some(least) = least_memory(problem, request, go) else { return Ok(String::new()) };
            input.problem.memory_budget = least;
            let how = if limit.was_reached() {
                "the search stopped before it was known what fits in less"
            } else {
                "nothing fits in less, to a hundredth of a GPU"
            };
            Ok(format!("\nobjective memory: {how}; the fastest that needs no more than {least}\n"))
        }
        Objective::Cost => {
            let price = questions.price.filter(|price| *price > 0.0).context(
                "`--objective cost` takes the price of an hour of a GPU\nhint: `--price 2.5`",
            )?;
            let points = cheapest_number_of_gpus(problem, request, go)?;
            let Some(cheapest) = points.first() else { return Ok(String::new()) };
            let of = if limit.was_reached() { ", of those that were looked at" } else { "" };
            let text = format!(
                "\nobjective cost: {} GPUs cost least{of}, for the same batch\n{}",
                cheapest.num_gpus,
                describe_considered(&points, price)
            );
            input.problem = problem.with_gpus(cheapest.num_gpus)?;
            Ok(text)
        }
    }
}

/// The best plan without the user's constraints, for comparison with a named layout.
fn best_of_all(problem: &Problem, limit: &Limit) -> Option<OnNodes> {
    let best = search_nodes(problem, &Request::default(), &mut |_| limit.go());
    (!best.outcome.plans.is_empty()).then_some(best)
}

#[expect(clippy::disallowed_methods, reason = "the command tells its user how long it took")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Searches, or evaluates a named layout, with a progress bar on stderr after one second. If a named layout fits only
/// with less headroom, the memory that it leaves free is returned too.
fn observed_search(
    problem: &Problem,
    request: &Request,
    named: bool,
    quiet: bool,
    limit: &Limit,
) -> (Outcome, Option<Bytes>) {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    if let Ok(style) = ProgressStyle::with_template("searching {bar:40} {pos}/{len} layouts  {msg}")
    {
        bar.set_style(style);
    }
    let start = now();
    let mut target = Some(target);
    let mut observe = |Progress { done, all, best }: Progress| {
        if start.elapsed() > Duration::from_secs(1)
            && let Some(target) = target.take()
        {
            bar.set_draw_target(target);
        }
        bar.set_length(all);
        bar.set_position(done);
        if let Some(best) = best {
            bar.set_message(format!("best so far {best}"));
        }
        if bar.is_hidden() { limit.go() } else { limit.go_in_silence() }
    };
    let outcome = if named {
        evaluate_layouts(problem, request, &mut observe)
    } else {
        (search_layouts(problem, request, &mut observe), None)
    };
    bar.finish_and_clear();
    outcome
}

/// Builds a plan file.
fn make_plan(
    input: &Input,
    args: &ProblemArgs,
    best: &EvaluatedPlan,
    runners_up: &[EvaluatedPlan],
) -> Plan {
    let description = serde_json::from_str(&input.file.text).unwrap_or_default();
    let model = PlannedModel {
        name: input.file.model.name.clone(),
        description,
        num_parameters: input.problem.parameters().total,
        multi_token_prediction: args.setting.parts.multi_token_prediction,
        dropout: args.setting.parts.dropout,
        adapters: input.adapters.clone(),
    };
    let provenance = plan::provenance(command(), &input.file.text, &input.cluster);
    plan::make(&input.problem, &input.cluster, model, best, runners_up, provenance)
}
