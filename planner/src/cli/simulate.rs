//! `planner simulate`: a step on a timeline.

use anyhow::ensure;
use planner::report::{SimulationReport, StragglerReport, straggling};

use super::answer::Answer;
use super::args::SimulateArgs;
use super::files::read_plan;
use super::picture::refuse_other_endings;
use super::tables::{percent, percent_more, text_table};
use command_line::destination::{refuse_to_overwrite, stdout_is_free, write_output};

pub(crate) fn simulate(args: &SimulateArgs) -> anyhow::Result<Answer> {
    if let Some(output) = &args.output {
        let draws =
            format!("`planner chart {} -o {}` draws it", args.plan.display(), output.display());
        refuse_other_endings(output, "a timeline", &["json"], Some(&draws))?;
    }
    let checked = read_plan(&args.plan)?;
    if let Some(output) = &args.output {
        refuse_to_overwrite(&args.plan, output)?;
        write_output(
            output,
            traces::chrome::write(&checked.simulated.simulation.timeline).as_bytes(),
        )?;
    }
    let mut report = SimulationReport::new(&checked);
    if let Some(straggler) = args.straggler {
        report.straggler = straggling(&checked, straggler)?;
        let last = checked.plan.num_gpus - 1;
        ensure!(
            report.straggler.is_some(),
            "`--straggler`: the plan has no rank {}\nhint: 0 to {last}",
            straggler.rank
        );
    }
    if !stdout_is_free(&args.output) {
        return Ok(Answer::Found);
    }
    args.format.print(&report, || describe(&report))
}

fn describe(report: &SimulationReport) -> String {
    let mut text = format!(
        "{}\nstep {:.4} s, pipeline bubble {} over all GPUs\n\n",
        report.title,
        report.step_time_seconds,
        percent(report.idle_fraction),
    );
    let share = |seconds: f64| percent(seconds / report.step_time_seconds);
    let headings = [
        "rank",
        "GPUs",
        "compute",
        "collectives",
        "data parallel",
        "messages",
        "optimizer",
        "bubble",
        "peak GiB",
    ];
    let ranks = report.ranks.iter().map(|rank| {
        let spent = &rank.breakdown;
        [
            rank.pipeline_rank.to_string(),
            rank.num_gpus.to_string(),
            share(spent.compute_seconds + spent.recompute_seconds + spent.host_seconds),
            share(
                spent.tensor_parallel_seconds
                    + spent.context_parallel_seconds
                    + spent.expert_parallel_seconds,
            ),
            share(spent.data_parallel_seconds),
            share(spent.pipeline_messages_seconds),
            share(spent.optimizer_seconds),
            share(spent.pipeline_bubble_seconds),
            format!("{:.2}", rank.peak_memory_bytes as f64 / f64::from(1_u32 << 30)),
        ]
    });
    text.push_str(&text_table(headings, &[], ranks));
    text.push('\n');
    let path = report.critical_path.iter().map(|(name, seconds)| {
        [(*name).to_owned(), format!("{:.2}", seconds * 1e3), share(*seconds)]
    });
    text.push_str(&text_table(["critical path", "ms", "share"], &["critical path"], path));
    if let Some(straggler) = &report.straggler {
        text.push_str(&describe_straggler(straggler, report.step_time_seconds));
    }
    text
}

fn describe_straggler(report: &StragglerReport, planned: f64) -> String {
    let StragglerReport { rank, factor, step_time_seconds, mean_staleness, most_staleness } =
        report;
    let over = percent_more(*step_time_seconds, planned);
    let staleness = mean_staleness.zip(*most_staleness).map(|(mean, most)| {
        format!(
            "which is the time of as many updates as replicas, by gradients {mean:.2} updates old, {most} at most\n"
        )
    });
    format!(
        "\nwith rank {rank} {factor} times as slow: step {step_time_seconds:.4} s, {over} over plan\n{}",
        staleness.unwrap_or_default()
    )
}
