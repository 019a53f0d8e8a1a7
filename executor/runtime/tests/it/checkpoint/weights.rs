//! Files of weights, as Hugging Face publishes them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use executor_kernels::array::Element;
use executor_runtime::checkpoint::{
    CheckpointError, ModelParameter, Naming, Shard, Stored, Weights, WeightsWriter,
};
use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize_to_file};

use super::{id, message, model, places, reference};

const REFERENCES: [&str; 4] = ["llama", "llama3", "gpt2", "mixtral"];

/// The names in files of a reference model, and its parameters.
fn names(reference_name: &str) -> (Naming, Vec<ModelParameter>) {
    let config = fs::read_to_string(reference(reference_name).join("config.json")).unwrap();
    let (architecture, parameters) = model(&config);
    (Naming::of(&architecture, &parameters), parameters)
}

fn open(reference_name: &str) -> (Weights, Vec<ModelParameter>) {
    let (naming, parameters) = names(reference_name);
    (Weights::open(&reference(reference_name), &naming, &parameters).unwrap(), parameters)
}

fn whole(weights: &Weights, parameter: &ModelParameter) -> Vec<f64> {
    weights.read(&parameter.id, &Shard::whole(&parameter.shape).part).unwrap()
}

/// The tensors of a file: shape, and values as numbers of four bytes.
fn contents(path: &Path) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors = file.iter().map(|(name, tensor)| {
        assert_eq!(tensor.dtype(), Dtype::F32);
        let (chunks, _) = tensor.data().as_chunks();
        let values = chunks.iter().copied().map(f32::from_le_bytes).collect();
        (name.to_owned(), (tensor.shape().to_vec(), values))
    });
    tensors.collect()
}

#[test]
fn every_tensor_is_a_parameter_and_every_parameter_a_tensor() {
    for name in REFERENCES {
        let (naming, parameters) = names(name);
        let tensors = contents(&reference(name).join("model.safetensors"));
        let mut uses: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for parameter in &parameters {
            let stored = naming.stored(parameter).unwrap();
            let fused = stored.fused.map_or(1, |fused| fused.total / fused.block);
            let mut num_elements = 0;
            for tensor in stored.tensors {
                assert_eq!(tensors[&tensor].0, stored.shape, "{name}: {tensor}");
                num_elements += tensors[&tensor].1.len() / fused;
                let part = stored.fused.map_or(0, |fused| fused.first / fused.block);
                uses.entry(tensor).or_default().push(part);
            }
            assert_eq!(num_elements, parameter.num_elements(), "{name}: {}", parameter.id);
        }
        assert_eq!(uses.len(), tensors.len(), "{name}");
        for (tensor, mut parts) in uses {
            parts.sort_unstable();
            let expected: &[usize] = if tensor.contains("c_attn") { &[0, 1, 2] } else { &[0] };
            assert_eq!(parts, expected, "{name}: {tensor}");
        }
    }
}

/// Compares an element of a parameter with one of a tensor, by index in each.
#[track_caller]
fn check_element(name: &str, parameter: &str, index: &[usize], tensor: &str, there: &[usize]) {
    let flat = |shape: &[usize], index: &[usize]| {
        assert_eq!(shape.len(), index.len());
        shape.iter().zip(index).fold(0, |place, (size, index)| place * size + index)
    };
    let (weights, _) = open(name);
    let part: Vec<_> = index.iter().map(|index| *index..index + 1).collect();
    let found = weights.read(&id(parameter), &part).unwrap();
    let tensors = contents(&reference(name).join("model.safetensors"));
    let (shape, values) = &tensors[tensor];
    assert_eq!(found, [f64::from(values[flat(shape, there)])]);
}

/// Heads of 16 features: head 2, feature 5 is output 37. In Mixtral heads have 8, in GPT-2 12.
#[test]
fn elements_are_where_transformers_has_them() {
    let layer = "model.layers.1";
    let q_proj = format!("{layer}.self_attn.q_proj.weight");
    check_element("llama", "2.attention.query.weight", &[7, 2, 5], &q_proj, &[37, 7]);
    let v_proj = format!("{layer}.self_attn.v_proj.weight");
    check_element("llama", "2.attention.value.weight", &[63, 1, 15], &v_proj, &[31, 63]);
    let o_proj = format!("{layer}.self_attn.o_proj.weight");
    check_element("llama", "2.attention.output.weight", &[2, 5, 7], &o_proj, &[7, 37]);
    let down = format!("{layer}.mlp.down_proj.weight");
    check_element("llama", "2.mlp.down.weight", &[170, 3], &down, &[3, 170]);
    let norm = format!("{layer}.post_attention_layernorm.weight");
    check_element("llama", "2.mlp.norm.weight", &[9], &norm, &[9]);
    check_element(
        "llama",
        "0.embedding.tokens.weight",
        &[9, 8],
        "model.embed_tokens.weight",
        &[9, 8],
    );
    check_element("llama", "3.head.weight", &[9, 100], "lm_head.weight", &[100, 9]);
    check_element("llama", "3.head.norm.weight", &[9], "model.norm.weight", &[9]);

    let expert = "model.layers.0.block_sparse_moe.experts.3";
    let (gate, up, down) = (
        format!("{expert}.w1.weight"),
        format!("{expert}.w3.weight"),
        format!("{expert}.w2.weight"),
    );
    check_element("mixtral", "1.mlp.experts.gate.weight", &[3, 30, 40], &gate, &[40, 30]);
    check_element("mixtral", "1.mlp.experts.up.weight", &[3, 30, 40], &up, &[40, 30]);
    check_element("mixtral", "1.mlp.experts.down.weight", &[3, 40, 30], &down, &[30, 40]);
    let router = "model.layers.0.block_sparse_moe.gate.weight";
    check_element("mixtral", "1.mlp.router.weight", &[30, 2], router, &[2, 30]);

    let fused = "transformer.h.1.attn.c_attn";
    let (weight, bias) = (format!("{fused}.weight"), format!("{fused}.bias"));
    for (part, name) in ["query", "key", "value"].into_iter().enumerate() {
        let column = part * 48 + 2 * 12 + 5;
        let parameter = format!("2.attention.{name}.weight");
        check_element("gpt2", &parameter, &[7, 2, 5], &weight, &[7, column]);
        check_element("gpt2", &format!("2.attention.{name}.bias"), &[2, 5], &bias, &[column]);
    }
    let down = "transformer.h.0.mlp.c_proj.weight";
    check_element("gpt2", "1.mlp.down.weight", &[190, 3], down, &[190, 3]);
    let positions = "transformer.wpe.weight";
    check_element("gpt2", "0.embedding.positions.weight", &[60, 3], positions, &[60, 3]);
}

/// The names of a model's parameters in one layer and of those that are in none.
fn check_names(text: &str, layer: u32, expected: &str) {
    let (architecture, parameters) = model(text);
    let naming = Naming::of(&architecture, &parameters);
    let shown = parameters.iter().filter(|p| p.layer.is_none_or(|found| found == layer));
    let lines = shown.map(|parameter| {
        let Stored { tensors, shape, .. } = naming.stored(parameter).unwrap();
        format!("{} = {} {shape:?}", parameter.id, tensors.join(" "))
    });
    assert_eq!(lines.collect::<Vec<_>>().join("\n"), expected.trim());
}

#[test]
fn models_have_the_names_of_transformers() {
    check_names(
        r#"{"model_type": "qwen3_moe", "hidden_size": 8, "num_hidden_layers": 2, "head_dim": 4,
            "num_attention_heads": 2, "num_key_value_heads": 1, "moe_intermediate_size": 6,
            "num_experts": 2, "num_experts_per_tok": 1, "vocab_size": 16, "intermediate_size": 12,
            "mlp_only_layers": [0], "tie_word_embeddings": true}"#,
        1,
        "
0.embedding.tokens.weight = model.embed_tokens.weight [16, 8]
2.attention.norm.weight = model.layers.1.input_layernorm.weight [8]
2.attention.query.weight = model.layers.1.self_attn.q_proj.weight [8, 8]
2.attention.key.weight = model.layers.1.self_attn.k_proj.weight [4, 8]
2.attention.value.weight = model.layers.1.self_attn.v_proj.weight [4, 8]
2.attention.query_norm.weight = model.layers.1.self_attn.q_norm.weight [4]
2.attention.key_norm.weight = model.layers.1.self_attn.k_norm.weight [4]
2.attention.output.weight = model.layers.1.self_attn.o_proj.weight [8, 8]
2.mlp.norm.weight = model.layers.1.post_attention_layernorm.weight [8]
2.mlp.router.weight = model.layers.1.mlp.gate.weight [2, 8]
2.mlp.experts.gate.weight = model.layers.1.mlp.experts.0.gate_proj.weight model.layers.1.mlp.experts.1.gate_proj.weight [6, 8]
2.mlp.experts.up.weight = model.layers.1.mlp.experts.0.up_proj.weight model.layers.1.mlp.experts.1.up_proj.weight [6, 8]
2.mlp.experts.down.weight = model.layers.1.mlp.experts.0.down_proj.weight model.layers.1.mlp.experts.1.down_proj.weight [8, 6]
3.head.norm.weight = model.norm.weight [8]
",
    );
    check_names(
        r#"{"model_type": "qwen2", "hidden_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 6,
            "vocab_size": 16}"#,
        0,
        "
0.embedding.tokens.weight = model.embed_tokens.weight [16, 8]
1.attention.norm.weight = model.layers.0.input_layernorm.weight [8]
1.attention.query.weight = model.layers.0.self_attn.q_proj.weight [8, 8]
1.attention.query.bias = model.layers.0.self_attn.q_proj.bias [8]
1.attention.key.weight = model.layers.0.self_attn.k_proj.weight [4, 8]
1.attention.key.bias = model.layers.0.self_attn.k_proj.bias [4]
1.attention.value.weight = model.layers.0.self_attn.v_proj.weight [4, 8]
1.attention.value.bias = model.layers.0.self_attn.v_proj.bias [4]
1.attention.output.weight = model.layers.0.self_attn.o_proj.weight [8, 8]
1.mlp.norm.weight = model.layers.0.post_attention_layernorm.weight [8]
1.mlp.gate.weight = model.layers.0.mlp.gate_proj.weight [6, 8]
1.mlp.up.weight = model.layers.0.mlp.up_proj.weight [6, 8]
1.mlp.down.weight = model.layers.0.mlp.down_proj.weight [8, 6]
2.head.norm.weight = model.norm.weight [8]
2.head.weight = lm_head.weight [16, 8]
",
    );
}

/// A GPT with experts or with fewer key heads is none of transformers' GPT-2.
#[test]
fn models_without_a_counterpart_have_our_names() {
    let sizes = r#""hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
                   "vocab_size": 16"#;
    for (first, rest, expected) in [
        (r#""architecture": "gpt""#, "", Some("GPT2LMHeadModel")),
        (r#""architecture": "gpt""#, r#", "num_key_value_heads": 1"#, None),
        (r#""architecture": "gpt""#, r#", "num_experts": 4, "num_experts_per_tok": 2"#, None),
        (r#""architecture": "llama""#, "", Some("LlamaForCausalLM")),
        (
            r#""architecture": "llama""#,
            r#", "num_experts": 4, "num_experts_per_tok": 2"#,
            Some("LlamaForCausalLM"),
        ),
    ] {
        let (architecture, parameters) = model(&format!("{{{first}, {sizes}{rest}}}"));
        assert_eq!(Naming::of(&architecture, &parameters).class(), expected, "{first}{rest}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_part_is_what_it_is_of_the_whole(
        name in proptest::sample::select(&REFERENCES[..]),
        which: prop::sample::Index,
        ranges in prop::collection::vec((0.0f64..=1.0, 0.0f64..=1.0, any::<bool>()), 3),
    ) {
        let (weights, parameters) = open(name);
        let parameter = which.get(&parameters);
        let part: Vec<_> = parameter.shape.iter().zip(ranges).map(|(size, (a, b, is_whole))| {
            let [a, b] = [a, b].map(|x| (x * *size as f64) as usize);
            if is_whole { 0..*size } else { a.min(b)..a.max(b) }
        }).collect();
        let all = whole(&weights, parameter);
        let expected: Vec<f64> =
            places(&parameter.shape, &part).into_iter().map(|place| all[place]).collect();
        prop_assert_eq!(weights.read(&parameter.id, &part).unwrap(), expected);
    }
}

#[test]
fn what_is_written_is_what_was_read() {
    let directory = tempfile::tempdir().unwrap();
    for name in REFERENCES {
        let (naming, parameters) = names(name);
        let (weights, _) = open(name);
        let path = directory.path().join(name);
        let mut writer =
            WeightsWriter::create(&path, |p| naming.stored(p), &parameters, Element::F32).unwrap();
        for parameter in parameters.iter().rev() {
            writer.write(&parameter.id, &whole(&weights, parameter)).unwrap();
        }
        writer.finish().unwrap();
        assert!(contents(&path) == contents(&reference(name).join("model.safetensors")), "{name}");
        let bytes = fs::read(&path).unwrap();
        let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
        assert_eq!(metadata.metadata().as_ref().unwrap()["format"], "pt");
    }
}

#[test]
fn elements_may_be_of_four_types() {
    let directory = tempfile::tempdir().unwrap();
    let (theirs, parameters) = names("mixtral");
    let (weights, _) = open("mixtral");
    // Half a unit in the last place; numbers below 2^-14 have the same error in F16.
    for (element, relative_error, absolute_error) in [
        (Element::F64, 0.0, 0.0),
        (Element::F32, 0.0, 0.0),
        (Element::BF16, 2f64.powi(-8), 0.0),
        (Element::F16, 2f64.powi(-11), 2f64.powi(-25)),
    ] {
        for naming in [theirs.clone(), Naming::native()] {
            let path = directory.path().join("weights.safetensors");
            let mut writer =
                WeightsWriter::create(&path, |p| naming.stored(p), &parameters, element).unwrap();
            for parameter in &parameters {
                writer.write(&parameter.id, &whole(&weights, parameter)).unwrap();
            }
            writer.finish().unwrap();
            let again = Weights::open(&path, &naming, &parameters).unwrap();
            for parameter in &parameters {
                let values = whole(&weights, parameter).into_iter().zip(whole(&again, parameter));
                for (value, rounded) in values {
                    let bound = absolute_error.max(relative_error * value.abs());
                    assert!((value - rounded).abs() <= bound, "{element:?}: {value} {rounded}");
                }
            }
        }
    }
}

#[test]
fn a_model_may_be_in_several_files() {
    let directory = tempfile::tempdir().unwrap();
    let (naming, parameters) = names("gpt2");
    let bytes = fs::read(reference("gpt2").join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut map = BTreeMap::new();
    let mut halves: [Vec<(String, TensorView<'_>)>; 2] = Default::default();
    let mut tensors: Vec<_> = file.iter().collect();
    tensors.sort_by_key(|(name, _)| (*name).to_owned());
    for (index, (name, tensor)) in tensors.into_iter().enumerate() {
        // As saved by the model without its head.
        let name = name.strip_prefix("transformer.").unwrap().to_owned();
        map.insert(name.clone(), format!("model-{}.safetensors", index % 2));
        halves[index % 2].push((name, tensor));
    }
    for (half, tensors) in halves.into_iter().enumerate() {
        let path = directory.path().join(format!("model-{half}.safetensors"));
        serialize_to_file(tensors, None, &path).unwrap();
    }
    let index = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map});
    fs::write(directory.path().join("model.safetensors.index.json"), index.to_string()).unwrap();

    let several = Weights::open(directory.path(), &naming, &parameters).unwrap();
    let (one, _) = open("gpt2");
    for parameter in &parameters {
        assert!(whole(&several, parameter) == whole(&one, parameter), "{}", parameter.id);
    }

    fs::remove_file(directory.path().join("model-1.safetensors")).unwrap();
    let missing = Weights::open(directory.path(), &naming, &parameters).unwrap_err();
    assert_eq!(message(&missing, directory.path()), "cannot read `model-1.safetensors`");
    let hostile = r#"{"weight_map": {"a": "../a.safetensors"}}"#;
    fs::write(directory.path().join("model.safetensors.index.json"), hostile).unwrap();
    let hostile = Weights::open(directory.path(), &naming, &parameters).unwrap_err();
    assert_eq!(
        message(&hostile, directory.path()),
        "`model.safetensors.index.json` cannot be understood: `../a.safetensors` is no file beside it"
    );
}

/// What is wrong with a file of one tensor, for a table of 4 rows of 2 numbers.
fn check_refused(name: &str, dtype: Dtype, shape: &[usize], expected: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.safetensors");
    let bytes = vec![0; shape.iter().product::<usize>() * dtype.bitsize() / 8];
    let tensor = TensorView::new(dtype, shape.to_vec(), &bytes).unwrap();
    serialize_to_file([(name, tensor)], None, &path).unwrap();
    let (architecture, parameters) = model(
        r#"{"architecture": "llama", "hidden_size": 2, "num_hidden_layers": 1,
            "num_attention_heads": 1, "vocab_size": 4}"#,
    );
    let naming = Naming::of(&architecture, &parameters);
    let weights = Weights::open(&path, &naming, &parameters).unwrap();
    let errors = [
        weights.read(&parameters[0].id, &[0..4, 0..2]).unwrap_err(),
        // Before anything is read.
        weights.check().unwrap_err(),
    ];
    for error in errors {
        assert_eq!(message(&error, directory.path()), expected);
    }
}

/// The tensor of one expert counts as much as the first's.
#[test]
fn every_tensor_of_a_parameter_is_checked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.safetensors");
    let bytes = fs::read(reference("mixtral").join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let changed = "model.layers.1.block_sparse_moe.experts.2.w1.weight";
    let tensors = file.iter().map(|(name, tensor)| {
        let dtype = if name == changed { Dtype::I32 } else { tensor.dtype() };
        (name, TensorView::new(dtype, tensor.shape().to_vec(), tensor.data()).unwrap())
    });
    serialize_to_file(tensors, None, &path).unwrap();
    let (naming, parameters) = names("mixtral");
    let error = Weights::open(&path, &naming, &parameters).unwrap().check().unwrap_err();
    let said = message(&error, directory.path());
    assert!(said.contains(changed) && said.contains("elements I32"), "{said}");
}

#[test]
fn other_models_are_refused() {
    check_refused(
        "wte.weight",
        Dtype::F32,
        &[4, 2],
        "`a.safetensors` has no tensor `model.embed_tokens.weight` for parameter \
         `0.embedding.tokens.weight`\nhint: it has 1 tensors, the first `wte.weight`",
    );
    check_refused(
        "model.embed_tokens.weight",
        Dtype::F32,
        &[2, 4],
        "`a.safetensors`: tensor `model.embed_tokens.weight` has shape [2, 4], but parameter \
         `0.embedding.tokens.weight` of the model needs [4, 2]",
    );
    check_refused(
        "model.embed_tokens.weight",
        Dtype::F8_E4M3,
        &[4, 2],
        "`a.safetensors`: tensor `model.embed_tokens.weight` has elements F8_E4M3, but F64, F32, \
         BF16 or F16 can be read",
    );
}

#[test]
fn files_that_are_cut_short_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (naming, parameters) = names("llama3");
    let bytes = fs::read(reference("llama3").join("model.safetensors")).unwrap();
    let path = directory.path().join("model.safetensors");
    for len in [0, 1, 7, 8, 9, 100, 1000, 5000, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&path, &bytes[..len]).unwrap();
        let error = Weights::open(directory.path(), &naming, &parameters).unwrap_err();
        let CheckpointError::Size { expected, found, .. } = error else { panic!("{error}") };
        assert_eq!(found, len as u64);
        assert!(expected > found && expected <= bytes.len() as u64, "{expected}");
        assert!(expected == bytes.len() as u64 || len <= 5000);
    }
    fs::write(&path, b"<!DOCTYPE html><html></html>").unwrap();
    let html = Weights::open(directory.path(), &naming, &parameters).unwrap_err();
    assert_eq!(
        message(&html, directory.path()),
        "`model.safetensors` cannot be understood: header too large"
    );
    fs::remove_file(&path).unwrap();
    let empty = Weights::open(directory.path(), &naming, &parameters).unwrap_err();
    assert!(matches!(empty, CheckpointError::NoWeights { .. }), "{empty}");
}

#[test]
fn a_file_that_is_not_finished_leaves_the_old_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.safetensors");
    fs::write(&path, "old").unwrap();
    let (naming, parameters) = names("llama3");
    let mut writer =
        WeightsWriter::create(&path, |p| naming.stored(p), &parameters, Element::BF16).unwrap();
    writer.write(&parameters[1].id, &vec![0.0; parameters[1].num_elements()]).unwrap();
    let error = writer.finish().unwrap_err();
    assert_eq!(
        message(&error, directory.path()),
        "parameter `0.embedding.tokens.weight` was not written to `model.safetensors`"
    );
    drop(WeightsWriter::create(&path, |p| naming.stored(p), &parameters, Element::BF16).unwrap());
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// Files may have buffers in addition to the parameters, but no tensors of another model.
#[test]
fn extra_tensors_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.safetensors");
    let (naming, parameters) = names("llama");
    let bytes = fs::read(reference("llama").join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let number = [0; 4];
    let open = |extra: &str| {
        let tensor = TensorView::new(Dtype::F32, vec![1], &number).unwrap();
        let tensors = file.iter().map(|(name, tensor)| (name.to_owned(), tensor));
        let tensors: Vec<_> = tensors.chain([(extra.to_owned(), tensor)]).collect();
        serialize_to_file(tensors, None, &path).unwrap();
        Weights::open(&path, &naming, &parameters)
    };
    open("model.layers.0.self_attn.rotary_emb.inv_freq").unwrap();
    let error = open("model.layers.0.self_attn.q_proj.bias").unwrap_err();
    assert_eq!(
        message(&error, directory.path()),
        "`a.safetensors` has 1 tensors that the model has no parameter for, the first \
         `model.layers.0.self_attn.q_proj.bias`\nhint: give the model and the weights of one folder"
    );
}
