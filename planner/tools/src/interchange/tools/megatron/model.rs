//! The model as Megatron's arguments.

use ir::graph::{
    Activation, AttentionMask, PositionBias, RotaryPairs, RotaryScaling, Rotation, RouterScores,
};
use ir::model::Transformer;
use ir::model::transformer::{
    Attention, Correction, DropoutRates, Embedding, FeedForward, Layer, Mixer, Mixture, Mlp, Norm,
    NormPlacement, NormType, QkNorm,
};

use ordered_float::OrderedFloat;

use crate::interchange::argument::Argument;
use crate::interchange::error::Lack;
use crate::interchange::view::ExportView;

/// Arguments that describe the model.
pub(super) fn arguments(view: &ExportView<'_>) -> Vec<Argument> {
    flags_of(view).arguments
}

/// Parts of the model that Megatron has no argument for.
pub(super) fn lacks(view: &ExportView<'_>) -> Vec<Lack> {
    flags_of(view).lacks
}

/// Arguments of the model and its unsupported parts, collected in one pass so that no part is missed.
#[derive(Default)]
struct Flags {
    arguments: Vec<Argument>,
    lacks: Vec<Lack>,
}

impl Flags {
    #[expect(clippy::needless_pass_by_value, reason = "so that numbers are written plainly")]
    fn value(&mut self, name: &str, value: impl ToString, why: &str) {
        self.arguments.push(Argument::value(name, value.to_string(), why));
    }

    fn switch(&mut self, name: &str, why: &str) {
        self.arguments.push(Argument::switch(name, why));
    }

    /// Adds an unsupported part that changes predicted time or memory.
    fn lack(&mut self, what: impl Into<String>) {
        self.lacks.push(Lack::without_remedy(what.into()));
    }

    /// Adds an unsupported part that changes what is computed, but no predicted time or memory.
    fn lack_freely(&mut self, what: impl Into<String>) {
        self.lacks.push(Lack::free(what.into()));
    }
}

fn flags_of(view: &ExportView<'_>) -> Flags {
    let mut flags = Flags::default();
    let Some(transformer) = view.transformer else {
        flags.lack("a model that is no transformer: a graph of operators");
        return flags;
    };
    if view.plan.model.adapters.is_some() {
        flags.lack("adapters (LoRA) beside frozen weights");
    }
    let Some(first) = transformer.layers.first().map(|it| &it.layer) else {
        flags.lack("a model without layers");
        return flags;
    };
    if transformer.encoder.is_some() {
        flags.lack("an encoder beside a decoder");
    }
    let dense = transformer.layers.iter().find_map(|it| match &it.layer.feed_forward {
        FeedForward::Dense(mlp) => Some(mlp),
        FeedForward::Mixture(_) | FeedForward::None => None,
    });
    let mixture = view.mixtures().next();
    let is_usual = transformer.layers.iter().all(|it| it.layer.is_usual());
    flags.value("--num-layers", view.num_layers(), "of the model's own file, as all here");
    flags.value("--hidden-size", transformer.hidden_size, "width of the residual stream");
    let mlp = dense.or(mixture.map(|it| &it.expert));
    if let Some(mlp) = mlp {
        flags.value("--ffn-hidden-size", mlp.intermediate_size, "inner width");
        self::mlp(&mut flags, mlp);
    }
    let Some(of_first) = first.attention().filter(|_| is_usual) else {
        flags.lack("layers without attention or without a feed-forward block");
        return flags;
    };
    attention(&mut flags, transformer, of_first);
    biases(&mut flags, transformer);
    positions(&mut flags, view, transformer, of_first);
    norms(&mut flags, transformer, first);
    ends(&mut flags, transformer);
    if let Some(mixture) = mixture {
        experts(&mut flags, mixture);
        frequency(&mut flags, transformer);
    }
    equal_layers(&mut flags, transformer);
    if view.num_prediction_modules() > 0 {
        flags.value("--mtp-num-layers", view.num_prediction_modules(), "trained, as in the plan");
    }
    let rates = if view.plan.model.dropout { transformer.dropout } else { DropoutRates::default() };
    let of_hidden = rates.embedding;
    if rates.attention_output != of_hidden || rates.feed_forward_output != of_hidden {
        flags.lack_freely("unlike rates of dropout after embedding, attention and feed-forward");
    }
    flags.value("--hidden-dropout", of_hidden, "as the plan has it");
    flags.value("--attention-dropout", rates.attention, "as the plan has it");
    flags
}

fn mlp(flags: &mut Flags, mlp: &Mlp) {
    match (mlp.gated, mlp.activation) {
        // gpt-oss: QuickGELU, clamped, with an offset of 1 on the value.
        (true, _) if mlp.clamp.is_some() => {
            flags.switch("--quick-geglu", "one projection gates another");
        }
        (true, Activation::Silu) => flags.switch("--swiglu", "one projection gates another"),
        (true, Activation::QuickGelu) => {
            flags.switch("--quick-geglu", "one projection gates another");
        }
        (false, Activation::Gelu) => {
            flags.switch("--no-bias-gelu-fusion", "the fused kernel approximates by a tangent");
        }
        (false, Activation::GeluTanh) => {}
        (false, Activation::SquaredRelu) => {
            flags.switch("--squared-relu", "the activation function");
        }
        (gated, activation) => {
            let gate = if gated { " as a gate" } else { "" };
            flags.lack_freely(format!("the activation function {activation:?}{gate}"));
        }
    }
    if let Some(clamp) = mlp.clamp {
        flags.value("--activation-func-clamp-value", clamp, "where gate and value are cut off");
        flags.value("--glu-linear-offset", 1.0, "the value counts one more");
    }
}

fn attention(flags: &mut Flags, transformer: &Transformer, attention: &Attention) {
    flags.value("--num-attention-heads", attention.num_heads, "heads of queries");
    if let Some(latent) = attention.latent {
        flags.switch("--multi-latent-attention", "keys and values through a latent");
        if let Some(rank) = latent.q_lora_rank {
            flags.value("--q-lora-rank", rank, "width of the queries' latent");
        }
        flags.value("--kv-lora-rank", latent.kv_lora_rank, "width of the keys' and values' latent");
        flags.value(
            "--qk-head-dim",
            latent.qk_nope_head_dim,
            "features of a head without position",
        );
        flags.value("--qk-pos-emb-head-dim", latent.qk_rope_head_dim, "features with position");
        flags.value("--v-head-dim", attention.value_head_dim, "features of a value");
        flags.value("--kv-channels", attention.value_head_dim, "features of a head");
        flags.switch("--qk-layernorm", "norms of what is compressed");
    } else {
        flags.value("--kv-channels", attention.head_dim, "features of a head");
        if attention.num_kv_heads != attention.num_heads {
            flags.switch("--group-query-attention", "heads share keys and values");
            flags.value("--num-query-groups", attention.num_kv_heads, "heads of keys and values");
        }
        if attention.value_head_dim != attention.head_dim {
            flags.lack("values of another width than keys");
        }
        match attention.qk_norm {
            None => {}
            Some(norm) => {
                flags.switch("--qk-layernorm", "norms of queries and keys");
                if !matches!(norm, QkNorm::PerHead(_)) {
                    flags.lack("norms of queries and keys over all heads at once");
                }
            }
        }
    }
    if attention.clamp.is_some() {
        flags.lack_freely("queries, keys and values that are cut off");
    }
    if attention.sinks {
        flags.value("--softmax-type", "learnable", "a trained sink for each head");
    }
    let features = match attention.latent {
        Some(latent) => latent.qk_nope_head_dim + latent.qk_rope_head_dim,
        None => attention.head_dim,
    };
    let usual = 1.0 / (features as f64).sqrt();
    let is_usual = |scale: f64| (scale / usual - 1.0).abs() < 1e-6;
    let is_yarn =
        matches!(attention.rotary.as_ref().map(|it| &it.scaling), Some(RotaryScaling::Yarn { .. }));
    if attention.scores.scale.is_some_and(|scale| !is_usual(scale.0)) && !is_yarn {
        flags.lack_freely("scores with a scale of their own");
    }
    if attention.scores.soft_cap.is_some() || transformer.scales.logit_soft_cap.is_some() {
        flags.lack("scores or logits with a soft cap");
    }
    if attention.gate.is_some() {
        flags.lack_freely("a gate of attention's output");
    }
    window(flags, transformer);
}

/// Arguments of sliding windows: the length, and which layers have one.
fn window(flags: &mut Flags, transformer: &Transformer) {
    let masks = transformer.layers.iter();
    let masks = masks.filter_map(|it| Some((it.count, it.layer.attention()?.mask)));
    let masks: Vec<(u32, AttentionMask)> = masks.collect();
    let mut windows = masks.iter().filter_map(|(_, mask)| match mask {
        AttentionMask::SlidingWindow { window } => Some(*window),
        _ => None,
    });
    if masks.iter().any(|(_, mask)| *mask == AttentionMask::Full) {
        flags.lack("attention to later positions");
    }
    let lacks = masks.iter().find_map(|(_, mask)| match mask {
        AttentionMask::Chosen { .. } => Some("attention to chosen keys"),
        AttentionMask::Chunked { .. } => Some("attention within chunks"),
        AttentionMask::Compressed { .. } => Some("attention to compressed keys"),
        _ => None,
    });
    if let Some(lacks) = lacks {
        flags.lack(lacks);
    }
    if transformer.streams.is_some() {
        flags.lack("hyper-connections");
    }
    let Some(window) = windows.next() else { return };
    if windows.any(|other| other != window) {
        flags.lack("windows of several lengths");
    }
    flags.value(
        "--window-size",
        format!("{},0", window.saturating_sub(1)),
        "positions before its own",
    );
    if masks.iter().any(|(_, mask)| *mask == AttentionMask::Causal) {
        let counted = masks.iter().map(|(count, mask)| {
            (*count, u32::from(matches!(mask, AttentionMask::SlidingWindow { .. })))
        });
        flags.value("--window-attn-skip-freq", as_list(counted), "which layers have a window");
    }
}

/// Runs of zeros and ones as a Python list expression that Megatron evaluates: `([0]*3+[1]*58)`.
fn as_list(counted: impl IntoIterator<Item = (u32, u32)>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for (count, value) in counted {
        match runs.last_mut() {
            Some((so_far, last)) if *last == value => *so_far += count,
            _ => runs.push((count, value)),
        }
    }
    let terms: Vec<String> =
        runs.iter().map(|(count, value)| format!("[{value}]*{count}")).collect();
    format!("({})", terms.join("+"))
}

fn biases(flags: &mut Flags, transformer: &Transformer) {
    let of_layer = |layer: &Layer| {
        let Attention { query_bias, key_bias, value_bias, output_bias, .. } = layer.attention()?;
        let mlp = match &layer.feed_forward {
            FeedForward::Dense(mlp) => mlp,
            FeedForward::Mixture(mixture) => &mixture.expert,
            FeedForward::None => return None,
        };
        Some([*query_bias, *key_bias, *value_bias, *output_bias, mlp.up_bias, mlp.down_bias])
    };
    let all: Vec<[bool; 6]> =
        transformer.layers.iter().filter_map(|it| of_layer(&it.layer)).collect();
    let has = all[0];
    if all.iter().any(|other| *other != has) {
        flags.lack_freely("biases in some layers alone");
    }
    match has {
        [true, true, true, true, true, true] => {}
        [false, false, false, false, false, false] => {
            flags.switch("--disable-bias-linear", "linear layers have no biases");
        }
        [true, true, true, false, false, false] => {
            flags.switch("--disable-bias-linear", "linear layers have no biases");
            flags.switch("--add-qkv-bias", "but for queries, keys and values");
        }
        _ => flags.lack_freely("biases of some linear layers other than queries, keys and values"),
    }
}

fn positions(
    flags: &mut Flags,
    view: &ExportView<'_>,
    transformer: &Transformer,
    attention: &Attention,
) {
    let learned = match &transformer.embedding {
        Embedding::Tokens { positions, .. } => positions.as_ref(),
        Embedding::Patches { .. } => None,
    };
    let length = view.training.sequence_length;
    let most = learned.map(|it| it.rows).or(transformer.max_position_embeddings);
    flags.value("--max-position-embeddings", most.unwrap_or(length).max(length), "positions");
    if attention.scores.bias != PositionBias::None {
        flags.lack("positions as biases of scores (ALiBi, or relative as in T5)");
    }
    match (&attention.rotary, learned) {
        (None, Some(positions)) => {
            flags.value("--position-embedding-type", "learned_absolute", "a table of positions");
            if positions.first > 0 {
                flags.lack_freely("a table of positions that does not begin with the first");
            }
        }
        (None, None) if matches!(attention.scores.bias, PositionBias::Alibi(_)) => {
            flags.value("--position-embedding-type", "alibi", "positions as biases of scores");
        }
        (None, None) => flags.value("--position-embedding-type", "none", "no positions"),
        (Some(_), Some(_)) => flags.lack("a table of positions beside rotation"),
        (Some(rotation), None) => {
            rotary(flags, view, attention, rotation);
        }
    }
}

fn rotary(flags: &mut Flags, view: &ExportView<'_>, attention: &Attention, rotation: &Rotation) {
    let is_latent = attention.latent.is_some();
    let is_yarn = matches!(rotation.scaling, RotaryScaling::Yarn { .. });
    let kind = if is_yarn && !is_latent { "yarn" } else { "rope" };
    flags.value("--position-embedding-type", kind, "queries and keys are rotated");
    flags.value("--rotary-base", rotation.theta.0 as u64, "the base of rotation");
    if rotation.theta.0.fract() != 0.0 {
        flags.lack_freely("a base of rotation that is no whole number");
    }
    if let Some(features) = rotation.features.filter(|_| !is_latent) {
        let share = features as f64 / attention.head_dim as f64;
        flags.value("--rotary-percent", share, "the share of a head's features that is rotated");
    }
    if rotation.pairs == RotaryPairs::Neighbours && !is_latent {
        flags.switch("--rotary-interleaved", "neighbours are rotated together");
    }
    match &rotation.scaling {
        RotaryScaling::None => {
            if is_latent {
                flags.value("--rope-type", "rope", "angles are not changed for long sequences");
            }
        }
        RotaryScaling::Linear { factor } => {
            if factor.0.fract() != 0.0 {
                flags.lack_freely("a factor of positions that is no whole number");
            }
            flags.value(
                "--rotary-seq-len-interpolation-factor",
                factor.0 as u64,
                "for long sequences",
            );
        }
        RotaryScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_embeddings,
        } => {
            let others = [low_freq_factor, high_freq_factor, original_max_position_embeddings];
            if others.map(|it| *it) != [1.0, 4.0, 8192.0].map(OrderedFloat) {
                flags.lack_freely("other constants of Llama 3.1's rotation than its own");
            }
            flags.switch("--use-rope-scaling", "Llama 3.1's change of angles for long sequences");
            flags.value("--rope-scaling-factor", factor, "by so much");
        }
        RotaryScaling::Yarn { factor, original_max_position_embeddings, .. } => {
            if is_latent {
                flags.value("--rope-type", "yarn", "angles are changed for long sequences");
                flags.value("--rotary-scaling-factor", factor, "by so much");
                for (name, field) in
                    [("--mscale", "mscale"), ("--mscale-all-dim", "mscale_all_dim")]
                {
                    let stated = view.plan.model.description["rope_scaling"][field].as_f64();
                    flags.value(name, stated.unwrap_or(0.0), "as the model has it");
                }
            } else {
                let length = original_max_position_embeddings.0 as u64;
                let why = "what the model was trained on first";
                flags.value("--yarn-original-max-position-embeddings", length, why);
                flags.lack_freely(format!("the factor {factor} of YaRN's rotation"));
            }
        }
        RotaryScaling::LongRope { .. }
        | RotaryScaling::Dynamic { .. }
        | RotaryScaling::Other(_) => {
            flags.lack_freely("this change of rotation for long sequences");
        }
    }
}

fn norms(flags: &mut Flags, transformer: &Transformer, first: &Layer) {
    let Norm { kind, weight, bias, epsilon, unit_offset } = first.norm;
    let name = match kind {
        NormType::LayerNorm => "LayerNorm",
        NormType::RmsNorm => "RMSNorm",
    };
    flags.value("--normalization", name, "norms");
    flags.value("--norm-epsilon", epsilon, "added to what they divide by");
    if !weight || bias != (kind == NormType::LayerNorm) {
        flags.lack_freely("norms without a scale or a shift of their own");
    }
    if unit_offset {
        flags.switch("--apply-layernorm-1p", "scales count one more");
    }
    match first.norm_placement {
        NormPlacement::Pre => {}
        NormPlacement::PreWithResidual => {
            flags.switch(
                "--apply-residual-connection-post-layernorm",
                "sums take what norms put out",
            );
        }
        NormPlacement::ParallelShared | NormPlacement::ParallelSeparate => {
            flags.lack("attention and feed-forward side by side");
        }
        NormPlacement::PostResidual | NormPlacement::PostBlock | NormPlacement::Sandwich => {
            flags.lack("norms after attention and feed-forward");
        }
    }
    if transformer.final_norm.is_none() {
        flags.lack_freely("no norm after the last layer");
    }
}

fn ends(flags: &mut Flags, transformer: &Transformer) {
    match &transformer.embedding {
        Embedding::Patches { .. } => flags.lack("an embedding of an image's patches"),
        Embedding::Tokens { vocab_size, projected_from, token_types, norm, .. } => {
            flags.value("--vocab-size", vocab_size, "rows of the table of tokens");
            if transformer.head.num_classes != *vocab_size {
                flags.lack("a head with other classes than tokens");
            }
            if projected_from.is_some() || token_types.is_some() {
                flags.lack("an embedding of another width, or with types of tokens");
            }
            if norm.is_some() {
                flags.lack_freely("a norm after the embedding");
            }
        }
    }
    let head = &transformer.head;
    if !head.tied {
        flags.switch("--untie-embeddings-and-output-weights", "the head has a weight of its own");
    }
    if head.bias {
        flags.lack_freely("a head with a bias");
    }
    if head.transform.is_some() || head.first_token_only || head.projected_to.is_some() {
        flags.lack("a head with layers before it");
    }
    let scales = &transformer.scales;
    if scales.embedding.is_some() || scales.residual.is_some() || scales.logits.is_some() {
        flags.lack_freely("scaled embeddings, sums or logits");
    }
}

fn experts(flags: &mut Flags, mixture: &Mixture) {
    flags.value("--num-experts", mixture.num_experts, "experts to choose among");
    flags.value("--moe-router-topk", mixture.top_k, "experts of a token");
    flags.value(
        "--moe-ffn-hidden-size",
        mixture.expert.intermediate_size,
        "inner width of an expert",
    );
    if let Some(shared) = &mixture.shared {
        let width = shared.intermediate_size;
        flags.value("--moe-shared-expert-intermediate-size", width, "that every token goes to");
        if mixture.shared_gate {
            flags.switch("--moe-shared-expert-gate", "weighted by a gate of its own");
        }
    }
    let routing = &mixture.routing;
    match (routing.scores, routing.normalized) {
        (RouterScores::Softmax, true) => {}
        (RouterScores::Softmax, false) => {
            flags.switch("--moe-router-pre-softmax", "weights are shares of all experts'");
        }
        (RouterScores::Sigmoid, true) => {
            flags.value("--moe-router-score-function", "sigmoid", "each expert scores by itself");
        }
        (RouterScores::Sigmoid, false) => {
            flags.value("--moe-router-score-function", "sigmoid", "each expert scores by itself");
            flags.lack_freely("weights of experts that do not add up to one");
        }
    }
    if routing.scaling != OrderedFloat(1.0) {
        flags.value(
            "--moe-router-topk-scaling-factor",
            routing.scaling,
            "their weights times this",
        );
    }
    if let Some(groups) = routing.groups {
        flags.value("--moe-router-num-groups", groups.count, "groups of experts");
        flags.value("--moe-router-group-topk", groups.chosen, "of which a token chooses so many");
        if groups.scored_by * groups.chosen != mixture.top_k && groups.scored_by > 1 {
            flags.lack_freely("groups scored by another number of their experts");
        }
    }
    if mixture.correction != Correction::None {
        flags.switch("--moe-router-enable-expert-bias", "a correction takes part in the choice");
    }
    if mixture.router_bias {
        flags.lack_freely("a router with a bias");
    }
}

/// Argument that lists which layers have experts, if some have none.
fn frequency(flags: &mut Flags, transformer: &Transformer) {
    let has = |layer: &Layer| u32::from(matches!(layer.feed_forward, FeedForward::Mixture(_)));
    let counted = transformer.layers.iter().map(|it| (it.count, has(&it.layer)));
    let counted: Vec<(u32, u32)> = counted.collect();
    if counted.iter().any(|(_, has)| *has == 0) {
        flags.value("--moe-layer-freq", as_list(counted), "which layers have experts");
    }
}

/// Adds an unsupported part if layers differ in more than windows and whether they have experts.
fn equal_layers(flags: &mut Flags, transformer: &Transformer) {
    let plain = |layer: &Layer| {
        let mut layer = layer.clone();
        if let Mixer::Attention(attention) = &mut layer.mixer {
            attention.mask = AttentionMask::Causal;
        }
        let rest = layer.feed_forward;
        layer.feed_forward = transformer.layers[0].layer.feed_forward.clone();
        (layer, rest)
    };
    let all: Vec<(Layer, FeedForward)> =
        transformer.layers.iter().map(|it| plain(&it.layer)).collect();
    let same_kind = |one: &FeedForward, other: &FeedForward| {
        std::mem::discriminant(one) != std::mem::discriminant(other) || one == other
    };
    let differs = all.iter().any(|(layer, rest)| {
        *layer != all[0].0 || all.iter().any(|(_, other)| !same_kind(rest, other))
    });
    if differs {
        flags.lack("layers that are unlike each other in more than experts and windows");
    }
}
