//! DeepSpeed's configuration.

use ir::cluster::Precision;

use super::option::value;
use crate::interchange::Imported;
use crate::lint::change::Change;
use crate::lint::finding::OptionChange;

/// How many micro-batches a replica takes for an update.
pub(super) const ROUNDS: &str = "gradient_accumulation_steps";

/// One change.
pub(super) fn words(change: &Change, after: &Imported) -> Option<Vec<OptionChange>> {
    let one = |name: &str, it: &dyn ToString| Some(vec![value(name, it.to_string())]);
    // The batch stays; how many micro-batches it is follows, or is said anew.
    let with_rounds = |change: OptionChange| {
        let is_said = after.training.global_batch_size.is_some();
        let rounds = if is_said {
            OptionChange::remove(ROUNDS)
        } else {
            value(ROUNDS, after.training.num_micro_batches.unwrap_or(1))
        };
        Some(vec![change, rounds])
    };
    match change {
        Change::TensorParallel(degree) => with_rounds(value("tensor_parallel.autotp_size", degree)),
        Change::MicroBatch(sequences) => {
            with_rounds(value("train_micro_batch_size_per_gpu", sequences))
        }
        Change::GlobalBatch(sequences) => with_rounds(value("train_batch_size", sequences)),
        Change::Zero(stage) => one("zero_optimization.stage", &stage.number()),
        Change::ReplicasOverlap { .. } => one("zero_optimization.overlap_comm", &true),
        Change::NoOffload => Some(
            ["zero_optimization.offload_optimizer", "zero_optimization.offload_param"]
                .map(OptionChange::remove)
                .to_vec(),
        ),
        Change::Precision(Precision::Bf16) => {
            Some(vec![value("bf16.enabled", true), OptionChange::remove("fp16")])
        }
        _ => None,
    }
}
