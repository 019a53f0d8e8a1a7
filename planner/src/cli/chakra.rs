//! `planner export --to chakra`: execution traces, a file for each rank.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use planner_tools::interchange::ChakraTraces;

use super::answer::Answer;
use super::files::read_plan;
use command_line::destination::{is_dash, make_folder, refuse_to_overwrite, write_output};
use command_line::terminal::print;

/// Largest number of bytes that is written without `--ranks`, since more is seldom intended.
const MOST_BYTES: u64 = 1 << 30;

/// Whole numbers and ranges of them, such as `0-7,64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ranks(Vec<[u32; 2]>);

impl Ranks {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = [first.parse().ok()?, last.parse().ok()?];
            (range[0] <= range[1]).then_some(range)
        };
        let ranges: Option<Vec<[u32; 2]>> = text.split(',').map(|it| range(it.trim())).collect();
        ranges.map(Self).ok_or_else(|| "must be ranks and ranges, such as `0-7,64`".to_owned())
    }

    /// The ranks in order, each once; an error if the plan has fewer.
    fn of(&self, num_ranks: u32) -> anyhow::Result<Vec<u32>> {
        let last = self.0.iter().map(|range| range[1]).max().unwrap_or_default();
        ensure!(
            last < num_ranks,
            "`--ranks`: the plan has no rank {last}\nhint: 0 to {}",
            num_ranks - 1
        );
        let mut ranks: Vec<u32> = self.0.iter().flat_map(|[first, last]| *first..=*last).collect();
        ranks.sort_unstable();
        ranks.dedup();
        Ok(ranks)
    }
}

pub(crate) fn export(
    path: &Path,
    ranks: Option<&Ranks>,
    output: Option<&Path>,
) -> anyhow::Result<Answer> {
    let folder = output.filter(|folder| !is_dash(folder)).context(
        "`--to chakra` writes a binary file for each rank\nhint: `-o DIR` names a folder for them",
    )?;
    let checked = read_plan(path)?;
    let traces = ChakraTraces::new(&checked).with_context(|| format!("`{}`", path.display()))?;
    let all = traces.num_ranks();
    let ranks = match ranks {
        Some(ranks) => ranks.of(all)?,
        None if traces.num_bytes() <= MOST_BYTES => (0..all).collect(),
        None => bail!(
            "the traces of all {all} ranks take {:.1} GiB\nhint: `--ranks 0-{}` writes all of them, `--ranks 0-7,64` \
             some",
            traces.num_bytes() as f64 / MOST_BYTES as f64,
            all - 1
        ),
    };
    make_folder(folder)?;
    write(path, &folder.join(ChakraTraces::name_of_groups()), traces.groups().as_bytes())?;
    for rank in &ranks {
        write(path, &folder.join(ChakraTraces::name(*rank)), &traces.of_rank(*rank))?;
    }
    print(&summary(&checked.plan.layout.to_string(), folder, &ranks, all))?;
    Ok(Answer::Found)
}

fn write(plan: &Path, path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    refuse_to_overwrite(plan, path)?;
    write_output(path, bytes)
}

/// List of the files written, and options for ASTRA-sim.
fn summary(layout: &str, folder: &Path, ranks: &[u32], all: u32) -> String {
    let path = |name: String| folder.join(name).display().to_string();
    let mut text = format!("{layout} as execution traces of MLCommons Chakra 1.0.0\n");
    let _ = writeln!(text, "  {}", path(ChakraTraces::name_of_groups().to_owned()));
    if let [first, .., last] = ranks {
        let [first, last] = [first, last].map(|rank| path(ChakraTraces::name(*rank)));
        let _ = writeln!(text, "  {first} to {last}, {} files", ranks.len());
    } else {
        for rank in ranks {
            let _ = writeln!(text, "  {}", path(ChakraTraces::name(*rank)));
        }
    }
    if ranks.len() as u32 == all {
        let options = ChakraTraces::options(&folder.display().to_string());
        let _ = writeln!(text, "for ASTRA-sim: {options}");
    } else {
        let _ = writeln!(text, "ASTRA-sim wants all {all} ranks");
    }
    text
}
