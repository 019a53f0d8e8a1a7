//! The models that ship, and others that are well known, with their parameter counts.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use ir::graph::{Activation, OpKind, RotaryScaling, Rotation};
use ir::model::{GraphOptions, Model, ModelError, TensorNames, known_architectures, tensor_names};

/// Total and active parameters of each file in `models/`: Hugging Face's from the hub's own metadata or the
/// transformers library, the GPTs' by `12 l h^2 + 13 l h + (V + s) h + 2 h` (Narayanan et al. 2021,
/// section 5.1, with the embedding of positions and the last norm).
const SHIPPED: &[(&str, u64, u64)] = &[
    ("bert-large-uncased/config.json", 335_174_458, 335_174_458),
    ("bloom-176b/config.json", 176_247_271_424, 176_247_271_424),
    ("deepseek-v3/config.json", 671_026_404_352, 37_552_282_624),
    ("falcon-40b/config.json", 41_303_293_952, 41_303_293_952),
    ("gemma-2-9b/config.json", 9_241_705_984, 9_241_705_984),
    ("glm-4.5-air/config.json", 106_852_245_504, 13_424_123_904),
    ("glm-4.5/config.json", 352_797_814_784, 33_632_251_904),
    ("gpt-neox-20b/config.json", 20_554_567_680, 20_554_567_680),
    ("gpt-oss-120b/config.json", 116_829_156_672, 5_711_982_912),
    ("gpt2/config.json", 124_439_808, 124_439_808),
    ("gpt3-175b.json", 174_615_846_912, 174_615_846_912),
    ("kimi-k2/config.json", 1_026_408_209_408, 32_861_477_888),
    ("llama-2-7b/config.json", 6_738_415_616, 6_738_415_616),
    ("llama-3.1-405b/config.json", 405_853_388_800, 405_853_388_800),
    ("llama-3.1-70b/config.json", 70_553_706_496, 70_553_706_496),
    ("llama-3.1-8b/config.json", 8_030_261_248, 8_030_261_248),
    ("megatron-1t.json", 1_008_038_758_400, 1_008_038_758_400),
    ("megatron-530b.json", 529_600_819_200, 529_600_819_200),
    ("minimax-m2/config.json", 228_689_748_992, 11_030_537_216),
    ("mistral-7b-v0.3/config.json", 7_248_023_552, 7_248_023_552),
    ("mixtral-8x7b/config.json", 46_702_792_704, 12_879_925_248),
    ("olmo-3-32b/config.json", 32_233_522_176, 32_233_522_176),
    ("olmo-3-7b/config.json", 7_298_011_136, 7_298_011_136),
    ("qwen3-30b-a3b/config.json", 30_532_122_624, 3_353_032_704),
    ("qwen3-8b/config.json", 8_190_735_360, 8_190_735_360),
    ("seed-oss-36b/config.json", 36_151_104_512, 36_151_104_512),
    ("smollm3-3b/config.json", 3_075_098_624, 3_075_098_624),
    ("t5-3b/config.json", 2_851_598_336, 2_851_598_336),
    ("vit-large-patch16-224/config.json", 304_326_632, 304_326_632),
];

#[test]
fn shipped_models_have_their_parameters() {
    for (file, total, active) in SHIPPED {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models").join(file);
        let text = fs::read_to_string(path).unwrap();
        let model = Model::from_json(&text, file).unwrap_or_else(|error| panic!("{file}: {error}"));
        let counts = model.graph(GraphOptions::default()).unwrap().parameter_counts();
        assert_eq!((counts.total, counts.active), (*total, *active), "{file}");
    }
}

/// Every file of `ir/families/` is read, under its own name.
#[test]
fn families_are_those_of_their_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("families");
    let stem = |entry: fs::DirEntry| entry.path().file_stem().unwrap().to_owned();
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|it| stem(it.unwrap())).collect();
    files.sort();
    let known = known_architectures();
    let known: Vec<_> = known.iter().map(|it| OsString::from(it.model_type)).collect();
    assert_eq!(known, files);
}

/// What files call a parameter of an operator, in a stack of layers or in none, by each of the names of a class.
fn tensors(architecture: &str, stack: Option<&str>, op: &str) -> Vec<Option<String>> {
    let name = |names: &TensorNames| {
        let module = names.module(stack, op, "weight")?;
        let prefix = stack.map_or(Some(""), |stack| names.prefix(stack))?;
        Some(format!("{prefix}{}", module.name))
    };
    tensor_names(architecture).iter().map(name).collect()
}

/// A family's own names go before those that it has from another; so do those of one stack of layers, and of gated
/// blocks.
#[test]
fn families_name_their_tensors() {
    let check = |architecture: &str, stack: Option<&str>, op: &str, expected: [Option<&str>; 2]| {
        let found = tensors(architecture, stack, op);
        let found: Vec<Option<&str>> = found.iter().map(Option::as_deref).collect();
        assert_eq!(found, expected, "{architecture} {op}");
    };
    let alike = |name: &'static str| [Some(name); 2];
    let layer = Some("layer");
    check("llama", layer, "attention.query", alike("model.layers.#.self_attn.q_proj"));
    check("Qwen3MoeForCausalLM", layer, "mlp.router", alike("model.layers.#.mlp.gate"));
    check("MixtralForCausalLM", layer, "mlp.router", alike("model.layers.#.block_sparse_moe.gate"));
    check("kimi_k2", Some("mtp"), "mtp.projection", alike("model.layers.#.eh_proj"));
    check("gpt", None, "embedding.positions", alike("transformer.wpe"));
    check("Gemma3ForCausalLM", None, "head.norm", alike("model.norm"));
    check("gemma3", None, "head.norm", alike("language_model.model.norm"));
    let wi = |stack: &str, layer: u32| {
        ["wi", "wi_1"].map(|wi| format!("{stack}.block.#.layer.{layer}.DenseReluDense.{wi}"))
    };
    for (stack, names) in [("encoder", wi("encoder", 1)), ("layer", wi("decoder", 2))] {
        check("t5", Some(stack), "mlp.up", names.each_ref().map(|name| Some(name.as_str())));
    }
    check("t5", layer, "mlp.gate", [None, Some("decoder.block.#.layer.2.DenseReluDense.wi_0")]);
    assert!(tensor_names("native graph").is_empty());
}

/// Variants that the shipped models have not, with the totals of the hub's metadata.
#[test]
fn well_known_models_have_their_parameters() {
    check_each(include_str!("cases/published.json"));
}

/// Small variants of every architecture, with the counts of transformers 4.57.6 on PyTorch 2.6:
/// biases, norms, ties and placements on and off.
#[test]
fn variants_have_the_parameters_that_transformers_builds() {
    check_each(include_str!("cases/transformers.json"));
}

/// Configurations that state their widths alone, with the counts of transformers 5.24.0 on PyTorch 2.15: the defaults
/// of each family's class.
#[test]
fn families_have_the_defaults_of_their_classes() {
    check_each(include_str!("cases/class_defaults.json"));
}

/// Whole configurations of newer families, of few layers, with the counts of transformers 5.24.0.
#[test]
fn newer_families_have_the_parameters_that_transformers_builds() {
    check_each(include_str!("cases/recent.json"));
}

/// Published configurations of models whose code is their authors' alone, of few layers, and variants: every tensor of
/// that code added up by hand.
#[test]
fn models_with_code_of_their_own_have_its_parameters() {
    check_each(include_str!("cases/authors.json"));
}

/// Classes without a head, and with heads of labels, spans and rewards, with the counts of transformers 5.24.0. Those of reward
/// models of their authors, and of names that trainers write, by hand.
#[test]
fn other_heads_have_the_parameters_that_transformers_builds() {
    check_each(include_str!("cases/heads.json"));
}

/// Multimodal models with few layers of text, with the counts of transformers 5.24.0: towers and projectors too. Kimi
/// K3's, which the library lacks, by hand.
#[test]
fn multimodal_models_have_their_towers() {
    let cases = include_str!("cases/multimodal.json");
    let cases: Vec<(u64, serde_json::Value)> = serde_json::from_str(cases).unwrap();
    for (num_parameters, config) in cases {
        let model = Model::from_json(&config.to_string(), "model").unwrap();
        let besides: u64 = model.besides.iter().map(|part| part.num_parameters).sum();
        let counts = model.graph(GraphOptions::default()).unwrap().parameter_counts();
        let family = &config["model_type"];
        assert!(
            besides > 0 && counts.total + besides == num_parameters,
            "{family} {num_parameters}"
        );
    }
}

/// Families that are counted without a graph, at small sizes, with the counts of transformers 5.24.0. Ouro 1.4B's is
/// that of the hub's metadata.
#[test]
fn families_without_a_graph_are_counted() {
    let cases = include_str!("cases/counted.json");
    let cases: Vec<(u64, serde_json::Value)> = serde_json::from_str(cases).unwrap();
    for (num_parameters, config) in cases {
        let family = &config["model_type"];
        let Err(ModelError::CountedAlone { parts, .. }) =
            Model::from_json(&config.to_string(), "model")
        else {
            panic!("{family} has a graph, or is not counted")
        };
        let counted: u64 = parts.iter().map(|part| part.num_parameters).sum();
        assert_eq!(counted, num_parameters, "{family}");
    }
}

/// Checks each pair of a number of parameters and a configuration.
fn check_each(cases: &str) {
    let cases: Vec<(u64, serde_json::Value)> = serde_json::from_str(cases).unwrap();
    for (num_parameters, config) in cases {
        check(&config.to_string(), num_parameters);
    }
}

fn check(config: &str, num_parameters: u64) {
    let model =
        Model::from_json(config, "model").unwrap_or_else(|error| panic!("{config}: {error}"));
    let counts = model.graph(GraphOptions::default()).unwrap().parameter_counts();
    assert_eq!(counts.total, num_parameters, "{config}");
}

/// The files that ship, as their configurations say.
#[test]
fn numbers_of_operators_are_those_of_the_configuration() {
    let read = |name: &str| {
        let path = format!("{}/../models/{name}/config.json", env!("CARGO_MANIFEST_DIR"));
        let model = Model::from_json(&fs::read_to_string(path).unwrap(), name).unwrap();
        let graph = model.graph(GraphOptions::default()).unwrap();
        let ops = graph.classes().flat_map(|(_, block)| block.nodes());
        ops.map(|node| node.op.clone()).collect::<Vec<_>>()
    };
    let llama = read("llama-3.1-8b");
    let rotations = llama.iter().filter_map(|op| match &op.kind {
        OpKind::Rotary(rotation) => Some(rotation),
        _ => None,
    });
    let scaling = RotaryScaling::Llama3 {
        factor: 8.0.into(),
        low_freq_factor: 1.0.into(),
        high_freq_factor: 4.0.into(),
        original_max_position_embeddings: 8192.0.into(),
    };
    let expected = Rotation { scaling, ..Rotation::plain(500_000.0) };
    assert!(
        rotations.count() == 2
            && llama.iter().any(|op| op.kind == OpKind::Rotary(expected.clone()))
    );
    let epsilons = llama.iter().filter_map(|op| match op.kind {
        OpKind::Norm { epsilon, .. } => Some(epsilon.0),
        _ => None,
    });
    assert!(epsilons.eq([1e-5; 3]));
    let gelu = OpKind::Activation(Activation::GeluTanh);
    assert!(read("gpt2").iter().any(|op| op.kind == gelu));
    assert!(read("gemma-2-9b").iter().any(|op| op.kind == OpKind::SoftCap { cap: 30.0.into() }));
}
