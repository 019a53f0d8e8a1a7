//! From a measured run to what the planner predicts: model, cluster, layout, assignment of blocks.
//!
//! What a source does not state:
//!
//! - Degrees are 1, `zero_stage` 0, `sequence_parallel` off. Where `fsdp_shard` or `extra.zero1_size` names a degree,
//!   states are sharded over so many replicas, else over all.
//! - `dp` counts replicas without context parallelism; tensor, context, pipeline and data degrees multiply
//!   to `n_gpus`.
//! - Attention stores its scores where `attention_impl` says `unfused` or `no FlashAttention`, or that the
//!   paper does not say: of zero bubble's runs, the memory that they took shows it. Megatron's runs of that
//!   time apply dropout, those with ALiBi (BLOOM's kind) do not.
//! - The cluster is the preset of the GPU with `gpus_per_node`, `intra_node_bw_GBps_per_dir` and
//!   `inter_node_bw_Gbps_per_gpu` in place of its own.
//! - Layers are dealt out evenly, the embedding with the first and the head with the last; where only the
//!   layers with both of these divide evenly, these count as layers; else the slowest stage is made as fast
//!   as can be. nanotron deals them out by the size of their weights, the head's too.
//! - The framework is known by the source's title; else DeepSpeed's pipelines by their schedule, FSDP by its
//!   shards, Megatron-LM on V100 and A100, Megatron-Core on others. What a source says of overlap, or the flags
//!   of its recipe say, goes before the framework's habit.
//! - Where the vocabulary is cut over pipeline ranks (`extra.vocab_method`), every rank has its part of the
//!   embedding and of the head; where layers are redistributed, the slowest stage is made as fast as can be.
//! - Experts are cut as all else is unless `etp` says otherwise, or more ranks share them than there are of
//!   context and data parallelism, and then they are whole.
//! - 8-bit products with a scale for each row count as 16-bit ones.
//! - A single layer is timed as one forward and backward of it.
//! - Memory is that of the fullest rank, unless `mem_kind` names pipeline stages; nanotron's benchmarks state
//!   that of rank 0.
//! - Gradients are added up in fp32 in bf16 and 8-bit runs with pipelines or a distributed optimizer, as
//!   Megatron does, and wherever `optimizer_detail` says so; moments are in fp32. Megatron-Bridge's recipes for
//!   performance and MLPerf's submissions add up in 16 bits; its study of recompute and its recipes of DeepSeek-V3
//!   have moments in bf16 too (`use_precision_aware_optimizer`).

use cost_models::{clusters, frameworks};
use ir::cluster::{Cluster, Precision};
use ir::framework::{
    AttentionLibrary, Framework, Launches, MessageBytes, MessageOverlap, TensorOverlap,
    UpdatedParameters, WhenReduced,
};
use ir::graph::{
    ContextParallelKind, CudaGraphs, ExpertOverlap, Recompute, RecomputeModule, RecomputeModules,
    Switches, TokenDispatcher,
};
use ir::layout::{Layout, LayoutSpec, Offload, OffloadedActivations, ZeroStage};
use ir::model::{AttentionKernel, GraphOptions};
use ir::plan::{Optimizer, Training};
use ir::replication::DataParallelMethod;
use ir::schedule::ScheduleKind;
use ir::units::BytesPerSecond;

use super::description::model;
use super::row::{Row, Unsupported};
use super::source::{framework, is_layer, vocabulary_parts};
use crate::problem::{Problem, ProblemError, hardware};
use crate::step::{ChainIndex, PipelineRanks, Shape, ShapeKey};

/// All that a prediction needs.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Model, training and GPUs.
    pub problem: Problem,
    /// How the step is spread over them.
    pub layout: Layout,
    /// Where each stage ends, in blocks.
    pub stage_ends: Vec<usize>,
    /// Whether the run is one layer's forward and backward alone.
    pub is_layer: bool,
}

impl Setup {
    /// That of a run.
    ///
    /// # Errors
    ///
    /// What cannot be represented, or is not stated.
    pub fn of(row: &Row) -> Result<Self, Unsupported> {
        let num_gpus = row.degree("n_gpus")?;
        let cluster = cluster(row)?;
        let model = model(row)?;
        let unfused = ["unfused", "no FlashAttention", "paper does not say"];
        let attention = row.text("attention_impl");
        let is_unfused = unfused.iter().any(|word| attention.contains(word));
        let options = GraphOptions {
            attention: if is_unfused { AttentionKernel::Unfused } else { AttentionKernel::Flash },
            dropout: is_unfused && !attention.contains("ALiBi"),
            multi_token_prediction: row.text("attention_type").contains("MTP"),
        };
        let graph = model
            .graph(options)
            .map_err(|error| Unsupported::new(format!("its model: {error}")))?;
        let keeps_every_other = row.text("recompute_detail").contains("every 2nd matmul");
        let graph = if keeps_every_other { graph.keeping_every_other_linear() } else { graph };
        let graph = match recompute(row)?.modules() {
            Some(modules) => graph
                .recomputing(modules)
                .map_err(|error| Unsupported::new(format!("its recompute: {error}")))?,
            None => graph,
        };
        let precision = precision(row)?;
        let training = Training {
            sequence_length: row.size("seq_len")?,
            global_batch_size: row.size("global_batch_size")?,
            precision,
            optimizer: Optimizer::AdamW,
            fp32_gradients: has_fp32_gradients(row, precision),
            bf16_moments: is_moonlight_study(row) || row.text("model_name").contains("DeepSeek"),
            data_parallel_method: DataParallelMethod::AllReduce,
            gradient_compression: None,
        };
        let impossible = |error: ProblemError| Unsupported::new(error.to_string());
        let mut framework = frameworks::preset(framework(row)).expect("a test asks for each");
        apply_habits(row, &mut framework);
        let hardware = hardware(&cluster, framework, &training).map_err(impossible)?;
        let problem = Problem::on(graph, training, hardware, num_gpus)
            .map_err(impossible)?
            .with_vocabulary_parallel(vocabulary_parts(row)? > 1);
        let spec = spec(row, &training, num_gpus)?;
        let layout = Layout::new(spec, &problem.limits)
            .map_err(|error| Unsupported::new(format!("its layout: {error}")))?;
        let [p, m, v] = [spec.pipeline_parallel, spec.num_micro_batches, spec.virtual_stages];
        spec.schedule
            .check_numbers(p, m, v)
            .map_err(|error| Unsupported::new(format!("its schedule: {error}")))?;
        let stage_ends = stage_ends(row, &problem, &layout)?;
        Ok(Self { problem, layout, stage_ends, is_layer: is_layer(row) })
    }
}

/// GPUs by the beginning of what sources call them, with the preset of each; longer names first.
const GPUS: [(&str, &str); 18] = [
    ("H100-SXM 96GB", "h100-96gb"),
    ("A100-SXM4-40GB", "a100-40gb"),
    ("A100-PCIE", "a100-pcie"),
    ("A100", "a100"),
    ("A800", "a800"),
    ("V100-SXM2-16GB", "v100-16gb"),
    ("V100", "v100"),
    ("H100-PCIE", "h100-pcie"),
    ("H100", "h100"),
    ("H800", "h800"),
    ("H200", "h200"),
    ("GH200", "gh200"),
    ("GB200", "gb200-nvl72"),
    ("GB300", "gb300-nvl72"),
    ("B200", "b200"),
    ("B300", "b300"),
    ("MI300X", "mi300x"),
    ("MI325X", "mi325x"),
];

fn cluster(row: &Row) -> Result<Cluster, Unsupported> {
    let gpu = row.text("gpu");
    let preset = GPUS.iter().find(|(name, _)| gpu.starts_with(name)).map(|(_, preset)| preset);
    let mut cluster = preset
        .and_then(|preset| clusters::preset(preset))
        .ok_or_else(|| Unsupported::new(format!("no cluster is known with GPU `{gpu}`")))?;
    if let Some(gpus) = row.count("gpus_per_node")? {
        let gpus = u32::try_from(gpus).ok().filter(|gpus| *gpus > 0);
        let gpus = gpus.ok_or_else(|| Unsupported::new("`gpus_per_node` is no number of GPUs"))?;
        cluster.gpus_per_node = gpus;
        // A network domain that was a node is a node again; larger ones stay.
        if let Some(node) = cluster.levels.first_mut()
            && node.ranks.is_some_and(|ranks| ranks <= 8)
        {
            node.ranks = Some(gpus);
            // 16 GPUs of a DGX-2 are the first with switches between them.
            if gpu.starts_with("V100-SXM3") {
                node.wiring = None;
            }
        }
    }
    let [inner @ .., outer] = cluster.levels.as_mut_slice() else {
        return Err(Unsupported::new("its cluster has no network"));
    };
    let rate = |bytes: f64| BytesPerSecond::new(bytes);
    if let (Some(bandwidth), Some(node)) =
        (row.real("intra_node_bw_GBps_per_dir")?, inner.first_mut())
    {
        node.bandwidth = rate(bandwidth * 1e9);
    }
    if let Some(bandwidth) = row.real("inter_node_bw_Gbps_per_gpu")? {
        outer.bandwidth = rate(bandwidth * 1e9 / 8.0);
    }
    Ok(cluster)
}

fn precision(row: &Row) -> Result<Precision, Unsupported> {
    let text = row.text("precision").to_ascii_lowercase();
    // With a scale for each row, making the inputs costs what the faster product saves: torchtitan's runs
    // with such scales are as fast as the same runs in 16 bits.
    if text.contains("rowwise") {
        return Ok(Precision::Bf16);
    }
    let names = [
        ("fp4", Precision::Fp4),
        ("fp8", Precision::Fp8),
        ("bf16", Precision::Bf16),
        ("fp16", Precision::Fp16),
        ("fp32", Precision::Fp32),
    ];
    let found = names.iter().find(|(name, _)| text.contains(name));
    found
        .map(|(_, precision)| *precision)
        .ok_or_else(|| Unsupported::new(format!("precision `{}`", row.text("precision"))))
}

fn has_fp32_gradients(row: &Row, precision: Precision) -> bool {
    let detail = row.text("optimizer_detail");
    // Its recipes for performance have `grad_reduce_in_fp32` false, as MLPerf's submissions with NeMo have
    // `grad_sync_dtype` bf16.
    let title = row.text("source_title");
    let sums_in_16_bits = title.contains("Megatron-Bridge") || title.contains("MLPerf");
    if detail.contains("fp16 grads") || sums_in_16_bits {
        return false;
    }
    let is_megatron = row.flag("distributed_optimizer").is_some() && framework(row) != "internevo";
    detail.contains("fp32 grad") || (is_megatron && precision != Precision::Fp16)
}

/// Whether a run is of Megatron-Bridge's study of recompute, whose recipe (`moonlight_16b.py`) keeps gradients
/// and moments in 16 bits and exchanges nothing beside products.
fn is_moonlight_study(row: &Row) -> bool {
    row.text("source_title").contains("activation recompute study")
}

fn spec(row: &Row, training: &Training, num_gpus: u32) -> Result<LayoutSpec, Unsupported> {
    let [tensor, context, pipeline, data] =
        [row.degree("tp")?, row.degree("cp")?, row.degree("pp")?, row.degree("dp")?];
    let product = [tensor, context, pipeline, data].map(u64::from).iter().product::<u64>();
    if product != u64::from(num_gpus) {
        return Err(Unsupported::new(format!(
            "tp {tensor} x cp {context} x pp {pipeline} x dp {data} are {product} ranks, not \
             {num_gpus}"
        )));
    }
    let expert = row.degree("ep")?;
    let of_experts = row.degree("etp")?;
    let is_stated = row.count("etp")?.is_some();
    let fits_replicas = (context * data).is_multiple_of(expert);
    let are_cut_as_all = expert == 1 || !is_stated && fits_replicas;
    let micro_batch_size = row.size("micro_batch_size")?;
    let per_round = u64::from(data).saturating_mul(micro_batch_size);
    let batch = training.global_batch_size;
    let fits = |number: u64| u32::try_from(number).ok();
    let num_micro_batches = fits(batch / per_round)
        .filter(|count| *count > 0 && batch.is_multiple_of(per_round))
        .ok_or_else(|| {
            Unsupported::new(format!(
                "a global batch of {batch} is no number of micro-batches of {micro_batch_size} on \
                 {data} replicas"
            ))
        })?;
    let stage = row.count("zero_stage")?.unwrap_or(0);
    let zero_stage = ZeroStage::ALL
        .into_iter()
        .find(|known| u64::from(known.number()) == stage)
        .ok_or_else(|| Unsupported::new(format!("ZeRO stage {stage}")))?;
    let schedule = schedule(row)?;
    // Where each stage is on two ranks, sources count both of a rank's stages.
    let stages = row.degree("vpp")?;
    let copies = schedule.stages_per_rank(1);
    let virtual_stages = if stages.is_multiple_of(copies) { stages / copies } else { stages };
    let replicas = context * data;
    let of_optimizer = row.extra_degree("zero1_size");
    let shard = shard_degree(row.text("fsdp_shard"))
        .or(of_optimizer)
        .filter(|shard| replicas.is_multiple_of(*shard));
    Ok(LayoutSpec {
        tensor_parallel: tensor,
        sequence_parallel: tensor > 1 && row.flag("sequence_parallel").unwrap_or(false),
        context_parallel: context,
        context_parallel_kind: ContextParallelKind::Ring,
        expert_parallel: expert,
        expert_tensor_parallel: if are_cut_as_all { tensor } else { of_experts },
        pipeline_parallel: pipeline,
        virtual_stages,
        data_parallel: data,
        zero_shard: shard.unwrap_or(replicas),
        zero_stage,
        micro_batch_size: fits(micro_batch_size)
            .ok_or_else(|| Unsupported::new("a micro-batch that large"))?,
        num_micro_batches,
        recompute: recompute(row)?,
        offload: offload(row)?,
        schedule,
        switches: switches(row),
    })
}

/// What a run's recipe puts on the host: activations of some layers, where it keeps them all.
fn offload(row: &Row) -> Result<Offload, Unsupported> {
    let stated = row.recipe_flag("cpu_offloading_num_layers");
    if matches!(stated.as_str(), "" | "0" | "none" | "null") {
        return Ok(Offload::NONE);
    }
    let each =
        stated.parse().map_err(|_| Unsupported::new(format!("offload of `{stated}` layers")))?;
    Ok(Offload { activations: OffloadedActivations::Blocks(each), ..Offload::NONE })
}

/// What a source says of its run, where that differs from the framework's habit.
fn apply_habits(row: &Row, framework: &mut Framework) {
    let overlap = row.text("overlap");
    let has_none = ["no grad-reduce", "none for DP"].iter().any(|words| overlap.contains(words));
    if has_none || overlap == "none" {
        framework.gradients.reduced = WhenReduced::AfterBackward;
        framework.parameters.gathered = UpdatedParameters::BeforeForward;
    }
    // After its first day that study ran with `CUDA_LAUNCH_BLOCKING=1`, lest its runs hang.
    if row.text("source_title").contains("176B prequel") && row.extra("date") > "02-17" {
        framework.host.launches = Launches::Blocking;
    }
    if overlap.contains("no grad-reduce/param-gather/TP overlap") || is_moonlight_study(row) {
        framework.tensor_parallel.overlap = TensorOverlap::None;
    } else if overlap.contains("AsyncTP") || overlap.contains("userbuffers") {
        framework.tensor_parallel.overlap = TensorOverlap::Products;
    }
    if is_before_its_artifact(row) {
        framework.kernels.attention = AttentionLibrary::FlashAttention1;
    }
    if overlap.contains("sync p2p") {
        framework.pipeline_parallel.messages = MessageOverlap::Awaited;
    }
    if overlap.contains("optimisation OFF") {
        framework.pipeline_parallel.message_bytes = MessageBytes::Whole;
    }
    // That schedule's authors send a token to four nodes at most (DeepSeek-AI 2024, arXiv 2412.19437, section
    // 2.1.2).
    if row.text("schedule").contains("DualPipe") {
        framework.experts.most_domains = Some(4);
    }
    let switches = switches(row);
    let is_one_graph = row.recipe_flag("cuda_graph_impl") == "full_iteration";
    if row.recipe_flag("cutedsl_fused_grouped_mlp") == "true"
        || (is_one_graph && switches.token_dispatcher.sends_tokens_once())
    {
        framework.kernels.elementwise_traffic *= FUSED_EXPERTS;
    }
}

/// What flags of a run's recipe switch on.
fn switches(row: &Row) -> Switches {
    let flag = |name: &str| row.recipe_flag(name);
    let token_dispatcher = match flag("moe_flex_dispatcher_backend").as_str() {
        "hybridep" => TokenDispatcher::HybridEp,
        "deepep" => TokenDispatcher::DeepEp,
        // That schedule's authors send a token once to each node (DeepSeek-AI 2024, section 3.2.2). What runs beside
        // what, its pairs of passes say.
        _ if row.text("schedule").contains("DualPipe") => TokenDispatcher::DeepEp,
        _ => TokenDispatcher::AllToAll,
    };
    let graphs = flag("cuda_graph_impl");
    let cuda_graphs = match graphs.as_str() {
        "full_iteration" | "local" => CudaGraphs::Iteration,
        "transformer_engine" => CudaGraphs::Layers,
        _ if has_graphs_unsaid(row) => CudaGraphs::Layers,
        _ => CudaGraphs::None,
    };
    // Recipes that say so overlap wherever they capture a whole iteration.
    let overlaps = flag("moe_a2a_overlap") == "true"
        || flag("overlap_moe_expert_parallel_comm") == "true"
        || graphs == "full_iteration";
    let expert_overlap = if overlaps { ExpertOverlap::MicroBatch } else { ExpertOverlap::None };
    Switches { token_dispatcher, expert_overlap, cuda_graphs }
}

/// Whether a run of Megatron-Bridge 0.1, of which no flags were kept, captured graphs: its recipes of mixtures do on
/// GB200, and within one node of B200 (`scripts/performance/configs/qwen3` of its v0.1.0).
fn has_graphs_unsaid(row: &Row) -> bool {
    let is_so_old = row.text("notes").contains("r0.1.0 perf yaml");
    let gpu = row.text("gpu");
    let is_within_node = row.count("n_gpus").is_ok_and(|gpus| gpus <= Some(8));
    is_so_old && (gpu.starts_with("GB200") || gpu.starts_with("B200") && is_within_node)
}

/// Whether a run of vocabulary parallelism is older than its authors' artifact.
///
/// On 8 GPUs both list the same runs, and the artifact's took 3 to 6 % less at 2,048 tokens and 11 to 13 % less at
/// 4,096: what an attention of the next generation saves at both lengths. That it was FlashAttention-1 is
/// inferred from this; the code calls whichever it finds.
fn is_before_its_artifact(row: &Row) -> bool {
    row.text("source_title").contains("arXiv 2411.05288") && row.text("source_locator") == "Table 5"
}

/// Elementwise work that is left where activation functions and casts of experts run within their products,
/// over what there is where they run alone: of a mixture's kernels, those of attention and of the router.
///
/// Assumed.
const FUSED_EXPERTS: f64 = 0.5;

/// The number after `degree` in a text.
fn shard_degree(text: &str) -> Option<u32> {
    let (_, after) = text.split_once("degree ")?;
    after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok().filter(|degree| *degree > 0)
}

/// The modules that a run's recipe lists, by Megatron-Core's names, if it lists others than attention; of DualPipe those
/// that its authors name (DeepSeek-AI 2024, arXiv 2412.19437, sections 3.2.3 and 3.3.3).
fn recomputed_modules(row: &Row) -> Option<RecomputeModules> {
    if row.text("schedule").contains("DualPipe") {
        use RecomputeModule::{Activations, ExpertActivations, LatentProjections, Norms};
        return RecomputeModules::new([Norms, LatentProjections, Activations, ExpertActivations]);
    }
    let detail: serde_json::Value = serde_json::from_str(row.text("recompute_detail")).ok()?;
    // Some sources list them beside what else the recipe says, some by themselves.
    let names = detail.get("modules").unwrap_or(&detail).as_array()?.iter();
    let names = names.filter_map(serde_json::Value::as_str);
    let known = |name: &str| {
        let has_name = |module: &RecomputeModule| module.names().1 == Some(name);
        RecomputeModule::ALL.into_iter().find(has_name)
    };
    let others = names.filter_map(known).filter(|it| *it != RecomputeModule::Attention);
    RecomputeModules::new(others)
}

fn recompute(row: &Row) -> Result<Recompute, Unsupported> {
    match row.text("recompute") {
        "" | "none" => Ok(Recompute::None),
        "selective" => Ok(recomputed_modules(row).map_or(Recompute::Selective, Recompute::Modules)),
        "full" => Ok(Recompute::Full),
        other => Err(Unsupported::new(format!("recompute `{other}`"))),
    }
}

/// Schedules by words of what sources call them; the first that fits.
const SCHEDULES: [(&str, ScheduleKind); 11] = [
    ("zb-2p", ScheduleKind::ZbH2),
    ("zb-1p", ScheduleKind::ZbH1),
    ("zb-h2", ScheduleKind::ZbH2),
    ("zb-h1", ScheduleKind::ZbH1),
    ("zbv", ScheduleKind::Zbv),
    ("v-half", ScheduleKind::VHalf),
    ("v-min", ScheduleKind::VMin),
    ("dualpipev", ScheduleKind::DualPipeV),
    ("dualpipe", ScheduleKind::DualPipe),
    ("gpipe", ScheduleKind::GPipe),
    ("sequential", ScheduleKind::Sequential),
];

fn schedule(row: &Row) -> Result<ScheduleKind, Unsupported> {
    let text = row.text("schedule").to_ascii_lowercase();
    if let Some((_, kind)) = SCHEDULES.iter().find(|(word, _)| text.contains(word)) {
        return Ok(*kind);
    }
    let is_known = ["", "none", "single layer"].iter().any(|word| text == *word)
        || ["1f1b", "single layer", "interleaved"].iter().any(|word| text.contains(word));
    if !is_known {
        return Err(Unsupported::new(format!("schedule `{}`", row.text("schedule"))));
    }
    let interleaves = row.degree("vpp")? > 1 && row.degree("pp")? > 1;
    Ok(if interleaves { ScheduleKind::Interleaved } else { ScheduleKind::OneFOneB })
}

/// Where stages end.
fn stage_ends(row: &Row, problem: &Problem, layout: &Layout) -> Result<Vec<usize>, Unsupported> {
    let (blocks, num_stages) = (problem.graph.num_blocks(), layout.num_stages() as usize);
    if num_stages > blocks {
        return Err(Unsupported::new(format!("{blocks} blocks in {num_stages} num_stages")));
    }
    if row.extra("embedding_layout").contains("redistributed") {
        return balanced(problem, layout, num_stages, blocks);
    }
    // The chain has the embedding, the layers, and the head.
    let layers = blocks.saturating_sub(2);
    if problem.hardware.framework.name == "nanotron" {
        return ends_by_weights(row, num_stages, blocks);
    }
    let even = |of_first: usize, of_stage: usize| {
        let end = |stage: usize| {
            if stage + 1 == num_stages { blocks } else { of_first + stage * of_stage }
        };
        (0..num_stages).map(end).collect()
    };
    if layers > 0 && layers.is_multiple_of(num_stages) {
        return Ok(even(1 + layers / num_stages, layers / num_stages));
    }
    if blocks.is_multiple_of(num_stages) {
        return Ok(even(blocks / num_stages, blocks / num_stages));
    }
    balanced(problem, layout, num_stages, blocks)
}

/// A rank takes layers until its share of all weights is exceeded: the layer that exceeds it is the last
/// that it takes.
///
/// # Source
///
/// nanotron, `build_model` in `src/nanotron/models/base.py`, and `get_block_compute_costs`.
fn ends_by_weights(row: &Row, num_stages: usize, blocks: usize) -> Result<Vec<usize>, Unsupported> {
    let [hidden, inner, vocabulary] =
        [row.size("hidden")?, row.size("ffn_hidden")?, row.size("vocab")?];
    let [hidden, inner, vocabulary] = [hidden, inner, vocabulary].map(|size| size as f64);
    let layer = 4.0 * hidden * hidden + 3.0 * inner * hidden;
    let all = layer * (blocks.saturating_sub(2)) as f64 + vocabulary * hidden;
    let exceeds = |stage: usize| {
        // The embedding does not count.
        let share = all * (stage + 1) as f64 / num_stages as f64;
        (share / layer) as usize + 2
    };
    let ends: Vec<usize> = (0..num_stages)
        .map(|stage| if stage + 1 == num_stages { blocks } else { exceeds(stage) })
        .collect();
    if ends.is_sorted_by(|end, next| end < next) {
        return Ok(ends);
    }
    Err(Unsupported::new(format!("{blocks} blocks in {num_stages} num_stages, by nanotron's rule")))
}

fn balanced(
    problem: &Problem,
    layout: &Layout,
    num_stages: usize,
    blocks: usize,
) -> Result<Vec<usize>, Unsupported> {
    let chain = ChainIndex::new(problem);
    let shape = Shape::new(problem, &chain, ShapeKey::of(layout));
    shape
        .balanced(&chain, layout.recompute, num_stages, &PipelineRanks::of(layout))
        .map(|ends| ends.to_vec())
        .ok_or_else(|| Unsupported::new(format!("{blocks} blocks in {num_stages} num_stages")))
}
