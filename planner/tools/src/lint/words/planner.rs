//! Plans, and arguments of `planner evaluate`.

use super::option::value;
use crate::lint::change::Change;
use crate::lint::finding::OptionChange;

/// Arguments of `planner evaluate`.
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
        Change::CutAnew => Some(Vec::new()),
        Change::Gpus(ranks) => one("--gpus", ranks),
        _ => None,
    }
}

/// Where a plan has it.
pub(super) const fn keys(change: &Change) -> &'static str {
    match change {
        Change::TensorParallel(_) => "layout.tensor_parallel",
        Change::SequenceParallel(_) => "layout.sequence_parallel",
        Change::Pipeline(_) => "layout.pipeline_parallel",
        Change::VirtualStages(_) => "layout.virtual_stages",
        Change::Context(_) => "layout.context_parallel",
        Change::Expert(_) => "layout.expert_parallel",
        Change::ExpertTensor(_) => "layout.expert_tensor_parallel",
        Change::MicroBatch(_) => "layout.micro_batch_size",
        Change::GlobalBatch(_) => "training.global_batch_size",
        Change::Sequence(_) => "training.sequence_length",
        Change::Recompute(_) => "layout.recompute",
        Change::Zero(_) => "layout.zero_stage",
        Change::OneShardGroup => "layout.zero_shard",
        Change::Precision(_) => "training.precision",
        Change::Dispatcher(_) => "layout.switches.token_dispatcher",
        Change::NoOffload => "layout.offload",
        Change::CutAnew => "stages",
        Change::Gpus(_) => "num_gpus",
        Change::ReplicasOverlap { .. } => "framework.gradients.reduced",
        Change::VocabularyMultiple(_) => "framework.tensor_parallel.vocabulary_multiple",
    }
}
