//! Measured runs from published rows: columns by name, and the facts that `published.json` derives from their texts.
//!
//! Defaults of a row:
//!
//! - Degrees are 1, `zero_stage` 0, `sequence_parallel` off. If `fsdp_shard` or `extra.zero1_size` states a degree,
//!   states are sharded over that number of replicas, otherwise over all.
//! - `dp` counts replicas without context parallelism; the tensor, context, pipeline and data degrees multiply to
//!   `n_gpus`.
//! - The cluster is the GPU's preset, in which `gpus_per_node`, `intra_node_bw_GBps_per_dir` and
//!   `inter_node_bw_Gbps_per_gpu` replace the preset's own values.
//! - Experts are sharded over tensor-parallel ranks like everything else. Exceptions: `etp` says otherwise, or the
//!   experts are spread over more ranks than there are of context and data parallelism; then each expert is whole.
//! - Unfused attention applies dropout, as in Megatron's runs of that time; that of BLOOM's kind (`ALiBi`) does not.
//! - Memory is that of the fullest rank.
//! - With `lora_rank`, the model is frozen and all linear layers have adapters, except for frameworks that adapt
//!   others.

use cost_models::clusters;
use ir::documents::{DocumentLengths, Documents, Packing};
use ir::expert_load::{ExpertLoad, ExpertLoadError};
use ir::graph::{ALL_LINEAR, Adapters, Recompute, RecomputeModule, RecomputeModules, WeightFormat};
use ir::layout::{LayoutSpec, Offload, OffloadedActivations, ZeroStage};
use ir::plan::{Optimizer, Training};
use ir::replication::DataParallelMethod;
use ir::schedule::ScheduleKind;
use ir::units::Bytes;
use serde_json::{Map, Value, json};

use super::columns::Columns;
use super::run::{
    GraphFacts, MeasuredCluster, MeasuredMemory, MeasuredPlan, MeasuredRun, StatedNumbers,
    Unsupported,
};
use super::words::{Facts, WORDS, folded};

/// The run of a row. If the row has no name, its index in the file, from 0, is used.
pub(super) fn run(index: usize, value: Value) -> MeasuredRun {
    let row = Columns::new(value);
    let id = match row.value("id") {
        Some(Value::String(id)) => id.clone(),
        Some(Value::Number(id)) => id.to_string(),
        _ => index.to_string(),
    };
    let facts = Facts::of(&row);
    let with_facts = facts.as_ref().map_err(Unsupported::clone);
    MeasuredRun {
        group: format!("{}, {}", row.text("gpu"), row.text("precision")),
        problem: row.texts(&WORDS.problem),
        variant: row.texts(&WORDS.layout),
        few_bits: facts.as_ref().is_ok_and(|facts| facts.few_bits),
        ran_out_of_memory: row.flag("extra.oom").unwrap_or(false),
        step_time_seconds: row.real("step_time_s"),
        peak_memory: with_facts.clone().and_then(|facts| memory(&row, facts)),
        plan: with_facts.and_then(|facts| plan(&row, facts)),
        note: Value::Null,
        id,
    }
}

fn memory(row: &Columns, facts: &Facts) -> Result<Option<MeasuredMemory>, Unsupported> {
    let binary = f64::from(1_u32 << 30);
    let gigabyte = if facts.decimal_gigabytes { 1e9 } else { binary };
    let gib = row.real("peak_mem_gib")?.map(|gib| gib * binary);
    let gb = row.real("peak_mem_gb")?.map(|gb| gb * gigabyte);
    let bytes = gib.or(gb).map(|bytes| Bytes::new(bytes as u64));
    Ok(bytes.map(|bytes| MeasuredMemory { bytes, kind: facts.memory_kind, of: facts.memory_of }))
}

fn plan(row: &Columns, facts: &Facts) -> Result<MeasuredPlan, Unsupported> {
    let num_gpus = row.degree("n_gpus")?;
    let cluster = cluster(row, facts)?;
    let model = model(row, facts)?;
    let recompute = recompute(row, facts)?;
    let training = training(row, facts)?;
    let is_llama = model.get("model_type").and_then(Value::as_str) == Some("llama");
    Ok(MeasuredPlan {
        graph: GraphFacts {
            stores_scores: facts.stores_scores,
            // GPT's blocks have dropout; those of BLOOM and Llama have none.
            dropout: facts.stores_scores && !facts.alibi && !is_llama,
            multi_token_prediction: facts.multi_token_prediction,
        },
        layout: layout(row, facts, &training, num_gpus, recompute)?,
        balances_stages: facts.balances_stages,
        shares_vocabulary: facts.shares_vocabulary && row.degree("pp")? > 1,
        is_layer: facts.is_layer,
        adapters: adapters(row, facts)?,
        documents: documents(row)?,
        expert_load: expert_load(row)?,
        framework: facts.framework.clone(),
        habits: facts.habits.clone(),
        stated: StatedNumbers {
            n_microbatches: row.count("n_microbatches")?,
            n_params: row.real("n_params")?,
            tokens_per_s_per_gpu: row.real("tokens_per_s_per_gpu")?,
            samples_per_s: row.real("samples_per_s")?,
        },
        model,
        cluster,
        num_gpus,
        training,
    })
}

/// Adapters of rank `lora_rank`, if the row states one, on all linear layers or on those that its framework adapts.
/// Without `lora_alpha`, alpha is the rank.
fn adapters(row: &Columns, facts: &Facts) -> Result<Option<Adapters>, Unsupported> {
    let Some(rank) = row.count("lora_rank")? else { return Ok(None) };
    let alpha = row.count("lora_alpha")?.unwrap_or(rank);
    let targets = facts.adapted.clone().unwrap_or_else(|| vec![ALL_LINEAR.to_owned()]);
    Ok(Some(Adapters { rank, alpha, targets, base_weights: WeightFormat::Plain }))
}

/// Documents of the lengths in `document_lengths`, in the form of `--document-lengths`, packed in the order in which
/// they come.
fn documents(row: &Columns) -> Result<Option<Documents>, Unsupported> {
    let text = row.text("document_lengths");
    if text.is_empty() {
        return Ok(None);
    }
    let lengths = text.parse::<DocumentLengths>();
    let lengths =
        lengths.map_err(|error| Unsupported::new(format!("`document_lengths`: {error}")))?;
    Ok(Some(Documents { lengths, packing: Packing::FirstFit }))
}

/// Tokens of experts as in `expert_load`, in the form of `--expert-load`; evenly spread where the row does not say, as
/// most benchmarks force them to be.
fn expert_load(row: &Columns) -> Result<ExpertLoad, Unsupported> {
    match row.text("expert_load") {
        "" => Ok(ExpertLoad::Balanced),
        text => text
            .parse()
            .map_err(|error: ExpertLoadError| Unsupported::new(format!("`expert_load`: {error}"))),
    }
}

fn cluster(row: &Columns, facts: &Facts) -> Result<MeasuredCluster, Unsupported> {
    let gpu = row.text("gpu");
    let preset = clusters::of_gpu(&folded(gpu))
        .ok_or_else(|| Unsupported::new(format!("no cluster is known with GPU `{gpu}`")))?;
    let gpus_per_node = row.count("gpus_per_node")?.map(|gpus| {
        let gpus = u32::try_from(gpus).ok().filter(|gpus| *gpus > 0);
        gpus.ok_or_else(|| Unsupported::new("`gpus_per_node` is no number of GPUs"))
    });
    Ok(MeasuredCluster {
        preset: preset.to_owned(),
        gpus_per_node: gpus_per_node.transpose()?,
        has_switches: facts.has_switches,
        node_bytes_per_second: row.real("intra_node_bw_GBps_per_dir")?.map(|it| it * 1e9),
        network_bytes_per_second: row.real("inter_node_bw_Gbps_per_gpu")?.map(|it| it * 1e9 / 8.0),
    })
}

/// Configuration of the trained model, from its sizes.
///
/// - Latent attention: DeepSeek-V3's kind, with ranks and widths from `attention_type`.
/// - Experts: gpt-oss's kind if attention has sinks, else Qwen3's, where every layer is a mixture except
///   `moe_dense_layers`.
/// - Otherwise: Llama's kind if the feed-forward is gated; if not, GPT's kind, or BLOOM's if positions are by `ALiBi`.
fn model(row: &Columns, facts: &Facts) -> Result<Map<String, Value>, Unsupported> {
    let [layers, hidden, heads] =
        [row.size("n_layers")?, row.size("hidden")?, row.size("n_heads")?];
    // A single layer has no vocabulary; the placeholder does not affect the time.
    let vocab = if facts.is_layer { 1 } else { row.size("vocab")? };
    let parts = if facts.shares_vocabulary { row.degree("pp")? } else { 1 };
    let is_gated = row.flag("gated_mlp").unwrap_or(false);
    let mut model = Map::from_iter([
        ("num_hidden_layers".to_owned(), layers.into()),
        ("hidden_size".to_owned(), hidden.into()),
        ("num_attention_heads".to_owned(), heads.into()),
        ("vocab_size".to_owned(), vocab.div_ceil(parts.into()).into()),
        ("max_position_embeddings".to_owned(), row.size("seq_len")?.into()),
        ("num_key_value_heads".to_owned(), row.count("n_kv_heads")?.unwrap_or(heads).into()),
        ("tie_word_embeddings".to_owned(), row.flag("tied_embeddings").unwrap_or(!is_gated).into()),
    ]);
    let mut set = |fields: Value| model.extend(fields.as_object().cloned().unwrap_or_default());
    let name = row.text("model_name");
    if !name.is_empty() {
        set(json!({ "name": name }));
    }
    for (column, field) in [("head_dim", "head_dim"), ("ffn_hidden", "intermediate_size")] {
        if let Some(width) = row.count(column)? {
            set(json!({ (field): width }));
        }
    }
    let has_experts = row.count("moe_experts")?.is_some_and(|experts| experts > 0);
    let dense_layers = row.count("moe_dense_layers")?.unwrap_or(0);
    let shared = row.count("moe_shared_ffn")?.unwrap_or(0);
    if facts.latent_attention || has_experts {
        set(json!({
            "num_experts": row.size("moe_experts")?, "num_experts_per_tok": row.size("moe_topk")?,
            "moe_intermediate_size": row.size("moe_ffn_hidden")?,
        }));
    }
    if facts.latent_attention {
        let width = |name: &str| {
            let found = row.number_after("attention_type", name);
            found.ok_or_else(|| Unsupported::new(format!("`attention_type` has no `{name}`")))
        };
        let expert = row.size("moe_ffn_hidden")?;
        if !shared.is_multiple_of(expert) {
            let reason = format!("shared experts of {shared} in all, but of {expert} each");
            return Err(Unsupported::new(reason));
        }
        let unless_none = |count: u64| (count > 0).then_some(count);
        set(json!({
            "model_type": "deepseek_v3", "q_lora_rank": unless_none(width("q_lora")?),
            "kv_lora_rank": width("kv_lora")?, "qk_nope_head_dim": width("qk_nope")?,
            "qk_rope_head_dim": width("qk_rope")?, "v_head_dim": width("v")?,
            "n_shared_experts": unless_none(shared / expert), "first_k_dense_replace": dense_layers,
            "num_nextn_predict_layers": facts.prediction_modules,
        }));
    } else if has_experts {
        if shared > 0 {
            return Err(Unsupported::new("shared experts without latent attention"));
        }
        set(json!({ "mlp_only_layers": (0..dense_layers).collect::<Vec<u64>>() }));
        set(if facts.attention_sinks {
            json!({ "model_type": "gpt_oss", "intermediate_size": row.size("moe_ffn_hidden")? })
        } else {
            json!({ "model_type": "qwen3_moe" })
        });
    } else if is_gated {
        set(json!({ "model_type": "llama" }));
    } else if facts.alibi && row.count("ffn_hidden")? == Some(4 * hidden) {
        set(json!({ "model_type": "bloom" }));
    } else {
        set(json!({ "architecture": "gpt" }));
    }
    model.extend(facts.model.clone());
    Ok(model)
}

fn training(row: &Columns, facts: &Facts) -> Result<Training, Unsupported> {
    let unknown = || Unsupported::new(format!("precision `{}`", row.text("precision")));
    Ok(Training {
        sequence_length: row.size("seq_len")?,
        precision: facts.precision.ok_or_else(unknown)?,
        global_batch_size: row.size("global_batch_size")?,
        optimizer: Optimizer::AdamW,
        fp32_gradients: facts.fp32_gradients,
        bf16_moments: facts.bf16_moments,
        no_master_weights: facts.no_master_weights,
        data_parallel_method: DataParallelMethod::AllReduce,
        gradient_compression: None,
    })
}

fn layout(
    row: &Columns,
    facts: &Facts,
    training: &Training,
    num_gpus: u32,
    recompute: Recompute,
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
    let replicas = context * data;
    let is_stated = row.count("etp")?.is_some();
    let are_sharded_as_all = expert == 1 || !is_stated && replicas.is_multiple_of(expert);
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
    let stages = row.degree("vpp")?;
    let schedule = match facts.schedule {
        Some(ScheduleKind::OneFOneB) if stages > 1 && pipeline > 1 => ScheduleKind::Interleaved,
        Some(schedule) => schedule,
        None => return Err(Unsupported::new(format!("schedule `{}`", row.text("schedule")))),
    };
    // If each stage is on two ranks, sources count both stages of a rank.
    let copies = schedule.stages_per_rank(1);
    let virtual_stages = if stages.is_multiple_of(copies) { stages / copies } else { stages };
    let shard = row.number_after("fsdp_shard", "degree ").filter(|degree| *degree > 0);
    let shard = shard.or_else(|| row.value("extra.zero1_size").and_then(Value::as_u64));
    let shard = shard.and_then(fits).filter(|shard| *shard > 0 && replicas.is_multiple_of(*shard));
    Ok(LayoutSpec {
        tensor_parallel: tensor,
        sequence_parallel: tensor > 1 && row.flag("sequence_parallel").unwrap_or(false),
        context_parallel: context,
        expert_parallel: expert,
        expert_tensor_parallel: if are_sharded_as_all { tensor } else { of_experts },
        pipeline_parallel: pipeline,
        virtual_stages,
        data_parallel: data,
        zero_shard: shard.unwrap_or(replicas),
        zero_stage,
        micro_batch_size: fits(micro_batch_size)
            .ok_or_else(|| Unsupported::new("a micro-batch that large"))?,
        num_micro_batches,
        recompute,
        offload: offload(row)?,
        schedule,
        switches: facts.switches,
        ..LayoutSpec::ONE_RANK
    })
}

/// Offload in a run's recipe: the activations of some layers.
fn offload(row: &Columns) -> Result<Offload, Unsupported> {
    let stated = row.as_text("extra.recipe_flags.cpu_offloading_num_layers").to_lowercase();
    if matches!(stated.as_str(), "" | "0" | "none" | "null") {
        return Ok(Offload::NONE);
    }
    let each =
        stated.parse().map_err(|_| Unsupported::new(format!("offload of `{stated}` layers")))?;
    Ok(Offload { activations: OffloadedActivations::Blocks(each), ..Offload::NONE })
}

fn recompute(row: &Columns, facts: &Facts) -> Result<Recompute, Unsupported> {
    match facts.recompute.as_deref().unwrap_or(row.text("recompute")) {
        "" | "none" => Ok(Recompute::None),
        "selective" => {
            Ok(recomputed_modules(row, facts).map_or(Recompute::Selective, Recompute::Modules))
        }
        "full" => Ok(Recompute::Full),
        "partial-full" => some_layers(row),
        other => Err(Unsupported::new(format!("recompute `{other}`"))),
    }
}

/// Modules to recompute in a run's recipe, by Megatron-Core's names; `None` if it lists only attention, or none.
fn recomputed_modules(row: &Columns, facts: &Facts) -> Option<RecomputeModules> {
    if let Some(modules) = &facts.recomputed {
        return RecomputeModules::new(modules.iter().copied());
    }
    let detail: Value = serde_json::from_str(row.text("recompute_detail")).ok()?;
    // Some sources list the modules among other settings of the recipe, others alone.
    let names = detail.get("modules").unwrap_or(&detail).as_array()?.iter();
    let names = names.filter_map(Value::as_str);
    let known = |name: &str| {
        let has_name = |module: &RecomputeModule| module.megatron_name() == Some(name);
        RecomputeModule::ALL.into_iter().find(has_name)
    };
    let others = names.filter_map(known).filter(|it| *it != RecomputeModule::Attention);
    RecomputeModules::new(others)
}

/// Full recompute of a share of the layers of each stage, `extra.recompute_share`. Which layers these are changes
/// neither the time nor the peak by much.
fn some_layers(row: &Columns) -> Result<Recompute, Unsupported> {
    let share = row.value("extra.recompute_share").and_then(Value::as_f64);
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
