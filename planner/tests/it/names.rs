//! Models by name, from folders and from the cache of the Hugging Face hub.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::cli::{Run, command};

/// Runs the command in a folder of its own, whose `hub` is where the Hugging Face hub's files are kept.
fn planner_in(folder: &Path, args: &[&str]) -> Run {
    let output =
        command(args).current_dir(folder).env("HF_HUB_CACHE", folder.join("hub")).output().unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    Run { code: output.status.code(), stdout, stderr }
}

fn inspected(folder: &Path, model: &str) -> (String, u64) {
    let report = planner_in(folder, &["inspect", model, "--format", "json"]).json();
    let name = report["name"].as_str().unwrap().to_owned();
    (name, report["num_parameters"].as_u64().unwrap())
}

/// A short model, by the number of its layers.
fn small(layers: u32) -> String {
    format!(
        r#"{{"architecture": "gpt", "hidden_size": 64, "num_hidden_layers": {layers},
            "num_attention_heads": 4, "vocab_size": 128, "max_position_embeddings": 64}}"#
    )
}

fn write(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn models_are_taken_by_name_wherever_one_is() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "llama-3.1-70b",
        "Llama-3.1-70B",
        "meta-llama/Llama-3.1-70B",
        "meta-llama/Meta-Llama-3.1-70B-Instruct",
        "https://huggingface.co/meta-llama/Llama-3.1-70B",
        "models/llama-3.1-70b",
        "models/llama-3.1-70b/config.json",
        "./models/llama-3.1-70b/",
    ] {
        let found = inspected(folder.path(), name);
        assert_eq!(found, ("llama-3.1-70b".to_owned(), 70_553_706_496), "{name}");
    }
    assert_eq!(inspected(folder.path(), "models/toy-mlp.json").1, 165);
}

/// Parameters as the hub counts them in the repositories' weights; of GPT-2, without the mask buffers.
#[test]
fn models_that_ship_have_the_published_number_of_parameters() {
    let listed = planner_in(Path::new("."), &["list", "models", "--format", "json"]).json();
    for (name, parameters) in [
        ("llama-2-13b", 13_015_864_320_u64),
        ("llama-2-70b", 68_976_648_192),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.2-3b", 3_212_749_824),
        ("mixtral-8x22b", 140_620_634_112),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen2.5-32b", 32_763_876_352),
        ("qwen2.5-72b", 72_706_203_648),
        ("qwen3-32b", 32_762_123_264),
        ("qwen3-235b-a22b", 235_093_634_560),
        ("gpt2-xl", 1_557_611_200),
    ] {
        let of = |it: &&Value| it["name"] == name;
        let model = listed.as_array().unwrap().iter().find(of).unwrap();
        assert_eq!(model["num_parameters"].as_u64(), Some(parameters), "{name}");
    }
}

#[test]
fn every_command_that_takes_a_model_takes_names() {
    let folder = tempfile::tempdir().unwrap();
    let script = "torchrun --nproc-per-node 2 pretrain_gpt.py --tensor-model-parallel-size 2 \\\n\
                  --micro-batch-size 1 --global-batch-size 8 --seq-length 64 --bf16 \\\n\
                  --hidden-dropout 0 --attention-dropout 0\n";
    write(folder.path(), "run.sh", script);
    for args in [
        "search tiny-llama --gpus 2 -q -o plan.json",
        "evaluate tiny-llama --gpus 2 --layout tp2 -q",
        "sweep tiny-llama --over gpus=1,2",
        "compare tp2 dp2 --model tiny-llama --gpus 2",
        "import run.sh --model tiny-llama --gpus 2",
        "lint run.sh --model tiny-llama --gpus 2 --fail-on never",
        "inspect tiny-llama",
    ] {
        let run = planner_in(folder.path(), &args.split(' ').collect::<Vec<_>>());
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args}");
    }
    // The plan holds all of the model.
    let plan = fs::read_to_string(folder.path().join("plan.json")).unwrap();
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["model"]["name"], "tiny-llama");
    let explained = planner_in(folder.path(), &["explain", "plan.json"]);
    assert_eq!(explained.code, Some(0), "{explained:?}");
}

#[test]
fn what_lies_there_goes_before_what_ships() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "gpt2/config.json", &small(2));
    write(folder.path(), "llama-3.1-8b", &small(3));
    let of = |model| inspected(folder.path(), model).1;
    let [two, three] = [of("gpt2"), of("llama-3.1-8b")];
    assert!(two < three && three < 1_000_000, "{two} {three}");
}

fn fetched() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let repository = "hub/models--meta-llama--Llama-3.1-8B";
    write(folder.path(), &format!("{repository}/snapshots/aaaa/config.json"), &small(2));
    write(folder.path(), &format!("{repository}/snapshots/bbbb/config.json"), &small(3));
    write(folder.path(), &format!("{repository}/refs/main"), "aaaa\n");
    write(folder.path(), "hub/models--some--mine/snapshots/cccc/config.json", &small(4));
    folder
}

#[test]
fn what_was_fetched_from_the_hub_is_found() {
    let folder = fetched();
    let of = |model: &str| inspected(folder.path(), model);
    let (name, main) = of("meta-llama/Llama-3.1-8B");
    assert_eq!(name, "Llama-3.1-8B");
    let (mine, other) = of("some/mine");
    assert_eq!(mine, "mine");
    assert!(main < other && other < 1_000_000);
    // The folder itself, with what is main.
    assert_eq!(of("hub/models--meta-llama--Llama-3.1-8B").1, main);
    fs::remove_file(folder.path().join("hub/models--meta-llama--Llama-3.1-8B/refs/main")).unwrap();
    assert!(of("meta-llama/Llama-3.1-8B").1 > main);
}

/// One error, with all of `words`.
#[track_caller]
fn fails(folder: &Path, args: &str, words: &[&str]) {
    let run = planner_in(folder, &args.split(' ').collect::<Vec<_>>());
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args}: {run:?}");
    for word in words {
        assert!(run.stderr.contains(word), "{args}: no `{word}` in:\n{}", run.stderr);
    }
    assert_eq!(run.stderr.matches("hint: ").count(), 1, "{args}:\n{}", run.stderr);
}

#[test]
fn names_that_nothing_has_get_the_nearest() {
    let folder = fetched();
    write(folder.path(), "runs/x/config.json", &small(2));
    write(folder.path(), "weights/model.safetensors", "");
    write(folder.path(), "weights/tokenizer.json", "{}");
    write(folder.path(), "lora/adapter_config.json", "{}");
    fs::create_dir(folder.path().join("empty")).unwrap();
    for (args, words) in [
        ("search llama-3.1-70 --gpus 8", &["`llama-3.1-70`", "`llama-3.1-70b`", "list models"][..]),
        ("inspect lama-3.1-8b", &["`llama-3.1-8b`"]),
        ("inspect models/llama-3.1-70", &["`llama-3.1-70b`"]),
        ("inspect conf/llama-3.1-70b.json", &["No such file", "`llama-3.1-70b` ships"]),
        ("inspect mistralai/Codestral-22B", &["hf download mistralai/Codestral-22B config.json"]),
        ("inspect runs/llama-3.1-8b", &["folder `runs`", "`llama-3.1-8b`"]),
        ("inspect runs", &["no `config.json`", "runs/x` has one"]),
        ("inspect weights", &["no `config.json`", "hf download"]),
        ("inspect lora", &["no `config.json`", "adapters"]),
        ("inspect empty", &["no `config.json`", "empty"]),
        ("inspect zzz", &["`zzz`", "list models"]),
    ] {
        fails(folder.path(), args, words);
    }
}
