//! nanotron's YAML.

use ir::layout::ZeroStage;

use super::option::value;
use crate::interchange::Imported;
use crate::lint::change::Change;
use crate::lint::finding::OptionChange;

/// How many replicas there are.
pub(super) const REPLICAS: &str = "parallelism.dp";

/// One change. Replicas are a number of their own, and micro-batches of each are counted.
pub(super) fn words(change: &Change, after: &Imported) -> Option<Vec<OptionChange>> {
    let rounds = after.training.num_micro_batches.unwrap_or(1);
    let rounds = value("tokens.batch_accumulation_per_replica", rounds);
    let degree = |name: &str, degree: u32| {
        let replicas = value(REPLICAS, after.known_replicas()?);
        Some(vec![value(&format!("parallelism.{name}"), degree), replicas, rounds.clone()])
    };
    match change {
        Change::TensorParallel(ranks) => degree("tp", *ranks),
        Change::Pipeline(ranks) => degree("pp", *ranks),
        Change::Expert(ranks) => Some(vec![value("parallelism.expert_parallel_size", ranks)]),
        Change::SequenceParallel(is_on) => {
            let mode = if *is_on { "REDUCE_SCATTER" } else { "ALL_REDUCE" };
            Some(vec![value("parallelism.tp_mode", mode)])
        }
        Change::Gpus(_) => Some(vec![value(REPLICAS, after.known_replicas()?), rounds]),
        Change::MicroBatch(sequences) => {
            Some(vec![value("tokens.micro_batch_size", sequences), rounds])
        }
        Change::Sequence(tokens) => Some(vec![value("tokens.sequence_length", tokens)]),
        Change::Zero(stage @ (ZeroStage::None | ZeroStage::OptimizerState)) => {
            Some(vec![value("optimizer.zero_stage", stage.number())])
        }
        Change::VocabularyMultiple(multiple) => {
            Some(vec![value("model.make_vocab_size_divisible_by", multiple)])
        }
        _ => None,
    }
}
