//! What may repair Megatron-LM's arguments where they cannot be read.

use super::option::value;
use crate::lint::finding::OptionChange;

/// Whether an option says where a pipeline is cut.
pub(in crate::lint) fn cuts_stages(option: &str) -> bool {
    matches!(
        option,
        "--num-layers-per-virtual-pipeline-stage"
            | "--pipeline-model-parallel-layout"
            | "--decoder-first-pipeline-num-layers"
            | "--account-for-embedding-in-pipeline-split"
    )
}

/// Fewer layers in each stage, the nearest first.
pub(in crate::lint) fn fewer_layers(option: &str, now: &str) -> Vec<Vec<OptionChange>> {
    if option != "--num-layers-per-virtual-pipeline-stage" {
        return Vec::new();
    }
    let most = now.parse::<u32>().unwrap_or(1).min(64);
    (1..=most).rev().map(|each| vec![value(option, each)]).collect()
}

/// An option left out together with the one that says the same for the other end of the pipeline.
pub(in crate::lint) fn without_both_ends(option: &str) -> Option<Vec<OptionChange>> {
    let ends = [
        ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"],
        ["--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"],
    ];
    let ends = ends.into_iter().find(|ends| ends.contains(&option))?;
    Some(ends.map(OptionChange::remove).to_vec())
}

/// A missing option with the value that is right more often than another, and what it needs beside it.
pub(in crate::lint) fn added(option: &str) -> Vec<OptionChange> {
    match option {
        "--recompute-method" => vec![value(option, "uniform"), value("--recompute-num-layers", 1)],
        _ => vec![value(option, 1)],
    }
}

/// What of two options that contradict each other could go, or what the one needs.
pub(in crate::lint) fn contradiction(one: &str, other: &str) -> Vec<Vec<OptionChange>> {
    let Some(needed) = other.strip_prefix("no ") else {
        // Of two formats of 16 bits the one with the larger range stays; of two ways to say the same, the newer.
        let (first, second) = if one == "--fp16" { (one, other) } else { (other, one) };
        return vec![vec![OptionChange::remove(first)], vec![OptionChange::remove(second)]];
    };
    let value = match needed {
        "--recompute-granularity" => Some("selective".to_owned()),
        "--context-parallel-size" => return vec![vec![OptionChange::remove(one)]],
        _ => None,
    };
    vec![vec![OptionChange::set(needed, value)], vec![OptionChange::remove(one)]]
}
