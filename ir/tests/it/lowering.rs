//! Operators of graphs.

use std::collections::BTreeSet;

use ir::collective::Collective;
use ir::graph::{
    Axis, Block, BlockRecompute, BlockWork, EmbeddingTable, Extent, Graph, LossGradient, LossKind,
    OffloadModules, OpId, OpKind, Recomputable, ShardContext, Sharding, Sizes, Tensor,
};
use ir::model::{AttentionKernel, GraphOptions, Model};

const GPT: &str = r#"{"architecture": "gpt", "num_hidden_layers": 2, "hidden_size": 64,
    "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 32}"#;
const TRAINED_UNFUSED: GraphOptions = GraphOptions {
    attention: AttentionKernel::Unfused,
    dropout: true,
    multi_token_prediction: false,
};

#[test]
fn a_gpt_layer_is_as_korthikanti_has_it() {
    check(
        GPT,
        TRAINED_UNFUSED,
        "layer",
        "
x [b, s, 64]
attention.norm (x) [b, s, 64]
attention.query (attention.norm) [b, s, 4, 16]
attention.key (attention.norm) [b, s, 4, 16]
attention.value (attention.norm) [b, s, 4, 16]
attention.scores (attention.query, attention.key) [b, 4, s, s] again
attention.softmax (attention.scores) [b, 4, s, s] again
attention.probabilities_dropout (attention.softmax) [b, 4, s, s] again
attention.values (attention.probabilities_dropout, attention.value) [b, s, 4, 16] again, kept
attention.output (attention.values) [b, s, 64]
attention.dropout (attention.output) [b, s, 64]
attention.residual (x, attention.dropout) [b, s, 64]
mlp.norm (attention.residual) [b, s, 64]
mlp.up (mlp.norm) [b, s, 256]
mlp.activation (mlp.up) [b, s, 256]
mlp.down (mlp.activation) [b, s, 64]
mlp.dropout (mlp.down) [b, s, 64]
mlp.residual (attention.residual, mlp.dropout) [b, s, 64]
",
    );
}

/// Korthikanti et al. 2022, *Reducing Activation Recomputation in Large Transformer Models*, section
/// 4.1: `34 s b h + 5 a s^2 b` bytes for a layer.
#[test]
fn a_gpt_layer_saves_what_korthikanti_counts() {
    let graph = graph(GPT, TRAINED_UNFUSED);
    let (s, b, h, a) = (128, 3, 64, 4);
    let sizes = Sizes { micro_batch_size: b, sequence_length: s };
    assert_eq!(saved_bytes(block(&graph, "layer"), sizes), 34 * s * b * h + 5 * a * s * s * b);
}

#[test]
fn a_mixture_has_a_router_and_grouped_experts() {
    let config = r#"{"model_type": "qwen2_moe", "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 32}"#;
    check(
        config,
        GraphOptions::default(),
        "layer",
        "
x [b, s, 64]
attention.norm (x) [b, s, 64] again
attention.query (attention.norm) [b, s, 4, 16]
attention.key (attention.norm) [b, s, 2, 16]
attention.value (attention.norm) [b, s, 2, 16]
attention.query_rotary (attention.query) [b, s, 4, 16]
attention.key_rotary (attention.key) [b, s, 2, 16]
attention.core (attention.query_rotary, attention.key_rotary, attention.value) [b, s, 4, 16]
attention.output (attention.core) [b, s, 64]
attention.residual (x, attention.output) [b, s, 64]
mlp.norm (attention.residual) [b, s, 64] again
mlp.router (mlp.norm) [b, s, 8]
mlp.dispatch (mlp.norm, mlp.router) [b, s, 2, 64]
mlp.experts.gate (mlp.dispatch) [b, s, 2, 16]
mlp.experts.up (mlp.dispatch) [b, s, 2, 16]
mlp.experts.activation (mlp.experts.gate, mlp.experts.up) [b, s, 2, 16] again
mlp.experts.down (mlp.experts.activation) [b, s, 2, 64]
mlp.combine (mlp.experts.down, mlp.router) [b, s, 64]
mlp.shared.gate (mlp.norm) [b, s, 32]
mlp.shared.up (mlp.norm) [b, s, 32]
mlp.shared.activation (mlp.shared.gate, mlp.shared.up) [b, s, 32] again
mlp.shared.down (mlp.shared.activation) [b, s, 64]
mlp.shared_gate (mlp.norm) [b, s]
mlp.shared_gate.activation (mlp.shared_gate) [b, s] again
mlp.shared.weighted (mlp.shared.down, mlp.shared_gate.activation) [b, s, 64]
mlp.shared.sum (mlp.combine, mlp.shared.weighted) [b, s, 64]
mlp.residual (attention.residual, mlp.shared.sum) [b, s, 64]
",
    );
}

/// A table that tensor parallelism does not cut is whole on every rank, and so is what is looked up in it: ranks take
/// their parts of the sequence without an exchange, and gather its gradient.
#[test]
fn embeddings_that_are_not_cut_are_whole() {
    let config = r#"{"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128,
        "num_attention_heads": 4, "vocab_size": 100}"#;
    let graph = graph(config, GraphOptions::default());
    let embedding = block(&graph, "embedding");
    let work = |table| {
        let sharding = Sharding { tensor_parallel: 4, sequence_parallel: true, ..Sharding::NONE };
        embedding.work(&ShardContext {
            reads_data: true,
            embedding: table,
            ..ShardContext::plain(Sizes { micro_batch_size: 3, sequence_length: 128 }, sharding)
        })
    };
    let [part, whole] = [EmbeddingTable::Part, EmbeddingTable::Whole].map(work);
    assert_eq!([part, whole.clone()].map(|it| it.parameters.dense), [100 * 64 / 4, 100 * 64]);
    assert_eq!(whole.parameters.partial_gradients, 0);
}

/// A block of Llama on one rank, with a loss and operators that run as given.
fn held(graph: &Graph, name: &str, loss: LossGradient, is_eager: bool) -> BlockWork {
    held_by_rank(graph, name, loss, is_eager, 1)
}

/// The same on one of several tensor-parallel ranks.
fn held_by_rank(
    graph: &Graph,
    name: &str,
    loss: LossGradient,
    is_eager: bool,
    ranks: u32,
) -> BlockWork {
    let sharding = Sharding { tensor_parallel: ranks, ..Sharding::NONE };
    block(graph, name).work(&ShardContext {
        is_eager,
        keeps_gates: is_eager,
        loss: LossKind::usual(loss),
        ..ShardContext::plain(Sizes { micro_batch_size: 3, sequence_length: 128 }, sharding)
    })
}

const LLAMA: &str = r#"{"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "vocab_size": 100000}"#;

/// Bytes of a logit at the peak of backward, as docs/src/cost-model.md has them; activations of the hidden size are
/// less than a hundredth of them.
#[test]
fn a_loss_holds_what_its_kernel_needs() {
    let graph = graph(LLAMA, GraphOptions::default());
    let logits = 3.0 * 128.0 * 100_000.0;
    for (loss, bytes, of_two_ranks) in [
        (LossGradient::InPlace, 2.0, 2.0),
        (LossGradient::Fused, 4.0, 4.0),
        (LossGradient::OverSoftmax, 6.0, 6.0),
        (LossGradient::Uncast, 6.0, 6.0),
        (LossGradient::OverCopy, 10.0, 10.0),
        (LossGradient::Apart, 12.0, 12.0),
        (LossGradient::LossParallel, 12.0, 16.0),
        (LossGradient::Chunked, 0.5, 0.5),
        // 100,000 logits for 64 features: chunks of one token.
        (LossGradient::WithHead, 0.0, 0.0),
    ] {
        for (ranks, bytes) in [(1, bytes), (2, of_two_ranks)] {
            let work = held_by_rank(&graph, "head", loss, false, ranks);
            let peak = work.saved_bytes(BlockRecompute::None) + work.gradients;
            let of_logit = peak.as_f64() / logits * f64::from(ranks);
            assert!((bytes..bytes + 0.04).contains(&of_logit), "{loss}, {ranks}: {of_logit}");
        }
    }
}

/// Function by function, each of two norms keeps its input in fp32 and the normalised one instead of its input, and the
/// gated activation keeps the function of its gate. The gate's backward has the gradients of both its inputs and of its
/// output, while that of the residual stream waits; of what was saved only the input of the last projection is freed.
#[test]
fn a_layer_keeps_what_its_functions_take() {
    let graph = graph(LLAMA, GraphOptions::default());
    let [fused, eager] =
        [false, true].map(|is_eager| held(&graph, "layer", LossGradient::Apart, is_eager));
    let [hidden, gate] = [64, 128].map(|width| 3 * 128 * width * 2);
    let more = eager.saved_bytes(BlockRecompute::None) - fused.saved_bytes(BlockRecompute::None);
    assert_eq!(more.get(), 2 * 2 * hidden + gate);
    let setting =
        ShardContext::plain(Sizes { micro_batch_size: 3, sequence_length: 128 }, Sharding::NONE);
    let gates = block(&graph, "layer").work(&ShardContext { keeps_gates: true, ..setting });
    let more = gates.saved_bytes(BlockRecompute::None) - fused.saved_bytes(BlockRecompute::None);
    assert_eq!(more.get(), gate);
    assert_eq!(fused.gradients.get(), (2 * gate + gate + hidden) - gate);
}

/// A tensor leaves the device where all that save it are of offloaded modules: attention's output is saved by attention
/// and by the projection after it. Of plain attention the norm before is part of the projections.
#[test]
fn modules_offload_what_no_other_saves() {
    let graph = graph(LLAMA, GraphOptions::default());
    let hidden = 3 * 128 * 64 * 2;
    let (norms, softmaxes) = (3 * 128 * 4, 3 * 128 * 4 * 4);
    for (modules, bytes) in [
        ("attention", 3 * hidden + softmaxes),
        ("attention_output", 0),
        ("attention+attention_output", 4 * hidden + softmaxes),
        ("query_key_value", 2 * hidden + norms),
        ("attention_norm", 0),
        ("expert_norm+expert_inputs+expert_activations", 0),
    ] {
        let sizes = Sizes { micro_batch_size: 3, sequence_length: 128 };
        let offloaded = OffloadModules::named(modules.split('+')).ok();
        let plain = ShardContext::plain(sizes, Sharding::NONE);
        let work = block(&graph, "layer").work(&ShardContext { offloaded, ..plain });
        assert_eq!(work.offloadable_bytes(BlockRecompute::None).get(), bytes, "{modules}");
    }
    assert_eq!(
        graph.offload_modules().unwrap().to_string(),
        "query_key_value+attention+attention_output"
    );
}

/// PyTorch's own attention keeps its probabilities in fp32 for the softmax, and cast to 16 bits for the product: of a
/// score 6 bytes (measured by hooks on what autograd saves), where one kernel, and GPT-2's softmax in 16 bits, keep 2.
#[test]
fn eager_attention_keeps_probabilities_twice() {
    const GPT2: &str =
        r#"{"model_type": "gpt2", "n_layer": 1, "n_embd": 64, "n_head": 4, "attn_pdrop": 0.0}"#;
    for (config, bytes) in [(LLAMA, [2, 6]), (GPT2, [2, 2])] {
        let attention = AttentionKernel::Unfused;
        let graph = graph(config, GraphOptions { attention, ..GraphOptions::default() });
        let of_scores = |is_eager| -> u64 {
            let work = held(&graph, "layer", LossGradient::Apart, is_eager);
            let layer = block(&graph, "layer");
            let softmax = |op: OpId| layer.op(op).name.ends_with("softmax");
            work.saved.iter().filter(|it| softmax(it.op)).map(|it| it.bytes.get()).sum()
        };
        let scores = 3 * 4 * 128 * 128;
        assert_eq!([false, true].map(of_scores), bytes.map(|bytes| bytes * scores), "{config}");
    }
}

/// Each rank sends its own tokens to all experts. The ranks that share one gather what they have for it, and
/// scatter what comes out: all tensor-parallel ranks, some neighbours, or none, where experts are whole.
#[test]
fn experts_are_reached_by_all_to_all_and_gathered_for_by_those_who_share_them() {
    let (tensor, expert, top_k, hidden) = (4, 4, 2, 64);
    let config = r#"{"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_local_experts": 8, "num_experts_per_tok": 2}"#;
    let graph = graph(config, GraphOptions::default());
    let sizes = Sizes { micro_batch_size: 3, sequence_length: 128 };
    let layer = block(&graph, "layer");
    let work = |expert_tensor_parallel| {
        let sharding = Sharding {
            tensor_parallel: tensor,
            sequence_parallel: true,
            expert_parallel: expert,
            expert_tensor_parallel,
            ..Sharding::NONE
        };
        layer.work(&ShardContext::plain(sizes, sharding))
    };
    let routed = graph.parameter_counts().routed;
    let of_experts = |op: OpId| {
        let name = &layer.op(op).name;
        name.contains("experts") || name.contains("dispatch") || name.contains("combine")
    };
    let exchanges = |work: &BlockWork| -> Vec<(Axis, Collective, u64)> {
        let own = work.exchanges.iter().filter(|exchange| of_experts(exchange.op));
        own.map(|it| (it.axis, it.collective, it.bytes.get())).collect()
    };
    let flops = |work: &BlockWork| -> f64 {
        work.kernels.iter().filter(|it| of_experts(it.op)).map(|it| it.flops.get()).sum()
    };
    let kept = |work: &BlockWork, name: &str| -> u64 {
        let of = |op: OpId| layer.op(op).name == name;
        work.saved.iter().filter(|it| of(it.op)).map(|it| it.bytes.get()).sum()
    };
    let rows = sizes.micro_batch_size * sizes.sequence_length * top_k / u64::from(tensor);
    let whole = work(1);
    for ranks in [1, 2, 4] {
        let cut = work(ranks);
        assert_eq!(cut.parameters.expert, routed / u64::from(ranks * expert));
        assert_eq!(cut.parameters.dense, whole.parameters.dense);
        assert!((flops(&cut) / flops(&whole) - 1.0).abs() < 1e-12, "as much work for each rank");
        for kept_by in ["mlp.experts.gate", "mlp.experts.activation"] {
            assert_eq!(
                kept(&cut, kept_by),
                kept(&whole, kept_by),
                "as much kept of inner features"
            );
        }

        let all_to_all = (Axis::Expert, Collective::AllToAll, rows * hidden * 2);
        let gathered = rows * u64::from(ranks) * hidden * 2;
        let over = |collective| (Axis::ExpertTensor, collective, gathered);
        let mut expected = vec![all_to_all; 4];
        if ranks > 1 {
            // Rows to experts, and again for the gradient of weights; the gradient of what experts put out.
            expected.extend([over(Collective::AllGather); 3]);
            // What experts put out; the gradient of rows to experts.
            expected.extend([over(Collective::ReduceScatter); 2]);
        }
        let mut exchanges = exchanges(&cut);
        for all in [&mut exchanges, &mut expected] {
            all.sort_unstable();
        }
        assert_eq!(exchanges, expected);
    }
}

#[test]
fn latent_attention_joins_two_kinds_of_keys() {
    let config = r#"{"model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 12, "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4, "v_head_dim": 6, "intermediate_size": 128}"#;
    check(
        config,
        GraphOptions::default(),
        "layer",
        "
x [b, s, 64]
attention.norm (x) [b, s, 64] again
attention.query_down (attention.norm) [b, s, 24]
attention.query_norm (attention.query_down) [b, s, 24] again
attention.query_up (attention.query_norm) [b, s, 4, 12]
attention.query_nope (attention.query_up) [b, s, 4, 8]
attention.query_rope (attention.query_up) [b, s, 4, 4]
attention.query_rotary (attention.query_rope) [b, s, 4, 4]
attention.query_joined (attention.query_nope, attention.query_rotary) [b, s, 4, 12]
attention.key_value_down (attention.norm) [b, s, 12]
attention.key_rope (attention.norm) [b, s, 4]
attention.key_rotary (attention.key_rope) [b, s, 4]
attention.key_value_norm (attention.key_value_down) [b, s, 12] again
attention.key_value_up (attention.key_value_norm) [b, s, 4, 14]
attention.key_nope (attention.key_value_up) [b, s, 4, 8]
attention.value (attention.key_value_up) [b, s, 4, 6]
attention.key_joined (attention.key_nope, attention.key_rotary) [b, s, 4, 12]
attention.core (attention.query_joined, attention.key_joined, attention.value) [b, s, 4, 6]
attention.output (attention.core) [b, s, 64]
attention.residual (x, attention.output) [b, s, 64]
mlp.norm (attention.residual) [b, s, 64] again
mlp.gate (mlp.norm) [b, s, 128]
mlp.up (mlp.norm) [b, s, 128]
mlp.activation (mlp.gate, mlp.up) [b, s, 128] again
mlp.down (mlp.activation) [b, s, 64]
mlp.residual (attention.residual, mlp.down) [b, s, 64]
",
    );
}

#[test]
fn an_encoder_travels_with_the_decoder() {
    let t5 = r#"{"model_type": "t5", "d_model": 64, "num_layers": 3, "num_decoder_layers": 2,
        "num_heads": 4, "d_kv": 16}"#;
    assert_eq!(
        chain(&graph(t5, GraphOptions::default())),
        "
embedding 1: tokens -> embedding.tokens
encoder 1: x -> mlp.residual
encoder 2: x -> mlp.residual
decoder_embedding 1: x, decoder_tokens -> decoder_embedding.tokens, encoder.norm
layer 1: x, encoder_output -> mlp.residual, encoder_output
layer 1: x, encoder_output -> mlp.residual, encoder_output
head 1: x, encoder_output -> loss
"
        .trim_start()
    );
}

#[test]
fn prediction_modules_stand_before_the_head() {
    let config = r#"{"model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 5,
        "num_attention_heads": 4, "num_nextn_predict_layers": 1}"#;
    let with_modules = GraphOptions { multi_token_prediction: true, ..GraphOptions::default() };
    assert_eq!(
        chain(&graph(config, with_modules)),
        "
embedding 1: tokens -> embedding.tokens
layer 3: x -> mlp.residual
layer 2: x -> mlp.residual
mtp 1: x0, tokens -> x0, mlp.residual
head 1: x, x1 -> loss, mtp1.loss
"
        .trim_start()
    );
    let counts = |options| graph(config, options).parameter_counts().total;
    let layer = graph(config, with_modules);
    let layer = layer.class(layer.chain()[2].class).num_parameters();
    // Of its own it has the layer, the projection, its two norms and the head's.
    let module = layer + 2 * 64 * 64 + 2 * 64 + 64;
    assert_eq!(counts(with_modules) - counts(GraphOptions::default()), module);
}

/// DeepSeek-AI 2024, the model card: 14 B parameters of the module in addition to 671 B of the model, 2.5 B
/// of them shared embedding and head. The hub's counts of all tensors of Qwen3.5-27B and Qwen3.5-35B-A3B, less those
/// that transformers builds, without modules. The modules of Nemotron 3 Super and of Hy3 (3.8 B on its card) by hand,
/// after vLLM's `nemotron_h_mtp.py` and `hy_v3_mtp.py`.
#[test]
fn modules_have_their_published_sizes() {
    let qwen = r#"{"model_type": "qwen3_5_text", "vocab_size": 1000, "hidden_size": 5120, "num_hidden_layers": 4,
        "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 17408,
        "mtp_num_hidden_layers": 1}"#;
    let experts = r#"{"model_type": "qwen3_5_moe_text", "vocab_size": 1000, "hidden_size": 2048, "num_hidden_layers": 4,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "mtp_num_hidden_layers": 1}"#;
    let hybrid = r#"{"model_type": "nemotron_h", "vocab_size": 1000, "hidden_size": 4096, "num_hidden_layers": 2,
        "num_attention_heads": 32, "num_key_value_heads": 2, "hybrid_override_pattern": "ME", "n_routed_experts": 512,
        "num_experts_per_tok": 22, "moe_intermediate_size": 2688, "moe_latent_size": 1024,
        "moe_shared_expert_intermediate_size": 5376, "mtp_hybrid_override_pattern": "*E",
        "num_nextn_predict_layers": 1}"#;
    let hunyuan = r#"{"model_type": "hy_v3", "vocab_size": 1000, "hidden_size": 4096, "num_hidden_layers": 2,
        "num_attention_heads": 64, "num_key_value_heads": 8, "moe_intermediate_size": 1536, "num_experts": 192,
        "num_nextn_predict_layers": 1}"#;
    let with_module = GraphOptions { multi_token_prediction: true, ..GraphOptions::default() };
    let module = |config: &str| {
        let total = |options| graph(config, options).parameter_counts().total;
        total(with_module) - total(GraphOptions::default())
    };
    let deepseek = include_str!("../../../models/deepseek-v3/config.json");
    assert_eq!(module(deepseek), 11_610_067_968);
    assert_eq!(module(qwen), 27_781_427_952 - 27_356_728_560);
    assert_eq!(module(experts), 35_951_822_704 - 35_107_181_936);
    assert_eq!(module(hybrid), 2_942_324_736);
    assert_eq!(module(hunyuan), 3_752_612_096);
    assert_eq!(module(&hybrid.replace("*E", "*-")), 0);
}

#[test]
fn an_image_becomes_a_sequence_of_patches() {
    let config = r#"{"model_type": "vit", "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_labels": 10}"#;
    check(
        config,
        GraphOptions::default(),
        "embedding",
        "
pixels [b, 3, 224, 224]
embedding.patches (pixels) [b, 64, 14, 14]
embedding.sequence (embedding.patches) [b, 196, 64]
embedding.class_token (embedding.sequence) [b, 197, 64]
embedding.positions (embedding.class_token) [b, 197, 64]
",
    );
    check(
        config,
        GraphOptions::default(),
        "head",
        "
x [b, 197, 64]
head.norm (x) [b, 197, 64] again
head.first_token (head.norm) [b, 64]
head (head.first_token) [b, 10]
loss (head) []
",
    );
}

#[test]
fn alternating_layers_are_two_classes() {
    let config = r#"{"model_type": "gemma3_text", "hidden_size": 64, "num_hidden_layers": 12}"#;
    assert_eq!(
        chain(&graph(config, GraphOptions::default())),
        "
embedding 1: tokens -> embedding.scale
layer 5: x -> mlp.residual
layer 1: x -> mlp.residual
layer 5: x -> mlp.residual
layer 1: x -> mlp.residual
head 1: x -> loss
"
        .trim_start()
    );
}

#[test]
fn both_kernels_have_the_same_parameters() {
    for config in [
        r#"{"model_type": "t5", "d_model": 64, "num_layers": 3}"#,
        r#"{"model_type": "gpt_oss", "hidden_size": 64, "num_hidden_layers": 3}"#,
    ] {
        let counts = |options| graph(config, options).parameter_counts();
        assert_eq!(counts(GraphOptions::default()), counts(TRAINED_UNFUSED), "{config}");
    }
}

fn check(config: &str, options: GraphOptions, name: &str, expected: &str) {
    let graph = graph(config, options);
    let block = block(&graph, name);
    let name = |id: &OpId| block.op(*id).name.clone();
    let lines = block.nodes().map(|node| {
        let inputs: Vec<_> = block.inputs(node.id).iter().map(name).collect();
        let inputs =
            if inputs.is_empty() { String::new() } else { format!(" ({})", inputs.join(", ")) };
        let again = match node.op.recomputable {
            Recomputable::No => "",
            Recomputable::Selective => " again",
            Recomputable::SelectiveEnd => " again, kept",
            Recomputable::UnlessReceived => " again unless received",
        };
        format!("{}{inputs} {}{again}\n", node.op.name, shape(&node.op.output))
    });
    assert_eq!(lines.collect::<String>(), expected.trim_start());
}

/// The blocks, how often each follows itself, and what goes in and out.
fn chain(graph: &Graph) -> String {
    let runs = graph.chain().iter().map(|run| {
        let block = graph.class(run.class);
        let inputs: Vec<_> = block
            .nodes()
            .filter(|node| node.op.kind == OpKind::Input)
            .map(|node| node.op.name.as_str())
            .collect();
        let outputs: Vec<_> =
            block.outputs().iter().map(|id| block.op(*id).name.as_str()).collect();
        let (inputs, outputs) = (inputs.join(", "), outputs.join(", "));
        format!("{} {}: {inputs} -> {outputs}\n", block.name(), run.count)
    });
    runs.collect()
}

fn shape(tensor: &Tensor) -> String {
    let extents: Vec<_> = tensor.dims.iter().map(|dim| dim.extent.to_string()).collect();
    format!("[{}]", extents.join(", "))
}

/// Bytes that backward needs, each tensor once, by the rules of Korthikanti et al., section 4.1.
fn saved_bytes(block: &Block, sizes: Sizes) -> u64 {
    let mut tensors = BTreeSet::new();
    let mut masks = 0;
    for node in block.nodes() {
        assert!(!node.op.output.dims.iter().any(|dim| dim.extent == Extent::Fixed(0)));
        match node.op.kind {
            OpKind::Softmax { .. } => _ = tensors.insert(node.id),
            OpKind::Dropout { .. } => masks += node.op.output.num_elements(sizes),
            OpKind::Input | OpKind::Add => {}
            _ => tensors.extend(block.inputs(node.id)),
        }
    }
    masks + tensors.iter().map(|id| 2 * block.op(*id).output.num_elements(sizes)).sum::<u64>()
}

fn graph(config: &str, options: GraphOptions) -> Graph {
    Model::from_json(config, "model").unwrap().graph(options).unwrap()
}

fn block<'a>(graph: &'a Graph, name: &str) -> &'a Block {
    graph.classes().map(|(_, block)| block).find(|block| block.name() == name).unwrap()
}
