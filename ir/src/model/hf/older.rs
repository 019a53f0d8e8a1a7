//! Forms of configurations in published files that the transformers library converts to the current form before it
//! builds a model: `__post_init__` in its configuration classes, version 5.24.

use serde_json::{Map, Value, json};

use super::besides;

type Object = Map<String, Value>;

/// Converts a configuration to the current form.
type Bring = fn(&mut Object);

/// For each older `model_type`, the function that converts its configuration to the current form.
const OLDER: &[(&str, Bring)] = &[
    ("axk2", axk2),
    ("bamba", heads_of_mamba),
    ("deepseek_ref", |it| {
        rename_family(it, "deepseek_v4", ["DeepseekV4"; 2]);
        deepseek_v4(it);
    }),
    ("deepseek_v4", deepseek_v4),
    ("exaone4", exaone4),
    ("exaone_moe", exaone4),
    ("glm_moe_dsa", glm_moe_dsa),
    ("granitemoehybrid", heads_of_mamba),
    ("hunyuan", hunyuan),
    ("hy_v4", hy_v4),
    ("kimi_linear", kimi_linear),
    ("laguna", laguna),
    ("minimax_m3", |it| {
        rename_family(it, "minimax_m3_vl_text", [""; 2]);
        minimax_m3(it);
    }),
    ("minimax_m3_vl", minimax_m3_vl),
    ("minimax_m3_vl_text", minimax_m3),
    ("mimo_v2", mimo_v2),
    ("mimo_v2_flash", mimo_v2),
    ("nemotron_h", nemotron_h),
    ("new", |it| rename_family(it, "gte", ["New", "Gte"])),
    ("qwen", qwen),
    ("qwen3_5_moe_text", qwen3_5),
    ("qwen3_5_text", qwen3_5),
    ("step3p5", step3p5),
    ("step3p7", step3p7),
    ("step3p7_text", step3p5),
];

/// Number of modules for multi-token prediction.
const MODULES: &str = "num_nextn_predict_layers";

/// A configuration in the current form, and that of the language model inside it.
pub(in crate::model) fn of_today(object: &Object) -> Object {
    let mut object = object.clone();
    let model_type = text(&object, "model_type").unwrap_or_default().to_owned();
    bring(&mut object, &model_type);
    let usual =
        besides::text(&model_type).map_or_else(|| format!("{model_type}_text"), str::to_owned);
    if let Some(Value::Object(inner)) = object.get_mut("text_config") {
        let own = text(inner, "model_type").map_or(usual, str::to_owned);
        bring(inner, &own);
    }
    object
}

fn bring(object: &mut Object, model_type: &str) {
    if let Some((_, older)) = OLDER.iter().find(|(name, _)| *name == model_type) {
        older(object);
    }
}

fn text<'a>(object: &'a Object, field: &str) -> Option<&'a str> {
    object.get(field)?.as_str()
}

fn number(object: &Object, field: &str) -> Option<u64> {
    object.get(field)?.as_u64()
}

fn numbers(value: &Value) -> Option<Vec<u64>> {
    value.as_array()?.iter().map(Value::as_u64).collect()
}

fn is_absent(object: &Object, field: &str) -> bool {
    object.get(field).is_none_or(Value::is_null)
}

/// Sets a list with an entry for each layer, unless there is one.
fn set_layers<'a>(object: &mut Object, field: &str, of: impl Fn(u64) -> &'a str) {
    let num_layers = number(object, "num_hidden_layers").unwrap_or_default();
    if is_absent(object, field) && num_layers <= crate::model::fields::MOST_LAYERS {
        object.insert(field.to_owned(), (0..num_layers).map(of).collect());
    }
}

/// Sets which layers have experts, unless they are listed.
fn set_experts(object: &mut Object, is_sparse: impl Fn(u64) -> bool) {
    set_layers(object, "mlp_layer_types", |it| if is_sparse(it) { "sparse" } else { "dense" });
}

/// Sets sizes that a section has by other names.
fn set_from(object: &mut Object, section: &Object, names: &[(&str, &str)]) {
    for (older, today) in names {
        if let Some(size) = section.get(*older) {
            object.insert((*today).to_owned(), size.clone());
        }
    }
}

fn axk2(object: &mut Object) {
    let dense = number(object, "first_k_dense_replace").unwrap_or(1);
    let every = number(object, "moe_layer_freq").unwrap_or(1).max(1);
    set_experts(object, |layer| layer >= dense && layer.is_multiple_of(every));
}

/// Kinds of layers by the length of their blocks; the last length is that of the multi-token prediction module.
/// Without a list of lengths, the two lengths alternate after two layers of the longer one.
fn deepseek_v4(object: &mut Object) {
    let lengths = object.remove("compress_ratios").as_ref().and_then(numbers);
    let kind = |layer: u64| match lengths.as_ref().map(|all| all.get(layer as usize)) {
        Some(None | Some(0)) => "sliding_attention",
        Some(Some(4)) => "compressed_sparse_attention",
        None if layer > 1 && layer % 2 == 1 => "compressed_sparse_attention",
        _ => "heavily_compressed_attention",
    };
    set_layers(object, "layer_types", kind);
    let mut rates = object.get("compress_rates").and_then(Value::as_object).cloned();
    for (older, kind) in [
        ("compress_rate_csa", "compressed_sparse_attention"),
        ("compress_rate_hca", "heavily_compressed_attention"),
    ] {
        if let Some(rate) = object.remove(older) {
            rates.get_or_insert_default().insert(kind.to_owned(), rate);
        }
    }
    if let Some(rates) = rates {
        object.insert("compress_rates".to_owned(), Value::Object(rates));
    }
    // One rotation for windows and one for compressed keys; both take the same time.
    if let Some(rotation) = object.get("rope_parameters").and_then(|it| it.get("compress")).cloned()
    {
        object.insert("rope_parameters".to_owned(), rotation);
    }
}

/// Layers that make their own choice of keys: the first, and every fourth after it.
fn hy_v4(object: &mut Object) {
    let chooses = |layer: u64| layer == 0 || (layer - 1).is_multiple_of(4);
    set_layers(object, "indexer_types", |layer| if chooses(layer) { "full" } else { "shared" });
}

/// A pattern of letters, L for a layer with a window and G for one without, as EXAONE's own code reads it.
fn exaone4(object: &mut Object) {
    let Some(pattern) = object.get("sliding_window_pattern") else { return };
    if let Some(letters) = pattern.as_str().map(str::to_owned).filter(|it| !it.is_empty()) {
        let letters = letters.as_bytes();
        let is_full = |layer: u64| letters[layer as usize % letters.len()] == b'G';
        let kind = |layer| if is_full(layer) { "full_attention" } else { "sliding_attention" };
        set_layers(object, "layer_types", kind);
    }
    if !object["sliding_window_pattern"].is_u64() {
        object.remove("sliding_window_pattern");
    }
}

/// Layers that make their own choice of keys (F), and layers that take the choice of the preceding layer (S).
fn glm_moe_dsa(object: &mut Object) {
    let letters = text(object, "index_topk_pattern").map(str::to_owned);
    let every = number(object, "index_topk_freq").unwrap_or(1).max(1);
    let offset = number(object, "index_skip_topk_offset").unwrap_or(2);
    let chooses = |layer: u64| match &letters {
        Some(letters) => letters.as_bytes().get(layer as usize) != Some(&b'S'),
        None => (layer + 1).saturating_sub(offset).is_multiple_of(every),
    };
    if let Some(pattern @ Value::Array(_)) = object.get("index_topk_pattern").cloned() {
        object.entry("indexer_types").or_insert(pattern);
    }
    set_layers(object, "indexer_types", |layer| if chooses(layer) { "full" } else { "shared" });
}

/// A family that has another name in the library; the prefix of its authors' class names, and the prefix of the
/// library's class names.
fn rename_family(object: &mut Object, family: &str, [own, today]: [&str; 2]) {
    object.insert("model_type".to_owned(), family.into());
    let classes = object.get_mut("architectures").and_then(Value::as_array_mut);
    for class in classes.into_iter().flatten() {
        if let Some(rest) = class.as_str().and_then(|class| class.strip_prefix(own)) {
            *class = format!("{today}{rest}").into();
        }
    }
}

/// The family with experts if there are several experts, else the dense family.
fn hunyuan(object: &mut Object) {
    if is_absent(object, "num_experts") || object["num_experts"] == json!(1) {
        rename_family(object, "hunyuan_v1_dense", ["HunYuanFor", "HunYuanDenseV1For"]);
    } else {
        rename_family(object, "hunyuan_v1_moe", ["HunYuanFor", "HunYuanMoEV1For"]);
    }
}

/// Features of a head, where they are not stated: those of all heads, a multiple of the hidden size, divided by the
/// number of heads.
fn heads_of_mamba(object: &mut Object) {
    let is_auto = object.get("mamba_d_head").is_none_or(|size| *size == json!("auto"));
    let heads = number(object, "mamba_n_heads").unwrap_or(128);
    let expansion = number(object, "mamba_expand").unwrap_or(2);
    let features = number(object, "hidden_size").and_then(|width| width.checked_mul(expansion));
    if let Some(features) = features.filter(|it| is_auto && heads > 0 && it.is_multiple_of(heads)) {
        object.insert("mamba_d_head".to_owned(), json!(features / heads));
    }
}

/// Layers counted from one, and sizes of the delta rule from a section of their own.
fn kimi_linear(object: &mut Object) {
    let Some(Value::Object(linear)) = object.get("linear_attn_config").cloned() else { return };
    let sizes = [
        ("head_dim", "linear_head_dim"),
        ("num_heads", "linear_num_heads"),
        ("short_conv_kernel_size", "linear_conv_kernel_dim"),
        ("use_full_rank_gate", "use_full_rank_gate"),
    ];
    set_from(object, &linear, &sizes);
    // Two bounded functions of gate and value; an element takes as long as with `silu`.
    if text(object, "hidden_act") == Some("situ") {
        object.insert("hidden_act".to_owned(), "silu".into());
    }
    if let Some(full) = linear.get("full_attn_layers").and_then(numbers) {
        let is_full = |layer: u64| full.contains(&(layer + 1));
        let kind = |layer| if is_full(layer) { "full_attention" } else { "linear_attention" };
        set_layers(object, "layer_types", kind);
    }
    object.remove("linear_attn_config");
}

/// Query heads of each layer: those of layers with a window, and of the others.
fn laguna(object: &mut Object) {
    let heads = object.get("num_attention_heads_per_layer").and_then(numbers);
    let Some(heads) = heads else { return };
    let kinds = object.get("layer_types").and_then(Value::as_array);
    let kind = |layer: usize| kinds.and_then(|kinds| kinds.get(layer)?.as_str());
    let slides = |layer: &usize| kind(*layer) == Some("sliding_attention");
    let of = |is_sliding: bool| {
        let layers = (0..heads.len()).filter(|layer| slides(layer) == is_sliding);
        let mut all: Vec<u64> = layers.map(|layer| heads[layer]).collect();
        all.dedup();
        all
    };
    let (full, sliding) = (of(false), of(true));
    if full.len() > 1 || sliding.len() > 1 {
        return;
    }
    for (field, heads) in [("num_sliding_attention_heads", sliding), ("num_attention_heads", full)]
    {
        if let Some(heads) = heads.first() {
            object.insert(field.to_owned(), json!(heads));
        }
    }
    object.remove("num_attention_heads_per_layer");
}

/// The tower is named as another kind, though it is a kind of its own.
fn minimax_m3_vl(object: &mut Object) {
    if let Some(Value::Object(vision)) = object.get_mut("vision_config") {
        vision.remove("model_type");
    }
}

/// Layers with experts, by a number for each layer.
fn experts_by_layer(object: &mut Object) {
    if let Some(frequencies) = object.get("moe_layer_freq").and_then(numbers) {
        set_experts(object, |layer| frequencies.get(layer as usize).is_some_and(|it| *it > 0));
        object.remove("moe_layer_freq");
    }
}

/// Layers with a window, by a number for each layer; and the window, which includes the query's own position.
fn mimo_v2(object: &mut Object) {
    experts_by_layer(object);
    if let Some(pattern) = object.remove("hybrid_layer_pattern").as_ref().and_then(numbers) {
        let slides = |layer: u64| pattern.get(layer as usize).is_some_and(|it| *it > 0);
        let kind = |layer| if slides(layer) { "sliding_attention" } else { "full_attention" };
        set_layers(object, "layer_types", kind);
    }
    if let Some(window) = number(object, "sliding_window_size") {
        object.insert("sliding_window".to_owned(), json!(window.saturating_add(1)));
    }
}

/// A module for multi-token prediction is attention and experts, as one layer of other families; others are left out.
fn nemotron_h(object: &mut Object) {
    let is_usual = match object.get("mtp_layers_block_type").and_then(Value::as_array) {
        Some(words) => *words == ["attention", "moe"] || *words == ["full_attention", "moe"],
        None => text(object, "mtp_hybrid_override_pattern").is_none_or(|letters| letters == "*E"),
    };
    if !is_usual {
        object.remove(MODULES);
    }
}

/// The gated block of the first Qwen is half as wide as stated.
fn qwen(object: &mut Object) {
    if let Some(width) = number(object, "intermediate_size") {
        object.insert("intermediate_size".to_owned(), json!(width / 2));
    }
}

/// A module for multi-token prediction; several layers would share one projection.
fn qwen3_5(object: &mut Object) {
    if number(object, "mtp_num_hidden_layers") == Some(1) {
        object.insert(MODULES.to_owned(), json!(1));
    }
}

fn minimax_m3(object: &mut Object) {
    experts_by_layer(object);
    let Some(Value::Object(sparse)) = object.get("sparse_attention_config").cloned() else {
        return;
    };
    let sizes = [
        ("sparse_num_index_heads", "index_n_heads"),
        ("sparse_index_dim", "index_head_dim"),
        ("sparse_block_size", "index_block_size"),
        ("sparse_topk_blocks", "index_topk_blocks"),
    ];
    set_from(object, &sparse, &sizes);
    if let Some(frequencies) = sparse.get("sparse_attention_freq").and_then(numbers) {
        let chooses = |layer: u64| frequencies.get(layer as usize).is_some_and(|it| *it > 0);
        let kind = |layer| if chooses(layer) { "minimax_m3_sparse" } else { "full_attention" };
        set_layers(object, "layer_types", kind);
    }
    object.remove("sparse_attention_config");
}

/// The tower is named as another kind, and its sizes have other names.
fn step3p7(object: &mut Object) {
    let Some(Value::Object(vision)) = object.get_mut("vision_config") else { return };
    vision.remove("model_type");
    rename(vision, &[("width", "hidden_size"), ("layers", "num_hidden_layers")]);
}

/// Renames fields with older names to their current names; a field that has its current name already keeps its value.
fn rename(object: &mut Object, names: &[(&str, &str)]) {
    for (older, today) in names {
        if let Some(value) = object.remove(*older) {
            object.entry(*today).or_insert(value);
        }
    }
}

/// Lists that continue with entries for the multi-token prediction modules, and words of Step's own code.
fn step3p5(object: &mut Object) {
    let num_layers = number(object, "num_hidden_layers").unwrap_or_default() as usize;
    for field in ["layer_types", "mlp_layer_types"] {
        if let Some(Value::Array(all)) = object.get_mut(field) {
            all.truncate(num_layers.max(1));
        }
    }
    let with_experts: Option<Vec<u64>> = match object.get("moe_layers_enum") {
        Some(Value::String(all)) => {
            Some(all.split(',').filter_map(|it| it.trim().parse().ok()).collect())
        }
        Some(all) => numbers(all),
        None => None,
    };
    if let Some(with_experts) = with_experts {
        set_experts(object, |layer| with_experts.contains(&layer));
    }
    let heads = object.get("attention_other_setting").and_then(|it| it.get("num_attention_heads"));
    if let Some(heads) = heads.cloned() {
        object.entry("num_sliding_attention_heads").or_insert(heads);
    }
    object.remove("attention_other_setting");
    let names = [
        ("moe_num_experts", "n_routed_experts"),
        ("moe_top_k", "num_experts_per_tok"),
        ("share_expert_dims", "share_expert_dim"),
        ("num_attention_groups", "num_key_value_heads"),
    ];
    rename(object, &names);
    // A base and a rotated share for each layer; they are equal within each kind of layers.
    let list = |field: &str| object.get(field).and_then(Value::as_array).cloned();
    let (bases, shares) = (list("rope_theta"), list("partial_rotary_factors"));
    let kinds = list("layer_types").unwrap_or_default();
    if bases.is_none() && shares.is_none() {
        return;
    }
    let mut parameters = Object::new();
    for (layer, kind) in kinds.iter().enumerate() {
        let Some(kind) = kind.as_str().filter(|kind| !parameters.contains_key(*kind)) else {
            continue;
        };
        let mut of_kind = json!({ "rope_type": "default" });
        for (field, all) in [("rope_theta", &bases), ("partial_rotary_factor", &shares)] {
            if let Some(value) = all.as_ref().and_then(|all| all.get(layer)) {
                of_kind[field] = value.clone();
            }
        }
        parameters.insert(kind.to_owned(), of_kind);
    }
    for field in ["rope_theta", "partial_rotary_factors"] {
        if object.get(field).is_some_and(Value::is_array) {
            object.remove(field);
        }
    }
    object.entry("rope_parameters").or_insert(Value::Object(parameters));
}
