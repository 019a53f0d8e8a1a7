//! Files of tools that hand their settings on, and files that these name, judged in their own words.

use std::fs;
use std::path::Path;

use rayon::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

use crate::cli::planner;
use crate::tools_read::{cases, folder};

fn lint(file: &Path, args: &[&str]) -> Result<Value, String> {
    let file = file.to_str().unwrap();
    let run =
        planner(&[&["lint", file, "--format", "json", "--nearest", "1", "--model"], args].concat());
    serde_json::from_str(&run.stdout).map_err(|_| run.stderr)
}

/// Options that a report names, each with its file and line, and keys of its fixes.
fn options(report: &Value) -> Vec<(String, Option<String>, Option<u64>)> {
    let text = |value: &Value, key: &str| value[key].as_str().map(str::to_owned);
    let fixes = |of: &str| {
        let all = report[of].as_array().unwrap().iter();
        all.flat_map(|it| it["fix"]["changes"].as_array().into_iter().flatten()).collect::<Vec<_>>()
    };
    let findings = report["findings"].as_array().unwrap().iter();
    let named = findings.flat_map(|it| it["options"].as_array().unwrap());
    let all = named.chain(fixes("findings")).chain(fixes("nearest"));
    all.map(|it| (text(it, "option").unwrap(), text(it, "file"), it["line"].as_u64())).collect()
}

/// Fields of a plan and options of `planner evaluate`, which no tool has.
fn is_of_plan(option: &str) -> bool {
    let fields = ["layout.", "training.precision", "framework.", "shard_groups", "num_gpus"];
    let flags = ["--tp", "--pp", "--zero", "--recompute", "--offload", "--gpus", "--precision"];
    fields.iter().any(|it| option.starts_with(it)) || flags.contains(&option)
}

/// What is wrong with the names of a report on a file.
fn misnamed(report: &Value, file: &Path) -> Option<String> {
    options(report).into_iter().find_map(|(option, named, line)| {
        if is_of_plan(&option) {
            return Some(format!("`{option}` is of a plan"));
        }
        let text = fs::read_to_string(named.map_or(file.to_owned(), |it| file.with_file_name(it)));
        let text = text.unwrap();
        let line = text.lines().nth(usize::try_from(line?).unwrap() - 1).unwrap();
        let last = option.rsplit('.').next().unwrap().to_owned();
        (!line.contains(&last)).then(|| format!("`{option}` is not in `{line}`"))
    })
}

/// A finding names keys of the file, on their lines, and a fix sets keys of the tool: in all files that are read, on
/// another number of GPUs than they are for.
#[test]
fn findings_are_about_keys_of_the_file() {
    let failures: Vec<String> = cases()
        .par_iter()
        .filter_map(|(words, _)| {
            let path = folder().join(&words[0]);
            let mut args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
            if let Some(at) = args.iter().position(|it| *it == "--gpus") {
                args[at + 1] = "24";
            }
            let report = lint(&path, &args).ok()?;
            misnamed(&report, &path).map(|it| format!("{}: {it}", words[0]))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

const AXOLOTL: &str = "base_model: m\nsequence_len: 4096\nmicro_batch_size: 2\ngradient_accumulation_steps: 2\n\
                       bf16: true\ngradient_checkpointing: true\ntensor_parallel_size: 3\nfsdp_version: 2\n\
                       fsdp_config:\n  offload_params: true\n  reshard_after_forward: true\n";
const LLAMA_FACTORY: &str = "model_name_or_path: m\nstage: sft\nfinetuning_type: full\ncutoff_len: 4096\n\
                             per_device_train_batch_size: 1\ngradient_accumulation_steps: 4\nbf16: true\n\
                             deepspeed: conf/ds.json\n";
const DEEPSPEED: &str = "{\n  \"train_micro_batch_size_per_gpu\": \"auto\",\n  \"bf16\": {\"enabled\": \"auto\"},\n  \
                         \"zero_optimization\": {\n    \"stage\": 3,\n    \"offload_optimizer\": {\"device\": \"cpu\"},\n    \
                         \"overlap_com\": true\n  }\n}\n";
const VERL: &str = "python3 -m verl.trainer.main_ppo \\\n  data.train_batch_size=64 \\\n  data.max_prompt_length=512 \\\n  \
                    data.max_response_length=512 \\\n  actor_rollout_ref.actor.strategy=megatron \\\n  \
                    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=3 \\\n  \
                    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=3 \\\n  trainer.n_gpus_per_node=8 \\\n  \
                    trainer.nnodes=2\n";
const TORCHTITAN: &str = "[training]\nseq_len = 4096\nlocal_batch_size = 1\n\n[parallelism]\n\
                          data_parallel_shard_degree = -1\ntensor_parallel_degree = 3 # why\n\n\
                          [activation_checkpoint]\nmode = \"full\"\n";
const SWIFT: &str = "NPROC_PER_NODE=8 megatron sft \\\n  --tensor_model_parallel_size 3 \\\n  --micro_batch_size x \\\n  \
                     --global_batch_size 16 \\\n  --max_length 4096\n";

/// Files of a run, the first of which is judged, and findings: the rule, the place, and what the fix says.
type Case = (
    &'static [(&'static str, &'static str)],
    &'static [(&'static str, &'static str, &'static str)],
);

const BUILT_IN: &str = "NPROC_PER_NODE=8 swift sft --train_type full \\\n  --per_device_train_batch_size 1 \\\n  \
                        --max_length 4096 --deepspeed zero3_offload\n";

const CASES: [Case; 6] = [
    (&[("f.sh", BUILT_IN)], &[("offload-not-needed", "f.sh:3", "`--deepspeed zero3`")]),
    (
        &[("a.yaml", AXOLOTL)],
        &[
            ("nodes-do-not-divide", "a.yaml:7", "`tensor_parallel_size "),
            ("offload-not-needed", "a.yaml:10", "`fsdp_config.offload_params false`"),
        ],
    ),
    (
        &[("b.yaml", LLAMA_FACTORY), ("ds.json", DEEPSPEED)],
        &[
            ("unknown-option", "ds.json:7", "`zero_optimization.overlap_comm` in the place"),
            ("offload-not-needed", "ds.json:6", "in `ds.json`"),
            ("recompute-not-needed", "b.yaml", "`disable_gradient_checkpointing true`"),
        ],
    ),
    (
        &[("c.sh", VERL)],
        &[
            ("nodes-do-not-divide", "c.sh:9", "`trainer.nnodes 1`"),
            ("nodes-do-not-divide", "c.sh:7", "megatron.tensor_model_parallel_size "),
            ("batch-does-not-divide", "c.sh:6", "ppo_micro_batch_size_per_gpu "),
        ],
    ),
    (
        &[("d.toml", TORCHTITAN)],
        &[("nodes-do-not-divide", "d.toml:7", "`parallelism.tensor_parallel_degree ")],
    ),
    (
        &[("e.sh", SWIFT)],
        &[
            ("option-value", "e.sh:3", "without `--micro_batch_size`"),
            ("nodes-do-not-divide", "e.sh:2", "`--tensor_model_parallel_size "),
        ],
    ),
];

/// All faults of a file are said at once, each with its place and a fix in the words of the file that has it.
#[test]
fn all_faults_of_a_file_are_said_with_their_places_and_fixes() {
    let failures: Vec<String> = CASES
        .par_iter()
        .filter_map(|(files, expected)| {
            let work = TempDir::new().unwrap();
            for (name, text) in *files {
                fs::write(work.path().join(name), text).unwrap();
            }
            let file = work.path().join(files[0].0);
            let report = match lint(&file, &["llama-3.1-8b", "--gpus", "8"]) {
                Ok(report) => report,
                Err(error) => return Some(error),
            };
            if let Some(misnamed) = misnamed(&report, &file) {
                return Some(misnamed);
            }
            let findings: Vec<(String, String, String)> = report["findings"]
                .as_array()
                .unwrap()
                .iter()
                .map(|it| {
                    let mut options = it["options"].as_array().unwrap().iter();
                    let first = options.find(|it| !it["line"].is_null());
                    let name = first.and_then(|it| it["file"].as_str()).unwrap_or(files[0].0);
                    let line = first.map_or(String::new(), |it| format!(":{}", it["line"]));
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    (text(&it["rule"]), format!("{name}{line}"), text(&it["fix"]["text"]))
                })
                .collect();
            let is_there = |(rule, place, fix): &&(&str, &str, &str)| {
                findings.iter().any(|it| it.0 == *rule && it.1 == *place && it.2.contains(fix))
            };
            let missing = expected.iter().find(|it| !is_there(it))?;
            Some(format!("{missing:?} is not among {findings:#?}"))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn import(files: &[(&str, &str)], args: &[&str]) -> (String, String) {
    let work = TempDir::new().unwrap();
    for (name, text) in files {
        fs::write(work.path().join(name), text).unwrap();
    }
    let file = work.path().join(files[0].0);
    let run = planner(&[&["import", file.to_str().unwrap(), "--model"], args].concat());
    (run.stdout, run.stderr)
}

/// Sizes of the batch that a DeepSpeed configuration lacks are the Trainer's.
#[test]
fn accumulation_is_the_trainers_where_deepspeed_has_none() {
    let ds = "{\"zero_optimization\": {\"stage\": 2}, \"bf16\": {\"enabled\": true}}";
    let (stdout, _) =
        import(&[("b.yaml", LLAMA_FACTORY), ("ds.json", ds)], &["llama-3.1-8b", "--gpus", "8"]);
    assert!(stdout.contains("ZeRO 2, 4x1 micro-batches"), "{stdout}");
}

#[test]
fn two_ways_to_shard_contradict_each_other() {
    let text = format!("{AXOLOTL}deepspeed: ds.json\n");
    let (_, stderr) =
        import(&[("a.yaml", &text), ("ds.json", DEEPSPEED)], &["llama-3.1-8b", "--gpus", "8"]);
    assert!(stderr.contains("`deepspeed` and `fsdp` contradict each other"), "{stderr}");
}

/// An older name for full training is not overruled by the default of the newer one; ranks are those of variables; and
/// `expr` is computed.
#[test]
fn scripts_of_swift_say_what_is_trained_and_on_how_many_ranks() {
    let script = "each=4\nNNODES=2 NPROC_PER_NODE=$each swift sft --train_type full --max_length 4096 \\\n  \
                  --gradient_accumulation_steps $(expr 16 / $each) --deepspeed zero3\n";
    let (stdout, stderr) = import(&[("s.sh", script)], &["llama-3.1-8b"]);
    assert!(stdout.contains("on 8 x") && stdout.contains("ZeRO 3, 4x1"), "{stdout}{stderr}");
    assert!(!stdout.contains("LoRA"), "{stdout}");
}

/// The model that a file names is offered, if it ships.
#[test]
fn the_hint_names_the_model_of_the_file() {
    let named = [
        ("base_model: Qwen/Qwen3-8B\nsequence_len: 1\n", "qwen3-8b"),
        (
            "[model]\nname = \"llama3\"\nflavor = \"70B\"\n[training]\nseq_len = 8\n[job]\na = 1\n",
            "llama-3-70b",
        ),
        ("model:\n  _component_: torchtune.models.llama3_1.lora_llama3_1_8b\n", "llama-3.1-8b"),
        ("base_model: somebody/unheard-of\nsequence_len: 1\n", "llama-3.1-8b"),
    ];
    for (text, model) in named {
        let work = TempDir::new().unwrap();
        let file = work.path().join("a.yaml");
        fs::write(&file, text).unwrap();
        let run = planner(&["lint", file.to_str().unwrap()]);
        assert!(run.stderr.contains(&format!("`--model {model}`")), "{text} {run:?}");
    }
}
