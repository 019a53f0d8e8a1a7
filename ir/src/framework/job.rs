//! Facts of a job (its model, training and GPUs) that decide which layouts a framework runs.

use super::Feature::{self, NoTensorPlan, OwnAttention, SharedWeights, UnplannedLayers};
use super::Features;
use crate::graph::{
    AttentionMask, ContextParallelKind, DimName, Graph, Learning, OpKind, Sharding, Switches,
    TokenDispatcher,
};
use crate::layout::{LayoutSpec, PartialLayout};

/// Facts of a model, its training and its GPUs that abilities depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobFacts {
    /// True if the model has experts.
    pub has_experts: bool,
    /// Number of blocks of the model, including embedding and head.
    pub num_blocks: u64,
    /// The smallest number of key-value heads of a layer; `None` without attention.
    pub key_value_heads: Option<u64>,
    /// Tokens in a sequence, where known.
    pub sequence_length: Option<u64>,
    /// Sequences in a step, where known.
    pub global_batch_size: Option<u64>,
    /// Features of the job that do not depend on the layout.
    pub features: Features,
}

/// Numbers of ranks that `DeepEP`'s `Buffer.get_dispatch_config` supports (`deep_ep/buffers/legacy.py`, 245 to 260).
const DEEP_EP_RANKS: [u32; 12] = [2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 144, 160];

/// Features of model families, by their class in transformers 5.23 without the suffix of the task.
///
/// # Source
///
/// One step of each family, tried with DeepSpeed 0.19.8 and accelerate 1.15.0. That Ulysses does not reach Bloom,
/// GPT-J and MPT was read from the code: their configurations have no `num_key_value_heads`, and they have their own
/// attention.
const OF_CLASSES: [(&str, &[Feature]); 16] = [
    ("Bert", &[OwnAttention, NoTensorPlan, SharedWeights]),
    ("Bloom", &[OwnAttention, NoTensorPlan, UnplannedLayers]),
    ("Falcon", &[OwnAttention, NoTensorPlan, UnplannedLayers]),
    ("GPT2", &[OwnAttention, NoTensorPlan, UnplannedLayers]),
    ("GPTBigCode", &[OwnAttention, NoTensorPlan]),
    ("GPTJ", &[OwnAttention, NoTensorPlan]),
    ("GPTNeoX", &[OwnAttention]),
    ("Glm4", &[UnplannedLayers]),
    ("Mpt", &[OwnAttention, NoTensorPlan, UnplannedLayers]),
    ("OPT", &[OwnAttention, NoTensorPlan]),
    ("Olmo2", &[UnplannedLayers]),
    ("Olmo3", &[UnplannedLayers]),
    ("Phi3", &[UnplannedLayers]),
    ("Roberta", &[OwnAttention, NoTensorPlan, SharedWeights]),
    ("T5", &[OwnAttention, NoTensorPlan, SharedWeights]),
    ("XLMRoberta", &[OwnAttention, NoTensorPlan, SharedWeights]),
];

impl JobFacts {
    /// Facts of a graph, without those of its training.
    pub fn of(graph: &Graph) -> Self {
        let nodes = || graph.classes().flat_map(|(_, block)| block.nodes());
        let least = |name: DimName| {
            let dims = nodes().flat_map(|it| &it.op.parameters).flat_map(|it| &it.dims);
            dims.filter(|dim| dim.name == name).filter_map(|dim| dim.extent.fixed()).min()
        };
        let key_value_heads = least(DimName::KvHeads);
        let is_grouped =
            key_value_heads.zip(least(DimName::Heads)).is_some_and(|(kv, all)| kv < all);
        let has = |is: fn(&OpKind) -> bool| nodes().any(|it| is(&it.op.kind));
        let has_experts = graph.classes().any(|(_, block)| block.has_experts());
        let has_window = has(|it| {
            matches!(it, OpKind::Attention { mask: AttentionMask::SlidingWindow { .. }, .. })
        });
        let has_sinks = has(|it| matches!(it, OpKind::Attention { sinks: true, .. }));
        let class = graph.class_name().map(without_task);
        let of_class = OF_CLASSES.iter().find(|(name, _)| class == Some(*name));
        let of_class = of_class.into_iter().flat_map(|(_, features)| *features);
        let features = Features::which([
            (Feature::LatentAttention, graph.classes().any(|(_, block)| block.has_latents())),
            (Feature::SlidingWindow, has_window),
            (Feature::AttentionSinks, has_sinks),
            (Feature::Experts, has_experts),
            (Feature::Adapters, nodes().any(|it| it.op.learning == Learning::Adapter)),
            (Feature::TiedEmbedding, !graph.ties().is_empty()),
            (Feature::GroupedHeads, is_grouped),
        ])
        .and(Features::of(of_class.copied()));
        let num_blocks = graph.num_blocks() as u64;
        Self {
            has_experts,
            num_blocks,
            key_value_heads,
            sequence_length: None,
            global_batch_size: None,
            features,
        }
    }

    /// The facts with further features.
    #[must_use]
    pub fn with(self, features: Features) -> Self {
        Self { features: self.features.and(features), ..self }
    }

    /// Features of a sharding of the job's operators.
    pub fn of_sharding(&self, sharding: &Sharding) -> Features {
        let Sharding { tensor_parallel, context_parallel, context_parallel_kind, .. } = *sharding;
        let has_context = context_parallel > 1;
        let is_ring = context_parallel_kind == ContextParallelKind::Ring;
        let is_undivided = |parts: u32| {
            self.sequence_length.is_some_and(|length| !length.is_multiple_of(u64::from(parts)))
        };
        let has_exchanges = self.has_experts && sharding.expert_parallel > 1;
        Features::which([
            (Feature::TensorParallel, tensor_parallel > 1),
            (Feature::SequenceParallel, tensor_parallel > 1 && sharding.sequence_parallel),
            (
                Feature::SharedKeyValueHeads,
                self.key_value_heads.is_some_and(|heads| heads < u64::from(tensor_parallel)),
            ),
            (Feature::ContextParallel, has_context),
            (Feature::Ring, has_context && is_ring),
            (Feature::AllToAll, has_context && !is_ring),
            (Feature::UnpairedSequence, has_context && is_undivided(2 * context_parallel)),
            (Feature::ExpertParallel, has_exchanges),
            (
                Feature::ExpertTensorParallel,
                self.has_experts && sharding.expert_tensor_parallel > 1,
            ),
            (
                Feature::UndividedTokens,
                has_exchanges && is_undivided(context_parallel * tensor_parallel),
            ),
        ])
    }

    /// Features of a token dispatcher with this sharding of experts.
    pub fn of_dispatcher(&self, dispatcher: TokenDispatcher, sharding: &Sharding) -> Features {
        if !self.has_experts || sharding.expert_parallel == 1 {
            return Features::NONE;
        }
        let ranks = sharding.expert_parallel * sharding.expert_tensor_parallel;
        Features::which([
            (Feature::DeepEp, dispatcher == TokenDispatcher::DeepEp),
            (Feature::HybridEp, dispatcher == TokenDispatcher::HybridEp),
            (Feature::UnlistedDeepEpRanks, !DEEP_EP_RANKS.contains(&ranks)),
        ])
    }

    /// Features of the job and of the named fields of a layout.
    pub fn features_with(&self, named: &PartialLayout) -> Features {
        let plain = named.or(LayoutSpec::ONE_RANK);
        let (sharding, Switches { expert_overlap, cuda_graphs, .. }) =
            (plain.sharding(), plain.switches);
        let shards = named.zero_shard.unwrap_or(u32::MAX);
        let replicas = if is_hybrid(named) { u32::MAX } else { shards };
        let of_each = named.data_parallel.one().zip(named.micro_batch_size.one());
        let micro_batches =
            of_each.zip(self.global_batch_size).and_then(|((data, size), batch)| {
                let of_each = u64::from(data) * u64::from(size);
                u32::try_from(batch.checked_div(of_each)?).ok()
            });
        let none = Features::NONE;
        [
            self.of_sharding(&sharding),
            named.token_dispatcher.one().map_or(none, |it| self.of_dispatcher(it, &sharding)),
            Features::of_ranks(plain.pipeline_parallel, micro_batches, plain.data_parallel),
            Features::of_schedule(plain.schedule, plain.pipeline_parallel, plain.virtual_stages),
            named.zero_stage.one().map_or(none, |stage| {
                let shards = [shards, replicas, sharding.context_parallel];
                Features::of_states(stage, shards, plain.offload)
            }),
            Features::of_offload(plain.offload),
            named.recompute.one().map_or(none, Features::of_recompute),
            Features::of_switches(expert_overlap, cuda_graphs),
        ]
        .into_iter()
        .fold(self.features, Features::and)
    }
}

/// True if states are to be sharded over fewer ranks than there are replicas, as far as these fields are named.
pub(super) fn is_hybrid(named: &PartialLayout) -> bool {
    let of_data = |data| data * named.context_parallel.unwrap_or(1);
    let replicas = named.data_parallel.one().map(of_data);
    let is_less = |shards| replicas.is_none_or(|replicas| shards < replicas);
    named.zero_shard.one().is_some_and(is_less)
}

/// Name of a class without the suffix of its task.
fn without_task(class: &str) -> &str {
    const TASKS: [&str; 4] =
        ["ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration"];
    TASKS.iter().find_map(|task| class.strip_suffix(task)).unwrap_or(class)
}
