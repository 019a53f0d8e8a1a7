//! `planner chart` and `planner collective`: pictures.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use ir::plan::MemoryUse;
use ir::units::{Bytes, Nanos};
use planner::file_kind::FileKind;
use planner::names::{folded, or_nearest};
use planner_core::plan::CheckedPlan;
use planner_core::step::Simulated;
use traces::bars::{self, MemoryBar, MemoryPart};
use traces::collectives::{self, Operation, Ring};
use traces::gantt::{self, GanttOptions, Window};
use traces::html::PageOptions;
use traces::timeline::Timeline;
use traces::{DrawError, Drawing, Paper, chrome, html, snapshot};

use super::answer::Answer;
use super::args::{ChartArgs, CollectiveArgs, Shown};
use super::files::{parse_plan, read_as, read_plan};
use super::picture::{PictureFormat, image_format};
use command_line::destination::{refuse_to_overwrite, write_output};

/// Largest size in bytes of a timeline that is read: some million events.
const LARGEST_TIMELINE: u64 = 1 << 30;

pub(crate) fn chart(args: &ChartArgs) -> anyhow::Result<Answer> {
    // The file ending is checked before any file is read, since this mistake is the cheapest to find.
    PictureFormat::of(&args.output)?;
    for input in &args.inputs {
        refuse_to_overwrite(input, &args.output)?;
    }
    match (args.show, args.inputs.as_slice()) {
        (Shown::Timeline, inputs) => {
            let timelines: anyhow::Result<Vec<Timeline>> =
                inputs.iter().map(|input| read_timeline(input)).collect();
            write_timelines(&timelines?, &args.output, look(args)?)?;
        }
        (Shown::Memory, [plan]) => {
            ensure!(
                look(args)?.window == Window::Whole,
                "`--show memory` shows the fullest moment; `--from`, `--to` and `--first-micro-batches` are for \
                 timelines"
            );
            let checked = read_plan(plan)?;
            write_output(&args.output, &draw_memory(&checked, args)?)?;
        }
        (Shown::Memory, _) => bail!("`--show memory` draws one plan"),
    }
    Ok(Answer::Found)
}

fn look(args: &ChartArgs) -> anyhow::Result<GanttOptions> {
    let look = args.look.options();
    if args.from.is_none() && args.to.is_none() {
        return Ok(look);
    }
    let from = args.from.unwrap_or_default();
    let to = args.to.unwrap_or(Nanos::new(u64::MAX));
    ensure!(from < to, "`--to` {to} is not after `--from` {from}");
    Ok(GanttOptions { window: Window::Time { from, to }, ..look })
}

pub(crate) fn collective(args: &CollectiveArgs) -> anyhow::Result<Answer> {
    let format = image_format(&args.output, "a collective")?;
    let given = folded(&args.name);
    let operation = Operation::ALL.into_iter().find(|known| folded(&known.to_string()) == given);
    let Some(operation) = operation else {
        let known = Operation::ALL.map(|known| known.to_string());
        let hint = or_nearest(&args.name, known.iter().map(String::as_str), "those are all");
        bail!(
            "`{}` is no collective that is drawn; {} are\nhint: {hint}",
            args.name,
            known.join(", ")
        );
    };
    let paper = Paper { theme: args.theme.theme(), ..Paper::default() };
    let ring = Ring::ALL.into_iter().find(|ring| ring.operation() == operation);
    let bytes = match (args.ring, ring) {
        (true, None) => bail!(
            "`{operation}` has no ring here\nhint: all-reduce, all-gather and reduce-scatter have one"
        ),
        (true, Some(ring)) => {
            let drawn = grown(paper, |paper| collectives::draw_ring(ring, args.ranks, paper));
            drawn.and_then(|drawing| drawing.file(format)).with_context(|| {
                format!(
                    "a ring of {} ranks is too large a picture (`--ranks 12` fits any kind, 32 an .svg)",
                    args.ranks
                )
            })?
        }
        (false, _) => {
            grown(paper, |paper| collectives::draw(operation, args.ranks, paper))?.file(format)?
        }
    };
    write_output(&args.output, &bytes)?;
    Ok(Answer::Found)
}

/// Draws on wider paper if the picture needs it. This takes several tries, since other parts may grow with the paper.
fn grown(
    paper: Paper,
    draw: impl Fn(&Paper) -> Result<Drawing, DrawError>,
) -> Result<Drawing, DrawError> {
    const MOST_TIMES: usize = 8;
    let mut paper = paper;
    let mut drawn = draw(&paper);
    for _ in 0..MOST_TIMES {
        let Err(DrawError::TooSmall { what: "width", least, .. }) = drawn else { break };
        paper.width = least;
        drawn = draw(&paper);
    }
    drawn
}

/// Reads a timeline's file, or simulates a plan.
fn read_timeline(path: &Path) -> anyhow::Result<Timeline> {
    let wanted = [FileKind::Plan, FileKind::Timeline];
    let text = read_as(path, LARGEST_TIMELINE, &wanted, |text| Ok(text.to_owned()))?;
    // A JSON list is a trace of another program, never a plan.
    if text.contains("\"traceEvents\"") || text.trim_start().starts_with('[') {
        return chrome::read(&text).with_context(|| format!("`{}`", path.display()));
    }
    Ok(parse_plan(path, &text)?.simulated.simulation.timeline)
}

/// Draws timelines into a file in the format of its ending.
pub(crate) fn write_timelines(
    timelines: &[Timeline],
    output: &Path,
    look: GanttOptions,
) -> anyhow::Result<()> {
    let all: Vec<&Timeline> = timelines.iter().collect();
    let bytes = match (PictureFormat::of(output)?, timelines) {
        (PictureFormat::Page, _) => {
            let options = PageOptions { time_axis: look.time_axis, window: look.window };
            html::page(&all, &options)?.into_bytes()
        }
        (PictureFormat::Trace, [timeline]) => {
            ensure!(
                look.window == Window::Whole,
                "a Chrome trace has the whole step\nhint: `--from`, `--to` and `--first-micro-batches` are for \
                 pictures"
            );
            chrome::write(timeline).into_bytes()
        }
        (PictureFormat::Image(format), [_] | [_, _]) => gantt::draw(&all, &look)?.file(format)?,
        (PictureFormat::Snapshot, _) => bail!(
            "a snapshot shows memory\nhint: `planner chart plan.json --show memory -o {}`",
            output.display()
        ),
        (PictureFormat::Trace, _) => bail!(
            "a Chrome trace holds one timeline, not {}\nhint: `-o FILE.html` shows several",
            timelines.len()
        ),
        (PictureFormat::Image(_), _) => bail!(
            "a drawing compares two timelines, not {}\nhint: `-o FILE.html` shows several",
            timelines.len()
        ),
    };
    write_output(output, &bytes)
}

/// Draws the peak memory of every pipeline rank as a bar.
fn draw_memory(checked: &CheckedPlan, args: &ChartArgs) -> anyhow::Result<Vec<u8>> {
    let format = match PictureFormat::of(&args.output)? {
        PictureFormat::Image(format) => format,
        PictureFormat::Snapshot => return Ok(memory_snapshot(checked)),
        PictureFormat::Page | PictureFormat::Trace => {
            bail!("`--show memory` is drawn as .svg, .png or .pdf, or written as .pickle")
        }
    };
    let title = memory_title(checked);
    let bars = memory_bars(&checked.simulated.memory_by_rank);
    // The line is at the memory of the smallest GPU: ranks below it fit on any.
    let capacity = checked.problem.least_memory();
    Ok(bars::draw(&title, &bars, Some(capacity), args.look.paper())?.file(format)?)
}

/// Bars of memory, one for each pipeline rank. Each bar has all kinds of memory, even empty ones, so that each kind
/// always has the same colour.
pub(crate) fn memory_bars(memory_by_rank: &[MemoryUse]) -> Vec<MemoryBar> {
    let bar = |(rank, memory): (usize, &MemoryUse)| {
        let parts = memory
            .lines()
            .into_iter()
            .map(|(name, bytes)| MemoryPart { name: name.to_owned(), bytes });
        MemoryBar { name: format!("rank {rank}"), parts: parts.collect() }
    };
    memory_by_rank.iter().enumerate().map(bar).collect()
}

/// Memory over the step as a snapshot of PyTorch's allocator, with one device for each pipeline rank. Memory that
/// changes with the schedule is named after the schedule's actions, other memory as in the plan.
fn memory_snapshot(checked: &CheckedPlan) -> Vec<u8> {
    let Simulated { simulation, memory_by_rank, .. } = &checked.simulated;
    let tracks = simulation.timeline.tracks.iter();
    let held = memory_by_rank.iter().zip(tracks).map(|(memory, track)| {
        let start = track.memory.first().map_or(Bytes::ZERO, |point| point.bytes);
        let is_steady = |name: &str| !["activations", "recomputed block"].contains(&name);
        let steady = memory.lines().into_iter().filter(|(name, _)| is_steady(name));
        let steady: Vec<(&'static str, Bytes)> = steady.collect();
        // At the peak, the workspace contains gradients of activations, but not at the start.
        let all: Bytes = steady.iter().map(|(_, bytes)| *bytes).sum();
        let later = all.saturating_sub(start);
        let at_start = |(name, bytes): (&'static str, Bytes)| match name {
            "workspace" => (name, bytes.saturating_sub(later)),
            _ => (name, bytes),
        };
        steady.into_iter().map(at_start).collect::<Vec<_>>()
    });
    snapshot::snapshot(&simulation.timeline, &held.collect::<Vec<_>>())
}

/// Title of a picture of memory, followed by the plan's settings and its memory on the host.
fn memory_title(checked: &CheckedPlan) -> String {
    let Timeline { title, setting, .. } = &checked.simulated.simulation.timeline;
    let hosts = checked.simulated.memory_by_rank.iter().map(|memory| memory.host_bytes);
    let on_host = hosts.max().filter(|bytes| *bytes > Bytes::ZERO).map(|bytes| {
        let of = checked.problem.hardware.host.map(|host| format!(" of {}", host.memory()));
        format!("\non the host, for each GPU: {bytes}{}", of.unwrap_or_default())
    });
    let on_host = on_host.unwrap_or_default();
    format!("memory of a GPU of each pipeline rank: {title}\n{setting}{on_host}")
}
