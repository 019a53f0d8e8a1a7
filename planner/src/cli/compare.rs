//! `planner compare`: two plans, term by term.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use ir::graph::Recompute;
use ir::layout::PartialLayout;
use ir::text::count_of;
use ir::units::{Bytes, Seconds};
use planner::names;
use planner::report::PlanSummary;
use planner_core::answers::Difference;
use planner_core::plan::CheckedPlan;
use planner_core::problem::{Problem, Sequences};
use planner_core::search::{EvaluatedPlan, Go, Request, evaluate};
use serde::Serialize;

use super::answer::Answer;
use super::args::CompareArgs;
use super::files::{is_stdin, read_plan};
use super::given::options;
use super::impossible::wrong_gpu_count;
use super::input::{Constraints, read, warn_of_model};
use super::layout::{check_shards, filled};
use super::models::read_model;
use super::questions::whole;
use super::tables::{percent, text_table, unit_of_rate};

/// JSON output of `compare`.
#[derive(Serialize)]
struct Comparison {
    a: ComparedPlan,
    b: ComparedPlan,
    /// Differences of the second plan relative to the first.
    difference: Difference,
}

/// One of the two plans that are compared.
#[derive(Serialize)]
struct ComparedPlan {
    model: String,
    num_gpus: u32,
    framework: String,
    #[serde(flatten)]
    plan: PlanSummary,
    fits: bool,
    /// Features of the plan that the framework does not support.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lacks: Vec<String>,
    #[serde(skip)]
    problem: Problem,
    #[serde(skip)]
    found: EvaluatedPlan,
}

impl ComparedPlan {
    fn new(model: &str, problem: Problem, found: EvaluatedPlan, lacks: Vec<String>) -> Self {
        Self {
            model: model.to_owned(),
            num_gpus: problem.limits.num_gpus,
            framework: problem.hardware.framework.name.clone(),
            plan: PlanSummary::of(&problem, &found),
            fits: problem
                .at_rank(&found.layout, found.evaluation.fullest_rank)
                .fits(&found.evaluation.memory),
            lacks,
            problem,
            found,
        }
    }
}

pub(crate) fn compare(args: &CompareArgs) -> anyhow::Result<Answer> {
    let given = [&args.a, &args.b].map(Path::new);
    let is_plan = |it: &Path| is_stdin(it) || it.is_file();
    if given.into_iter().any(is_plan) {
        let of_layouts = options().into_iter().find(|option| option != "--format");
        ensure!(
            of_layouts.is_none(),
            "`{}` is for two layouts; a plan has its own\nhint: leave it out, or name two layouts: `planner compare tp8-pp4 tp4-pp4 \
             --model MODEL --gpus N`",
            of_layouts.unwrap_or_default()
        );
    }
    if let Some(model) = &args.model {
        warn_of_model(model, &read_model(model)?.model);
    }
    let plans = given.map(|it| is_plan(it).then(|| of_plan(it)).transpose());
    let [a, b] = plans;
    let (a, b) = match (a?, b?) {
        (Some(a), Some(b)) => (a, b),
        (Some(a), None) => {
            let b = of_layout(&args.b, &a.problem, &a.model)?;
            (a, b)
        }
        (None, Some(b)) => (of_layout(&args.a, &b.problem, &b.model)?, b),
        (None, None) => (posed(args, &args.a)?, posed(args, &args.b)?),
    };
    ensure!(
        a.model == b.model,
        "A is a plan of {}, B of {}: steps of different models cannot be compared\nhint: two plans of one model",
        a.model,
        b.model
    );
    let difference = Difference::of((&a.problem, &a.found), (&b.problem, &b.found));
    let comparison = Comparison { a, b, difference };
    args.format.print(&comparison, || describe(&comparison))
}

fn of_plan(path: &Path) -> anyhow::Result<ComparedPlan> {
    let CheckedPlan { plan, problem, found, .. } = read_plan(path)?;
    Ok(ComparedPlan::new(&plan.model.name, problem, found, Vec::new()))
}

/// Hint for a plan file that does not exist.
fn no_file(text: &str) -> String {
    if names::model(text).is_some() {
        return format!(
            "it is a model; `planner search {text} --gpus N -o plan.json` writes a plan of it"
        );
    }
    let is_json = Path::new(text).extension().is_some_and(|it| it.eq_ignore_ascii_case("json"));
    let written = if is_json { text } else { "plan.json" };
    format!("no file has this name; `planner search MODEL --gpus N -o {written}` writes a plan")
}

/// Parses a named layout; open degrees are filled as in `evaluate`.
fn named(text: &str) -> anyhow::Result<PartialLayout> {
    let neither = || format!("`{text}` is neither a plan's file nor a layout such as tp8-pp2-dp4");
    ensure!(!text.contains(['/', '.']), "{}\nhint: {}", neither(), no_file(text));
    let named: PartialLayout = text.parse().with_context(neither)?;
    check_shards(&named)?;
    Ok(filled(&named, 1))
}

/// Evaluates a layout on the problem of another plan.
fn of_layout(text: &str, problem: &Problem, model: &str) -> anyhow::Result<ComparedPlan> {
    let layout = named(text)?;
    let mut problem = problem.clone().with_stages(None);
    if let Some(modules) = layout.recompute.one().and_then(Recompute::modules) {
        let graph =
            problem.graph.clone().recomputing(modules).with_context(|| format!("`{text}`"))?;
        problem = problem.with_graph(graph)?;
    } else if let Some(own) = problem.graph.recomputed_modules()
        && layout.recompute.one() == Some(Recompute::Selective)
    {
        bail!(
            "`{text}` recomputes selectively, but the plan recomputes {}, and its file does not say which modules \
             `selective` means\nhint: two layouts, with `--model MODEL --gpus N`",
            Recompute::Modules(own)
        );
    }
    let lacks = problem.unsupported(&layout);
    if !lacks.is_empty() {
        problem = problem.granting(&layout);
    }
    let found = evaluated(text, &problem, &layout)?;
    Ok(ComparedPlan::new(model, problem, found, lacks))
}

/// Evaluates a layout on the problem that the arguments give.
fn posed(args: &CompareArgs, text: &str) -> anyhow::Result<ComparedPlan> {
    let layout = named(text)?;
    let (Some(model), Some(gpus)) = (&args.model, args.gpus) else {
        bail!(
            "two layouts take a model and a number of GPUs\nhint: `--model llama-3.1-8b --gpus 8`, or name a plan's file"
        )
    };
    let constraints = Constraints { layout, is_named: true, stages: None };
    let input = read(model, gpus, &args.setting, &constraints)?;
    let found = evaluated(text, &input.problem, &layout)?;
    Ok(ComparedPlan::new(&input.file.model.name, input.problem, found, input.lacks))
}

/// Best completion of a partial layout; if none fits, the one that exceeds memory by the least.
fn evaluated(
    text: &str,
    problem: &Problem,
    fixed: &PartialLayout,
) -> anyhow::Result<EvaluatedPlan> {
    let request = Request { fixed: *fixed, ..Request::default() };
    let (outcome, _) = evaluate(problem, &request, &mut |_| Go::On);
    let num_gpus = problem.limits.num_gpus;
    let wrong = outcome.invalid.or_else(|| wrong_gpu_count(fixed, num_gpus));
    let found = outcome.plans.into_iter().next().or(outcome.closest);
    found.ok_or_else(|| match wrong {
        Some(error) => anyhow::Error::new(error).context(format!("`{text}`")),
        None => anyhow::anyhow!("`{text}` is no layout of {num_gpus} GPUs"),
    })
}

fn describe(comparison: &Comparison) -> String {
    let Comparison { a, b, difference } = comparison;
    let mut text = String::new();
    let unit = unit_of_rate(a.problem.limits.has_sequence);
    for (name, side) in [("A", a), ("B", b)] {
        let lacks = if side.lacks.is_empty() {
            String::new()
        } else {
            format!("   {} has no {}\n", side.framework, side.lacks.join(", no "))
        };
        let fits = if side.fits { "" } else { ", which does not fit" };
        let _ = write!(
            text,
            "{name}: {} on {} with {}: {}\n   {}, {:.0} {unit}, MFU {}, {}{fits}\n{lacks}",
            side.model,
            count_of(side.num_gpus, "GPU", "GPUs"),
            side.framework,
            whole(&side.plan.layout),
            Seconds::new(side.plan.step_time_seconds),
            side.plan.tokens_per_second_per_gpu,
            percent(side.plan.mfu),
            side.plan.peak_memory_bytes,
        );
    }
    let said = match unlike_work(&a.problem, &b.problem) {
        Some(unlike) => {
            let rates = [a, b].map(|side| side.plan.tokens_per_second_per_gpu);
            let is_first = rates[0] >= rates[1];
            let faster = if is_first { "A" } else { "B" };
            let gain = if is_first { rates[0] / rates[1] } else { rates[1] / rates[0] };
            format!(
                "\ntheir steps do different work: {unlike}\n{faster} has {:.1} % more {unit}\n\n",
                (gain - 1.0) * 100.0
            )
        }
        None => verdict(difference),
    };
    text.push_str(&said);
    let terms = difference.terms.iter().map(|term| {
        let [one, other] = term.seconds.map(|it| Seconds::new(it).to_string());
        [term.term.to_owned(), one, other, Seconds::new(term.more()).signed()]
    });
    text.push_str(&text_table(["time", "A", "B", "B - A"], &["time"], terms));
    let mut reasons = String::new();
    for term in &difference.terms {
        let is_small = term.more().abs() < difference.step_time_seconds.abs() * 0.02;
        let [one, other] = &term.because;
        if one != other && !is_small {
            let _ = writeln!(reasons, "  {}\n    A: {one}\n    B: {other}", term.term);
        }
    }
    if !reasons.is_empty() {
        text.push_str("\nfrom\n");
        text.push_str(&reasons);
    }
    text.push('\n');
    let headings = ["memory of the fullest rank", "A", "B", "B - A"];
    let total = [a, b].map(|side| side.plan.peak_memory_bytes);
    let lines = difference.memory.iter().map(|it| (it.line, it.bytes));
    let lines = lines.chain([("all, GiB", total)]).map(|(line, bytes)| {
        let [one, other] = bytes.map(Bytes::as_gib);
        [
            line.to_owned(),
            format!("{one:.2}"),
            format!("{other:.2}"),
            format!("{:+.2}", other - one),
        ]
    });
    text + &text_table(headings, &headings[..1], lines)
}

/// Differences between two problems in the work of a step: batch, sequence, documents, load of experts, trained
/// parameters, GPUs.
fn unlike_work(one: &Problem, other: &Problem) -> Option<String> {
    let none = || "none".to_owned();
    let documents =
        |it: &Sequences| format!("{} packed {}", it.documents.lengths, it.documents.packing);
    let facts = |problem: &Problem| {
        let training = &problem.training;
        [
            ("batch", training.global_batch_size.to_string()),
            ("sequence", training.sequence_length.to_string()),
            ("documents", problem.sequences.as_ref().map_or_else(none, documents)),
            ("expert load", problem.expert_load.load.to_string()),
            ("trained parameters", problem.parameters().trained.to_string()),
            ("GPUs", problem.limits.num_gpus.to_string()),
        ]
    };
    let unlike = facts(one).into_iter().zip(facts(other)).filter(|(one, other)| one.1 != other.1);
    let unlike: Vec<String> =
        unlike.map(|((name, one), (_, other))| format!("{name} {one} and {other}")).collect();
    (!unlike.is_empty()).then(|| unlike.join(", "))
}

fn verdict(difference: &Difference) -> String {
    let likely = difference.likelihood_first_is_faster;
    let is_first = difference.share >= 0.0;
    let (faster, likely) = if is_first { ("A", likely) } else { ("B", 1.0 - likely) };
    format!(
        "\nB takes {}; {faster} is faster with a likelihood of {:.0} %\n\n",
        difference.describe(),
        likely * 100.0
    )
}
