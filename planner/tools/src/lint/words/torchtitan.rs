//! torchtitan's flags.

use ir::cluster::Precision;
use ir::graph::Recompute;
use ir::layout::ZeroStage;

use super::option::{switch, value};
use crate::interchange::Imported;
use crate::lint::change::Change;
use crate::lint::finding::OptionChange;

/// Over how many ranks a copy is sharded; -1 for what is left.
pub(super) const SHARDS: &str = "--parallelism.data_parallel_shard_degree";

/// What its flags begin with that say how ranks are laid out.
fn parallelism(name: &str) -> String {
    format!("--parallelism.{name}")
}

/// One change. Replicas that are sharded are what is left of the ranks.
pub(super) fn words(change: &Change, after: &Imported) -> Option<Vec<OptionChange>> {
    let layout = &after.layout;
    let degree = |name: &str, degree: u32| {
        let mut all = vec![value(&parallelism(name), degree)];
        all.extend(replicas(after)?);
        Some(all)
    };
    match change {
        Change::TensorParallel(ranks) => degree("tensor_parallel_degree", *ranks),
        // Its batch is one of the pipeline's then, and its schedule another.
        Change::Pipeline(ranks) if *ranks > 1 => degree("pipeline_parallel_degree", *ranks),
        Change::Context(ranks) => degree("context_parallel_degree", *ranks),
        Change::Expert(ranks) => Some(vec![value(&parallelism("expert_parallel_degree"), ranks)]),
        Change::SequenceParallel(is_on) => Some(vec![
            OptionChange::remove(&parallelism("enable_sequence_parallel")),
            switch(&parallelism("no-enable-sequence-parallel"), !is_on),
        ]),
        Change::MicroBatch(sequences) if layout.pipeline_parallel > 1 => {
            Some(vec![value(&parallelism("pipeline_parallel_microbatch_size"), sequences)])
        }
        Change::MicroBatch(sequences) => {
            Some(vec![value("--training.local_batch_size", sequences)])
        }
        Change::GlobalBatch(sequences) => {
            Some(vec![value("--training.global_batch_size", sequences)])
        }
        Change::Sequence(tokens) => Some(vec![value("--training.seq_len", tokens)]),
        Change::Zero(stage @ (ZeroStage::Gradients | ZeroStage::Parameters)) => {
            let reshards = if *stage == ZeroStage::Parameters { "always" } else { "never" };
            let mut all = vec![value(&parallelism("fsdp_reshard_after_forward"), reshards)];
            all.extend(replicas(after)?);
            Some(all)
        }
        Change::OneShardGroup => replicas(after),
        Change::Recompute(recompute) => {
            let policy = match recompute {
                Recompute::None => "none",
                Recompute::Full => "full",
                _ => return None,
            };
            let others = ["none", "selective", "full"].into_iter().filter(|it| *it != policy);
            let to = format!("activation-checkpoint:{policy}");
            let rename = |it| {
                let option = format!("activation-checkpoint:{it}");
                OptionChange::Rename { option, to: to.clone() }
            };
            Some(others.map(rename).collect())
        }
        Change::Precision(Precision::Bf16) => {
            Some(vec![value("--training.mixed_precision_param", "bfloat16")])
        }
        Change::NoOffload => Some(vec![OptionChange::remove("--training.enable_cpu_offload")]),
        _ => None,
    }
}

/// How replicas are told: so many copies, and of each as many shards as are left.
fn replicas(after: &Imported) -> Option<Vec<OptionChange>> {
    let [copies, shards] = match after.layout.zero_stage {
        ZeroStage::None => [after.known_replicas()?.to_string(), "1".to_owned()],
        _ => [after.shard_groups.to_string(), "-1".to_owned()],
    };
    Some(vec![value(&parallelism("data_parallel_replicate_degree"), copies), value(SHARDS, shards)])
}
