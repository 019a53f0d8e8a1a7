//! What a measured run did otherwise than its framework does by habit.

use ir::framework::{
    AttentionLibrary, ExpertActivations, Framework, Fusion, GradientAccumulation, Launches,
    MessageBytes, MessageOverlap, StageParameters, TensorOverlap, UpdatedParameters, WhenReduced,
};
use ir::graph::{CudaGraphs, ExpertOverlap, Switches, TokenDispatcher};

use super::facts::Facts;
use super::row::Row;

/// What a source says of its run, where that differs from the framework's habit.
pub(super) fn apply(row: &Row, facts: &Facts, framework: &mut Framework) {
    let overlap = row.text("overlap");
    let has_none = ["no grad-reduce", "none for DP"].iter().any(|words| overlap.contains(words));
    if has_none || overlap == "none" {
        framework.gradients.reduced = WhenReduced::AfterBackward;
        framework.parameters.gathered = UpdatedParameters::BeforeForward;
    }
    framework.host.launches = launches(row, facts).unwrap_or(framework.host.launches);
    framework.tensor_parallel.overlap =
        tensor_overlap(overlap, facts).unwrap_or(framework.tensor_parallel.overlap);
    if let Some(library) = attention(row, facts) {
        framework.kernels.attention = library;
        framework.kernels.attention_by_architecture.clear();
    }
    framework.kernels.fusion = fusion(row).unwrap_or(framework.kernels.fusion);
    if overlap.contains("sync p2p") {
        framework.pipeline_parallel.messages = MessageOverlap::Awaited;
    }
    if overlap.contains("optimisation OFF") {
        framework.pipeline_parallel.message_bytes = MessageBytes::Whole;
    }
    let shard = row.text("fsdp_shard");
    if shard.contains("no reshard after forward") {
        framework.parameters.zero_3_stage = StageParameters::WholeStage;
    }
    // Megatron-Core's deterministic mode: attention whose gradient is added up in one order, and gradients that are
    // added up by kernels of their own.
    if row.extra_flag("deterministic") {
        framework.gradients.accumulation = GradientAccumulation::Separate;
    }
    if let Some(units) = facts.unaligned_rows {
        framework.kernels.unaligned_rows = units;
    }
    framework.kernels.loss = facts.loss.unwrap_or(framework.kernels.loss);
    if let Some(multiple) = facts.vocabulary_multiple {
        framework.tensor_parallel.vocabulary_multiple = multiple;
    }
    framework.experts.most_domains = facts.most_domains.or(framework.experts.most_domains);
    let switches = switches(row, facts);
    let is_one_graph = row.recipe_flag("cuda_graph_impl") == "full_iteration";
    if row.recipe_flag("cutedsl_fused_grouped_mlp") == "true"
        || (is_one_graph && switches.token_dispatcher.sends_tokens_once())
    {
        framework.kernels.expert_activations = ExpertActivations::WithinProducts;
    }
}

/// How kernels were fused, if the row says so.
fn fusion(row: &Row) -> Option<Fusion> {
    let text = row.text("fused_ops");
    match () {
        () if text.contains("eager") || text.contains("no torch.compile") => Some(Fusion::Eager),
        () if text.contains("not stated") => None,
        () if text.contains("torch.compile") => Some(Fusion::Compiled),
        () => None,
    }
}

/// When the host launched kernels, if the row says so.
fn launches(row: &Row, facts: &Facts) -> Option<Launches> {
    let is_blocking = ["overlap", "fused_ops", "notes", "optimizer_detail"]
        .into_iter()
        .any(|field| row.text(field).contains("CUDA_LAUNCH_BLOCKING=1"))
        || row.extra_flag("cuda_launch_blocking");
    facts.launches.or(is_blocking.then_some(Launches::Blocking))
}

fn tensor_overlap(overlap: &str, facts: &Facts) -> Option<TensorOverlap> {
    let has = |words: &[&str]| words.iter().any(|word| overlap.contains(word));
    facts.tensor_overlap.or(match () {
        () if has(&["no grad-reduce/param-gather/TP overlap"]) => Some(TensorOverlap::None),
        () if has(&["AsyncTP", "userbuffers"]) => Some(TensorOverlap::Products),
        () => None,
    })
}

/// Libraries by words of what rows call them, in small letters and without spaces and hyphens; the first that fits.
const LIBRARIES: [(&str, AttentionLibrary); 12] = [
    ("flashattention1", AttentionLibrary::FlashAttention1),
    ("flashattn1", AttentionLibrary::FlashAttention1),
    ("flashv1", AttentionLibrary::FlashAttention1),
    ("flashattention2", AttentionLibrary::FlashAttention2),
    ("flashattn2", AttentionLibrary::FlashAttention2),
    ("flashv2", AttentionLibrary::FlashAttention2),
    ("sdpaflash", AttentionLibrary::FlashAttention2),
    ("flashattention3", AttentionLibrary::Cudnn),
    ("flashattn3", AttentionLibrary::Cudnn),
    ("flashv3", AttentionLibrary::Cudnn),
    ("cudnn", AttentionLibrary::Cudnn),
    ("triton", AttentionLibrary::FlashAttention1),
];

/// Whose fused attention a run called, if the row says so.
fn attention(row: &Row, facts: &Facts) -> Option<AttentionLibrary> {
    let text = row.text("attention_impl").to_lowercase();
    let text: String = text.chars().filter(|it| it.is_alphanumeric() || *it == '.').collect();
    let stated = LIBRARIES.iter().find(|(words, _)| text.contains(words)).map(|(_, it)| *it);
    // The only one whose gradient can be summed up in one order on all generations.
    let deterministic =
        row.extra_flag("deterministic").then_some(AttentionLibrary::FlashAttention2);
    facts.attention.or(deterministic).or(stated)
}

/// What flags of a run's recipe switch on.
pub(super) fn switches(row: &Row, facts: &Facts) -> Switches {
    let flag = |name: &str| row.recipe_flag(name);
    let dispatcher = row.extra("dispatcher").to_lowercase() + &row.text("overlap").to_lowercase();
    let stated = match flag("moe_flex_dispatcher_backend").as_str() {
        "hybridep" => Some(TokenDispatcher::HybridEp),
        "deepep" => Some(TokenDispatcher::DeepEp),
        _ if dispatcher.contains("hybridep") => Some(TokenDispatcher::HybridEp),
        _ if dispatcher.contains("deepep") => Some(TokenDispatcher::DeepEp),
        _ => None,
    };
    let token_dispatcher = stated.or(facts.token_dispatcher).unwrap_or_default();
    let graphs = flag("cuda_graph_impl");
    let cuda_graphs = match graphs.as_str() {
        "full_iteration" | "local" => CudaGraphs::Iteration,
        "transformer_engine" => CudaGraphs::Layers,
        _ => facts.cuda_graphs.unwrap_or_default(),
    };
    // Recipes that say so overlap wherever they capture a whole iteration.
    let overlaps = flag("moe_a2a_overlap") == "true"
        || flag("overlap_moe_expert_parallel_comm") == "true"
        || row.text("overlap").contains("MoE EP overlap (")
        || graphs == "full_iteration";
    let expert_overlap = if overlaps { ExpertOverlap::MicroBatch } else { ExpertOverlap::None };
    Switches { token_dispatcher, expert_overlap, cuda_graphs }
}
