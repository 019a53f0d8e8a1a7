//! `planner chart`: pictures of plans and timelines.

use std::path::Path;

use anyhow::Context;
use planner::plan_file;
use traces::timeline::Timeline;
use traces::{chrome, html};

use super::Answer;
use super::args::ChartArgs;
use super::files::{read_text_up_to, refuse_to_overwrite, write_atomically};

/// The most that is read of a timeline: some million events.
const LARGEST_TIMELINE: u64 = 1 << 30;

/// What a file name asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Page,
    Trace,
}

pub(crate) fn chart(args: &ChartArgs) -> anyhow::Result<Answer> {
    // Before anything is read: a wrong ending is the cheapest mistake to find.
    Kind::of(&args.output)?;
    for input in &args.inputs {
        refuse_to_overwrite(input, &args.output)?;
    }
    let timelines: anyhow::Result<Vec<Timeline>> =
        args.inputs.iter().map(|input| read_timeline(input)).collect();
    write_timelines(&timelines?, &args.output)?;
    Ok(Answer::Found)
}

/// A timeline from its file, or that of a plan.
fn read_timeline(path: &Path) -> anyhow::Result<Timeline> {
    let text = read_text_up_to(path, LARGEST_TIMELINE)?;
    let name = || format!("`{}`", path.display());
    // A list is a trace of other programs, never a plan.
    if text.contains("\"traceEvents\"") || text.trim_start().starts_with('[') {
        return chrome::read(&text).with_context(name);
    }
    Ok(plan_file::read(&text).with_context(name)?.simulation.timeline)
}

/// Draws timelines into a file, as its ending says.
pub(crate) fn write_timelines(timelines: &[Timeline], output: &Path) -> anyhow::Result<()> {
    let bytes = match (Kind::of(output)?, timelines) {
        (Kind::Page, timelines) => html::page(&timelines.iter().collect::<Vec<_>>()).into_bytes(),
        (Kind::Trace, [timeline]) => chrome::write(timeline).into_bytes(),
        (Kind::Trace, _) => anyhow::bail!(
            "a Chrome trace holds one timeline, not {}\nhint: `-o FILE.html` shows several",
            timelines.len()
        ),
    };
    write_atomically(output, &bytes)
}

impl Kind {
    fn of(path: &Path) -> anyhow::Result<Self> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        match ending.as_deref() {
            Some("html") => Ok(Self::Page),
            Some("json") => Ok(Self::Trace),
            _ => anyhow::bail!(
                "`{}` does not say what to draw; it must end in .svg, .png, .html or .json",
                path.display()
            ),
        }
    }
}
