//! `planner chart` and `planner collective`: pictures.

use std::path::Path;

use anyhow::{Context, bail};
use ir::plan::MemoryUse;
use ir::units::Bytes;
use planner::plan::CheckedPlan;
use traces::bars::{self, BarsOptions, MemoryBar, MemoryPart};
use traces::collectives::{self, Operation, Ring};
use traces::gantt::{self, GanttOptions, TimeAxis};
use traces::palette::Theme;
use traces::timeline::Timeline;
use traces::{Paper, chrome, html, snapshot};

use super::args::{ChartArgs, CollectiveArgs, PictureArgs, Shown, ThemeArg};
use super::files::{parse_plan, read_plan, read_text_up_to, refuse_to_overwrite, write_atomically};
use super::output::Answer;

/// The most that is read of a timeline: some million events.
const LARGEST_TIMELINE: u64 = 1 << 30;

/// What a file name asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Svg,
    Png,
    Page,
    Trace,
    Snapshot,
}

/// What a file name asks for, where there is nothing to look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageKind {
    Svg,
    Png,
}

/// How a drawing looks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    pub(crate) paper: Paper,
    pub(crate) time_axis: TimeAxis,
}

pub(crate) fn chart(args: &ChartArgs) -> anyhow::Result<Answer> {
    // Before anything is read: a wrong ending is the cheapest mistake to find.
    let kind = Kind::of(&args.output)?;
    for input in &args.inputs {
        refuse_to_overwrite(input, &args.output)?;
    }
    match (args.picture.show, args.inputs.as_slice()) {
        (Shown::Timeline, inputs) => {
            let timelines: anyhow::Result<Vec<Timeline>> =
                inputs.iter().map(|input| read_timeline(input)).collect();
            let look = Look { paper: paper(&args.picture), ..Look::default() };
            write_timelines(&timelines?, &args.output, look)?;
        }
        (Shown::Memory, [plan]) => {
            let checked = read_plan(plan)?;
            write_atomically(&args.output, &draw_memory(&checked, kind, &args.picture)?)?;
        }
        (Shown::Memory, _) => bail!("`--show memory` draws one plan"),
    }
    Ok(Answer::Found)
}

pub(crate) fn collective(args: &CollectiveArgs) -> anyhow::Result<Answer> {
    let kind = ImageKind::of(&args.output, "a collective")?;
    let operation = Operation::ALL.into_iter().find(|known| known.to_string() == args.name);
    let Some(operation) = operation else {
        let known = Operation::ALL.map(|known| known.to_string()).join(", ");
        bail!("`{}` is no collective that is drawn; {known} are", args.name);
    };
    let paper = Paper { theme: theme(args.theme), ..Paper::default() };
    let rings = [Ring::AllReduce, Ring::AllGather, Ring::ReduceScatter];
    let ring = rings.into_iter().find(|ring| ring.operation() == operation);
    let bytes = match (kind, args.ring, ring) {
        (_, true, None) => bail!(
            "`{operation}` has no ring here\nhint: all-reduce, all-gather and reduce-scatter have one"
        ),
        (ImageKind::Svg, true, Some(ring)) => {
            collectives::ring_svg(ring, args.ranks, &paper)?.into_bytes()
        }
        (ImageKind::Png, true, Some(ring)) => collectives::ring_png(ring, args.ranks, &paper)?,
        (ImageKind::Svg, false, _) => collectives::svg(operation, args.ranks, &paper)?.into_bytes(),
        (ImageKind::Png, false, _) => collectives::png(operation, args.ranks, &paper)?,
    };
    write_atomically(&args.output, &bytes)?;
    Ok(Answer::Found)
}

pub(crate) fn theme(theme: ThemeArg) -> Theme {
    match theme {
        ThemeArg::Light => Theme::Light,
        ThemeArg::Dark => Theme::Dark,
    }
}

fn paper(args: &PictureArgs) -> Paper {
    let default = Paper::default();
    Paper { width: args.width.unwrap_or(default.width), theme: theme(args.theme), ..default }
}

/// A timeline from its file, or that of a plan.
fn read_timeline(path: &Path) -> anyhow::Result<Timeline> {
    let text = read_text_up_to(path, LARGEST_TIMELINE)?;
    // A list is a trace of other programs, never a plan.
    if text.contains("\"traceEvents\"") || text.trim_start().starts_with('[') {
        return chrome::read(&text).with_context(|| format!("`{}`", path.display()));
    }
    Ok(parse_plan(path, &text)?.simulated.simulation.timeline)
}

/// Draws timelines into a file, as its ending says.
pub(crate) fn write_timelines(
    timelines: &[Timeline],
    output: &Path,
    look: Look,
) -> anyhow::Result<()> {
    let Look { paper, time_axis } = look;
    let options = GanttOptions { paper, time_axis, ..GanttOptions::default() };
    let bytes = match (Kind::of(output)?, timelines) {
        (Kind::Page, timelines) => html::page(&timelines.iter().collect::<Vec<_>>()).into_bytes(),
        (Kind::Trace, [timeline]) => chrome::write(timeline).into_bytes(),
        (Kind::Svg, [timeline]) => gantt::svg(timeline, &options)?.into_bytes(),
        (Kind::Png, [timeline]) => gantt::png(timeline, &options)?,
        (Kind::Svg, [first, second]) => gantt::compare_svg(first, second, &options)?.into_bytes(),
        (Kind::Png, [first, second]) => gantt::compare_png(first, second, &options)?,
        (Kind::Snapshot, _) => bail!(
            "a snapshot is of memory\nhint: `planner chart plan.json --show memory -o {}`",
            output.display()
        ),
        (Kind::Trace, _) => bail!(
            "a Chrome trace holds one timeline, not {}\nhint: `-o FILE.html` shows several",
            timelines.len()
        ),
        (Kind::Svg | Kind::Png, _) => bail!(
            "a drawing compares two timelines, not {}\nhint: `-o FILE.html` shows several",
            timelines.len()
        ),
    };
    write_atomically(output, &bytes)
}

/// What fills the memory of every pipeline rank, as a bar each.
fn draw_memory(checked: &CheckedPlan, kind: Kind, args: &PictureArgs) -> anyhow::Result<Vec<u8>> {
    if kind == Kind::Snapshot {
        return Ok(memory_snapshot(checked));
    }
    let is_there = |name: &str| {
        let lines = checked.simulated.memory_by_rank.iter().flat_map(MemoryUse::lines);
        lines.into_iter().any(|(line, bytes)| line == name && bytes > Bytes::ZERO)
    };
    let bars: Vec<MemoryBar> = checked
        .simulated
        .memory_by_rank
        .iter()
        .enumerate()
        .map(|(rank, memory)| {
            let lines = memory.lines().into_iter().filter(|(name, _)| is_there(name));
            let parts = lines.map(|(name, bytes)| MemoryPart { name: name.to_owned(), bytes });
            MemoryBar { name: format!("rank {rank}"), parts: parts.collect() }
        })
        .collect();
    let title = format!("memory of a GPU of each pipeline rank: {}", title(checked));
    let capacity = Some(checked.problem.hardware.memory);
    let options = BarsOptions { paper: paper(args), ..BarsOptions::default() };
    match kind {
        Kind::Svg => Ok(bars::svg(&title, &bars, capacity, &options)?.into_bytes()),
        Kind::Png => Ok(bars::png(&title, &bars, capacity, &options)?),
        Kind::Page | Kind::Trace | Kind::Snapshot => {
            bail!("`--show memory` is drawn as .svg or .png, or written as .pickle")
        }
    }
}

/// Memory over the step as PyTorch's allocator would record it, a device for each pipeline rank. What comes and goes with
/// the schedule is named after its actions, all else as in the plan.
fn memory_snapshot(checked: &CheckedPlan) -> Vec<u8> {
    let is_steady = |name: &str| !["activations", "recomputed block"].contains(&name);
    let held = checked
        .simulated
        .memory_by_rank
        .iter()
        .map(|memory| memory.lines().into_iter().filter(|(name, _)| is_steady(name)).collect());
    snapshot::snapshot(&checked.simulated.simulation.timeline, &held.collect::<Vec<_>>())
}

fn title(checked: &CheckedPlan) -> &str {
    &checked.simulated.simulation.timeline.title
}

/// Whether a file name says what to draw.
pub(crate) fn check_ending(path: &Path) -> anyhow::Result<()> {
    Kind::of(path).map(|_| ())
}

impl Kind {
    fn of(path: &Path) -> anyhow::Result<Self> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        match ending.as_deref() {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            Some("html") => Ok(Self::Page),
            Some("json") => Ok(Self::Trace),
            Some("pickle") => Ok(Self::Snapshot),
            _ => bail!(
                "`{}` does not say what to draw; it must end in .svg, .png, .html or .json (memory: .pickle)",
                path.display()
            ),
        }
    }
}

impl ImageKind {
    /// That of a file into which `what` is drawn.
    pub(crate) fn of(path: &Path, what: &str) -> anyhow::Result<Self> {
        match Kind::of(path)? {
            Kind::Svg => Ok(Self::Svg),
            Kind::Png => Ok(Self::Png),
            Kind::Page | Kind::Trace | Kind::Snapshot => bail!("{what} is drawn as .svg or .png"),
        }
    }
}
