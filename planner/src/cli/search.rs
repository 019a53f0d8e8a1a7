//! `planner search` and `planner evaluate`.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ir::cluster::Cluster;
use ir::graph::Graph;
use ir::layout::PartialLayout;
use ir::plan::{Plan, PlannedModel, Provenance};
use planner::planning::{self, Choices, plan, prediction, sha256, training_graph};
use planner::problem::Problem;
use planner::report::{self, SearchReport};
use planner::search::{Found, Outcome, Request, search as run_search};

use super::args::{EvaluateArgs, Format, ProblemArgs, SearchArgs};
use super::files::{ModelFile, read_cluster, read_model, write_atomically};
use super::impossible::no_candidates;
use super::tables::{count, percent, render, table, thousands};
use super::{Answer, print, print_json};

/// A problem with the files that it came from.
struct Input {
    file: ModelFile,
    cluster: Cluster,
    graph: Graph,
    choices: Choices,
    problem: Problem,
}

pub(crate) fn search(args: &SearchArgs) -> anyhow::Result<Answer> {
    let request = Request {
        fixed: args.layout.over(PartialLayout::default())?,
        top: args.top,
        ..Request::default()
    };
    answer(&args.problem, &request, false)
}

/// Like a search in which degrees that are not named are 1, and what else is not named is chosen best.
pub(crate) fn evaluate(args: &EvaluateArgs) -> anyhow::Result<Answer> {
    let mut fixed = args.layout.over(args.named)?;
    let named = fixed;
    fixed.tensor_parallel = named.tensor_parallel.or(Some(1));
    fixed.context_parallel = named.context_parallel.or(Some(1));
    fixed.pipeline_parallel = named.pipeline_parallel.or(Some(1));
    let request = Request { fixed, top: 1, ..Request::default() };
    answer(&args.problem, &request, true)
}

fn answer(args: &ProblemArgs, request: &Request, named: bool) -> anyhow::Result<Answer> {
    let input = read(args)?;
    if let Some(threads) = args.threads {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build_global().context("`--threads`")?;
    }
    let start = now();
    let outcome =
        observed_search(&input.problem, request, args.quiet || args.format == Format::Json);
    let elapsed = start.elapsed();
    if outcome.candidates == 0 {
        return Err(no_candidates(&input.problem, &request.fixed, &outcome));
    }
    let least = if outcome.plans.is_empty() {
        planning::least_gpus(
            &input.file.model,
            &input.graph,
            &input.choices,
            &input.cluster,
            &Request { fixed: report::free_degrees(&request.fixed), ..*request },
        )?
        .filter(|gpus| *gpus > args.gpus)
    } else {
        None
    };
    if let (Some(path), [best, runners_up @ ..]) = (&args.output, outcome.plans.as_slice()) {
        let plan = make_plan(&input, args, best, runners_up);
        write_atomically(path, &(serde_json::to_string_pretty(&plan)? + "\n"))?;
    }
    let report = SearchReport::new(
        &input.problem,
        &input.file.model.name,
        &input.cluster.name,
        &outcome,
        elapsed.as_secs_f64(),
        least,
        named,
    );
    match args.format {
        Format::Json => print_json(&report)?,
        Format::Table => print(&describe(&input, args, &outcome, elapsed, least, named))?,
    }
    Ok(if outcome.plans.is_empty() { Answer::NothingFits } else { Answer::Found })
}

fn read(args: &ProblemArgs) -> anyhow::Result<Input> {
    let file = read_model(&args.model)?;
    let cluster = read_cluster(&args.cluster)?;
    let graph = training_graph(&file.model, args.multi_token_prediction)?;
    let choices = Choices {
        sequence_length: args.seq_len,
        global_batch_size: args.global_batch_size,
        precision: args.precision,
        optimizer: args.optimizer,
        fp32_gradients: args.fp32_gradients,
    };
    let training = choices.resolve(&file.model, graph.has_sequence(), &cluster.gpu, args.gpus);
    let problem = Problem::new(graph.clone(), training, &cluster, args.gpus)?;
    Ok(Input { file, cluster, graph, choices, problem })
}

#[expect(clippy::disallowed_methods, reason = "the command tells its user how long it took")]
fn now() -> Instant {
    Instant::now()
}

/// Searches, with a progress bar on stderr from the second second on.
fn observed_search(problem: &Problem, request: &Request, quiet: bool) -> Outcome {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    if let Ok(style) = ProgressStyle::with_template("searching {bar:40} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    let start = now();
    let mut target = Some(target);
    let outcome = run_search(problem, request, &mut |done, all| {
        if start.elapsed() > Duration::from_secs(1)
            && let Some(target) = target.take()
        {
            bar.set_draw_target(target);
        }
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    outcome
}

fn make_plan(input: &Input, args: &ProblemArgs, best: &Found, runners_up: &[Found]) -> Plan {
    let description = serde_json::from_str(&input.file.text).unwrap_or_default();
    let model = PlannedModel {
        name: input.file.model.name.clone(),
        description,
        num_parameters: input.problem.parameters().total,
        multi_token_prediction: args.multi_token_prediction,
    };
    let cluster = serde_json::to_string(&input.cluster).unwrap_or_default();
    let provenance = Provenance {
        planner_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command(),
        model_sha256: sha256(&input.file.text),
        cluster_sha256: sha256(&cluster),
    };
    plan(&input.problem, &input.cluster, model, best, runners_up, provenance)
}

/// The command line, as it can be given again.
fn command() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:".contains(c);
    let words = std::env::args().skip(1).map(|word| {
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    std::iter::once("planner".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

fn describe(
    input: &Input,
    args: &ProblemArgs,
    outcome: &Outcome,
    elapsed: Duration,
    least: Option<u32>,
    named: bool,
) -> String {
    let mut text = describe_problem(input, args);
    match outcome.plans.as_slice() {
        [] => {
            if named {
                let closest: Vec<Found> = outcome.closest.iter().cloned().collect();
                text.push_str(&plan_table(&input.problem, &closest));
                text.push('\n');
            }
            text.push_str(&describe_misfit(input, outcome, least));
        }
        plans => {
            text.push_str(&plan_table(&input.problem, plans));
            text.push_str(&describe_best(&input.problem, &plans[0]));
        }
    }
    if !named {
        let _ = writeln!(
            text,
            "\n{} layouts: {} evaluated, {} left out by bounds, in {:.0} ms; the best within the model",
            thousands(outcome.candidates),
            thousands(outcome.evaluated),
            thousands(outcome.pruned),
            elapsed.as_secs_f64() * 1e3,
        );
    }
    match (&args.output, outcome.plans.is_empty()) {
        (Some(path), false) => {
            let _ = writeln!(text, "wrote {0}; see `planner explain {0}`", path.display());
        }
        _ => {
            let _ = writeln!(text, "again: {}", command());
        }
    }
    text
}

fn describe_problem(input: &Input, args: &ProblemArgs) -> String {
    let Input { file, cluster, problem, choices, .. } = input;
    let training = &problem.training;
    let parameters = problem.parameters();
    let active = if parameters.active < parameters.total - parameters.embedding {
        format!(", {} active", count(parameters.active as f64))
    } else {
        String::new()
    };
    let chosen = |open: bool| if open { " (default)" } else { "" };
    let tokens = if problem.limits.has_sequence {
        format!(
            "sequence {}{}, batch {}{} = {} tokens",
            training.sequence_length,
            chosen(choices.sequence_length.is_none()),
            training.global_batch_size,
            chosen(choices.global_batch_size.is_none()),
            count((training.sequence_length * training.global_batch_size) as f64),
        )
    } else {
        format!(
            "batch {}{}",
            training.global_batch_size,
            chosen(choices.global_batch_size.is_none())
        )
    };
    format!(
        "{}: {} parameters{active}\n{} x {}, cluster {}\n{tokens}; {}{}, {:?}{}\n\n",
        file.model.name,
        count(parameters.total as f64),
        args.gpus,
        cluster.gpu.name,
        cluster.name,
        training.precision,
        chosen(choices.precision.is_none()),
        training.optimizer,
        chosen(choices.optimizer.is_none()),
    )
}

fn plan_table(problem: &Problem, plans: &[Found]) -> String {
    let rate = if problem.limits.has_sequence { "tok/s/GPU" } else { "samples/s/GPU" };
    let fastest = plans.first().map_or(0.0, |found| found.evaluation.step_time.get());
    let (step, scale) = match fastest {
        t if t >= 1.0 => ("step s", 1.0),
        t if t >= 1e-3 => ("step ms", 1e3),
        _ => ("step us", 1e6),
    };
    let headings =
        ["", "layout", "schedule", "ZeRO", "micro", "recompute", step, rate, "MFU", "GiB"];
    let mut rows = table(&headings, &["layout", "schedule", "recompute"]);
    for (index, found) in plans.iter().enumerate() {
        let layout = &found.layout;
        let prediction = prediction(problem, found);
        let shards = layout.context_parallel * layout.data_parallel;
        let zero = if layout.zero_shard < shards {
            format!("{}/{}", layout.zero_stage.number(), layout.zero_shard)
        } else {
            layout.zero_stage.number().to_string()
        };
        rows.add_row([
            (index + 1).to_string(),
            layout.to_string(),
            layout.schedule.to_string(),
            zero,
            format!("{}x{}", layout.num_micro_batches, layout.micro_batch_size),
            layout.recompute.to_string(),
            format!("{:.2}", prediction.step_time_seconds * scale),
            format!("{:.0}", prediction.tokens_per_second_per_gpu),
            percent(prediction.mfu),
            format!("{:.1}", prediction.peak_memory_bytes.as_gib()),
        ]);
    }
    render(&rows)
}

/// Where the best plan's time goes, in a line.
fn describe_best(problem: &Problem, best: &Found) -> String {
    let evaluation = &best.evaluation;
    let total = evaluation.step_time.get();
    let mut parts = evaluation.breakdown.parts();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shares: Vec<String> = parts
        .iter()
        .filter(|(_, seconds)| seconds / total >= 0.005)
        .map(|(name, seconds)| format!("{name} {:.0} %", seconds / total * 100.0))
        .collect();
    let memory = evaluation.memory.total();
    format!(
        "\ntime:   {}\nmemory: {} of {} on stage {}\n",
        shares.join("; "),
        memory,
        problem.hardware.memory,
        evaluation.fullest_stage,
    )
}

fn describe_misfit(input: &Input, outcome: &Outcome, least: Option<u32>) -> String {
    let mut text = "no layout fits:\n".to_owned();
    for (reason, number) in &outcome.rejected {
        let _ = writeln!(text, "  {:>9} {reason}", thousands(*number));
    }
    let memory = input.problem.hardware.memory;
    if let Some(closest) = &outcome.closest {
        let layout = &closest.layout;
        let _ = writeln!(
            text,
            "closest: {layout}, {}, ZeRO {}, micro-batch {}, recompute {}: needs {} of {memory}, {} \
             too much",
            layout.schedule,
            layout.zero_stage.number(),
            layout.micro_batch_size,
            layout.recompute,
            closest.evaluation.memory.total(),
            closest.excess(memory),
        );
        for (name, bytes) in closest.evaluation.memory.lines() {
            if bytes.get() > 0 {
                let _ = writeln!(text, "  {:>12}  {name}", bytes.to_string());
            }
        }
    }
    match least {
        Some(gpus) => {
            let _ = writeln!(text, "least: {gpus} GPUs would do");
        }
        None => text.push_str("hint: a shorter sequence, a smaller batch or a larger GPU may do\n"),
    }
    text
}
