//! Settings of other tools that people have: what is read of them, and that what is not is named.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::{Run, command, planner};

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cases/read")
}

/// Cases of `read.txt`: a line `$ FILE MODEL ARGS`, and what is printed for it.
pub(crate) fn cases() -> Vec<(Vec<String>, String)> {
    let text = fs::read_to_string(folder().with_extension("txt")).unwrap();
    let cases = text.split("$ ").filter(|it| !it.trim().is_empty());
    let case = |case: &str| {
        let (first, printed) = case.split_once('\n').unwrap();
        (first.split(' ').map(str::to_owned).collect(), printed.to_owned())
    };
    cases.map(case).collect()
}

fn import(file: &Path, args: &[String]) -> Run {
    let file = file.to_str().unwrap();
    let mut all = vec!["import", file, "--model"];
    all.extend(args.iter().map(String::as_str));
    planner(&all)
}

/// Layout and batch, and what is no part of them.
fn printed(run: &Run) -> String {
    let mut text = String::new();
    for line in run.stdout.lines().filter(|it| !it.starts_with("predicted")) {
        let _ = writeln!(text, "{line}");
    }
    for line in run.stderr.lines() {
        let line = line.split_once("`: ").map_or(line, |it| it.1);
        let line = line
            .strip_prefix("not part of the plan: ")
            .map_or(line.to_owned(), |it| format!("- {it}"));
        let _ = writeln!(text, "{line}");
    }
    text
}

/// `READ_UPDATE=1` writes what is printed now.
#[test]
fn files_of_many_tools_are_read() {
    let mut now = String::new();
    let mut expected = String::new();
    for (words, printed_before) in cases() {
        let run = import(&folder().join(&words[0]), &words[1..]);
        let _ = write!(now, "$ {}\n{}", words.join(" "), printed(&run));
        let _ = write!(expected, "$ {}\n{printed_before}", words.join(" "));
    }
    if std::env::var_os("READ_UPDATE").is_some() {
        fs::write(folder().with_extension("txt"), &now).unwrap();
    }
    pretty_assertions(&expected, &now);
    let of_cases: BTreeSet<String> =
        cases().into_iter().map(|(words, _)| words[0].clone()).collect();
    let all = fs::read_dir(folder()).unwrap().count();
    assert_eq!(of_cases.len(), all, "every file has a case");
}

fn pretty_assertions(expected: &str, now: &str) {
    for (before, after) in expected.split("$ ").zip(now.split("$ ")) {
        assert_eq!(before, after);
    }
}

/// The text with a setting that no tool has.
fn with_unknown(name: &str, text: &str) -> String {
    match name.rsplit('.').next() {
        Some("sh") => {
            let is_hydra = text.contains("actor_rollout_ref.");
            let more = if is_hydra { "zeugma.of_ranks=3" } else { "--zeugma-of-ranks 3" };
            format!("{} {more}\n", text.trim_end())
        }
        Some("json") => text.replacen('{', "{\"zeugma_of_ranks\": 3,", 1),
        Some("toml") => format!("{text}\n[zeugma]\nof_ranks = 3\n"),
        _ if name.starts_with("primus") => {
            text.replace("    overrides:\n", "    overrides:\n      zeugma_of_ranks: 3\n")
        }
        _ if text.contains("MODEL_ARGS:\n") => {
            text.replace("MODEL_ARGS:\n", "MODEL_ARGS:\n  --zeugma-of-ranks: 3\n")
        }
        _ => format!("{text}\nzeugma_of_ranks: 3\n"),
    }
}

#[test]
fn a_setting_that_no_table_has_is_named() {
    let work = tempfile::tempdir().unwrap();
    // Files that others name.
    for file in fs::read_dir(folder()).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), work.path().join(file.file_name())).unwrap();
    }
    for (words, printed) in cases() {
        // Of files that are refused, no more is read.
        if !printed.contains("micro-batches, recompute") {
            continue;
        }
        let text = fs::read_to_string(folder().join(&words[0])).unwrap();
        let file = work.path().join(&words[0]);
        fs::write(&file, with_unknown(&words[0], &text)).unwrap();
        let run = import(&file, &words[1..]);
        assert!(run.stderr.contains("zeugma"), "{words:?} {run:?}");
        assert_eq!(run.code, Some(0), "{words:?} {run:?}");
    }
}

/// Texts of settings with one more line each: whether the prediction stays the same.
#[test]
fn a_setting_changes_what_is_predicted_only_where_it_does_in_the_tool() {
    let megatron = "deepspeed --num_nodes 1 --num_gpus 8 pretrain_gpt.py --deepspeed --zero-stage 1 --bf16 \\
        --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --num-key-value-heads 8 \\
        --swiglu --normalization rmsnorm --disable-bias-linear --untie-embeddings-and-output-weights \\
        --seq-length 8192 --max-position-embeddings 8192 --micro-batch-size 1 --global-batch-size 8 \\\n";
    let trainer = "deepspeed --num_gpus 8 train.py --deepspeed ds.json --per_device_train_batch_size 1 --bf16 true \\
        --max_length 8192 --gradient_checkpointing false \\\n";
    let replicas = "torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 1 --bf16 true \\
        --max_length 8192 \\\n";
    let titan = "[training]\nlocal_batch_size = 1\nseq_len = 8192\n[parallelism]\ntensor_parallel_degree = 1\n\
                 [activation_checkpoint]\nmode = \"full\"\n[compile]\nenable = true\n";
    let axolotl = "base_model: NousResearch/Meta-Llama-3-8B\nmicro_batch_size: 1\nsequence_len: 8192\nbf16: true\n\
                   gradient_accumulation_steps: 1\ndatasets: []\n";
    let swift = "swift sft --tuner_type lora --lora_rank 8 --max_length 8192 --per_device_train_batch_size 1 \\\n";
    let old = "[training]\nbatch_size = 8\nseq_len = 8192\ntensor_parallel_degree = 1\n[activation_checkpoint]\n\
               mode = \"full\"\n[experimental]\npipeline_parallel_degree = 4\n";
    let work = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        fs::write(work.path().join(name), text).unwrap();
        work.path().join(name)
    };
    let configuration = |more: &str| {
        file("ds.json", &format!("{{\"zero_optimization\": {{\"stage\": 2}}{more}}}"));
    };
    let predicted = |name: &str, text: &str| {
        let args = ["llama-3.1-8b", "--gpus", "8"].map(str::to_owned);
        let run = import(&file(name, text), &args);
        assert_eq!(run.code, Some(0), "{text}\n{run:?}");
        run.stdout.lines().last().unwrap().to_owned()
    };
    for (name, text, more, is_same) in [
        ("megatron.sh", megatron, "--use-flash-attn-v2\n", false),
        ("megatron.sh", megatron, "--deepspeed-activation-checkpointing\n", true),
        ("trainer.sh", trainer, "--optim adamw_bnb_8bit\n", false),
        ("trainer.sh", trainer, "--torch_dtype bfloat16\n", true),
        ("replicas.sh", replicas, "--torch_dtype float32\n", true),
        ("replicas.sh", replicas, "--torch_dtype bfloat16\n", false),
        ("titan.toml", titan, "components = [\"loss\"]\n", false),
        ("titan.toml", titan, "components = [\"model\", \"loss\"]\n", true),
        ("titan.toml", old, "pipeline_parallel_microbatches = 4\n", true),
        ("titan.toml", old, "pipeline_parallel_microbatches = 8\n", false),
        ("swift.sh", swift, "--model NousResearch/Meta-Llama-3-8B\n", true),
        ("swift.sh", swift, "--model NousResearch/Meta-Llama-3-8B-AWQ\n", false),
        ("swift.sh", swift, "--check_model false\n", true),
        ("axolotl.yaml", axolotl, "adapter:\nlora_r: 8\nlora_target_modules: [q_proj]\n", true),
        (
            "axolotl.yaml",
            axolotl,
            "adapter: lora\nlora_r: 8\nlora_target_modules: [q_proj]\n",
            false,
        ),
    ] {
        configuration("");
        let [before, after] =
            [String::new(), more.to_owned()].map(|it| predicted(name, &(text.to_owned() + &it)));
        assert_eq!(before == after, is_same, "{name} {more}: {before} {after}");
    }
    configuration("");
    let before = predicted("trainer.sh", trainer);
    configuration(", \"activation_checkpointing\": {\"partition_activations\": false}");
    assert_eq!(predicted("trainer.sh", trainer), before);
}

/// The path that a script names begins in a folder above the script's own, from where it is read.
#[test]
fn a_file_in_a_folder_above_is_found_from_the_folder_of_the_script() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path().join("scripts/train");
    fs::create_dir_all(&folder).unwrap();
    let stage = "{\"zero_optimization\": {\"stage\": 2}}";
    fs::write(work.path().join("scripts/zero2.json"), stage).unwrap();
    let script = "deepspeed --num_gpus 8 train.py --deepspeed scripts/zero2.json --bf16 True \\\n\
                  --per_device_train_batch_size 1 --max_length 8192\n";
    fs::write(folder.join("train.sh"), script).unwrap();
    for name in ["train.sh", "./train.sh"] {
        let args = ["import", name, "--model", "llama-3.1-8b"];
        let run = command(&args).current_dir(&folder).output().unwrap();
        assert!(String::from_utf8_lossy(&run.stdout).contains("ZeRO 2"), "{name}: {run:?}");
    }
}

/// torchtune names a configuration that it ships without an ending: its settings are in no file until `tune cp` writes
/// one.
#[test]
fn a_configuration_that_a_tool_ships_is_asked_for() {
    let work = tempfile::tempdir().unwrap();
    let script = work.path().join("train.sh");
    let text = "tune run --nproc_per_node 8 lora_finetune_distributed --config llama3_1/8B_lora batch_size=2\n";
    fs::write(&script, text).unwrap();
    let args = ["llama-3.1-8b", "--seq-len", "4096"].map(str::to_owned);
    let read = || import(&script, &args);
    let missing = read();
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("`8B_lora.yaml`, which is not beside them"), "{missing:?}");
    let shipped = "model:\n  _component_: torchtune.models.llama3_1.lora_llama3_1_8b\n  lora_rank: 8\n\
                   \x20 lora_attn_modules: ['q_proj']\nbatch_size: 1\ndtype: bf16\n";
    fs::write(work.path().join("8B_lora.yaml"), shipped).unwrap();
    let run = read();
    assert!(run.stdout.contains("bf16") && run.stdout.contains("rank 8"), "{run:?}");
}

/// `mason.py` multiplies the processes of accelerate by the number of nodes.
#[test]
fn mason_starts_processes_on_each_node() {
    let work = tempfile::tempdir().unwrap();
    let script = work.path().join("train.sh");
    for (nodes, ranks) in [(1, "on 8 x"), (2, "on 16 x")] {
        let text = format!(
            "python mason.py --cluster ai2/jupiter --num_nodes {nodes} --gpus 8 -- accelerate launch \\\n\
             --mixed_precision bf16 --num_processes 8 --use_deepspeed --zero_stage 3 open_instruct/finetune.py \\\n\
             --max_seq_length 4096 --per_device_train_batch_size 1 --gradient_accumulation_steps 2\n"
        );
        fs::write(&script, text).unwrap();
        let run = import(&script, &["llama-3.1-8b".to_owned()]);
        assert!(run.stdout.contains(ranks), "{nodes}: {run:?}");
    }
}
