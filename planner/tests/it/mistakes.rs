//! Mistakes of typing: each gets one message, which names what would work.

use std::fs;
use std::path::Path;

use crate::cli::{Run, command};

/// Commands, each with its exit code and what its message must have, by `cases/mistakes.txt`.
struct Mistake {
    line: usize,
    args: Vec<String>,
    code: i32,
    words: Vec<String>,
}

/// Reads `$ planner ..` and, below it, `CODE word | word`.
fn mistakes() -> Vec<Mistake> {
    let text = include_str!("cases/mistakes.txt");
    let lines = (1..).zip(text.lines());
    let lines: Vec<(usize, &str)> =
        lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).collect();
    let (pairs, rest) = lines.as_chunks::<2>();
    assert!(rest.is_empty(), "a command without what it must say: {rest:?}");
    pairs
        .iter()
        .map(|[(line, given), (_, expected)]| {
            let given = given.strip_prefix("$ planner").unwrap_or_else(|| panic!("line {line}"));
            let (code, words) = expected.split_once(' ').unwrap_or((expected, ""));
            Mistake {
                line: *line,
                args: split(given),
                code: code
                    .parse()
                    .unwrap_or_else(|_| panic!("line {line}: {code} is no exit code")),
                words: words.split(" | ").map(str::to_owned).collect(),
            }
        })
        .collect()
}

/// The words of a command line, as a shell takes them: quotes hold blanks together.
fn split(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for (index, part) in text.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

fn run(folder: &Path, args: &[String]) -> Run {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut command = command(&args);
    command.current_dir(folder).env("HF_HUB_CACHE", folder.join("hub"));
    let output = command.output().unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    Run { code: output.status.code(), stdout, stderr }
}

/// A folder with what people have lying about.
fn fill(folder: &Path) {
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let make = |args: &str| {
        let made = run(folder, &split(args));
        assert_eq!(made.code, Some(0), "{args}: {made:?}");
        made.stdout
    };
    make("search tiny-llama --gpus 4 --pp 2 -q -o plan.json");
    make("simulate plan.json -o timeline.json");
    make("schedule 1f1b --stages 2 --micro-batches 2 -o order.csv");
    write("report.json", make("search tiny-llama --gpus 4 --format json").as_bytes());
    let clusters = make("list clusters --format json");
    let clusters: serde_json::Value = serde_json::from_str(&clusters).unwrap();
    write("cluster.json", clusters[0].to_string().as_bytes());
    let plan = fs::read_to_string(folder.join("plan.json")).unwrap();
    let mut stale: serde_json::Value = serde_json::from_str(&plan).unwrap();
    stale["version"] = 1.into();
    write("stale.json", stale.to_string().as_bytes());
    write("cut.json", &plan.as_bytes()[..plan.len() / 2]);
    for (name, pointer, value) in [
        ("sequence.json", "/training/sequence_length", 0.into()),
        ("gpus.json", "/num_gpus", 16.into()),
        ("batches.json", "/layout/num_micro_batches", 5.into()),
        ("word.json", "/layout/recompute", "some".into()),
        ("faster.json", "/layout/recompute", "full".into()),
    ] {
        let mut edited: serde_json::Value = serde_json::from_str(&plan).unwrap();
        *edited.pointer_mut(pointer).unwrap() = value;
        write(name, edited.to_string().as_bytes());
    }
    let model = fs::read(crate::cli::root().join("models/llama-3.1-8b/config.json")).unwrap();
    write("config.json", &model);
    write("llama/config.json", &model);
    write("empty.json", b"");
    write("broken.json", b"{\"model_type\": \"llama\",");
    write("notes.txt", b"tp 8 was fast\n");
    write("train.yaml", b"model:\n  name: llama\n");
    write("train.sh", b"#!/bin/bash\ntorchrun pretrain_gpt.py --tensor-model-parallel-size 8\n");
    write("ds_config.json", b"{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 3}}");
    write("tokenizer_config.json", b"{\"tokenizer_class\": \"LlamaTokenizer\"}");
    write("model.safetensors", b"\x40\0\0\0\0\0\0\0{\"__metadata__\":{}}");
    write("checkpoint/model.safetensors", b"\x40\0\0\0\0\0\0\0{}");
    write("params.json", b"{\"dim\": 4096, \"n_layers\": 32, \"n_heads\": 32}");
    write("page.html", b"<!DOCTYPE html><html></html>");
    write("picture.png", b"\x89PNG\r\n\x1a\n\0\xff");
    write("results.txt", make("search tiny-llama --gpus 4").as_bytes());
    write("train.toml", b"[parallelism]\ntensor_parallel_degree = 8\n");
    write("axolotl.yaml", b"base_model: llama\ngradient_accumulation_steps: 4\nadapter: lora\n");
    fill_broken(folder, &model);
    fs::create_dir(folder.join("nothing")).unwrap();
}

/// Files that are nearly what they should be: `broken` has scripts and descriptions, `measured` tables.
fn fill_broken(folder: &Path, model: &[u8]) {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let framework =
        fs::read_to_string(crate::cli::root().join("cost-models/frameworks/megatron-core.json"));
    write("framework.json", &framework.unwrap());
    for name in ["cluster.json", "framework.json", "plan.json"] {
        let mut value: serde_json::Value = serde_json::from_str(&read(name)).unwrap();
        let (pointer, wrong) = match name {
            "cluster.json" => ("/gpu/memory_bytes", "80GB"),
            "framework.json" => ("/memory", "much"),
            _ => ("/num_gpus", "four"),
        };
        *value.pointer_mut(pointer).unwrap() = wrong.into();
        write(&format!("broken/{name}"), &value.to_string());
    }
    let model = String::from_utf8(model.to_vec()).unwrap();
    write("broken/single.json", &model.replace('"', "'"));
    write("broken/python.json", &model.replacen(": false", ": True", 1));
    write("broken/llama.json", &model.replace("\"llama\"", "\"LLaMA\""));
    write("broken/act.json", &model.replace("\"silu\"", "\"siluu\""));
    let head = "#!/bin/bash\ntorchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py \\\n  --tensor-model-parallel-size 4";
    let rest = "  --pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 64 --seq-length 8192 --bf16\n";
    let joined = |between: &str| format!("{head}{between}{rest}");
    write("broken/open.sh", &joined("\n"));
    write("broken/blank.sh", &joined(" \\ \n"));
    write("broken/comment.sh", &joined(" \\\n  # of mine\n"));
    write("broken/empty.sh", &joined(" \\\n\n"));
    let whole = joined(" \\\n");
    write("broken/twice.sh", &(whole.clone() + &whole.replace("#!/bin/bash\n", "")));
    write("broken/own.sh", &whole.replace("pretrain_gpt", "train_llama"));
    write("measured/runs/a.csv", "# GPUs;global batch\n8;16\n");
    write("measured/runs/steps.json", "{}");
    write("measured/kernels/products_x.csv", "dtype,m,n,k,latency_ms\nbfloat16,8,8,8,1\n");
    // A step, without the list that it should be in, and with its time in milliseconds.
    let runs = crate::cli::root().join("traces/reference/runs_bigscience.json");
    let runs: serde_json::Value = serde_json::from_str(&fs::read_to_string(runs).unwrap()).unwrap();
    let mut run = runs[0].clone();
    run["step_time_seconds"] = 189_060.into();
    write("run.json", &run.to_string());
}

#[test]
fn each_mistake_gets_one_message_that_names_what_works() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    let mistakes = mistakes();
    assert!(mistakes.len() >= 60, "{}", mistakes.len());
    let wrong: Vec<String> = mistakes
        .iter()
        .filter_map(|Mistake { line, args, code, words }| {
            let Run { code: ended, stdout, stderr } = run(folder.path(), args);
            let lacks: Vec<&String> = words.iter().filter(|word| !stderr.contains(*word)).collect();
            let errors = stderr.lines().filter(|line| line.starts_with("error: ")).count();
            let is_silent = *code != 2 || stdout.is_empty();
            // A message that repeats what it was caused by says it twice.
            let first = stderr.lines().next().unwrap_or_default();
            let last = first.rsplit(": ").next().unwrap_or_default();
            let is_said_twice = last.len() > 20 && stderr.matches(last).count() > 1;
            let is_right = !is_said_twice
                && ended == Some(*code)
                && lacks.is_empty()
                && errors == usize::from(*code == 2)
                && is_silent;
            let args = args.join(" ");
            (!is_right).then(|| {
                format!("line {line}: planner {args}\nexit {ended:?}, not {code}; lacks {lacks:?}\n{stdout}{stderr}")
            })
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
