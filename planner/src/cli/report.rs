//! HTML pages of a search's result and of a saved plan.

use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::HumanCount;
use planner::report::Answered;
use planner::report::page::{Heading, Names, PagePlan, page};
use planner_core::problem::Problem;
use planner_core::search::{Chosen, EvaluatedPlan, WithLessHeadroom, chosen};

use super::answer::Answer;
use super::files::read_plan;
use super::input::{Input, command};
use super::questions::whole;
use super::tables::{count, gib};
use command_line::destination::{is_dash, refuse_to_overwrite, write_output};

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  planner report plan.json -o report.html")]
pub(crate) struct ReportArgs {
    /// A plan that `planner search -o` wrote.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// The page.
    #[arg(short, long, value_name = "FILE.html")]
    pub(crate) output: PathBuf,
}

/// Returns whether an output file is an HTML page rather than a plan.
pub(crate) fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("html"))
}

/// Writes the page of a plan and its runners-up. All of them are simulated.
pub(crate) fn report(args: &ReportArgs) -> anyhow::Result<Answer> {
    anyhow::ensure!(
        is_page(&args.output) || is_dash(&args.output),
        "a report is a page, but `{}` does not end in .html",
        args.output.display()
    );
    refuse_to_overwrite(&args.plan, &args.output)?;
    let checked = read_plan(&args.plan)?;
    let (plan, problem) = (&checked.plan, &checked.problem);
    let best = std::iter::once(checked.found.clone());
    let all: Vec<EvaluatedPlan> = best.chain(checked.runners_up.iter().cloned()).collect();
    let judged = chosen(problem, &all, all.len());
    let likelihood = |found: &EvaluatedPlan| {
        let judged = judged.iter().find(|it| it.found.layout == found.layout)?;
        Some(judged.likelihood).filter(|_| all.len() > 1)
    };
    let names = Names { model: &plan.model.name, cluster: &plan.cluster.name };
    let plans: Vec<PagePlan> =
        all.iter().map(|found| PagePlan::new(problem, found, likelihood(found), names)).collect();
    let heading =
        Heading { title: title(problem, names), facts: facts(problem, names), command: command() };
    write_output(&args.output, page(&heading, problem, &plans, &[]).as_bytes())?;
    Ok(Answer::Found)
}

/// The page of a search's result.
pub(crate) fn of_search(input: &Input, answer: &Answered) -> String {
    let problem = &input.problem;
    let names = Names { model: &input.file.model.name, cluster: &input.cluster.name };
    let plan = |Chosen { found, likelihood, .. }: &Chosen| {
        PagePlan::new(problem, found, Some(*likelihood), names)
    };
    let plans: Vec<PagePlan> = answer.shown.iter().map(plan).collect();
    let counts = &answer.outcome.counts;
    let mut facts = facts(problem, names);
    let looked_at = format!(
        "{} layouts: {} played through, {} too large, {} left out by bounds on time and {} on memory",
        HumanCount(counts.candidates),
        HumanCount(counts.played),
        HumanCount(counts.too_large),
        HumanCount(counts.pruned_by_time),
        HumanCount(counts.pruned_by_memory),
    );
    facts.push(("looked at".to_owned(), looked_at));
    if let Some(WithLessHeadroom { found, headroom }) = &answer.outcome.with_less_headroom {
        let with_less = format!(
            "with {} {} takes {}",
            gib(*headroom),
            whole(&found.layout),
            found.evaluation.step_time
        );
        facts.push(("less headroom, GiB".to_owned(), with_less));
    }
    let heading = Heading { title: title(problem, names), facts, command: command() };
    page(&heading, problem, &plans, &answer.outcome.plans)
}

fn title(problem: &Problem, names: Names<'_>) -> String {
    let num_gpus = problem.limits.num_gpus;
    let gpus = if num_gpus == 1 { "GPU" } else { "GPUs" };
    format!("{} on {num_gpus} {gpus} of {}", names.model, names.cluster)
}

/// Inputs of the plans, as pairs of name and value.
fn facts(problem: &Problem, names: Names<'_>) -> Vec<(String, String)> {
    let training = &problem.training;
    let mut facts = vec![
        ("model", format!("{}, {}", names.model, count(problem.parameters().total as f64))),
        ("GPUs", format!("{} \u{d7} {}", problem.limits.num_gpus, names.cluster)),
        ("batch", training.global_batch_size.to_string()),
    ];
    if problem.limits.has_sequence {
        facts.push(("sequence", training.sequence_length.to_string()));
    }
    facts.extend([
        ("precision", training.precision.to_string()),
        ("optimizer", format!("{:?}", training.optimizer)),
        ("framework", problem.hardware.framework.name.clone()),
        ("headroom", problem.headroom().to_string()),
    ]);
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
