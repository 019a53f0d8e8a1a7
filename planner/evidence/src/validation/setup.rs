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
//! - The framework is what `extra.framework` calls it, else that of the source (`sources.json`); else the preset that is
//!   most like what runs such layouts on such GPUs. What a row says of overlap, kernels, attention and launches, or the
//!   flags of its recipe say, goes before the framework's habit (`habits.rs`); `extra.facts` before all.
//! - Where the vocabulary is cut over pipeline ranks (`extra.vocab_method`), every rank has its part of the
//!   embedding and of the head; where layers are redistributed, the slowest stage is made as fast as can be.
//! - Experts are cut as all else is unless `etp` says otherwise, or more ranks share them than there are of
//!   context and data parallelism, and then they are whole.
//! - 8-bit products with a scale for each row count as 16-bit ones.
//! - A single layer is timed as one forward and backward of it.
//! - Memory is that of the fullest rank, unless `mem_kind` or the source's facts name another.
//! - Gradients are added up in fp32 in bf16 and 8-bit runs with pipelines or a distributed optimizer, as
//!   Megatron does, and wherever `optimizer_detail` says so; moments are in fp32, unless the source's facts
//!   say otherwise.

use cost_models::frameworks;
use ir::cluster::{Cluster, Precision};
use ir::framework::Framework;
use ir::graph::{ContextParallelKind, Recompute, RecomputeModule, RecomputeModules};
use ir::layout::{Layout, LayoutSpec, Offload, OffloadedActivations, ZeroStage};
use ir::model::{AttentionKernel, GraphOptions};
use ir::plan::{Optimizer, Training};
use ir::replication::DataParallelMethod;
use ir::schedule::ScheduleKind;

use super::contradictions;
use super::description::{is_layer, model, vocabulary_parts};
use super::facts::{Facts, RanBy};
use super::gpus::cluster;
use super::habits::{self, switches};
use super::row::{Row, Unsupported};
use planner_core::problem::{Problem, ProblemError, hardware};
use planner_core::step::{ChainIndex, PipelineRanks, Shape, ShapeKey};

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
    /// The GPUs and links, as they were stated.
    pub cluster: Cluster,
}

impl Setup {
    /// That of a run.
    ///
    /// # Errors
    ///
    /// What cannot be represented, is not stated, or contradicts what else is stated.
    pub fn of(row: &Row) -> Result<Self, Unsupported> {
        Self::with(row, None)
    }

    /// That of a run as another framework would have run it, if one is named.
    ///
    /// # Errors
    ///
    /// As for [`Self::of`].
    pub fn with(row: &Row, framework: Option<&Framework>) -> Result<Self, Unsupported> {
        let num_gpus = row.degree("n_gpus")?;
        let facts = Facts::of(row)?;
        let ran_by = RanBy::of(row, &facts);
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
        let graph = match recompute(row, &facts)?.modules() {
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
            fp32_gradients: has_fp32_gradients(row, &facts, &ran_by, precision),
            bf16_moments: facts.bf16_moments.unwrap_or_else(|| is_all_in_bf16(row)),
            no_master_weights: is_all_in_bf16(row),
            data_parallel_method: DataParallelMethod::AllReduce,
            gradient_compression: None,
        };
        let impossible = |error: ProblemError| Unsupported::new(error.to_string());
        let mut framework = framework
            .cloned()
            .or_else(|| frameworks::preset(ran_by.preset()))
            .ok_or_else(|| Unsupported::new(format!("framework `{}`", ran_by.preset())))?;
        habits::apply(row, &facts, &mut framework);
        let hardware = hardware(&cluster, framework, &training).map_err(impossible)?;
        let problem = Problem::on(graph, training, hardware, num_gpus)
            .map_err(impossible)?
            .with_vocabulary_parallel(vocabulary_parts(row)? > 1);
        let spec = spec(row, &facts, &training, num_gpus)?;
        let layout = Layout::new(spec, &problem.limits)
            .map_err(|error| Unsupported::new(format!("its layout: {error}")))?;
        let [p, m, v] = [spec.pipeline_parallel, spec.num_micro_batches, spec.virtual_stages];
        spec.schedule
            .check_numbers(p, m, v)
            .map_err(|error| Unsupported::new(format!("its schedule: {error}")))?;
        let stage_ends = stage_ends(row, &problem, &layout)?;
        let is_layer = is_layer(row);
        contradictions::check(row, &problem, &layout, is_layer)?;
        Ok(Self { problem, layout, stage_ends, is_layer, cluster })
    }
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

fn has_fp32_gradients(row: &Row, facts: &Facts, ran_by: &RanBy, precision: Precision) -> bool {
    let detail = row.text("optimizer_detail");
    if let Some(stated) = facts.fp32_gradients {
        return stated;
    }
    if detail.contains("fp16 grads") {
        return false;
    }
    let is_megatron = row.flag("distributed_optimizer").is_some() && ran_by.preset() != "internevo";
    let sums = ["fp32 grad", "fp32 reduc"];
    sums.iter().any(|words| detail.contains(words)) || (is_megatron && precision != Precision::Fp16)
}

/// Whether nothing of the optimizer is in fp32.
fn is_all_in_bf16(row: &Row) -> bool {
    row.text("optimizer_detail").contains("bf16 parameters and moments")
}

fn spec(
    row: &Row,
    facts: &Facts,
    training: &Training,
    num_gpus: u32,
) -> Result<LayoutSpec, Unsupported> {
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
        recompute: recompute(row, facts)?,
        offload: offload(row)?,
        schedule,
        switches: switches(row, facts),
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

/// The number after `degree` in a text.
fn shard_degree(text: &str) -> Option<u32> {
    let (_, after) = text.split_once("degree ")?;
    after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok().filter(|degree| *degree > 0)
}

/// The modules that a run's recipe lists, by Megatron-Core's names, if it lists others than attention.
fn recomputed_modules(row: &Row, facts: &Facts) -> Option<RecomputeModules> {
    if let Some(modules) = &facts.recomputed {
        return RecomputeModules::new(modules.iter().copied());
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

fn recompute(row: &Row, facts: &Facts) -> Result<Recompute, Unsupported> {
    match row.text("recompute") {
        "" | "none" => Ok(Recompute::None),
        "selective" => {
            Ok(recomputed_modules(row, facts).map_or(Recompute::Selective, Recompute::Modules))
        }
        "full" => Ok(Recompute::Full),
        "partial-full" => some_layers(row),
        other => Err(Unsupported::new(format!("recompute `{other}`"))),
    }
}

/// Full recompute of some layers of each stage, of which `extra.recompute_share` says how many: which of them they are
/// changes neither time nor peak by much.
fn some_layers(row: &Row) -> Result<Recompute, Unsupported> {
    let share = row.extra_value("recompute_share").and_then(serde_json::Value::as_f64);
    let share = share.filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| {
        Unsupported::new("recompute `partial-full` without a `recompute_share` from 0 to 1")
    })?;
    let stages = u64::from(row.degree("pp")?) * u64::from(row.degree("vpp")?);
    let layers = row.size("n_layers")?.div_ceil(stages);
    Ok(match (share * layers as f64).round() as u32 {
        0 => Recompute::None,
        count if u64::from(count) >= layers => Recompute::Full,
        count => Recompute::FirstLayers(count),
    })
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
        return Err(Unsupported::new(format!("{blocks} blocks on {num_stages} stages")));
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
    Err(Unsupported::new(format!("{blocks} blocks on {num_stages} stages, by nanotron's rule")))
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
        .ok_or_else(|| Unsupported::new(format!("{blocks} blocks on {num_stages} stages")))
}
