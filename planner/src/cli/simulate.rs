//! `planner simulate`: a step on a timeline.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::ensure;
use planner::report::{JitterReport, SimulationReport, StragglerReport, jittered, straggling};
use planner_core::plan::CheckedPlan;
use simulator::Jitter;

use super::answer::Answer;
use super::args::{JitterArgs, SimulateArgs};
use super::files::read_plan;
use super::picture::refuse_other_endings;
use super::progress::Heartbeat;
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
    report.jitter = drawn(&checked, &args.jitter)?;
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
    args.format.print(&report, || describe(&report, &args.jitter))
}

fn drawn(checked: &CheckedPlan, args: &JitterArgs) -> anyhow::Result<Option<JitterReport>> {
    let Some(samples) = args.samples else { return Ok(None) };
    let jitter = Jitter {
        deviation: args.jitter / 100.0,
        straggler_share: args.stragglers / 100.0,
        straggler_excess: args.slower / 100.0,
        seed: args.seed,
    };
    let heartbeat = Heartbeat::new("drawing steps", false);
    let drawn = AtomicU64::new(0);
    let report = jittered(checked, &jitter, samples, &|| {
        let drawn = drawn.fetch_add(1, Ordering::Relaxed) + 1;
        heartbeat.beat(|| format!(": {drawn} of {samples}"));
    })?;
    Ok(Some(report))
}

fn describe(report: &SimulationReport, args: &JitterArgs) -> String {
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
    if let Some(jitter) = &report.jitter {
        text.push_str(&describe_jitter(jitter, args, report.step_time_seconds));
    }
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

fn describe_jitter(jitter: &JitterReport, args: &JitterArgs, planned: f64) -> String {
    let steps = [
        ("mean", jitter.mean_seconds),
        ("half of them within", jitter.p50_seconds),
        ("nine in ten within", jitter.p90_seconds),
        ("99 in 100 within", jitter.p99_seconds),
        ("longest", jitter.max_seconds),
    ];
    let steps = steps.map(|(name, seconds)| {
        [name.to_owned(), format!("{seconds:.4}"), percent_more(seconds, planned)]
    });
    let headings = ["steps drawn at random", "s", "over plan"];
    format!(
        "\n{}{} steps, seed {}: passes deviate by {} %, {} % of GPUs are {} % slower\n",
        text_table(headings, &headings[..1], steps),
        jitter.num_samples,
        args.seed,
        args.jitter,
        args.stragglers,
        args.slower,
    )
}
