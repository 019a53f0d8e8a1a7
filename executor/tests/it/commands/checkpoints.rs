//! Runs that end and go on, and weights that come and go.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use super::{RunFolder, check_close, plan};

#[test]
fn a_run_goes_on_as_if_it_had_not_ended() {
    for (plan, more) in [
        ("tp2-pp2.json", ""),
        ("dp2-zero3.json", "--precision bf16"),
        ("pp2-zbv.json", "--warmup-steps 2 --decay-steps 6"),
        ("ep2-dp2.json", "--precision fp16"),
        ("toy-mlp.json", "--seed 5"),
    ] {
        let place = RunFolder::new();
        let whole = place.train(plan, 6, more).losses();
        let first = place.train(plan, 4, &format!("{more} --checkpoint kept")).losses();
        let rest = place.train(plan, 6, &format!("{more} --checkpoint kept"));
        assert!(rest.stderr.contains("going on from `kept/step-00000004`"), "{}", rest.stderr);
        assert_eq!(rest.lines()[0]["step"], 5, "{plan}");
        assert_eq!([first, rest.losses()].concat(), whole, "{plan}");

        // With nothing left to do it does nothing.
        let before = place.listing();
        let done = place.train(plan, 6, &format!("{more} --checkpoint kept"));
        assert_eq!((done.code, done.stdout.as_str()), (Some(0), ""), "{done:?}");
        assert!(done.stderr.contains("all 6 steps are done"), "{}", done.stderr);
        assert_eq!(place.listing(), before, "{plan}");
    }
}

#[test]
fn another_layout_goes_on() {
    let exact = "--precision fp64 --checkpoint kept";
    let whole = RunFolder::new().train("one.json", 6, "--precision fp64").losses();
    for (first, second) in [
        ("tp2-pp2.json", "dp2-zero3.json"),
        ("dp2-zero3.json", "pp2-zbv.json"),
        ("pp2-zbv.json", "tp2-pp2.json"),
    ] {
        let place = RunFolder::new();
        let losses = place.train(first, 3, exact).losses();
        let rest = place.train(second, 6, exact).losses();
        check_close(&[losses, rest].concat(), &whole, &format!("{first}, then {second}"));
    }
}

#[test]
fn checkpoints_are_kept_as_asked() {
    let place = RunFolder::new();
    let args = "--checkpoint kept --checkpoint-every 2 --keep-checkpoints 3";
    assert_eq!(place.train("toy-mlp.json", 9, args).code, Some(0));
    let mut names: Vec<_> =
        fs::read_dir(place.path("kept")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["step-00000006", "step-00000008", "step-00000009"]);
}

/// What a broken newest checkpoint is passed over for is said.
#[test]
fn an_earlier_checkpoint_serves_where_the_newest_is_broken() {
    let place = RunFolder::new();
    let whole = place.train("one.json", 4, "").losses();
    let args = "--checkpoint kept --checkpoint-every 2";
    assert_eq!(place.train("one.json", 4, args).code, Some(0));
    fs::create_dir(place.path("kept/step-00000005.partial")).unwrap();
    let file = place.path("kept/step-00000004/rank-00000.safetensors");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let run = place.train("one.json", 4, args);
    assert_eq!(run.losses(), whole[2..]);
    let lines: Vec<&str> = run.stderr.lines().collect();
    for (word, number) in [("step-00000005.partial", 1), ("rank-00000.safetensors", 1)] {
        let warnings =
            lines.iter().filter(|line| line.starts_with("warning: ") && line.contains(word));
        assert_eq!(warnings.count(), number, "{word}: {}", run.stderr);
    }
    assert!(run.stderr.contains("going on from `kept/step-00000002`"), "{}", run.stderr);
}

/// Nothing was kept yet, so nothing is lost: a job that is started again and again must not get stuck.
#[test]
fn a_run_whose_first_checkpoint_was_interrupted_begins_anew() {
    let place = RunFolder::new();
    let expected = place.train("one.json", 2, "").losses();
    fs::create_dir_all(place.path("kept/step-00000001.partial")).unwrap();
    let run = place.train("one.json", 2, "--checkpoint kept");
    assert_eq!(run.losses(), expected);
    let warning = "warning: a checkpoint is passed over: checkpoint `kept/step-00000001.partial`";
    assert!(run.stderr.contains(warning), "{}", run.stderr);
    assert!(place.path("kept/step-00000002/manifest.json").exists());
    assert!(!place.path("kept/step-00000001.partial").exists());
}

#[test]
fn weights_come_out_by_their_names_and_go_in_again() {
    for (name, names) in [
        (
            "tp2-pp2.json",
            &[
                ("model.embed_tokens.weight", &[256, 32][..]),
                ("model.layers.0.self_attn.q_proj.weight", &[32, 32]),
                ("model.layers.3.self_attn.k_proj.weight", &[16, 32]),
                ("model.layers.1.mlp.gate_proj.weight", &[64, 32]),
                ("model.layers.2.input_layernorm.weight", &[32]),
                ("model.norm.weight", &[32]),
                ("lm_head.weight", &[256, 32]),
            ][..],
        ),
        (
            "ep2-dp2.json",
            &[
                ("model.layers.1.block_sparse_moe.gate.weight", &[4, 32]),
                ("model.layers.0.block_sparse_moe.experts.3.w1.weight", &[48, 32]),
            ],
        ),
    ] {
        let place = RunFolder::new();
        // A learning rate of zero leaves the first weights as they are.
        assert_eq!(place.train(name, 1, "--learning-rate 0 --checkpoint kept").code, Some(0));
        let run = place.run(&format!("export kept {name} -o out.safetensors"));
        assert_eq!(run.code, Some(0), "{run:?}");
        let bytes = fs::read(place.path("out.safetensors")).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let found: BTreeMap<String, Vec<usize>> = tensors
            .tensors()
            .into_iter()
            .map(|(name, view)| (name, view.shape().to_vec()))
            .collect();
        for (tensor, shape) in names {
            assert_eq!(found.get(*tensor).map(Vec::as_slice), Some(*shape), "{found:?}");
        }
        let elements: usize = found.values().map(|shape| shape.iter().product::<usize>()).sum();
        assert_eq!(json!(elements), plan(name)["model"]["num_parameters"], "{name}");

        let random = place.train(name, 3, "").losses();
        let given = place.train(name, 3, "--weights out.safetensors").losses();
        assert_eq!(given, random, "{name}");
        // Other first weights, and the same samples.
        assert_eq!(place.train(name, 2, "--checkpoint other --learning-rate 1e-2").code, Some(0));
        assert_eq!(
            place.run(&format!("export other/step-00000002 {name} -o t.safetensors")).code,
            Some(0)
        );
        let trained = place.train(name, 1, "--weights t.safetensors").losses();
        assert!(trained[0] < random[0], "{name}: {trained:?} after training, {random:?} before");
    }
}

/// A plan with adapters of quantised weights, made of one without.
fn with_adapters(name: &str) -> String {
    let mut adapted = plan(name);
    let targets = ["q_proj", "v_proj"];
    adapted["model"]["adapters"] =
        json!({ "rank": 4, "alpha": 8, "targets": targets, "base_weights": "int8" });
    // A and B of queries and of values, in each of four layers.
    let of_adapters = 4 * (4 * (32 + 32) + 4 * (32 + 16));
    let all = adapted["model"]["num_parameters"].as_u64().unwrap() + of_adapters;
    adapted["model"]["num_parameters"] = json!(all);
    adapted.to_string()
}

#[test]
fn adapters_are_kept_apart_and_exported_with_their_base_or_without() {
    let place = RunFolder::new();
    place.write("lora.json", with_adapters("dp2-zero3.json"));
    let args = "--learning-rate 1e-2";
    let whole = place.train("lora.json", 6, args).losses();
    let kept = format!("{args} --checkpoint kept");
    let first = place.train("lora.json", 4, &kept).losses();
    let rest = place.train("lora.json", 6, &kept).losses();
    assert_eq!([first, rest].concat(), whole);

    let manifest = fs::read(place.path("kept/step-00000006/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let parameters = manifest["parameters"].as_object().unwrap();
    assert!(parameters.len() == 16 && parameters.keys().all(|name| name.contains(".lora_")));

    let export = |args: &str| {
        let run = place.run(&format!("export kept lora.json {args}"));
        assert_eq!(run.code, Some(0), "{run:?}");
    };
    export("-o merged.safetensors");
    let random = place.train("one.json", 1, "").losses();
    let merged = place.train("one.json", 1, "--weights merged.safetensors").losses();
    assert!(merged[0] < random[0] - 0.01, "{merged:?} after training, {random:?} before");

    export("--adapters -o adapter_model.safetensors");
    let bytes = fs::read(place.path("adapter_model.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let shape = |name: &str| tensors.tensor(name).unwrap().shape().to_vec();
    let module = "base_model.model.model.layers.3.self_attn.v_proj";
    assert_eq!(shape(&format!("{module}.lora_A.weight")), [4, 32]);
    assert_eq!(shape(&format!("{module}.lora_B.weight")), [16, 4]);
    let config = fs::read_to_string(place.path("adapter_config.json")).unwrap();
    assert!(config.contains(r#""lora_alpha": 8"#) && config.contains(r#""v_proj""#), "{config}");

    // Adapters say nothing with weights that they were not trained with.
    let others = place.train("lora.json", 8, &format!("{kept} --weights merged.safetensors"));
    let exported = place.run("export kept lora.json --weights merged.safetensors -o x.safetensors");
    for run in [others, exported] {
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains("trained beside random weights of seed 0"), "{}", run.stderr);
    }
    assert!(!place.path("x.safetensors").exists());
}
