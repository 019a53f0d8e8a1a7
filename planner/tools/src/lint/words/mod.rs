//! Changes in the words of the tools, by the names that each has for them.

mod accelerate;
pub(super) mod bridge;
mod deepspeed;
pub(super) mod megatron;
mod nanotron;
mod option;
mod planner;
mod torchtitan;

use super::change::Change;
use super::finding::OptionChange;
use super::keys::Notation;
use crate::interchange::{Imported, StatedStages, Target};

/// Options that say how many replicas there are, or how a batch divides: the first that mends a product is taken.
pub(super) const FACTORS: [&str; 5] = [
    torchtitan::SHARDS,
    nanotron::REPLICAS,
    accelerate::SHARDS,
    accelerate::COPIES,
    deepspeed::ROUNDS,
];

/// Options that say over how many ranks a replica is cut: tried where no number of replicas mends a product.
pub(super) const DEGREES: [&str; 2] = [accelerate::TENSOR, accelerate::CONTEXT];

/// The option that says how many ranks there are.
pub(super) const RANKS: &str = accelerate::RANKS;

/// Whose words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    /// Those of a tool.
    Tool(Target),
    /// Those of this command, of a plan.
    Planner,
}

/// The changes of options that lead from settings to others which differ by these changes; `None` where the tool has no
/// word for one of them.
pub(super) fn words(
    speech: Speech,
    text: &str,
    changes: &[Change],
    before: &Imported,
    after: &Imported,
) -> Option<Vec<OptionChange>> {
    let mut all = Vec::new();
    for change in changes {
        let of_change = match speech {
            Speech::Tool(Target::Megatron | Target::MegatronBridge) => {
                megatron::words(change, before, after)
            }
            Speech::Tool(target) => of_tool(target, text, change, after),
            Speech::Planner => planner::words(change),
        };
        all.extend(of_change?);
    }
    if let Speech::Tool(Target::Megatron | Target::MegatronBridge) = speech {
        all.extend(megatron::stages(before, after));
        all.extend(megatron::sequence(changes, before, after));
    }
    if let (Speech::Planner, StatedStages::Blocks(counts)) = (speech, &after.stages)
        && changes.contains(&Change::CutAnew)
    {
        let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
        all.push(option::value("--stages", counts.join(",")));
    }
    if speech == Speech::Tool(Target::MegatronBridge) {
        all = bridge::of_megatron(all)?;
    }
    (!all.is_empty()).then_some(all)
}

/// One change in the words of a tool whose changes stand by themselves.
fn of_tool(
    target: Target,
    text: &str,
    change: &Change,
    after: &Imported,
) -> Option<Vec<OptionChange>> {
    match target {
        Target::Megatron | Target::MegatronBridge => None,
        Target::TorchTitan => torchtitan::words(change, after),
        Target::DeepSpeed => deepspeed::words(change, after),
        Target::Accelerate => accelerate::words(change, after),
        Target::Trainer => accelerate::of_trainer(is_file(text), change, after),
        Target::Nanotron => nanotron::words(change, after),
        Target::Executor => planner::words(change),
    }
}

/// Whether a text has keys, and is no script.
fn is_file(text: &str) -> bool {
    Notation::of(text) == Some(Notation::Json) || !text.contains("--")
}

/// The options that say what a finding is about, by tool.
pub(super) fn options(
    speech: Speech,
    text: &str,
    change: &Change,
    imported: &Imported,
) -> Vec<String> {
    match speech {
        Speech::Planner => vec![planner::keys(change).to_owned()],
        Speech::Tool(Target::Megatron) => {
            megatron::options(change).iter().map(|name| (*name).to_owned()).collect()
        }
        Speech::Tool(Target::MegatronBridge) => bridge::paths(megatron::options(change)),
        Speech::Tool(target) => {
            let of_change = of_tool(target, text, change, imported).into_iter().flatten();
            of_change.take(1).map(|it| it.option().to_owned()).collect()
        }
    }
}
