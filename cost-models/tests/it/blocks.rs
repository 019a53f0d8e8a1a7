//! Laws of what a block costs.

use cost_models::block::{BlockPasses, Groups, Term, TermWork, terms};
use cost_models::clusters::preset;
use cost_models::kernels::{Device, MatmulShape};
use cost_models::{Hardware, Precision, frameworks};
use ir::framework::{
    CausalPieces, Framework, Fusion, GradientAccumulation, KernelChoice, Logits, RecomputeEnd,
    TensorGathers,
};
use ir::graph::{
    Adapters, Axis, Block, BlockRecompute, CudaGraphs, ExpertOverlap, Graph, Pass, ShardContext,
    Sharding, Sizes, Switches, TokenDispatcher, WeightFormat,
};
use ir::layout::Mesh;
use ir::model::{AttentionKernel, GraphOptions, Model};
use ir::units::{Bytes, Nanos, Seconds};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use super::frameworks::training;

fn graphs() -> impl Strategy<Value = Graph> {
    models().prop_map(|model| model.graph(GraphOptions::default()).expect("a graph"))
}

/// As [`graphs`], more often than not with adapters, whose base weights lie in any format.
fn adapted_graphs() -> impl Strategy<Value = Graph> {
    let targets = select(vec!["all-linear", "query", "down"]);
    let adapters =
        (targets, select(WeightFormat::ALL.to_vec())).prop_map(|(target, base_weights)| Adapters {
            rank: 8,
            alpha: 16,
            targets: vec![target.to_owned()],
            base_weights,
        });
    (models(), prop::option::weighted(0.7, adapters)).prop_map(|(model, adapters)| {
        model.training_graph(GraphOptions::default(), adapters.as_ref()).expect("a graph")
    })
}

fn models() -> impl Strategy<Value = Model> {
    let heads = select(vec![(8u64, 8u64), (16, 8), (32, 8), (64, 8), (96, 96)]);
    let experts = select(vec![None, None, Some((8u64, 2u64)), Some((64, 6))]);
    (select(vec!["gpt", "llama"]), heads, select(vec![64u64, 128]), experts).prop_map(
        |(architecture, (heads, kv_heads), head_dim, experts)| {
            let mut model = json!({
                "architecture": architecture,
                "num_hidden_layers": 2,
                "hidden_size": heads * head_dim,
                "num_attention_heads": heads,
                "num_key_value_heads": kv_heads,
                "intermediate_size": 4 * heads * head_dim,
                "vocab_size": 32_000,
            });
            if let Some((num_experts, top_k)) = experts {
                model["num_experts"] = json!(num_experts);
                model["num_experts_per_tok"] = json!(top_k);
            }
            Model::from_json(&model.to_string(), "model").expect("a model")
        },
    )
}

fn framework(name: &str) -> Framework {
    frameworks::preset(name).expect("it ships")
}

fn hardware() -> impl Strategy<Value = Hardware> {
    let of = |((name, precision), framework): ((&str, Precision), Framework)| {
        Hardware::new(&preset(name).expect("a preset"), framework, &training(precision))
            .expect("a precision it has")
    };
    let gpus = select(vec![
        ("h100", Precision::Bf16),
        ("h100", Precision::Fp8),
        ("h100-96gb", Precision::Fp8),
        ("a100", Precision::Bf16),
        ("b200", Precision::Bf16),
        ("gb300-nvl72", Precision::Fp4),
        ("v100", Precision::Fp16),
        ("mi300x", Precision::Bf16),
        ("l4", Precision::Bf16),
        ("tpu-v5p", Precision::Bf16),
    ]);
    (gpus, select(frameworks::all().collect::<Vec<_>>())).prop_map(of)
}

fn sizes() -> impl Strategy<Value = Sizes> {
    (1u64..9, select(vec![512u64, 1024, 4096, 8192, 32_768]))
        .prop_map(|(b, s)| Sizes { micro_batch_size: b, sequence_length: s })
}

fn shardings() -> impl Strategy<Value = Sharding> {
    (select(vec![1u32, 2, 4, 8]), any::<bool>(), select(vec![1u32, 2, 4])).prop_map(
        |(tensor_parallel, sequence, context_parallel)| Sharding {
            sequence_parallel: sequence && tensor_parallel > 1,
            context_parallel,
            ..Sharding::tensor(tensor_parallel)
        },
    )
}

fn setting(sizes: Sizes, sharding: Sharding) -> ShardContext {
    ShardContext::plain(sizes, sharding)
}

fn switches() -> impl Strategy<Value = Switches> {
    let dispatchers = select(TokenDispatcher::ALL.to_vec());
    let overlaps = select(ExpertOverlap::ALL.to_vec());
    (dispatchers, overlaps, select(CudaGraphs::ALL.to_vec())).prop_map(
        |(token_dispatcher, expert_overlap, cuda_graphs)| Switches {
            token_dispatcher,
            expert_overlap,
            cuda_graphs,
        },
    )
}

fn groups(sharding: Sharding) -> Groups {
    Groups::of(&Mesh { sharding, data_parallel: 1 })
}

/// Operations of all passes on one rank.
fn flops(block: &Block, setting: &ShardContext) -> f64 {
    block.work(setting).kernels.iter().map(|kernel| kernel.flops.get()).sum()
}

fn layer(graph: &Graph) -> &Block {
    let mut blocks = graph.classes().map(|(_, block)| block);
    blocks.find(|block| block.name() == "layer").expect("a layer")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_block_runs_faster_than_the_peak(
        graph in graphs(), hardware in hardware(), sizes in sizes(), sharding in shardings(),
    ) {
        let setting = setting(sizes, sharding);
        for (_, block) in graph.classes() {
            let cost = BlockPasses::new(block, &setting, &groups(sharding), &hardware);
            let time = Seconds::from(cost.forward.compute + cost.backward.compute);
            let least = flops(block, &setting) / hardware.peak.get();
            // Each kernel is rounded to a nanosecond.
            prop_assert!(time.get() >= least - 1e-7, "{}: {time}, at the peak {least} s", block.name());
        }
    }

    #[test]
    fn the_terms_of_a_block_add_up(
        graph in graphs(), hardware in hardware(), sizes in sizes(), sharding in shardings(),
    ) {
        let setting = setting(sizes, sharding);
        for (_, block) in graph.classes() {
            let cost = BlockPasses::new(block, &setting, &groups(sharding), &hardware);
            let passes = cost.forward + cost.backward;
            // A wait for the host is no kernel's.
            let all = Seconds::from(passes.total() - passes.host).get();
            let terms = terms(block, &setting, &groups(sharding), &hardware);
            let sum: f64 = terms.iter().map(|term| term.time.get()).sum();
            // Each is rounded to a nanosecond.
            prop_assert!((sum - all).abs() < 1e-7, "{sum} of {all}");
            // What is exposed of an exchange is a part of it.
            for Term { op, work, time, .. } in &terms {
                if let TermWork::Exchange(_, whole) = work {
                    prop_assert!(time.get() <= whole.get() + 1e-9, "{op}: {time} of {whole}");
                }
            }
        }
    }

    /// The invariant of a bound: however experts are spread over ranks, whatever is switched on for their exchanges,
    /// and with graphs of no more, no pass takes less than the least.
    #[test]
    fn no_way_to_spread_experts_takes_less_than_the_least(
        graph in adapted_graphs(), hardware in hardware(), sizes in sizes(), sharding in shardings(),
        expert_parallel in select(vec![1u32, 2, 4, 8]), whole in any::<bool>(), switches in switches(),
        more in select(CudaGraphs::ALL.to_vec()),
    ) {
        let are_whole = whole && sharding.sequence_parallel;
        let expert_tensor_parallel = if are_whole { 1 } else { sharding.tensor_parallel };
        let sharding = Sharding { expert_parallel, expert_tensor_parallel, ..sharding };
        let setting = ShardContext { switches, ..setting(sizes, sharding) };
        let cuda_graphs = more.max(switches.cuda_graphs);
        let fastest = ShardContext { switches: Switches { cuda_graphs, ..Switches::USUAL }, ..setting };
        for (_, block) in graph.classes() {
            let exact = BlockPasses::new(block, &setting, &groups(sharding), &hardware);
            let least = BlockPasses::least(block, &fastest, &groups(sharding), &hardware);
            let passes = |of: &BlockPasses| {
                let again = BlockRecompute::ALL.map(|policy| of.recompute[policy]);
                let passes = [of.forward, of.backward, of.input_grad, of.weight_grad];
                passes.into_iter().chain(again).collect::<Vec<_>>()
            };
            for (exact, least) in passes(&exact).into_iter().zip(passes(&least)) {
                for beside in [false, true] {
                    let is_bound = least.least(beside) <= exact.least(beside);
                    prop_assert!(is_bound, "{least:?} {exact:?}");
                }
            }
            prop_assert_eq!(least.saved, exact.saved);
        }
    }

    /// What backward computes again takes time, and is not kept.
    #[test]
    fn recompute_trades_time_for_memory(
        graph in graphs(), hardware in hardware(), sizes in sizes(), sharding in shardings(),
    ) {
        let setting = setting(sizes, sharding);
        for (_, block) in graph.classes() {
            let cost = BlockPasses::new(block, &setting, &groups(sharding), &hardware);
            let [none, selective, full] =
                BlockRecompute::ALL.map(|policy| cost.recompute[policy].total());
            prop_assert!(none == Nanos::ZERO && selective <= full, "{none}, {selective}, {full}");
            prop_assert!(full <= cost.forward.total());
            let [none, selective, full] = BlockRecompute::ALL.map(|policy| cost.saved[policy]);
            prop_assert!(full <= selective && selective <= none, "{none}, {selective}, {full}");
        }
    }

    /// Heads, inner widths and vocabulary are shared out; the router of a mixture is not.
    #[test]
    fn tensor_parallelism_shares_the_operations(
        graph in graphs(), sizes in sizes(), degree in select(vec![2u32, 4, 8]),
    ) {
        let whole = setting(sizes, Sharding::NONE);
        let shard = setting(sizes, Sharding::tensor(degree));
        let layer = layer(&graph);
        let (all, share) = (flops(layer, &whole), flops(layer, &shard) * f64::from(degree));
        let routers = layer.nodes().any(|node| node.op.name.contains("router"));
        if routers {
            prop_assert!(share >= all && share <= all * 1.05, "{share} of {all}");
        } else {
            prop_assert!((share / all - 1.0).abs() < 1e-9, "{share} of {all}");
        }
    }

    /// Every rank has the parameters that it shards and those that it repeats, no fewer than its
    /// share; and one rank has all.
    #[test]
    fn shards_hold_every_parameter(graph in graphs(), sharding in shardings()) {
        let sizes = Sizes { micro_batch_size: 1, sequence_length: 512 };
        for (_, block) in graph.classes() {
            let parameters = block.work(&setting(sizes, sharding)).parameters;
            let held = (parameters.dense + parameters.expert) * u64::from(sharding.tensor_parallel);
            prop_assert!(held >= block.num_parameters(), "{}", block.name());
            let whole = block.work(&setting(sizes, Sharding::NONE)).parameters;
            prop_assert_eq!(whole.dense + whole.expert, block.num_parameters());
        }
    }

    #[test]
    fn a_larger_micro_batch_takes_longer_but_no_longer_than_its_parts(
        graph in graphs(), hardware in hardware(), sizes in sizes(), sharding in shardings(),
    ) {
        let twice = Sizes { micro_batch_size: 2 * sizes.micro_batch_size, ..sizes };
        for (_, block) in graph.classes() {
            let cost = |sizes| {
                let setting = setting(sizes, sharding);
                let cost = BlockPasses::new(block, &setting, &groups(sharding), &hardware);
                Seconds::from(cost.forward.compute + cost.backward.compute).get()
            };
            let (one, two) = (cost(sizes), cost(twice));
            // Where weights bound it, that is as long; fitted corrections are not monotone.
            prop_assert!(two >= one * 0.97, "{}: {one} s, twice as much {two} s", block.name());
            // Waves of tiles quantise the rate, which may cost a little.
            prop_assert!(two <= 2.0 * one * 1.1, "{}: {one} s, twice as much {two} s", block.name());
        }
    }
}

/// A Llama's layer under a framework, 8 sequences of 8192 on one rank of `sharding`.
fn cost(precision: Precision, sharding: Sharding, change: impl Fn(&mut Hardware)) -> BlockPasses {
    cost_of("layer", precision, sharding, change)
}

/// The same of the block called `name`.
fn cost_of(
    name: &str,
    precision: Precision,
    sharding: Sharding,
    change: impl Fn(&mut Hardware),
) -> BlockPasses {
    let model = json!({
        "architecture": "llama", "num_hidden_layers": 2, "hidden_size": 8192,
        "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28_672,
        "vocab_size": 32_000,
    });
    let model = Model::from_json(&model.to_string(), "model").expect("a model");
    let graph = model.graph(GraphOptions::default()).expect("a graph");
    let cluster = preset("h100").expect("a preset");
    let mut hardware = Hardware::new(&cluster, framework("torchtitan"), &training(precision))
        .expect("a precision");
    change(&mut hardware);
    let sizes = Sizes { micro_batch_size: 8, sequence_length: 8192 };
    let setting = ShardContext { fuses_projections: false, ..setting(sizes, sharding) };
    let mut blocks = graph.classes().map(|(_, block)| block);
    let block = blocks.find(|block| block.name() == name).expect("a block of the name");
    BlockPasses::new(block, &setting, &groups(sharding), &hardware)
}

/// Logits that buffers hold are held of all of the vocabulary where the loss takes all of it.
#[test]
fn logits_in_buffers_are_as_many_as_the_loss_takes() {
    let logits = 8 * 8192 * 32_000;
    for (taken, ranks) in [(Logits::Part, 4), (Logits::Whole, 1)] {
        let [without, with] = [0.0, 4.0].map(|each| {
            let head = cost_of("head", Precision::Bf16, Sharding::tensor(4), |hardware| {
                hardware.framework.tensor_parallel.logits = taken;
                hardware.framework.kernels.loss.buffer_bytes_per_logit = each;
            });
            head.saved[BlockRecompute::None]
        });
        assert_eq!(with.get() - without.get(), 4 * logits / ranks, "{taken:?}");
    }
}

/// The last of `n` ranks with plain pieces of a causal sequence has `(2 n - 1) / n` of the mean.
#[test]
fn plain_pieces_of_a_causal_sequence_are_uneven() {
    for context_parallel in [1u32, 2, 4, 8] {
        let sharding = Sharding { context_parallel, ..Sharding::NONE };
        let compute = |change: fn(&mut Hardware)| {
            Seconds::from(cost(Precision::Bf16, sharding, change).forward.compute).get()
        };
        let even = compute(|it| it.framework.context_parallel = CausalPieces::Balanced);
        let uneven = compute(|it| it.framework.context_parallel = CausalPieces::Plain);
        // At half the rate, attention takes twice as long, and the rest as long as before.
        let slow = compute(|it| {
            it.framework.context_parallel = CausalPieces::Balanced;
            it.device.training.attention_forward *= 0.5;
        });
        let attention = slow - even;
        let n = f64::from(context_parallel);
        let expected = if n > 1.0 { (2.0 * n - 1.0) / n - 1.0 } else { 0.0 };
        let found = (uneven - even) / attention;
        assert!((found - expected).abs() < 0.02, "{n} ranks: {found}, not {expected}");
    }
}

/// Passes of a layer on an A100, whose framework and setting are changed.
fn passes_on_a100(
    name: &str,
    attention: AttentionKernel,
    change: impl FnOnce(&mut Hardware, &mut ShardContext),
) -> BlockPasses {
    let model = Model::from_json(
        r#"{"architecture": "llama", "num_hidden_layers": 2, "hidden_size": 1024,
            "num_attention_heads": 16, "intermediate_size": 2816, "vocab_size": 32000}"#,
        "model",
    );
    let options = GraphOptions { attention, ..GraphOptions::default() };
    let graph = model.expect("a model").graph(options).expect("a graph");
    let cluster = preset("a100").expect("a preset");
    let mut hardware =
        Hardware::new(&cluster, framework(name), &training(Precision::Bf16)).expect("a precision");
    let sizes = Sizes { micro_batch_size: 1, sequence_length: 2048 };
    let mut setting = setting(sizes, Sharding::NONE);
    change(&mut hardware, &mut setting);
    BlockPasses::new(layer(&graph), &setting, &groups(Sharding::NONE), &hardware)
}

/// Where recompute ends with the last tensor that backward takes, the feed-forward's last product does not run again.
#[test]
fn recompute_may_end_before_the_last_product() {
    let recomputed = |end: RecomputeEnd| {
        let passes = passes_on_a100("fsdp2", AttentionKernel::Flash, |hardware, _| {
            hardware.framework.recompute_end = end;
        });
        Seconds::from(passes.recompute[BlockRecompute::Full].compute).get()
    };
    let less = recomputed(RecomputeEnd::Layer) - recomputed(RecomputeEnd::LastSaved);
    let gpu = &preset("a100").expect("a preset").gpu;
    let shape = MatmulShape { batch: 1, m: 2048, n: 1024, k: 2816 };
    let device = Device::of(gpu, &framework("fsdp2"));
    let product = device.training_matmul(Precision::Bf16, shape, Pass::Forward, None, 0.0);
    let product = product.time.get();
    assert!((product..1.6 * product).contains(&less), "{less}, a product of {product}");
}

/// The slowest of a job's GPUs is as many standard deviations slower as tables of order statistics say (Harter 1961,
/// *Expected values of normal order statistics*).
#[test]
fn a_job_is_as_fast_as_its_slowest_gpu() {
    let cluster = preset("a100").expect("a preset");
    let hardware = Hardware::new(&cluster, framework("fsdp2"), &training(Precision::Bf16));
    let hardware = hardware.expect("a precision");
    let bytes = Bytes::new(1 << 32);
    let time = |gpus: u32| {
        let among = hardware.clone().among(gpus);
        among.device.training_memory_bound(Precision::Bf16, bytes).get()
    };
    let spread = hardware.device.training.spread_of_speeds;
    for (gpus, deviations) in [(1, 0.0), (10, 1.539), (100, 2.508), (1000, 3.241), (10_000, 3.852)]
    {
        let found = (time(gpus) / time(1) - 1.0) / spread;
        assert!((found - deviations).abs() < 0.12, "{gpus} GPUs: {found}, not {deviations}");
    }
}

/// Hooks that gather parameters operator by operator cost the host time, and a slow host takes more of all its time.
#[test]
fn gathers_of_parameters_take_time_of_the_host() {
    let waits = |name: &str, gathers_by_operator: bool, pace: f64| {
        let passes = passes_on_a100(name, AttentionKernel::Flash, |hardware, setting| {
            hardware.device.training.host *= pace;
            setting.gathers_by_operator = gathers_by_operator;
        });
        passes.forward.host + passes.backward.host
    };
    assert!(waits("deepspeed", true, 1.0) > waits("deepspeed", false, 1.0));
    assert!(waits("deepspeed", false, 2.0) > waits("deepspeed", false, 1.0));
    // PyTorch FSDP gathers a block at once.
    assert_eq!(waits("fsdp2", true, 1.0), waits("fsdp2", false, 1.0));
}

/// Function by function, a softmax of scores touches several times what a fused one does.
#[test]
fn unfused_scores_take_longer_function_by_function() {
    let compute = |attention, fusion| {
        let passes = passes_on_a100("megatron-lm", attention, |hardware, _| {
            hardware.framework.kernels.fusion = fusion;
        });
        Seconds::from(passes.forward.compute + passes.backward.compute).get()
    };
    let slower =
        |attention| compute(attention, Fusion::Eager) - compute(attention, Fusion::Kernels);
    assert!(slower(AttentionKernel::Unfused) > 2.0 * slower(AttentionKernel::Flash));
}

/// Kernels that were tuned for their shapes are faster where a GPU's libraries choose badly by themselves.
#[test]
fn tuned_kernels_are_faster_on_amd_alone() {
    let compute = |cluster: &str, choice: KernelChoice| {
        let mut framework = framework("megatron-core");
        framework.kernels.choice = choice;
        let gpu = &preset(cluster).expect("a preset").gpu;
        let shape = MatmulShape { batch: 1, m: 8192, n: 8192, k: 8192 };
        Device::of(gpu, &framework)
            .training_matmul(Precision::Bf16, shape, Pass::Forward, None, 0.0)
            .time
    };
    assert!(compute("mi355x", KernelChoice::Tuned) < compute("mi355x", KernelChoice::Heuristic));
    assert_eq!(compute("h100", KernelChoice::Tuned), compute("h100", KernelChoice::Heuristic));
}

/// Inputs that are cast to 8 bits before they are gathered are half as many bytes, and less to cast.
#[test]
fn casting_before_gathering_saves_time() {
    let sharding = Sharding { sequence_parallel: true, ..Sharding::tensor(8) };
    let of = |precision, change: fn(&mut Hardware)| cost(precision, sharding, change);
    for (precision, saves) in [(Precision::Fp8, true), (Precision::Bf16, false)] {
        let first = of(precision, |it| it.framework.tensor_parallel.gathers = TensorGathers::Bits8);
        let then = of(precision, |it| it.framework.tensor_parallel.gathers = TensorGathers::Bits16);
        for (first, then) in [(first.forward, then.forward), (first.input_grad, then.input_grad)] {
            let [first_waits, then_waits] = [first, then].map(|pass| pass.waits(Axis::Tensor));
            assert_eq!(first_waits < then_waits, saves, "{precision:?}");
            assert_eq!(first.compute < then.compute, saves, "{precision:?}");
            // Sums are still scattered in 16 bits.
            assert!(first_waits.as_f64() > 0.6 * then_waits.as_f64(), "{precision:?}");
        }
    }
}

/// The kernel that adds a gradient of 16 bits to the sum reads both and writes the sum: 10 bytes for each
/// parameter of a linear layer where the sum is in fp32, 6 where it is not.
#[test]
fn gradients_are_added_up_once_a_micro_batch() {
    let projections = 2 * 8192 * (8192 + 1024);
    let parameters: u64 = projections + 3 * 8192 * 28_672;
    let cluster = preset("h100").expect("a preset");
    let training = training(Precision::Bf16);
    let device =
        Hardware::new(&cluster, framework("torchtitan"), &training).expect("a precision").device;
    for (fp32, bytes) in [(true, 10), (false, 6)] {
        let of = |accumulation: GradientAccumulation| {
            let changed = cost(Precision::Bf16, Sharding::NONE, |it| {
                it.framework.gradients.accumulation = accumulation;
                it.fp32_gradients = fp32;
            });
            Seconds::from(changed.weight_grad.compute).get()
        };
        let none = of(GradientAccumulation::None);
        let separate = of(GradientAccumulation::Separate) - none;
        let expected =
            device.training_memory_bound(Precision::Bf16, Bytes::new(parameters * bytes)).get();
        assert!((separate / expected - 1.0).abs() < 0.01, "{separate} s, not {expected}");
        let fused = of(GradientAccumulation::Fused) - none;
        assert!(fused > 0.0 && fused < 0.6 * separate, "{fused} of {separate}");
    }
}

/// A mixture with biases, gpt-oss's, and one without, Mixtral's, of the same sizes: each bias is weighted by
/// its tokens' weights, added, and all are joined; its gradient takes as many passes.
#[test]
fn biases_of_experts_are_added_by_passes_of_their_own() {
    let cluster = preset("b200").expect("a preset");
    let training = training(Precision::Bf16);
    let hardware =
        Hardware::new(&cluster, framework("megatron-core"), &training).expect("a precision it has");
    let sizes = Sizes { micro_batch_size: 4, sequence_length: 4096 };
    let setting = setting(sizes, Sharding::NONE);
    let last_product = |model_type: &str, pass: Pass| -> f64 {
        let model = json!({
            "model_type": model_type, "num_hidden_layers": 2, "hidden_size": 2880, "head_dim": 64,
            "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 2880,
            "vocab_size": 32_000, "num_local_experts": 16, "num_experts_per_tok": 4,
        });
        let model = Model::from_json(&model.to_string(), "model").expect("a model");
        let graph = model.graph(GraphOptions::default()).expect("a graph");
        terms(layer(&graph), &setting, &groups(Sharding::NONE), &hardware)
            .iter()
            .filter(|term| term.op == "mlp.experts.down" && term.pass == pass)
            .map(|term| term.time.get())
            .sum()
    };
    let output = Bytes::new(4 * 4096 * 4 * 2880 * 2);
    let passes =
        Bytes::from_f64(6.0 * output.as_f64() * hardware.framework.kernels.elementwise_traffic);
    let expected = hardware.device.training_memory_bound(hardware.precision, passes).get();
    for (pass, expected) in
        [(Pass::Forward, expected), (Pass::InputGrad, 0.0), (Pass::WeightGrad, expected)]
    {
        let bias = last_product("gpt_oss", pass) - last_product("mixtral", pass);
        assert!((bias - expected).abs() < 1e-9, "{pass:?}: {bias:e} s, not {expected:e} s");
    }
}

/// Ranks that share an expert add up what it puts out before it is sent back, and gather its gradient after it has come:
/// neither hides behind the exchange between experts, nor behind products, whatever the framework overlaps.
#[test]
fn exchanges_of_shared_experts_follow_each_other() {
    let sharding = Sharding {
        sequence_parallel: true,
        expert_parallel: 4,
        expert_tensor_parallel: 2,
        ..Sharding::tensor(2)
    };
    let model = json!({
        "model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14_336, "vocab_size": 32_000, "num_local_experts": 8,
        "num_experts_per_tok": 2,
    });
    let model = Model::from_json(&model.to_string(), "model").expect("a model");
    let graph = model.graph(GraphOptions::default()).expect("a graph");
    let sizes = Sizes { micro_batch_size: 1, sequence_length: 4096 };
    let setting = setting(sizes, sharding);
    for name in ["megatron-core", "megatron-lm", "maxtext", "torchtitan", "executor-cuda"] {
        let cluster = preset("a100").expect("a preset");
        let hardware = Hardware::new(&cluster, framework(name), &training(Precision::Bf16));
        let hardware = hardware.expect("a precision it has");
        let groups = Groups::of(&Mesh { sharding, data_parallel: 8 });
        let mut seen = 0;
        for term in terms(layer(&graph), &setting, &groups, &hardware) {
            let TermWork::Exchange(exchange, whole) = term.work else { continue };
            if matches!(exchange.axis, Axis::Expert | Axis::ExpertTensor) {
                seen += 1;
                let shown = term.time / whole;
                assert!((shown - 1.0).abs() < 1e-3, "{name}, {} {:?}: {shown}", term.op, term.pass);
            }
        }
        assert!(seen >= 6, "{name}: {seen}");
    }
}
