//! `executor calibrate`.

use std::fs;
use std::thread;
use std::time::Duration;

use ir::cluster::{Architecture, Cluster, Precision, Times};

use super::RunFolder;

/// The least that can be measured.
const QUICK: &str = "--quick --max-bytes 4K --factor 4 --iterations 2 --warm-up 0";

#[test]
fn one_file_has_all_that_the_planner_needs() {
    let place = RunFolder::new();
    let run = place.run(&format!("calibrate -o mine.json --cluster-name mine {QUICK}"));
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{run:?}");
    for words in [
        "fp32: what 2 ranks reach",
        "fp32: model 2: gpt",
        "wrote `mine.json`",
        "--framework executor",
    ] {
        assert!(run.stderr.contains(words), "no `{words}` in {}", run.stderr);
    }
    let cluster =
        Cluster::from_json(&fs::read_to_string(place.path("mine.json")).unwrap()).unwrap();
    assert_eq!((cluster.name.as_str(), cluster.gpus_per_node), ("mine", 2));
    assert_eq!(cluster.gpu.architecture, Architecture::Cpu);
    assert!(cluster.gpu.peak[&Precision::Fp32].get() > 1e8, "{:?}", cluster.gpu.peak);
    let measured = cluster.gpu.measured.as_ref().unwrap();
    assert_eq!(measured.ranks, 2);
    let times = &measured.by_precision[&Precision::Fp32];
    // Of two or three times each, on a busy machine: which share of them is fixed is not sure.
    for products in
        [&times.products.forward, &times.products.input_grad, &times.products.weight_grad]
    {
        let costs = products.map(|products| products.costs());
        assert!(costs.is_some_and(|it| it.iter().sum::<f64>() > 0.0), "{:?}", times.products);
    }
    assert!(times.attention.forward.is_some() && times.attention.input_grad.is_some());
    for family in ["norm", "add", "activation", "gated_activation", "rotary", "embedding", "loss"] {
        assert!(
            times.operators.contains_key(family),
            "no {family} in {:?}",
            times.operators.keys()
        );
    }
    assert!(times.update_start_seconds + times.seconds_per_update > 0.0);
    assert_eq!(cluster.levels.len(), 1);
    assert_eq!(cluster.levels[0].measured.len(), 6);
    assert_eq!(place.listing().len(), 1, "{:?}", place.listing());
}

/// Killed in the midst of it, the file that was there stays, and nothing lies next to it.
#[test]
fn an_interruption_leaves_what_was_there() {
    let place = RunFolder::new();
    place.write("mine.json", "as it was");
    let before = place.listing();
    let mut child = place.command("calibrate -o mine.json").spawn().unwrap();
    for _ in 0..30 {
        thread::sleep(Duration::from_millis(20));
        assert_eq!(child.try_wait().unwrap(), None, "it takes seconds");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(place.listing(), before);
    assert_eq!(fs::read_to_string(place.path("mine.json")).unwrap(), "as it was");
}

#[test]
fn what_cannot_be_calibrated_is_said_at_once() {
    let place = RunFolder::new();
    for (args, words) in [
        ("", &["--output"][..]),
        ("-o mine.json --ranks 1", &["one rank sends nothing", "--ranks 2"]),
        ("-o mine.json --ranks 0", &["from 1 to 256"]),
        ("-o mine.json --precision fp8", &["fp8", "bf16"]),
        ("-o no/mine.json", &["there is no folder `no`"]),
        ("-o .", &["it is a folder"]),
        ("-o mine.json --base missing.json", &["missing.json", "No such file"]),
        ("-o mine.json --base toy-mlp.json", &["a plan, not a cluster file", "list clusters"]),
        ("-o mine.json --ranks 4 --ranks-per-node 3", &["--ranks-per-node 3", "does not divide 4"]),
        ("-o mine.json --backend cuda", &["data sheet", "--base FILE"]),
        ("-o mine.json --min-bytes 8K --max-bytes 4K", &["above `--max-bytes` 4096"]),
    ] {
        place.refuses(&format!("calibrate {args}"), words);
    }
}
