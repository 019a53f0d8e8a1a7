//! `planner search --per-operator`.

use std::fmt::Write as _;

use anyhow::bail;
use indicatif::HumanCount;
use ir::framework::IDEAL;
use ir::layout::PartialLayout;
use ir::plan::Optimizer;
use ir::replication::DataParallelMethod;
use planner::report::OperatorReport;
use planner_core::operators::{OperatorPlan, OperatorSearch, SplitOperator, solve};
use planner_core::problem::Problem;
use planner_core::search::StopReason;

use super::answer::Answer;
use super::args::{Format, SearchArgs};
use super::describe::{describe_problem, shares};
use super::input::{Constraints, Input, command, read, warn_of_model, warn_of_nodes};
use super::interrupt::Limit;
use super::search::now;
use super::tables::{percent, text_table};
use command_line::terminal::{print, print_json};

/// Searches for the best split of each operator.
pub(crate) fn search(args: &SearchArgs) -> anyhow::Result<Answer> {
    let problem = &args.problem;
    let mut setting = problem.setting.clone();
    setting.framework.get_or_insert_with(|| IDEAL.to_owned());
    for (is_given, option) in [
        (setting.expert_load.is_some(), "--expert-load"),
        (setting.document_lengths.is_some(), "--document-lengths"),
        (problem.threads.is_some(), "--threads"),
        (setting.gradient_compression.is_some(), "--gradient-compression"),
        (setting.data_parallel_method != DataParallelMethod::AllReduce, "--data-parallel-method"),
    ] {
        if is_given {
            bail!("`{option}` has no effect with `--per-operator`\nhint: leave it out");
        }
    }
    if let Some(optimizer @ (Optimizer::Muon | Optimizer::Adafactor)) = setting.optimizer {
        bail!(
            "`--per-operator`: {optimizer} updates whole matrices, but operators are split into parts of them\nhint: \
             `--optimizer adamw`"
        );
    }
    let input = read(&problem.model, problem.gpus, &setting, &Constraints::default())?;
    if input.cluster.has_unlike_gpus() {
        bail!(
            "`--per-operator` splits operators over GPUs of one kind\nhint: one of the kinds of `--cluster`"
        );
    }
    if !input.framework.is_ideal() {
        bail!(
            "`--per-operator`: {} is not known to split operators one by one\nhint: `--framework {IDEAL}`, which plans \
             without limits of a framework",
            input.framework.name
        );
    }
    if !problem.quiet {
        warn_of_model(&problem.model, &input.file.model);
        warn_of_nodes(problem.gpus, &input.cluster, &PartialLayout::default());
    }
    let start = now();
    let limit = Limit::new(problem.time_limit, problem.quiet || problem.format == Format::Json);
    let found = solve(&input.problem, &mut || limit.go());
    drop(limit);
    let elapsed = start.elapsed();
    let fits = found
        .plans
        .first()
        .is_some_and(|plan| input.problem.fits_with_headroom(&plan.prediction.memory));
    match problem.format {
        Format::Json => {
            let Input { problem, file, cluster, .. } = &input;
            let report =
                OperatorReport::new(problem, &file.model, &cluster.name, &found, args.top, elapsed);
            print_json(&report)?;
        }
        Format::Table => {
            let mut text = describe_problem(&input, problem);
            text.push_str(&describe(&input.problem, &found, args.top));
            let _ = writeln!(
                text,
                "\n{} splits of operators in {:.0} ms: {} steps played{}\nagain: {}",
                HumanCount(found.candidates),
                elapsed.as_secs_f64() * 1e3,
                HumanCount(found.evaluated),
                describe_gap(&found),
                command()
            );
            print(&text)?;
        }
    }
    Ok(if fits { Answer::Found } else { Answer::NothingFits })
}

fn describe_gap(found: &OperatorSearch) -> String {
    match (found.gap(), found.stop_reason) {
        (Some(gap), _) => {
            format!("; none without stages is faster by more than {:.1} %", gap * 100.0)
        }
        (None, StopReason::Exhausted) => String::new(),
        (None, _) => "; the search was stopped".to_owned(),
    }
}

/// Text of the best plans, and of the operators of the first.
fn describe(problem: &Problem, found: &OperatorSearch, top: usize) -> String {
    let Some(first) = found.plans.first() else { return "no plan was found\n".to_owned() };
    let mut text = String::new();
    if !problem.fits_with_headroom(&first.prediction.memory) {
        let _ = writeln!(
            text,
            "nothing fits: the closest needs {} of the {} that `--headroom` leaves\nhint: more GPUs, or a smaller batch\n",
            first.prediction.peak_memory_bytes, problem.memory_budget
        );
    }
    let rows = (1..).zip(found.plans.iter().take(top)).map(|(rank, plan)| row(rank, plan));
    text.push_str(&text_table(
        ["", "stages", "mesh", "ZeRO", "micro", "step ms", "exchanges ms", "MFU", "GiB"],
        &["mesh"],
        rows,
    ));
    let _ = writeln!(text, "\ntime:   {}", shares(&first.prediction.breakdown, first.time()));
    let _ = writeln!(
        text,
        "memory: {} of {}\n",
        first.prediction.peak_memory_bytes, problem.hardware.memory
    );
    let alike = alike(&first.operators).map(|(operators, split)| [operators, split]);
    text.push_str(&text_table(["operators", "split over"], &["operators", "split over"], alike));
    text
}

fn row(rank: usize, plan: &OperatorPlan) -> [String; 9] {
    let OperatorPlan { layout, prediction, .. } = plan;
    let [inner, outer] = plan.mesh;
    [
        rank.to_string(),
        layout.pipeline_parallel.to_string(),
        if outer == 1 { inner.to_string() } else { format!("{inner} x {outer}") },
        layout.zero_stage.number().to_string(),
        layout.micro_batches(),
        format!("{:.2}", prediction.step_time_seconds * 1e3),
        format!("{:.2}", plan.communication.get() * 1e3),
        percent(prediction.mfu),
        format!("{:.1}", prediction.peak_memory_bytes.as_gib()),
    ]
}

/// Neighbouring operators with equal splits, in one line each.
fn alike(operators: &[SplitOperator]) -> impl Iterator<Item = (String, String)> {
    operators.chunk_by(|a, b| a.splits == b.splits).map(|run| {
        let name = match run {
            [only] => only.name.clone(),
            [first, .., last] => format!("{} to {}", first.name, last.name),
            [] => String::new(),
        };
        let splits = run.first().map(|it| &it.splits).into_iter().flatten();
        let splits: Vec<String> = splits.map(|(dim, ranks)| format!("{dim} {ranks}")).collect();
        (
            name,
            if splits.is_empty() {
                "nothing: computed by all".to_owned()
            } else {
                splits.join(", ")
            },
        )
    })
}
