//! Plans in the words of other tools, and back.

use std::fs;
use std::path::Path;
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use crate::cli::{Run, planner, root};

/// The plans that are exported: a name, and what `planner evaluate` is asked.
fn cases() -> Vec<(String, Vec<String>)> {
    let text = fs::read_to_string(root().join("planner/tests/it/cases/exports.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let case = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        (words.next().expect("a name"), words.collect())
    };
    lines.map(case).collect()
}

/// Runs the command and expects it to go well.
fn good(args: &[&str]) -> Run {
    let run = planner(args);
    assert_eq!(run.code, Some(0), "planner {}: {run:?}", args.join(" "));
    run
}

fn plan_of(args: &[&str], path: &Path) {
    let path = path.to_str().unwrap();
    let run = planner(&[&["evaluate"], args, &["--quiet", "-o", path]].concat());
    assert!(matches!(run.code, Some(0)), "{args:?}: {run:?}");
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Exports a plan: as it is where the tool runs it, else the nearest that it runs.
fn export(plan: &Path, target: &str, folder: &Path) -> bool {
    let (plan, folder) = (plan.to_str().unwrap(), folder.to_str().unwrap());
    let args = ["export", plan, "--to", target, "-o", folder];
    let run = planner(&args);
    if run.code == Some(0) {
        return true;
    }
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("hint: "), "{run:?}");
    let run = good(&[&args[..], &["--approximate"]].concat());
    assert!(run.stdout.contains("approximation: "), "{run:?}");
    false
}

/// What of a plan settings say, in the order of its keys; what is predicted follows from it.
fn essence(plan: &Value) -> Value {
    let mut plan = plan.clone();
    let object = plan.as_object_mut().unwrap();
    for key in ["provenance", "runners_up", "stages_by_hand"] {
        object.remove(key);
    }
    if object["framework"]["name"] != "megatron-core" {
        object.remove("framework");
        object.remove("prediction");
    }
    plan
}

/// Every plan of the matrix comes back from what was written of it, to the byte.
#[test]
fn what_is_exported_imports_as_the_same_plan() {
    let folder = TempDir::new().unwrap();
    let cases = cases();
    assert!(cases.len() >= 40, "{} plans", cases.len());
    thread::scope(|scope| {
        for part in cases.chunks(cases.len().div_ceil(2)) {
            let folder = &folder;
            scope.spawn(move || {
                for (name, args) in part {
                    let args: Vec<&str> = args.iter().map(String::as_str).collect();
                    round_trip(name, &args, folder.path());
                }
            });
        }
    });
}

fn round_trip(name: &str, args: &[&str], folder: &Path) {
    let plan = folder.join(format!("{name}.json"));
    plan_of(args, &plan);
    let job = folder.join(name);
    let is_exact = export(&plan, "megatron", &job);
    let written = job.join("plan.json");
    if is_exact {
        assert_eq!(read(&plan), read(&written), "{name}");
    }
    let cluster =
        args.iter().position(|word| *word == "--cluster").map_or("h100", |at| args[at + 1]);
    let back = folder.join(format!("{name}-back.json"));
    let script = job.join("megatron.sh");
    let [script, path] = [&script, &back].map(|path| path.to_str().unwrap());
    good(&["import", script, "--model", args[0], "--cluster", cluster, "-o", path]);
    let (expected, actual) = (essence(&read(&written)), read(&back));
    let actual = if expected.get("framework").is_some() {
        essence(&actual)
    } else {
        let mut actual = essence(&actual);
        actual.as_object_mut().unwrap().retain(|key, _| key != "framework" && key != "prediction");
        actual
    };
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(value, &actual[key], "{name}: {key}");
    }
}

/// Settings that cannot be read, each with what is said.
#[test]
fn settings_that_cannot_be_a_plan() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("arguments.txt");
    let good = "--micro-batch-size 1 --global-batch-size 64 --seq-length 4096 --bf16";
    let check = |text: &str, expected: &str| {
        fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        let run = planner(&["import", path, "--model", "models/llama-3.1-8b", "--gpus", "8"]);
        assert_eq!(run.code, Some(2), "{text}: {run:?}");
        assert!(run.stderr.contains(expected), "{text}: {}", run.stderr);
    };
    let with = |more: &str| format!("{good} {more}");
    for (more, expected) in [
        ("--tensor-model-parralel-size 2", "hint: `--tensor-model-parallel-size`"),
        ("--tensor_model_parallel_size 2", "hint: `--tensor-model-parallel-size`"),
        ("--bf16", "`--bf16` is given twice"),
        ("--seq-length 8192", "`--seq-length` is given twice: `4096`, then `8192`"),
        ("--fp16", "`--bf16` and `--fp16` contradict each other"),
        ("--tensor-model-parallel-size", "`--tensor-model-parallel-size` takes a value, but has 0"),
        ("--tensor-model-parallel-size many", "a whole number, at least 1, is expected"),
        ("--tensor-model-parallel-size $TP", "depends on `TP`, which the script does not set"),
        ("$MORE", "depends on `MORE`, which the script does not set"),
        ("--tensor-model-parallel-size 3", "which do not divide 8"),
        ("--pipeline-model-parallel-size 3 --tensor-model-parallel-size 1", "do not divide 8"),
        (
            "--num-layers 31",
            "of another model than `llama-3.1-8b`: `--num-layers 31`, where it has",
        ),
        ("--recompute-granularity full", "`--recompute-method` is missing"),
        (
            "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*8Lt*24",
            "stages of",
        ),
        (
            "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*8|t*8L'",
            "18 blocks",
        ),
        ("--overlap-param-gather", "no `--overlap-grad-reduce`"),
        ("four", "`four` stands where an option is expected"),
        ("--optimizer madam", "one of adam, sgd is expected"),
    ] {
        check(&with(more), expected);
    }
    check("--micro-batch-size 3 --global-batch-size 64 --seq-length 4096", "a global batch of 64");
    check("--micro-batch-size 1 --bf16", "how long a sequence is");
    check("", "nothing starts a program that is known");
    check("torchrun train.py --lr 1", "nothing starts a program that is known");
    check("python pretrain_gpt.py 'open", "line 1: a quote without its end");
    check(
        "TP=1\nif [ $BIG ]; then\n  TP=8\nfi\npython pretrain_gpt.py --tensor-model-parallel-size $TP",
        "line 2: what `if` decides is not followed",
    );
}

/// A launch script as people write them.
#[test]
fn a_launch_script_is_a_plan() {
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("pretrain.sh");
    fs::write(
        &script,
        "#!/bin/bash
#SBATCH --nodes=2
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-2}
WORLD_SIZE=$((GPUS_PER_NODE * NNODES))
TP=2; PP=2
MBS=1
GBS=$((WORLD_SIZE / TP / PP * MBS * 16))
if [ ! -d \"$CHECKPOINTS\" ]; then
  mkdir -p \"$CHECKPOINTS\"
fi
DISTRIBUTED_ARGS=\"--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank $RANK\"
PARALLEL=(
    --tensor-model-parallel-size $TP   # within a node
    --pipeline-model-parallel-size $PP --sequence-parallel
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
)
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \\
    \"${PARALLEL[@]}\" \\
    --num-layers 32 --hidden-size 4096 --micro-batch-size $MBS --global-batch-size $GBS \\
    --seq-length 8192 --bf16 --hidden-dropout 0 --attention-dropout 0.0 \\
    --save $CHECKPOINTS --recompute-activations 2>&1 | tee log
",
    )
    .unwrap();
    let plan = folder.path().join("plan.json");
    let [script, path] = [&script, &plan].map(|path| path.to_str().unwrap());
    let run = good(&["import", script, "--model", "models/llama-3.1-8b", "-o", path]);
    assert!(
        run.stdout.starts_with("llama-3.1-8b on 16 x H100-SXM5-80GB: tp2-sp-pp2-dp4"),
        "{run:?}"
    );
    let layout = &read(&plan)["layout"];
    assert_eq!(layout["num_micro_batches"], 16);
    assert_eq!(layout["zero_stage"], 1);
    assert_eq!(layout["recompute"], "attention");
    good(&["explain", path]);
}

/// The files of every target, by every launcher, are what they say; the plan goes with them.
#[test]
fn every_target_is_written_for_every_launcher() {
    let folder = TempDir::new().unwrap();
    let plan = folder.path().join("plan.json");
    plan_of(
        &[
            "models/llama-3.1-8b",
            "--gpus",
            "16",
            "--layout",
            "dp16",
            "--zero",
            "3",
            "--fp32-gradients",
            "--framework",
            "torchtitan",
            "--recompute",
            "full",
        ],
        &plan,
    );
    let targets = [
        ("megatron", "megatron", &["--use-megatron-fsdp"][..]),
        (
            "torchtitan",
            "torchtitan",
            &["--parallelism.data_parallel_shard_degree 16", "activation-checkpoint:full"],
        ),
        (
            "deepspeed",
            "deepspeed",
            &["zero_optimization: ZeRO 3", "--deepspeed_config ds_config.json"],
        ),
        ("accelerate", "accelerate", &["--gradient_accumulation_steps"]),
        ("trainer", "trainer", &["training_arguments.json"]),
        ("executor", "executor", &["executor run"]),
    ];
    let launchers = [
        ("torchrun", ".sh", &[][..]),
        ("slurm", ".sbatch", &["#SBATCH --nodes=2", "#SBATCH --gpus-per-node=8", "srun --nodes"]),
        ("mpirun", "-mpirun.sh", &["mpirun --hostfile", "--map-by ppr:"]),
        ("kubernetes", "-job.yaml", &["kind: ConfigMap", "nvidia.com/gpu: 8"]),
    ];
    for (target, name, expected) in targets {
        for (launcher, ending, started) in launchers {
            let job = folder.path().join(format!("{target}-{launcher}"));
            let [plan, job_path] = [&plan, &job].map(|path| path.to_str().unwrap());
            let args = ["export", plan, "--to", target, "--launcher", launcher, "-o", job_path];
            good(&args);
            let is_mpi = target == "executor" && launcher == "torchrun";
            let ending = if is_mpi { "-mpirun.sh" } else { ending };
            let text = fs::read_to_string(job.join(format!("{name}{ending}"))).unwrap();
            for part in expected.iter().chain(started) {
                assert!(text.contains(part), "{target} by {launcher} has no `{part}`:\n{text}");
            }
            assert_eq!(read(Path::new(plan)), read(&job.join("plan.json")), "{target}");
            if launcher != "kubernetes" {
                let script = job.join(format!("{name}{ending}"));
                let checked = std::process::Command::new("bash").arg("-n").arg(&script).status();
                assert!(
                    checked.is_ok_and(|it| it.success()),
                    "{target} by {launcher} is no script"
                );
            }
        }
    }
}

/// Ranks lie node by node where they do not fill the last one, too; a job of the executor is queued again and goes on.
#[test]
fn launchers_place_ranks_as_planned() {
    let folder = TempDir::new().unwrap();
    let plan = folder.path().join("plan.json");
    let path = plan.to_str().unwrap();
    let check = |[target, launcher]: [&str; 2], parts: &[&str], absent: &[&str]| {
        let text = good(&["export", path, "--to", target, "--launcher", launcher]).stdout;
        for part in parts {
            assert!(text.contains(part), "{target} by {launcher} has no `{part}`:\n{text}");
        }
        for part in absent {
            assert!(!text.contains(part), "{target} by {launcher} has `{part}`:\n{text}");
        }
    };
    let unfilled = ["models/llama-3.1-8b", "--gpus", "12", "--layout", "tp4-sp-dp3", "--zero", "1"];
    let batch = ["--global-batch-size", "48", "--framework", "megatron-core"];
    plan_of(&[&unfilled[..], &batch].concat(), &plan);
    let last = "[ \"$NODE_RANK\" -lt 1 ] || GPUS_PER_NODE=4";
    check(["megatron", "slurm"], &["#SBATCH --ntasks-per-node=1\n", last], &["--requeue"]);
    check(["megatron", "torchrun"], &[last], &[]);
    check(
        ["executor", "slurm"],
        &[
            "#SBATCH --ntasks=12\n",
            "#SBATCH --gpus-per-node=8\n",
            "--distribution=plane=\"$GPUS_PER_NODE\"",
        ],
        &["--ntasks-per-node"],
    );
    plan_of(
        &["models/llama-3.1-8b", "--gpus", "16", "--layout", "tp4-sp-dp4", "--zero", "1"],
        &plan,
    );
    check(["megatron", "slurm"], &["#SBATCH --ntasks-per-node=1\n"], &["GPUS_PER_NODE=4"]);
    check(
        ["executor", "slurm"],
        &[
            "#SBATCH --ntasks-per-node=8\n",
            "#SBATCH --requeue\n#SBATCH --open-mode=append\n",
            "--distribution=block",
            "--checkpoint \"$CHECKPOINTS\"",
        ],
        &["BASH_SOURCE", "plane"],
    );
    check(["executor", "kubernetes"], &["OWN_ARGUMENTS=(", "HOSTFILE=/etc/mpi/hostfile"], &[]);
}

/// What a tool cannot run is named, with what would work; nothing is left out.
#[test]
fn what_a_tool_cannot_run_is_an_error() {
    let folder = TempDir::new().unwrap();
    let plan = folder.path().join("plan.json");
    let path = plan.to_str().unwrap();
    let check = |args: &[&str], target: &str, expected: &[&str]| {
        plan_of(args, &plan);
        let run = planner(&["export", path, "--to", target]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        for part in expected {
            assert!(run.stderr.contains(part), "no `{part}` in {}", run.stderr);
        }
    };
    let eight = ["models/llama-3.1-8b", "--gpus", "8"];
    let zero_bubble = [&eight[..], &["--layout", "tp2-sp-pp4", "--schedule", "zb-h1"]].concat();
    check(&zero_bubble, "megatron", &["  schedule zb-h1", "`--approximate`"]);
    check(&zero_bubble, "accelerate", &["  pipelines"]);
    let selective = [&eight[..], &["--layout", "tp2-sp-dp4", "--recompute", "selective"]].concat();
    check(&selective, "megatron", &["activation functions of dense layers", "`--recompute norms`"]);
    let plain = [&eight[..], &["--layout", "dp8", "--zero", "2"]].concat();
    check(
        &plain,
        "torchtitan",
        &["`mixed_precision_reduce` has float32 alone", "`--fp32-gradients`"],
    );
    check(
        &["models/resnet-50.json", "--gpus", "8", "--layout", "dp8"],
        "megatron",
        &["no transformer"],
    );
    check(
        &["models/gemma-2-9b", "--gpus", "8", "--layout", "tp8-sp"],
        "megatron",
        &["soft cap", "norms after"],
    );
    let mixtral = ["models/mixtral-8x7b", "--gpus", "32", "--layout", "ep8-dp32", "--zero", "1"];
    check(&mixtral, "deepspeed", &["experts on several ranks", "`--ep 1`"]);
    check(&mixtral, "torchtitan", &["its registries have no such model"]);
}
