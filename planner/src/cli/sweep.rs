//! `planner sweep`: the best plan for each of several values of one quantity.

use anyhow::{Context, bail, ensure};
use ir::cluster::Cluster;
use ir::layout::PartialLayout;
use ir::units::Bytes;
use planner::report::PlanSummary;
use planner_core::problem::Problem;
use planner_core::search::{LOOKED_AT, Request, StopReason, best_nodes, chosen, search};
use serde::Serialize;
use traces::sweep::{self, Bar};
use traces::{ImageFormat, Paper};

use super::answer::Answer;
use super::args::SweepArgs;
use super::given::refuse_look;
use super::impossible::{AskedFor, no_candidates};
use super::input::{
    Constraints, Input, leave_free, read, warn_of_hardware, warn_of_long_sequence, warn_of_model,
    warn_of_nodes,
};
use super::interrupt::Limit;
use super::over::Varied;
use super::picture::image_format;
use super::questions::whole;
use super::setting::TrainingArgs;
use super::tables::{percent, text_table, unit_of_rate};
use command_line::destination::{check_output, refuse_to_overwrite, stdout_is_free, write_output};
use command_line::terminal::tell;

/// The best plan for one value; `best` is `None` where nothing fits.
#[derive(Debug, Serialize)]
struct Point {
    value: f64,
    num_gpus: u32,
    sequence_length: u64,
    global_batch_size: u64,
    /// True if there is any candidate layout, even if none fits.
    #[serde(skip)]
    is_possible: bool,
    #[serde(flatten)]
    best: Option<PlanSummary>,
}

impl Point {
    /// Reason why there is no plan for the value.
    const fn without_plan(&self) -> &'static str {
        if self.is_possible { "nothing fits" } else { "no layout" }
    }
}

/// JSON output of `sweep`.
#[derive(Debug, Serialize)]
struct Sweep {
    model: String,
    cluster: String,
    framework: String,
    over: Varied,
    points: Vec<Point>,
    /// True if the user stopped the sweep before all values were searched.
    is_cut_short: bool,
}

pub(crate) fn sweep(args: &SweepArgs) -> anyhow::Result<Answer> {
    let format = args.output.as_ref().map(|path| image_format(path, "a sweep")).transpose()?;
    if let Some(output) = &args.output {
        refuse_to_overwrite(&args.model, output)?;
        check_output(output, &[])?;
    }
    refuse_look(&["--theme"], args.output.is_some())?;
    refuse_both(args)?;
    let fixed = args.layout.over(&PartialLayout::default())?;
    let request = Request {
        fixed,
        top: LOOKED_AT,
        min_recompute: args.layout.min_recompute(),
        find_closest: false,
        ..Request::default()
    };
    let limit = Limit::new(None, args.quiet);
    let mut points: Vec<Point> = Vec::new();
    let mut impossible = Vec::new();
    let mut names = None;
    let mut setting = args.setting.clone();
    let mut is_cut_short = false;
    for value in &args.over.values {
        let (input, problem) = posed(args, &setting, &fixed, *value)?;
        if points.is_empty() && !args.quiet {
            warn_of_model(&args.model, &input.file.model);
            warn_of_hardware(&input.framework, &input.cluster);
        }
        if !args.quiet {
            warn_of_value(&input, args.over.what, &fixed, points.is_empty());
        }
        // All values are compared with the same framework: the one chosen for the first value, if none was named.
        setting.framework.get_or_insert_with(|| input.framework.name.clone());
        let nodes = best_nodes(&problem, &request, &mut |_| limit.go());
        let problem = nodes.map_or(problem, |nodes| nodes.problem);
        let outcome = search(&problem, &request, &mut |_| limit.go());
        if outcome.stop_reason != StopReason::Exhausted {
            let from = args.over.what.describe(*value);
            ensure!(!points.is_empty(), "interrupted before the first value, {from}, was searched");
            tell(&format!("warning: interrupted: the values from {from} on are left out"));
            is_cut_short = true;
            break;
        }
        let is_possible = outcome.counts.candidates > 0;
        if !is_possible {
            let asked =
                AskedFor { problem: &problem, options: &args.layout, named: None, fixed: &fixed };
            let of = args.over.what.describe(*value);
            impossible.push(no_candidates(&asked, &outcome).context(of));
        }
        let best = chosen(&problem, &outcome.plans, 1).into_iter().next();
        let best = best.map(|it| PlanSummary::of(&problem, &it.found));
        points.push(Point {
            value: *value,
            num_gpus: problem.limits.num_gpus,
            sequence_length: problem.training.sequence_length,
            global_batch_size: problem.training.global_batch_size,
            is_possible,
            best,
        });
        names = Some((input.file.model.name.clone(), input.cluster.name, input.framework.name));
    }
    if impossible.len() == points.len()
        && let Some(first) = impossible.drain(..).next()
    {
        return Err(first);
    }
    for error in impossible.into_iter().filter(|_| !args.quiet) {
        tell(&format!("warning: {error:#}"));
    }
    let (model, cluster, framework) = names.context("`--over` has no values")?;
    let sweep = Sweep { model, cluster, framework, over: args.over.what, points, is_cut_short };
    if let (Some(path), Some(format)) = (&args.output, format) {
        let paper = Paper { theme: args.theme.theme(), ..Paper::default() };
        write_output(path, &drawn(&sweep, format, paper)?)?;
    }
    if stdout_is_free(&args.output) {
        args.format.print(&sweep, || describe(&sweep))?;
    }
    let found = sweep.points.iter().any(|point| point.best.is_some());
    Ok(if found { Answer::Found } else { Answer::NothingFits })
}

/// Refuses an option that sets the swept quantity.
fn refuse_both(args: &SweepArgs) -> anyhow::Result<()> {
    let setting = &args.setting;
    let given = match args.over.what {
        Varied::Gpus => args.gpus.map(u64::from),
        Varied::SequenceLength => setting.seq_len,
        Varied::GlobalBatchSize => setting.global_batch_size,
        Varied::Bandwidth | Varied::Memory => None,
    };
    match args.over.what.names().option.zip(given) {
        Some((option, given)) => {
            bail!("`{option} {given}` is what `--over` varies\nhint: leave out one of them")
        }
        None => Ok(()),
    }
}

/// Prints the warnings that `search` gives at this value. Warnings about the swept quantity are given for each value,
/// all others once.
fn warn_of_value(input: &Input, over: Varied, fixed: &PartialLayout, is_first: bool) {
    if is_first || over == Varied::SequenceLength {
        warn_of_long_sequence(&input.file.model, &input.problem.training);
    }
    if is_first || over == Varied::Gpus {
        warn_of_nodes(input.problem.limits.num_gpus, &input.cluster, fixed);
    }
}

/// The problem at one value of the swept quantity.
fn posed(
    args: &SweepArgs,
    setting: &TrainingArgs,
    layout: &PartialLayout,
    value: f64,
) -> anyhow::Result<(Input, Problem)> {
    let mut setting = setting.clone();
    let mut gpus = args.gpus;
    match args.over.what {
        Varied::Gpus => gpus = Some(value as u32),
        Varied::SequenceLength => setting.seq_len = Some(value as u64),
        Varied::GlobalBatchSize => setting.global_batch_size = Some(value as u64),
        Varied::Bandwidth | Varied::Memory => {}
    }
    let gpus = gpus.context("`--gpus` is missing\nhint: `--gpus 64`, or `--over gpus=8,16,32`")?;
    let stages = args.layout.stages.as_deref();
    let constraints = Constraints { stages, layout: *layout, is_named: false };
    let input = read(&args.model, gpus, &setting, &constraints).map_err(|error| {
        // The error may name an option that was not given, since the swept value is the cause.
        let is_of_option =
            args.over.what.names().option.is_some_and(|it| error.to_string().contains(it));
        let over = args.over.what.describe(value);
        if is_of_option { error.context(format!("`--over`, at {over}")) } else { error }
    })?;
    let mut cluster = input.cluster.clone();
    let change: fn(&mut Cluster, f64) -> usize = match args.over.what {
        Varied::Bandwidth => scale_bandwidth,
        Varied::Memory => set_memory,
        _ => {
            let problem = input.problem.clone();
            return Ok((input, problem));
        }
    };
    let groups = cluster.groups.iter_mut().map(|group| change(&mut group.cluster, value));
    let changed = groups.sum::<usize>() + change(&mut cluster, value);
    ensure!(changed > 0, "cluster {} has no links between nodes", cluster.name);
    let of_node = cluster.levels.first().and_then(|level| level.ranks);
    ensure!(
        args.over.what != Varied::Bandwidth || of_node.is_none_or(|ranks| ranks < gpus),
        "`--over bandwidth` would change nothing: {gpus} GPUs are within one node\nhint: more `--gpus`"
    );
    let (problem, training) = (&input.problem, input.problem.training);
    let framework = problem.hardware.framework.clone();
    let problem = problem.like(training, &cluster, framework, problem.limits.num_gpus)?;
    let problem = leave_free(problem, setting.headroom)?;
    Ok((input, problem))
}

/// Multiplies the bandwidth of the links between nodes by `factor`; returns the number of levels of such links. A rack
/// that NVLink joins is one node here: the first level, which may be larger than a host.
fn scale_bandwidth(cluster: &mut Cluster, factor: f64) -> usize {
    let first = cluster.levels.first().and_then(|level| level.ranks);
    let node = first.map_or(cluster.gpus_per_node, |ranks| ranks.max(cluster.gpus_per_node));
    let outer = cluster.levels.iter_mut().filter(|level| level.ranks.is_none_or(|it| it > node));
    outer.map(|level| level.bandwidth = level.bandwidth * factor).count()
}

/// Sets the memory of a GPU.
fn set_memory(cluster: &mut Cluster, gib: f64) -> usize {
    cluster.gpu.memory = Bytes::from_f64(gib * f64::from(1 << 30));
    1
}

impl Sweep {
    /// True if the model has a sequence. A model without one has a sequence length of 1.
    fn has_sequence(&self) -> bool {
        self.points.iter().any(|point| point.sequence_length > 1)
    }

    fn headings(&self) -> [&'static str; 7] {
        let rate = unit_of_rate(self.has_sequence());
        ["", "batch", "step s", rate, "MFU", "GiB", "layout"]
    }
}

/// Rows of the table, one for each point.
fn rows(sweep: &Sweep) -> impl Iterator<Item = [String; 7]> {
    sweep.points.iter().map(|point| {
        let name = sweep.over.describe(point.value);
        let batch = point.global_batch_size.to_string();
        let Some(best) = &point.best else {
            let [step, rate, mfu, memory] = Default::default();
            return [name, batch, step, rate, mfu, memory, point.without_plan().to_owned()];
        };
        [
            name,
            batch,
            format!("{:.3}", best.step_time_seconds),
            format!("{:.0}", best.tokens_per_second_per_gpu),
            percent(best.mfu),
            format!("{:.1}", best.peak_memory_bytes.as_gib()),
            whole(&best.layout),
        ]
    })
}

fn describe(sweep: &Sweep) -> String {
    let Sweep { model, cluster, framework, .. } = sweep;
    let rows = text_table(sweep.headings(), &["layout"], rows(sweep));
    format!("{model} on {cluster} with {framework}, the best for each\n\n{rows}")
}

/// Number of GPUs, batch and sequence length, as far as they are equal at all points.
fn of_all(sweep: &Sweep) -> String {
    let of = |what: &str, value: fn(&Point) -> u64| {
        let mut values = sweep.points.iter().map(value);
        let first = values.next()?;
        values.all(|it| it == first).then(|| format!("; {what} {first}"))
    };
    let gpus = of("GPUs", |point| point.num_gpus.into());
    let batch = of("batch", |point| point.global_batch_size);
    let sequence = of("sequence", |point| point.sequence_length).filter(|_| sweep.has_sequence());
    [gpus, batch, sequence].into_iter().flatten().collect()
}

fn drawn(sweep: &Sweep, format: ImageFormat, paper: Paper) -> anyhow::Result<Vec<u8>> {
    let bars: Vec<Bar> = sweep
        .points
        .iter()
        .map(|point| Bar {
            name: sweep.over.describe(point.value),
            value: point.best.as_ref().map(|best| best.tokens_per_second_per_gpu),
            note: point.best.as_ref().map_or_else(
                || point.without_plan().to_owned(),
                |best| {
                    let rate = best.tokens_per_second_per_gpu;
                    format!("{rate:.0}, MFU {}: {}", percent(best.mfu), best.layout)
                },
            ),
        })
        .collect();
    let title = format!(
        "{} on {} with {}\nthe best plan for each {}{}",
        sweep.model,
        sweep.cluster,
        sweep.framework,
        sweep.over.names().title,
        of_all(sweep)
    );
    let axis = "tokens (or samples) a second on each GPU";
    Ok(sweep::draw(&title, axis, &bars, paper)?.file(format)?)
}
