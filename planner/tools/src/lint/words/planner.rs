//! Option changes for `planner evaluate`.

use super::option::value;
use crate::lint::change::Change;
use crate::lint::finding::OptionChange;

/// Changes of arguments of `planner evaluate`; `None` if it has none for a change.
pub(super) fn words(change: &Change) -> Option<Vec<OptionChange>> {
    let one = |name: &str, it: &dyn ToString| Some(vec![value(name, it.to_string())]);
    match change {
        Change::TensorParallel(degree) => one("--tp", degree),
        Change::SequenceParallel(is_on) => one("--sequence-parallel", is_on),
        Change::Pipeline(degree) => one("--pp", degree),
        Change::VirtualStages(stages) => one("--virtual-stages", stages),
        Change::Context(degree) => one("--cp", degree),
        Change::Expert(degree) => one("--ep", degree),
        Change::ExpertTensor(degree) => one("--etp", degree),
        Change::MicroBatch(sequences) => one("--micro-batch-size", sequences),
        Change::GlobalBatch(sequences) => one("--global-batch-size", sequences),
        Change::Recompute(recompute) => one("--recompute", recompute),
        Change::Sequence(tokens) => one("--seq-len", tokens),
        Change::Zero(stage) => one("--zero", &stage.number()),
        Change::Precision(precision) => one("--precision", precision),
        Change::NoOffload => Some(vec![OptionChange::remove("--offload")]),
        Change::RebalanceStages => Some(Vec::new()),
        Change::Gpus(ranks) => one("--gpus", ranks),
        _ => None,
    }
}
