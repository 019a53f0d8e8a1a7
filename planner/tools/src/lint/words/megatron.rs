//! Candidate repairs for arguments of Megatron-LM that cannot be read.

use crate::lint::finding::OptionChange;

/// Returns whether an option decides how the model is cut into stages.
pub(in crate::lint) fn cuts_stages(option: &str) -> bool {
    matches!(
        option,
        "--num-layers-per-virtual-pipeline-stage"
            | "--pipeline-model-parallel-layout"
            | "--decoder-first-pipeline-num-layers"
            | "--account-for-embedding-in-pipeline-split"
    )
}

/// Fewer layers in each stage, in descending order.
pub(in crate::lint) fn fewer_layers(option: &str, now: &str) -> Vec<Vec<OptionChange>> {
    if option != "--num-layers-per-virtual-pipeline-stage" {
        return Vec::new();
    }
    let most = now.parse::<u32>().unwrap_or(1).min(64);
    (1..=most).rev().map(|each| vec![OptionChange::value(option, each)]).collect()
}

/// Removes an option together with its counterpart for the other end of the pipeline.
pub(in crate::lint) fn without_both_ends(option: &str) -> Option<Vec<OptionChange>> {
    let ends = [
        ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"],
        ["--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"],
    ];
    let ends = ends.into_iter().find(|ends| ends.contains(&option))?;
    Some(ends.map(OptionChange::remove).to_vec())
}

/// Adds a missing option with its most likely value, and options that it requires.
pub(in crate::lint) fn added(option: &str) -> Vec<OptionChange> {
    match option {
        "--recompute-method" => vec![
            OptionChange::value(option, "uniform"),
            OptionChange::value("--recompute-num-layers", 1),
        ],
        _ => vec![OptionChange::value(option, 1)],
    }
}

/// Candidates for two options that contradict each other: remove one, or add the option that one requires.
pub(in crate::lint) fn contradiction(one: &str, other: &str) -> Vec<Vec<OptionChange>> {
    let Some(needed) = other.strip_prefix("no ") else {
        // bf16 is kept rather than fp16; of two options for the same purpose, the newer is kept.
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
