//! The matrix that `nvidia-smi topo -m` prints.
//!
//! # Source
//!
//! Its own legend: `NV#` for a bonded set of # NVLinks, `PIX`, `PXB`, `PHB`, `NODE` and `SYS` for paths over PCIe.

use super::error::TopologyError;
use super::node::{NodeLinks, reached};

/// True if a text looks like such a matrix: a line of headings that begins with a GPU.
pub(super) fn is_topology(text: &str) -> bool {
    without_escapes(text).lines().any(is_heading)
}

fn is_heading(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next() == Some("GPU0") && words.next().is_some_and(|word| word != "X")
}

/// Reads a matrix.
pub(super) fn read(text: &str) -> Result<NodeLinks, TopologyError> {
    // Escape codes for a terminal's colours and underlines are not part of the matrix.
    let plain: String = without_escapes(text);
    let mut lines = (1..).zip(plain.lines());
    let heading =
        lines.find(|(_, line)| is_heading(line)).map(|(_, line)| line).unwrap_or_default();
    // Interfaces may have any names; the columns about processors follow them.
    let columns: Vec<&str> =
        heading.split_whitespace().take_while(|word| !word.starts_with("CPU")).collect();
    let gpus = columns.iter().take_while(|name| name.starts_with("GPU")).count();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut last = 0;
    for (index, line) in lines {
        last = index;
        let mut words = line.split_whitespace();
        let Some(name) = words.next().filter(|name| name.starts_with("GPU") && rows.len() < gpus)
        else {
            continue;
        };
        let cells: Vec<String> = words.take(columns.len()).map(str::to_owned).collect();
        if cells.len() < columns.len() {
            let problem = format!("row `{name}` has {} of {} columns", cells.len(), columns.len());
            return Err(TopologyError::Line { line: index, problem });
        }
        rows.push(cells);
    }
    if rows.len() < gpus {
        let problem =
            format!("{} of {gpus} rows of GPUs are there: the text ends too early", rows.len());
        return Err(TopologyError::Line { line: last, problem });
    }
    Ok(NodeLinks {
        gpus: u32::try_from(gpus).unwrap_or(u32::MAX),
        nvlinks: nvlinks(&rows, gpus),
        is_mesh: is_mesh(&rows, gpus),
        interfaces: interfaces(&rows, gpus),
        interface_bandwidth: None,
    })
}

/// Number of interfaces that are the nearest to some GPU; others, such as those of storage, are farther from all GPUs.
fn interfaces(rows: &[Vec<String>], gpus: usize) -> u32 {
    const PATHS: [&str; 5] = ["PIX", "PXB", "PHB", "NODE", "SYS"];
    let distance = |cell: &String| PATHS.iter().position(|path| path == cell);
    let nearest = rows.iter().map(|row| row[gpus..].iter().filter_map(distance).min());
    let nearest: Vec<Option<usize>> = nearest.collect();
    let columns = rows.first().map_or(0, Vec::len);
    let is_near = |column: &usize| {
        let to = rows.iter().zip(&nearest).map(|(row, least)| (distance(&row[*column]), least));
        to.into_iter().any(|(distance, least)| distance.is_some() && distance == *least)
    };
    u32::try_from((gpus..columns).filter(is_near).count()).unwrap_or(u32::MAX)
}

/// Number of NVLinks of the GPU that has the fewest, and number of GPUs that it reaches over them, directly or through
/// others. With switches, the matrix shows all links of a GPU for each other GPU; with direct links, the counts add up.
fn nvlinks(rows: &[Vec<String>], gpus: usize) -> Option<[u32; 2]> {
    let links = |cell: &String| cell.strip_prefix("NV").and_then(|count| count.parse::<u32>().ok());
    let of_gpu = |gpu: usize| {
        let counts: Vec<u32> = rows[gpu][..gpus].iter().filter_map(links).collect();
        let most = counts.iter().copied().max().unwrap_or(0);
        // Counts whose sum exceeds the links of any GPU are links through switches.
        let sum: u32 = counts.iter().sum();
        let count = if sum > MOST_NVLINKS { most } else { sum };
        let reached = reached(gpu, gpus, |from, to| links(&rows[from][to]).is_some());
        [count, reached]
    };
    (0..gpus).map(of_gpu).min()
}

/// True if each GPU has equally many NVLinks to each GPU that it is linked to, and their sum is a possible number of
/// links.
fn is_mesh(rows: &[Vec<String>], gpus: usize) -> bool {
    let links = |cell: &String| cell.strip_prefix("NV").and_then(|count| count.parse::<u32>().ok());
    rows.iter().take(gpus).all(|row| {
        let mut counts: Vec<u32> = row[..gpus].iter().filter_map(links).collect();
        let sum: u32 = counts.iter().sum();
        counts.dedup();
        counts.len() == 1 && sum <= MOST_NVLINKS
    })
}

/// Largest number of NVLinks of any GPU (H100, B200).
const MOST_NVLINKS: u32 = 18;

fn without_escapes(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        if next == '\u{1b}' {
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(next);
        }
    }
    plain
}
