//! Calibration of a framework from profiled steps, and a picture of the predicted and the measured timeline.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use cost_models::{AttentionShape, MatmulShape};
use ir::framework::Calibration;
use planner_core::plan::CheckedPlan;
use planner_evidence::calibration::framework;
use planner_evidence::calibration::profile::{Profiled, Sample, What, calibrate as solve};
use planner_evidence::measured::profile::{Class, Exchange, Profile, Work};
use planner_evidence::measured::timeline::timeline;
use planner_evidence::validation::setup::Setup;
use serde::Serialize;
use traces::timeline::Timeline;

use crate::cli::answer::Answer;
use crate::cli::args::CalibrateArgs;
use crate::cli::chart::write_timelines;
use crate::cli::constants::written;
use crate::cli::files::read_plan;
use crate::cli::picture::{Look, StillKind};
use crate::cli::tables::{percent_more, text_table};
use command_line::destination::{has_room, name_for, refuse_to_overwrite, write_json};

/// JSON output of a calibration from profiles.
#[derive(Serialize)]
struct Report<'a> {
    calibration: &'a Calibration,
    constants: Vec<Constant<'a>>,
    samples: Vec<Held>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct Constant<'a> {
    name: &'a str,
    before: f64,
    value: f64,
    spread: f64,
    samples: usize,
    calls: usize,
}

#[derive(Serialize)]
struct Held {
    what: String,
    calls: usize,
    measured_seconds: f64,
    predicted_before_seconds: f64,
    predicted_seconds: f64,
}

/// The plan whose steps were profiled.
pub(super) fn plan(args: &CalibrateArgs) -> anyhow::Result<(PathBuf, CheckedPlan)> {
    let path = args.plan.clone().context(
        "which plan ran is not said\nhint: `--plan plan.json`, which `planner evaluate MODEL --gpus N --layout LAYOUT -o \
         plan.json` writes, or `planner import` of the launch script",
    )?;
    if let Some(chart) = &args.chart {
        StillKind::of(chart, "what was recorded beside its plan")?;
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
        let ranks = if profiles.len() == 1 { "rank" } else { "ranks" };
        let title = format!("measured: a step of {} {ranks}", profiles.len());
        let measured = Timeline { work: predicted.work.clone(), ..timeline(&title, profiles) };
        let both = [predicted.clone(), measured];
        write_timelines(&both, path, Look::default())?;
    }
    if let Some(path) = &args.output {
        let name = name_for(path);
        let base = &setup.problem.hardware.framework;
        let calibrated = framework(&name, base, found.calibration.clone());
        write_json(path, &calibrated)?;
    }
    if !has_room(args.output.iter().chain(&args.chart)) {
        return Ok(Answer::Found);
    }
    let text = || describe(&setup, profiles, &found, args.output.as_deref());
    args.format.print(&report(&found), text)
}

fn report(found: &Profiled) -> Report<'_> {
    let constants = found.constants.iter().map(|it| Constant {
        name: &it.name,
        before: it.values[0],
        value: it.values[1],
        spread: it.spread,
        samples: it.samples,
        calls: it.calls,
    });
    let samples = found.samples.iter().map(|it| Held {
        what: in_words(it.what),
        calls: it.calls,
        measured_seconds: it.measured.get(),
        predicted_before_seconds: it.predicted[0].get(),
        predicted_seconds: it.predicted[1].get(),
    });
    Report {
        calibration: &found.calibration,
        constants: constants.collect(),
        samples: samples.collect(),
        notes: &found.notes,
    }
}

/// Largest number of rows shown of the table of samples, those with the longest times.
const MOST_SAMPLES: usize = 24;

fn describe(
    setup: &Setup,
    profiles: &[Profile],
    found: &Profiled,
    output: Option<&Path>,
) -> String {
    let constants = found.constants.iter().map(|it| {
        let [was, is] = it.values;
        [
            it.name.clone(),
            format!("{was:.3}"),
            format!("{is:.3}"),
            percent_more(is, was),
            format!("{:.1} %", it.spread * 100.0),
            it.samples.to_string(),
            it.calls.to_string(),
        ]
    });
    let headings = ["constant", "was", "is", "moved", "may differ", "shapes", "calls"];
    let constants = text_table(headings, &["constant"], constants);
    let mut longest: Vec<&Sample> = found.samples.iter().collect();
    let all = |it: &Sample| it.measured.get() * it.calls as f64;
    longest.sort_by(|a, b| all(b).total_cmp(&all(a)));
    let samples = longest.iter().take(MOST_SAMPLES).map(|it| {
        let measured = it.measured.get();
        let [before, calibrated] = it.predicted.map(|it| percent_more(it.get(), measured));
        let calls = it.calls.to_string();
        [in_words(it.what), calls, format!("{:.3}", measured * 1e3), before, calibrated]
    });
    let headings = ["measured", "calls", "ms", "before", "calibrated"];
    let samples = text_table(headings, &["measured"], samples);
    let notes: String =
        found.notes.iter().flat_map(|note| ["note: ", note.as_str(), "\n"]).collect();
    let written = written(output, "--framework");
    let more = match longest.len().saturating_sub(MOST_SAMPLES) {
        0 => String::new(),
        some => format!("  and {some} more: `--format json` has all\n"),
    };
    format!(
        "{} kernels of {}, held against {} on {}{}\n\n{constants}\n{samples}{more}\n{notes}{written}",
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
        (share >= 0.005).then(|| format!("{} {:.0} %", class.in_words(), share * 100.0))
    });
    format!("\ntime of all kernels: {}", shares.collect::<Vec<_>>().join(", "))
}

fn in_words(what: What) -> String {
    match what {
        What::Step => "step".to_owned(),
        What::Kernels(class) => format!("all {} of a step", class.in_words()),
        What::Operator(Work::Product(MatmulShape { batch, m, n, k }, precision)) => {
            let batch = if batch > 1 { format!("{batch} x ") } else { String::new() };
            format!("product {batch}[{m}, {k}] [{k}, {n}] in {precision}")
        }
        What::Operator(Work::AttentionForward(shape, precision)) => {
            format!("attention {} in {precision}", attention(shape))
        }
        What::Operator(Work::AttentionBackward(shape, precision)) => {
            format!("attention backward {} in {precision}", attention(shape))
        }
        What::Operator(Work::Memory(bytes)) => format!("kernel that moves {bytes}"),
        What::Operator(Work::Collective(Exchange { collective, bytes, num_ranks, .. })) => {
            format!("{collective} of {bytes} over {num_ranks} ranks")
        }
    }
}

fn attention(shape: AttentionShape) -> String {
    let AttentionShape { batch, sequence, heads, kv_heads, head_dim, .. } = shape;
    let heads = if heads == kv_heads { heads.to_string() } else { format!("{heads}/{kv_heads}") };
    format!("[{batch}, {sequence}, {heads}, {head_dim}]")
}
