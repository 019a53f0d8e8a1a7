//! Fields of settings by their paths in `plan.json`, with values as text.

use std::num::NonZeroU32;

use ir::graph::OffloadModules;
use ir::layout::OffloadedActivations;
use serde_json::Value;

use super::imported::Imported;
use super::keys::literal;
use super::run::Run;

macro_rules! fields {
    ($($first:ident $(. $rest:ident)*;)+) => {
        /// Paths of fields that settings state.
        #[cfg(test)]
        pub(super) const STATED: &[&str] =
            &[$(concat!(stringify!($first) $(, ".", stringify!($rest))*)),+];

        fn stated(settings: &Imported, path: &str) -> Option<Value> {
            $(if path == concat!(stringify!($first) $(, ".", stringify!($rest))*) {
                return serde_json::to_value(&settings.$first $(. $rest)*).ok();
            })+
            None
        }

        fn state(settings: &mut Imported, path: &str, value: Value) -> serde_json::Result<()> {
            $(if path == concat!(stringify!($first) $(, ".", stringify!($rest))*) {
                settings.$first $(. $rest)* = serde_json::from_value(value)?;
                return Ok(());
            })+
            Ok(())
        }
    };
}

fields! {
    layout.tensor_parallel;
    layout.sequence_parallel;
    layout.context_parallel;
    layout.context_parallel_kind;
    layout.expert_parallel;
    layout.expert_tensor_parallel;
    layout.pipeline_parallel;
    layout.virtual_stages;
    layout.zero_stage;
    layout.micro_batch_size;
    layout.recompute;
    layout.offload.optimizer;
    layout.offload.parameters;
    layout.schedule;
    layout.switches.token_dispatcher;
    layout.switches.expert_overlap;
    layout.switches.cuda_graphs;
    training.sequence_length;
    training.global_batch_size;
    training.num_micro_batches;
    training.precision;
    training.optimizer;
    training.fp32_gradients;
    training.bf16_moments;
    training.no_master_weights;
    framework.gradients.reduced;
    framework.parameters.gathered;
    framework.tensor_parallel.overlap;
    framework.tensor_parallel.vocabulary_multiple;
    framework.kernels.attention;
    framework.kernels.fusion;
    framework.kernels.loss.gradient;
    framework.memory.cublas_workspace;
    framework.memory.transformer_engine;
    framework.memory.stores_8_bits;
    num_gpus;
    shard_groups;
    expert_load;
}

/// Value of a field or of a derived quantity as text; `None` if unknown.
pub(super) fn get(run: &Run<'_>, path: &str) -> Option<String> {
    let offloaded = run.layout.offload.activations;
    let value: Value = match path {
        "experts" => run.has_experts.into(),
        "even_stages" => run.has_even_stages().into(),
        "replicated" => run.has_replicas().into(),
        "replicas" => run.known_replicas()?.into(),
        "copies" => run.copies_and_shards()?[0].into(),
        "shards" => run.copies_and_shards()?[1].into(),
        "layout.num_micro_batches" => run.num_micro_batches()?.into(),
        "pipeline_batch" if run.layout.pipeline_parallel > 1 => {
            (u64::from(run.layout.micro_batch_size) * run.num_micro_batches()?).into()
        }
        "pipeline_batch" => run.layout.micro_batch_size.into(),
        "layout.offload.all_layers" => (offloaded == OffloadedActivations::AllBlocks).into(),
        "layout.offload.num_layers" => match offloaded {
            OffloadedActivations::Blocks(each) => each.get().into(),
            _ => return None,
        },
        "layout.offload.modules" => offloaded.modules()?.to_string().into(),
        _ => stated(run.settings, path)?,
    };
    match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    }
}

/// Sets a field. Derived quantities other than the number of micro-batches are ignored.
pub(super) fn set(settings: &mut Imported, path: &str, value: &str) -> serde_json::Result<()> {
    let activations = &mut settings.layout.offload.activations;
    match path {
        "layout.num_micro_batches" => {
            settings.training.num_micro_batches = serde_json::from_value(literal(value))?;
        }
        "layout.offload.all_layers" if value == "true" => {
            *activations = OffloadedActivations::AllBlocks;
        }
        "layout.offload.num_layers" => {
            let layers = value.parse().ok().and_then(NonZeroU32::new);
            *activations = layers.map_or(OffloadedActivations::None, OffloadedActivations::Blocks);
        }
        "layout.offload.modules" => {
            let modules = OffloadModules::named(value.split('+')).ok();
            *activations =
                modules.map_or(OffloadedActivations::None, OffloadedActivations::Modules);
        }
        _ => state(settings, path, literal(value))?,
    }
    Ok(())
}
