//! Slurm's `topology.conf`: a tree of switches, or blocks.
//!
//! # Source
//!
//! Slurm's manual, `topology.conf`: `SwitchName=`, `Switches=`, `Nodes=`; `BlockName=`, `Nodes=`, `BlockSizes=`.

use std::collections::BTreeMap;

use super::error::TopologyError;
use super::tree::{NodeTree, Switch};

/// True if a text looks like a `topology.conf`.
pub(super) fn is_topology(text: &str) -> bool {
    let starts = |line: &str| {
        let line = line.trim_start().to_ascii_lowercase();
        line.starts_with("switchname=") || line.starts_with("blockname=")
    };
    text.lines().any(starts)
}

/// Reads a `topology.conf`.
pub(super) fn read(text: &str) -> Result<NodeTree, TopologyError> {
    let mut switches: BTreeMap<String, Switch> = BTreeMap::new();
    let mut order = Vec::new();
    let mut is_blocks = false;
    for (index, line) in joined(text) {
        let line = line.split('#').next().unwrap_or_default();
        let wrong = |problem: String| TopologyError::Line { line: index, problem };
        let mut name = None;
        let mut switch = Switch::default();
        for word in line.split_whitespace() {
            let (key, value) =
                word.split_once('=').ok_or_else(|| wrong(format!("`{word}` is no `Key=value`")))?;
            match key.to_ascii_lowercase().as_str() {
                "switchname" => name = Some(value.to_owned()),
                "blockname" => {
                    name = Some(value.to_owned());
                    is_blocks = true;
                }
                "nodes" => switch.nodes = expanded(value).map_err(wrong)?,
                "switches" => switch.below = expanded(value).map_err(wrong)?,
                // Sizes of blocks follow from their nodes; link speeds are for information only, by Slurm's manual.
                "blocksizes" | "linkspeed" => {}
                _ => return Err(wrong(format!("`{key}` is not known"))),
            }
        }
        if let Some(name) = name {
            order.push(name.clone());
            switches.insert(name, switch);
        }
    }
    NodeTree::of_switches(&order, &switches, is_blocks)
}

/// Lines with their numbers; a line that ends with a backslash continues on the next.
fn joined(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (index, line) in (1..).zip(text.lines()) {
        let rest = line.trim_end().strip_suffix('\\');
        let part = rest.unwrap_or(line);
        match lines.last_mut() {
            Some((_, last)) if goes_on => *last += part,
            _ => lines.push((index, part.to_owned())),
        }
        goes_on = rest.is_some();
    }
    lines
}

/// Largest number of names in a list.
const MOST_NAMES: usize = 1 << 20;

fn too_many(list: &str) -> String {
    format!("`{list}` has more than {MOST_NAMES} names")
}

/// Names of a list such as `a,node[001-004,7],r[1-2]n[1-3]`.
pub(super) fn expanded(list: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    let mut depth = 0_usize;
    let mut start = 0;
    for (index, byte) in list.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => {
                let opened = depth.checked_sub(1);
                depth = opened.ok_or_else(|| format!("`{list}` has a `]` too many"))?;
            }
            b',' if depth == 0 => {
                names.extend(expanded_name(&list[start..index])?);
                if names.len() > MOST_NAMES {
                    return Err(too_many(list));
                }
                start = index + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err(format!("`{list}` ends within brackets"));
    }
    names.extend(expanded_name(&list[start..])?);
    names.retain(|name| !name.is_empty());
    if names.len() > MOST_NAMES {
        return Err(too_many(list));
    }
    Ok(names)
}

/// Largest number of brackets in a pattern: names have a number for each dimension of a network, and Slurm accepts five
/// dimensions.
const MOST_BRACKETS: usize = 16;

/// Names of one pattern, the last bracket varying fastest.
fn expanded_name(pattern: &str) -> Result<Vec<String>, String> {
    if pattern.matches('[').count() > MOST_BRACKETS {
        return Err(format!("`{pattern}` has more than {MOST_BRACKETS} brackets"));
    }
    let Some((before, rest)) = pattern.split_once('[') else { return Ok(vec![pattern.to_owned()]) };
    let (inside, after) =
        rest.split_once(']').ok_or_else(|| format!("`{pattern}` ends within brackets"))?;
    let mut numbers = Vec::new();
    for part in inside.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            text.parse::<u64>()
                .map_err(|_| format!("`{part}` of `{pattern}` is no range of numbers"))
        };
        let (from, to) = (number(first)?, number(last)?);
        if from > to || to - from > MOST_NAMES as u64 {
            return Err(format!("`{part}` of `{pattern}` is no range of numbers"));
        }
        numbers.extend((from..=to).map(|number| format!("{number:0width$}", width = first.len())));
        if numbers.len() > MOST_NAMES {
            return Err(too_many(pattern));
        }
    }
    let endings = expanded_name(after)?;
    if numbers.len() * endings.len() > MOST_NAMES {
        return Err(too_many(pattern));
    }
    let with = |number: &String| {
        let start = format!("{before}{number}");
        endings.iter().map(move |ending| format!("{start}{ending}")).collect::<Vec<_>>()
    };
    Ok(numbers.iter().flat_map(with).collect())
}
