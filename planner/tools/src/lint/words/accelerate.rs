//! accelerate's configuration, and the Trainer's arguments.

use ir::cluster::Precision;
use ir::graph::Recompute;
use ir::layout::ZeroStage;

use super::option::value;
use crate::interchange::Imported;
use crate::lint::change::Change;
use crate::lint::finding::OptionChange;

/// How many ranks there are.
pub(super) const RANKS: &str = "num_processes";

/// Over how many ranks weights are cut.
pub(super) const TENSOR: &str = "parallelism_config.parallelism_config_tp_size";

/// Over how many ranks sequences are cut.
pub(super) const CONTEXT: &str = "parallelism_config.parallelism_config_cp_size";

/// How many copies of all shards there are.
pub(super) const COPIES: &str = "parallelism_config.parallelism_config_dp_replicate_size";

/// Over how many ranks a copy is sharded.
pub(super) const SHARDS: &str = "parallelism_config.parallelism_config_dp_shard_size";

/// One change of accelerate's configuration.
pub(super) fn words(change: &Change, after: &Imported) -> Option<Vec<OptionChange>> {
    let one = |name: &str, it: &dyn ToString| Some(vec![value(name, it.to_string())]);
    let degree = |name: &str, degree: u32| {
        let replicas = after.known_replicas()?;
        let is_sharded = after.layout.zero_stage != ZeroStage::None;
        let [copies, shards] = if is_sharded {
            [after.shard_groups, replicas / after.shard_groups.max(1)]
        } else {
            [replicas, 1]
        };
        Some(vec![value(name, degree), value(COPIES, copies), value(SHARDS, shards)])
    };
    match change {
        Change::TensorParallel(ranks) => degree(TENSOR, *ranks),
        Change::Context(ranks) => degree(CONTEXT, *ranks),
        Change::Gpus(ranks) => {
            let mut all = degree(TENSOR, after.layout.tensor_parallel)?;
            all.push(value(RANKS, ranks));
            Some(all)
        }
        Change::Recompute(Recompute::None) => {
            one("fsdp_config.fsdp_activation_checkpointing", &false)
        }
        Change::Recompute(Recompute::Full) => {
            one("fsdp_config.fsdp_activation_checkpointing", &true)
        }
        Change::Zero(ZeroStage::Gradients) => one("fsdp_config.fsdp_reshard_after_forward", &false),
        Change::Zero(ZeroStage::Parameters) => one("fsdp_config.fsdp_reshard_after_forward", &true),
        Change::NoOffload => one("fsdp_config.fsdp_offload_params", &false),
        Change::Precision(Precision::Bf16) => one("mixed_precision", &"bf16"),
        _ => None,
    }
}

/// One change of the Trainer's arguments, which are options of a program, or keys of a file.
pub(super) fn of_trainer(
    is_file: bool,
    change: &Change,
    after: &Imported,
) -> Option<Vec<OptionChange>> {
    let name = |name: &str| if is_file { name.to_owned() } else { format!("--{name}") };
    let set = |it: &str, text: &str| value(&name(it), text);
    let rounds = after.training.num_micro_batches.map(|it| it.to_string());
    match change {
        Change::MicroBatch(sequences) => {
            let mut all = vec![set("per_device_train_batch_size", &sequences.to_string())];
            all.extend(rounds.map(|it| set("gradient_accumulation_steps", &it)));
            Some(all)
        }
        Change::Recompute(Recompute::None) => Some(vec![
            OptionChange::remove(&name("gradient_checkpointing")),
            OptionChange::remove(&name("activation_checkpointing")),
        ]),
        Change::Recompute(Recompute::Full) => Some(vec![set("gradient_checkpointing", "true")]),
        Change::Precision(Precision::Bf16) => {
            Some(vec![OptionChange::remove(&name("fp16")), set("bf16", "true")])
        }
        _ => None,
    }
}
