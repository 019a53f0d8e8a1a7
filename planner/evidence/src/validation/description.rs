//! The model of a measured run, as a description that [`Model`] reads.

use ir::model::Model;
use serde_json::{Value, json};

use super::row::{Row, Unsupported};

/// The model that a run trained, by its sizes.
///
/// - Latent attention: DeepSeek-V3's kind, with ranks and widths from `attention_type`.
/// - Experts: gpt-oss's kind where attention has sinks, else Qwen3's, of which every layer but
///   `moe_dense_layers` is a mixture.
/// - Otherwise Llama's kind where the feed-forward is gated, and GPT's where it is not: BLOOM's where
///   positions are by ALiBi.
pub(super) fn model(row: &Row) -> Result<Model, Unsupported> {
    let name = row.text("model_name");
    let description = description(row)?;
    Model::from_json(&description.to_string(), if name.is_empty() { &row.id } else { name })
        .map_err(|error| Unsupported::new(format!("its model: {error}")))
}

fn description(row: &Row) -> Result<Value, Unsupported> {
    let [layers, hidden, heads] =
        [row.size("n_layers")?, row.size("hidden")?, row.size("n_heads")?];
    // A layer alone has none; what is put in its place is not timed.
    let vocab = if is_layer(row) { 1 } else { row.size("vocab")? };
    let vocab = part_of_vocabulary(row, vocab)?;
    let attention = row.text("attention_type");
    let has_experts = row.count("moe_experts")?.is_some_and(|experts| experts > 0);
    let is_gated = row.flag("gated_mlp").unwrap_or(false);
    let mut text = json!({
        "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
        "vocab_size": vocab, "max_position_embeddings": row.size("seq_len")?,
        "num_key_value_heads": row.count("n_kv_heads")?.unwrap_or(heads),
        "tie_word_embeddings": row.flag("tied_embeddings").unwrap_or(!is_gated),
    });
    let mut set = |field: &str, value: Value| text[field] = value;
    if let Some(width) = row.count("head_dim")? {
        set("head_dim", width.into());
    }
    if let Some(width) = row.count("ffn_hidden")? {
        set("intermediate_size", width.into());
    }
    if attention.starts_with("MLA") {
        latent(row, attention, &mut set)?;
    } else if has_experts {
        let sinks = attention.contains("sinks");
        set("model_type", if sinks { "gpt_oss" } else { "qwen3_moe" }.into());
        set("num_experts", row.size("moe_experts")?.into());
        set("num_experts_per_tok", row.size("moe_topk")?.into());
        set("moe_intermediate_size", row.size("moe_ffn_hidden")?.into());
        if sinks {
            set("intermediate_size", row.size("moe_ffn_hidden")?.into());
        }
        if row.count("moe_shared_ffn")?.is_some_and(|width| width > 0) {
            return Err(Unsupported::new("shared experts without latent attention"));
        }
        let dense = row.count("moe_dense_layers")?.unwrap_or(0);
        set("mlp_only_layers", (0..dense).collect::<Vec<u64>>().into());
    } else if is_gated {
        set("model_type", "llama".into());
    } else if row.text("attention_impl").contains("ALiBi")
        && row.count("ffn_hidden")? == Some(4 * hidden)
    {
        set("model_type", "bloom".into());
    } else {
        set("architecture", "gpt".into());
    }
    Ok(text)
}

/// The vocabulary of one pipeline rank's part, over all tensor-parallel ranks.
fn part_of_vocabulary(row: &Row, vocab: u64) -> Result<u64, Unsupported> {
    Ok(vocab.div_ceil(vocabulary_parts(row)?.into()))
}

/// DeepSeek's latent attention with its experts.
fn latent(
    row: &Row,
    attention: &str,
    set: &mut impl FnMut(&str, Value),
) -> Result<(), Unsupported> {
    let width = |name: &str| {
        let mut words = attention.split_whitespace().map(|word| word.trim_end_matches(';'));
        let found = words.find_map(|word| word.strip_prefix(name)?.parse::<u64>().ok());
        found.ok_or_else(|| Unsupported::new(format!("`attention_type` has no `{name}`")))
    };
    set("model_type", "deepseek_v3".into());
    let queries = width("q_lora")?;
    set("q_lora_rank", if queries == 0 { Value::Null } else { queries.into() });
    set("kv_lora_rank", width("kv_lora")?.into());
    set("qk_nope_head_dim", width("qk_nope")?.into());
    set("qk_rope_head_dim", width("qk_rope")?.into());
    set("v_head_dim", width("v")?.into());
    let expert = row.size("moe_ffn_hidden")?;
    set("num_experts", row.size("moe_experts")?.into());
    set("num_experts_per_tok", row.size("moe_topk")?.into());
    set("moe_intermediate_size", expert.into());
    let shared = row.count("moe_shared_ffn")?.unwrap_or(0);
    if !shared.is_multiple_of(expert) {
        let text = format!("shared experts of {shared} in all, but of {expert} each");
        return Err(Unsupported::new(text));
    }
    set("n_shared_experts", if shared == 0 { Value::Null } else { (shared / expert).into() });
    set("first_k_dense_replace", row.count("moe_dense_layers")?.unwrap_or(0).into());
    let modules = u64::from(attention.contains("MTP 1 layer"));
    set("num_nextn_predict_layers", modules.into());
    Ok(())
}

/// Whether a run is one layer's forward and backward alone, without a vocabulary.
pub(super) fn is_layer(row: &Row) -> bool {
    row.text("schedule").starts_with("single layer")
}

/// In how many parts the vocabulary is cut beside tensor parallelism: one for each pipeline rank where the
/// source says so.
pub(super) fn vocabulary_parts(row: &Row) -> Result<u32, Unsupported> {
    let methods = ["vocab-1", "vocab-2", "interlaced"];
    if methods.contains(&row.extra("vocab_method")) { row.degree("pp") } else { Ok(1) }
}
