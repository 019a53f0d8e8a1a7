//! The constants of frameworks and GPUs in training.

use cost_models::residuals::{LEAST_SOURCES, Spread, SpreadOf};
use cost_models::{Device, Hardware, Precision, clusters, frameworks};
use ir::framework::{AttentionLibrary, Framework, IDEAL};
use ir::plan::{Optimizer, Training};
use ir::replication::DataParallelMethod;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A training of which only the precision matters.
pub(crate) fn training(precision: Precision) -> Training {
    Training {
        sequence_length: 1,
        global_batch_size: 1,
        precision,
        optimizer: Optimizer::AdamW,
        fp32_gradients: false,
        bf16_moments: false,
        no_master_weights: false,
        data_parallel_method: DataParallelMethod::AllReduce,
        gradient_compression: None,
    }
}

/// All that ships is read, for every framework on every cluster, and lies where it can.
#[test]
fn constants_are_there_for_all() {
    for framework in frameworks::all().chain(frameworks::preset(IDEAL)) {
        let Framework { name: of, kernels, host, .. } = &framework;
        assert!((0.5..5.0).contains(&kernels.elementwise_traffic), "{of}: {kernels:?}");
        assert!((0.0..500.0).contains(&host.microseconds_per_operator), "{of}: {host:?}");
        for name in clusters::names() {
            let cluster = clusters::preset(name).expect("a preset");
            let precision = *cluster.gpu.peak.keys().next().expect("a precision");
            let hardware = Hardware::new(&cluster, framework.clone(), &training(precision));
            let hardware = hardware.expect("a precision it has");
            let rates = hardware.device.training;
            for rate in [rates.matmul, rates.matmul_8_bit, rates.matmul_4_bit, rates.memory] {
                assert!((0.4..=1.1).contains(&rate), "{name}: {rates:?}");
            }
            for spread in [SpreadOf::StepTimeSeconds, SpreadOf::PeakMemoryBytes] {
                let (_, spread) = Spread::shipped(spread, &hardware);
                let [low, high] = spread.interval(0.2);
                let contains_one = low < 1.1 && high > 0.9 && low < high;
                assert!(spread.sources >= LEAST_SOURCES && contains_one, "{of}");
            }
        }
    }
}

/// Every value of a framework that ships has a source: its own, or that of what it is in.
#[test]
fn every_value_has_a_source() {
    fn values(path: &str, value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) if !path.starts_with("abilities.") => {
                for (name, value) in fields {
                    let path =
                        if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    values(&path, value, found);
                }
            }
            _ => found.push(path.to_owned()),
        }
    }
    let of_itself = ["name", "description", "measured_as", "sources"];
    for framework in frameworks::all() {
        let mut found = Vec::new();
        values("", &serde_json::to_value(&framework).expect("plain values"), &mut found);
        for path in &found {
            let is_about = |it: &str| path == it || path.starts_with(&format!("{it}."));
            let is_known = of_itself.into_iter().any(is_about)
                || framework.sources.keys().any(|source| is_about(source));
            assert!(is_known, "{}: `{path}` has no source", framework.name);
        }
        for exclusion in &framework.abilities.exclusions {
            assert!(!exclusion.source.is_empty(), "{}: {exclusion}", framework.name);
        }
        for source in framework.sources.keys() {
            let is_of = |path: &String| path == source || path.starts_with(&format!("{source}."));
            assert!(found.iter().any(is_of), "{}: a source of `{source}`", framework.name);
        }
    }
}

/// A file that contradicts itself says with what, and what would work.
#[test]
fn frameworks_that_contradict_themselves_are_refused() {
    let refused = |change: fn(&mut Value)| {
        let framework = frameworks::preset("megatron-core").expect("it ships");
        let mut value = serde_json::to_value(framework).expect("plain values");
        change(&mut value);
        Framework::from_json(&value.to_string()).expect_err("a contradiction").to_string()
    };
    for (change, says) in [
        ((|it| it["name"] = json!("")) as fn(&mut Value), "`name` is empty"),
        (|it| it["abilities"]["zero"] = json!([]), "`abilities.zero` is empty"),
        (|it| it["abilities"]["schedules"] = json!(["1f1b", "1f1b"]), "has `1f1b` twice"),
        (|it| it["abilities"]["schedules"] = json!(["1f2b"]), "is `1f2b`, but must be one of"),
        (|it| it["abilities"]["fly"] = json!(true), "`fly` is not a field that is known"),
        (|it| it["abilities"]["offload"] = json!(["wings"]), "`wings` is not one of"),
        (|it| it["abilities"]["recompute"] = json!([]), "`abilities.recompute` is empty"),
        (|it| it["abilities"]["moments"] = json!(["fp8"]), "in fp32 and bf16 alone"),
        (
            |it| {
                let zero = json!([{ "stage": 3, "shards": "all" }]);
                it["abilities"]["zero"] = zero;
            },
            "`abilities.exclusions` leave no stage of ZeRO with them",
        ),
        (
            |it| {
                let experts = &mut it["abilities"]["experts"];
                *experts = json!({ "dispatchers": [], "tensor": "all", "overlap": "always" });
            },
            "without `dispatchers` nothing is exchanged",
        ),
        (
            |it| {
                it["abilities"]["recompute"] = json!(["full"]);
            },
            "they are offloaded with no recompute alone",
        ),
        (
            |it| {
                it["abilities"]["activation_offload"] = json!("with-full-recompute");
                it["abilities"]["recompute"] = json!(["none"]);
            },
            "they are offloaded with full recompute alone",
        ),
        (
            |it| it["abilities"]["offload"] = json!(["activations:2"]),
            "what is offloaded of layers is said by `abilities.activation_offload`",
        ),
        (
            |it| it["abilities"]["exclusions"] = json!([{ "features": [], "source": "a file" }]),
            "`abilities.exclusions[..].features` is empty",
        ),
        (
            |it| {
                let exclusion = json!({ "features": ["warp-parallel"], "source": "a file" });
                it["abilities"]["exclusions"] = json!([exclusion]);
            },
            "`warp-parallel`",
        ),
        (|it| it["kernels"]["elementwise_traffic"] = json!(-1.0), "from 0.01 to 100"),
        (|it| it["memory"]["libraries_gib"] = json!(1e300), "from 0 to 1e6"),
        (|it| it["tensor_parallel"]["vocabulary_multiple"] = json!(0), "from 1 to 1048576"),
    ] {
        let message = refused(change);
        assert!(message.contains(says), "{message}");
    }
}

/// Newer libraries are no slower on GPUs that were measured with both.
#[test]
fn attention_becomes_faster_with_its_libraries() {
    for name in ["a100", "h100", "h200"] {
        let gpu = clusters::preset(name).expect("a preset").gpu;
        let libraries = [
            AttentionLibrary::FlashAttention1,
            AttentionLibrary::FlashAttention2,
            AttentionLibrary::Cudnn,
        ];
        let rates = libraries.map(|it| Device::for_training(&gpu, it).training);
        for pair in rates.windows(2) {
            assert!(pair[0].attention_forward <= pair[1].attention_forward, "{name}: {pair:?}");
            assert!(pair[0].attention_backward <= pair[1].attention_backward, "{name}: {pair:?}");
        }
    }
}

/// What the executor can run does not depend on the backend.
#[test]
fn the_executor_has_the_same_abilities_on_gpus() {
    let [cpu, cuda] = ["executor", "executor-cuda"].map(frameworks::preset);
    assert_eq!(cpu.map(|it| it.abilities), cuda.map(|it| it.abilities));
}

proptest! {
    /// Of the ratios of each source as many count as of another: of the sources' shares less than a tenth lies below an
    /// interval, and above, by as much as one more source asks for.
    #[test]
    fn a_spread_leaves_out_a_tenth_on_either_side(
        by_source in prop::collection::vec(prop::collection::vec(0.5f64..2.0, 1..60), 1..12),
    ) {
        match Spread::of(by_source.iter().map(Vec::as_slice)) {
            None => prop_assert!(by_source.len() < LEAST_SOURCES),
            Some(Spread { sources, rows, low, high, .. }) => {
                prop_assert_eq!(sources, by_source.len());
                prop_assert_eq!(rows, by_source.iter().map(Vec::len).sum::<usize>());
                prop_assert!(low <= high);
                let share = |is_beyond: &dyn Fn(f64) -> bool| -> f64 {
                    let of = |ratios: &Vec<f64>| {
                        let beyond = ratios.iter().filter(|ratio| is_beyond(**ratio)).count();
                        beyond as f64 / ratios.len() as f64
                    };
                    by_source.iter().map(of).sum::<f64>() / sources as f64
                };
                // No ratio is divided: as much as the heaviest may lie on the other side.
                let heaviest = by_source.iter().map(|of| 1.0 / of.len() as f64).fold(0.0, f64::max);
                let room = heaviest / sources as f64 + 1e-9;
                let tail = (((sources + 1) as f64 * 0.1 - 0.5) / sources as f64).max(0.0);
                prop_assert!((share(&|ratio| ratio < low) - tail).abs() <= room);
                prop_assert!((share(&|ratio| ratio > high) - tail).abs() <= room);
            }
        }
    }
}
