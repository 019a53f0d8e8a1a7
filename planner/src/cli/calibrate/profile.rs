//! Calibration of a framework from profiled steps, and a picture of the predicted and the measured timeline.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use ir::text::count_of;
use planner_core::plan::CheckedPlan;
use planner_evidence::calibration::framework;
use planner_evidence::calibration::profile::{CalibratedSample, Profiled, calibrate as solve};
use planner_evidence::measured::profile::{Class, Profile};
use planner_evidence::measured::timeline::timeline;
use planner_evidence::validation::setup::Setup;
use traces::gantt::GanttOptions;
use traces::timeline::Timeline;

use crate::cli::answer::Answer;
use crate::cli::args::CalibrateArgs;
use crate::cli::chart::write_timelines;
use crate::cli::constants::{other_gpu, written};
use crate::cli::files::read_plan;
use crate::cli::picture::PictureFormat;
use crate::cli::tables::{percent, percent_more, text_table};
use command_line::destination::{name_for, refuse_to_overwrite, stdout_is_free, write_json};

/// The plan whose steps were profiled.
pub(super) fn plan(args: &CalibrateArgs) -> anyhow::Result<(PathBuf, CheckedPlan)> {
    let path = args.plan.clone().context(
        "it is not said which plan ran\nhint: `--plan plan.json`, which `planner evaluate MODEL --gpus N --layout LAYOUT -o \
         plan.json` writes, or `planner import` of the launch script",
    )?;
    if let Some(chart) = &args.chart {
        ensure!(
            matches!(PictureFormat::of(chart)?, PictureFormat::Image(_) | PictureFormat::Page),
            "`--chart` is drawn as .svg, .png, .pdf or .html, but `{}` ends in none of these",
            chart.display()
        );
        refuse_to_overwrite(&path, chart)?;
    }
    if let Some(output) = &args.output {
        refuse_to_overwrite(&path, output)?;
    }
    let plan = read_plan(&path)?;
    Ok((path, plan))
}

pub(super) fn calibrate(
    args: &CalibrateArgs,
    checked: &CheckedPlan,
    profiles: &[Profile],
) -> anyhow::Result<Answer> {
    let ranks = checked.plan.num_gpus as usize;
    ensure!(
        profiles.len() <= ranks,
        "{} profiles of a plan for {ranks} GPUs\nhint: one file for each rank, or for some of them",
        profiles.len()
    );
    let setup = Setup {
        problem: checked.problem.clone(),
        cluster: checked.plan.cluster.clone(),
        layout: checked.found.layout,
        stage_ends: checked.found.stage_ends.clone(),
        is_layer: false,
    };
    let found = solve(&setup, profiles)?;
    if let Some(path) = &args.chart {
        let predicted = &checked.simulated.simulation.timeline;
        let ranks = count_of(profiles.len() as u64, "rank", "ranks");
        let title = format!("measured: a step of {ranks}");
        let measured = Timeline { work: predicted.work.clone(), ..timeline(&title, profiles) };
        let both = [predicted.clone(), measured];
        write_timelines(&both, path, GanttOptions::default())?;
    }
    if let Some(path) = &args.output {
        let name = name_for(path);
        let base = &setup.problem.hardware.framework;
        let calibrated = framework(&name, base, found.calibration.clone());
        write_json(path, &calibrated)?;
    }
    if !stdout_is_free(args.output.iter().chain(&args.chart)) {
        return Ok(Answer::Found);
    }
    let text = || describe(&setup, profiles, &found, args.output.as_deref());
    args.format.print(&found, text)
}

/// Largest number of rows that are shown of the table of samples; those with the longest times are shown.
const MOST_SAMPLES: usize = 24;

fn describe(
    setup: &Setup,
    profiles: &[Profile],
    found: &Profiled,
    output: Option<&Path>,
) -> String {
    let constants = found.constants.iter().map(|it| {
        [
            it.name.clone(),
            format!("{:.3}", it.before),
            format!("{:.3}", it.value),
            percent_more(it.value, it.before),
            percent(it.spread),
            it.samples.to_string(),
            it.calls.to_string(),
        ]
    });
    let headings = ["constant", "was", "is", "moved", "may differ", "shapes", "calls"];
    let constants = text_table(headings, &["constant"], constants);
    let mut longest: Vec<&CalibratedSample> = found.samples.iter().collect();
    let all = |it: &CalibratedSample| it.measured.get() * it.calls as f64;
    longest.sort_by(|a, b| all(b).total_cmp(&all(a)));
    let samples = longest.iter().take(MOST_SAMPLES).map(|it| {
        let measured = it.measured.get();
        [
            it.what.to_string(),
            it.calls.to_string(),
            format!("{:.3}", measured * 1e3),
            percent_more(it.predicted_before.get(), measured),
            percent_more(it.predicted.get(), measured),
        ]
    });
    let headings = ["measured", "calls", "ms", "before", "calibrated"];
    let samples = text_table(headings, &["measured"], samples);
    let notes: String =
        found.notes.iter().flat_map(|note| ["note: ", note.as_str(), "\n"]).collect();
    let written = written(output, "--framework");
    let gpus = profiles.iter().filter_map(|it| it.gpu.as_deref());
    let other_gpu = other_gpu("the steps", gpus, &setup.cluster);
    let more = match longest.len().saturating_sub(MOST_SAMPLES) {
        0 => String::new(),
        some => format!("  and {some} more: `--format json` has all\n"),
    };
    format!(
        "{} kernels of {}, held against {} on {}{}\n\n{constants}\n{samples}{more}{other_gpu}\n{notes}{written}",
        profiles.iter().map(|it| it.kernels.len()).sum::<usize>(),
        if profiles.len() == 1 { "a rank".to_owned() } else { format!("{} ranks", profiles.len()) },
        setup.problem.hardware.framework.name,
        setup.problem.hardware.device.training_set,
        classes(profiles),
    )
}

/// Shares of the recorded kernels' time, by class.
fn classes(profiles: &[Profile]) -> String {
    let all = || profiles.iter().flat_map(|profile| &profile.kernels);
    let sum: f64 = all().map(|kernel| kernel.duration().get()).sum();
    let shares = Class::ALL.into_iter().filter_map(|class| {
        let of_class = all().filter(|kernel| kernel.class == class);
        let share = of_class.map(|kernel| kernel.duration().get()).sum::<f64>() / sum;
        (share >= 0.005).then(|| format!("{} {:.0} %", class.describe(), share * 100.0))
    });
    format!("\ntime of all kernels: {}", shares.collect::<Vec<_>>().join(", "))
}
