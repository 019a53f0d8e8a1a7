//! Plans in the words of other tools, and back.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
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

/// Exports a plan as it is, or the nearest where the tool does not run it; nothing where it runs none near it.
fn try_export(plan: &Path, target: &str, folder: &Path, approximates: bool) -> bool {
    let (plan, folder) = (plan.to_str().unwrap(), folder.to_str().unwrap());
    let args = ["export", plan, "--to", target, "-o", folder];
    planner(&args).code == Some(0)
        || approximates && planner(&[&args[..], &["--approximate"]].concat()).code == Some(0)
}

/// What of a plan settings say, in the order of its keys; what is predicted follows from it where it is predicted with
/// the habits of the tool.
fn essence(plan: &Value, framework: &str) -> Value {
    let mut plan = plan.clone();
    let object = plan.as_object_mut().unwrap();
    for key in ["headroom_bytes", "provenance", "runners_up", "stages_by_hand"] {
        object.remove(key);
    }
    if object["framework"]["name"] != framework {
        object.remove("framework");
        object.remove("prediction");
    }
    let training = object["training"].as_object_mut().unwrap();
    // What is in 16 bits says nothing of a model in 32.
    if training["precision"] == "fp32" {
        for key in ["fp32_gradients", "no_master_weights"] {
            training.insert(key.to_owned(), false.into());
        }
    }
    plan
}

/// Tools whose files are read back, with the frameworks whose habits they have and what their files leave to the
/// script that they are for: the options that say it.
const READ_BACK: [(&str, &str, &[&str]); 7] = [
    ("megatron", "megatron-core", &[]),
    ("megatron-bridge", "megatron-core", &[]),
    ("torchtitan", "torchtitan", &[]),
    ("deepspeed", "deepspeed", &["--seq-len"]),
    ("accelerate", "fsdp2", &["--seq-len", "--micro-batch-size"]),
    ("trainer", "fsdp2", &["--seq-len"]),
    ("nanotron", "nanotron", &[]),
];

/// Every plan of the matrix comes back from what was written of it, to the byte.
#[test]
fn what_is_exported_imports_as_the_same_plan() {
    let folder = TempDir::new().unwrap();
    let cases = cases();
    assert!(cases.len() >= 40, "{} plans", cases.len());
    let counts = Mutex::new(BTreeMap::<&str, u32>::new());
    thread::scope(|scope| {
        for part in cases.chunks(cases.len().div_ceil(2)) {
            let (folder, counts) = (&folder, &counts);
            scope.spawn(move || {
                for (name, args) in part {
                    let args: Vec<&str> = args.iter().map(String::as_str).collect();
                    let plan = folder.path().join(format!("{name}.json"));
                    plan_of(&args, &plan);
                    for target in READ_BACK {
                        if round_trip(name, &plan, &args, target, folder.path()) {
                            *counts.lock().unwrap().entry(target.0).or_default() += 1;
                        }
                    }
                }
            });
        }
    });
    let counts = counts.into_inner().unwrap();
    assert_eq!(counts["megatron"] as usize, cases.len());
    for (target, ..) in READ_BACK {
        assert!(counts.get(target).is_some_and(|count| *count >= 4), "{target}: {counts:?}");
    }
}

/// Exports and imports a plan; whether the tool runs it, or one near it.
fn round_trip(
    name: &str,
    plan: &Path,
    args: &[&str],
    (target, framework, left): (&str, &str, &[&str]),
    folder: &Path,
) -> bool {
    let job = folder.join(format!("{name}-{target}"));
    // Searching for what is near takes long: of one tool it is enough here, of all with RUN_SLOW_TESTS.
    let is_slow = std::env::var_os("RUN_SLOW_TESTS").is_some();
    if !try_export(plan, target, &job, target == "megatron" || is_slow) {
        return false;
    }
    let written = read(&job.join("plan.json"));
    let cluster =
        args.iter().position(|word| *word == "--cluster").map_or("h100", |at| args[at + 1]);
    let back = job.join("back.json");
    let script = job.join(format!("{target}.sh"));
    let [script, path] = [&script, &back].map(|path| path.to_str().unwrap());
    let mut import = vec!["import", script, "--model", args[0], "--cluster", cluster, "-o", path];
    let length = written["training"]["sequence_length"].to_string();
    let each = written["layout"]["micro_batch_size"].to_string();
    for option in left {
        import.extend([*option, if *option == "--seq-len" { &length } else { &each }]);
    }
    let in_model =
        [("multi_token_prediction", "--multi-token-prediction"), ("dropout", "--dropout")];
    for (key, option) in in_model {
        if !target.starts_with("megatron") && written["model"][key] == true {
            import.push(option);
        }
    }
    good(&import);
    let (expected, actual) = (essence(&written, framework), essence(&read(&back), framework));
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(value, &actual[key], "{name} for {target}: {key}");
    }
    true
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
        ("\u{2014}lr 1", "it begins with a long dash\nhint: `--lr`"),
        ("--lr\u{a0}1", "it has a blank that parts no words\nhint: `--lr 1`"),
        ("--optimizer madam", "one of adam, sgd, muon, dist_muon is expected"),
    ] {
        check(&with(more), expected);
    }
    check("--micro-batch-size 3 --global-batch-size 64 --seq-length 4096", "a global batch of 64");
    check("--micro-batch-size 1 --bf16", "how long a sequence is");
    check("", "nothing starts a program that is known");
    check("torchrun train.py --lr 1", "`train.py` is no program that is known");
    check("python pretrain_gpt.py 'open", "line 1: a quote without its end");
    check(
        "TP=1\nif [ $BIG ]; then\n  TP=8\nfi\npython pretrain_gpt.py --tensor-model-parallel-size $TP",
        "depends on `BIG`, which the script does not set, or in a branch alone",
    );
    check(
        "TP=1\n[ -f big ] && TP=8\npython pretrain_gpt.py --tensor-model-parallel-size $TP",
        "depends on `TP`, which the script does not set, or in a branch alone",
    );
    check(
        "TP=1\nif [ $BIG ]; then\n  torchrun --nnodes 1 pretrain_gpt.py\nfi",
        "`--micro-batch-size` is missing",
    );
}

/// The same of tools other than Megatron, by file and what is said beside.
#[test]
fn files_that_cannot_be_a_plan() {
    let folder = TempDir::new().unwrap();
    let check = |name: &str, text: &str, more: &[&str], expected: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        let args = ["import", path, "--model", "models/llama-3.1-8b", "--seq-len", "4096"];
        let run = planner(&[&args[..], more].concat());
        assert_eq!(run.code, Some(2), "{text}: {run:?}");
        assert!(run.stderr.contains(expected), "{text}: {}", run.stderr);
    };
    let gpus = ["--gpus", "8"];
    let json = |text: &str, expected: &str| check("ds.json", text, &gpus, expected);
    json("", "the file is empty");
    json("{", "it is no JSON, line 1, column 1: the file ends here, though an object");
    json(
        "{\"zero_optimization\": {\"stage\": 2",
        "it is no JSON, line 1, column 33: the file ends here",
    );
    json("[1, 2]", "the keys of no tool");
    json(
        "{\"train_batch_size\": 64, \"train_batch_size\": 8}",
        "`train_batch_size` is given twice",
    );
    json(
        "{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 8}",
        "`train_batch_size` is 64, but `train_micro_batch_size_per_gpu` 2 x `gradient_accumulation_steps` 8 x 8 \
         replicas are 128",
    );
    let with = |more: &str| format!("{{\"train_micro_batch_size_per_gpu\": 1, {more}}}");
    json(&with("\"gradient_acumulation_steps\": 8"), "hint: `gradient_accumulation_steps`");
    json(&with("\"zero_optimization\": {\"stag\": 1}"), "hint: `zero_optimization.stage`");
    json(&with("\"zero_optimization\": {\"stage\": 4}"), "one of 0, 1, 2, 3 is expected");
    json(&with("\"zero_optimization\": {\"stage\": \"two\"}"), "one of 0, 1, 2, 3 is expected");
    json(&with("\"zero_optimization\": 2"), "`zero_optimization` is a value");
    json(&with("\"train_batch_size\": {\"a\": 1}"), "`train_batch_size` is keys with values");
    json(&with("\"train_batch_size\": \"auto\""), "`train_batch_size` is `auto`");
    json(
        &with("\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}"),
        "contradict each other",
    );
    json(
        &with("\"optimizer\": {\"type\": \"OneBitAdam\"}"),
        "one of AdamW, Adam, SGD, Muon, Lion is expected",
    );
    json("{\"model_type\": \"llama\"}", "the description of a model, not settings");
    json("{\"layout\": {}, \"prediction\": {}}", "is a plan, not settings");
    check("ds.json", "{\"train_batch_size\": 64}", &[], "`--gpus 64`");
    check("ds.json", "{\"zero_optimization\": {\"stage\": 2}}", &gpus, "`--micro-batch-size 1`");
    check(
        "ds.json",
        "{\"train_micro_batch_size_per_gpu\": 4}",
        &["--gpus", "8", "--micro-batch-size", "2"],
        "the settings have `train_micro_batch_size_per_gpu` 4, not 2",
    );
    let yaml = |text: &str, expected: &str| {
        check("a.yaml", text, &["--micro-batch-size", "1"], expected);
    };
    let fsdp = "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\n";
    yaml("distributed_type: FSDP\nfsdp_config: [1\n", "it is no YAML");
    yaml(&format!("{fsdp}fsdp_config:\n  fsdp_verion: 2\n"), "hint: `fsdp_config.fsdp_version`");
    yaml(&format!("{fsdp}fsdp_config:\n  fsdp_version: 3\n"), "one of 1, 2 is expected");
    yaml("distributed_type: TPU\n", "one of NO, false, MULTI_GPU, FSDP, DEEPSPEED is expected");
    yaml(
        &format!("{fsdp}parallelism_config:\n  parallelism_config_dp_shard_size: 4\n"),
        "are 4, not the 8 of `num_processes`",
    );
    yaml("services:\n  web: 1\n", "the keys of no tool that is known");
    check("a.yaml", fsdp, &[], "`--micro-batch-size 1`");
    let titan = |more: &str, expected: &str| {
        let head = "torchrun --nnodes 1 --nproc-per-node 8 -m torchtitan.train --module llama3 --config llama3_8b \
            --parallelism.tensor_parallel_degree 2 --training.local_batch_size 1";
        check("run.sh", &format!("{head} {more}"), &[], expected);
    };
    titan(
        "--parallelism.pipeline_paralel_degree 2",
        "hint: `--parallelism.pipeline_parallel_degree`",
    );
    titan("", "activation-checkpoint:none|selective|full` is missing");
    titan("activation-checkpoint:memory-budget", ":selective or :full is what a plan has");
    titan(
        "--parallelism.data_parallel_replicate_degree 3 activation-checkpoint:none",
        "are no way to have 4 replicas",
    );
    titan(
        "--training.mixed-precision-param float8 activation-checkpoint:none",
        "one of bfloat16, float32 is expected",
    );
    check(
        "run.sh",
        "python train.py --deepspeed_config there.json",
        &gpus,
        "`there.json`, which is not beside",
    );
    check("a.yaml", fsdp, &["--from", "torchtitan"], "is told by options, not by such a file");
}

/// Files as people have them.
#[test]
fn what_people_have_is_a_plan() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let plan = folder.path().join("plan.json");
    let check = |path: &str, more: &[&str], expected: &str| {
        let out = plan.to_str().unwrap();
        let args =
            ["import", path, "--model", "models/llama-3.1-8b", "--seq-len", "2048", "-o", out];
        let run = good(&[&args[..], more].concat());
        assert!(run.stdout.contains(expected), "{path}: {}", run.stdout);
        read(&plan)
    };
    // DeepSpeed's tutorial: two of batch, micro-batch and their number are enough.
    let json = write(
        "ds_zero3.json",
        "{\"train_batch_size\": 128, \"train_micro_batch_size_per_gpu\": 2, \"steps_per_print\": 2000,
          \"bf16\": {\"enabled\": true}, \"gradient_clipping\": 1.0,
          \"zero_optimization\": {\"stage\": 3, \"overlap_comm\": true, \"reduce_bucket_size\": 5e8,
            \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}}}",
    );
    let read_plan =
        check(&json, &["--gpus", "16"], "on 16 x H100-SXM5-80GB: tp1-pp1-dp16, 1f1b, ZeRO 3, 4x2");
    assert_eq!(read_plan["layout"]["offload"], "optimizer");
    // Alpaca's command, with the Trainer's DeepSpeed configuration that leaves open what it knows.
    write(
        "ds_auto.json",
        "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\",
          \"gradient_accumulation_steps\": \"auto\", \"gradient_clipping\": \"auto\",
          \"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": \"auto\"},
          \"zero_optimization\": {\"stage\": 2}}",
    );
    let script = write(
        "alpaca.sh",
        "torchrun --nproc_per_node=4 --nnodes=2 train.py --model_name_or_path m --data_path d.json --bf16 True \\
           --output_dir out --num_train_epochs 3 --per_device_train_batch_size 4 --gradient_accumulation_steps 8 \\
           --learning_rate 2e-5 --gradient_checkpointing True --deepspeed ds_auto.json\n",
    );
    let read_plan = check(&script, &[], "on 8 x H100-SXM5-80GB: tp1-pp1-dp8, 1f1b, ZeRO 2, 8x4");
    assert_eq!(read_plan["layout"]["recompute"], "full");
    let script = write(
        "fsdp.sh",
        "torchrun --nproc_per_node=8 --nnodes=1 train.py --bf16 True --per_device_train_batch_size 1 \\
           --output_dir out --fsdp 'full_shard auto_wrap' --gradient_accumulation_steps 4\n",
    );
    check(&script, &[], "tp1-pp1-dp8, 1f1b, ZeRO 3, 4x1");
    // Flags of the command go before those of the file.
    write(
        "accelerate.yaml",
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 2\n\
         num_processes: 16\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n  fsdp_offload_params: false\n",
    );
    let script = write(
        "hybrid.sh",
        "accelerate launch --config_file accelerate.yaml --gradient_accumulation_steps=2 finetune.py --lr 1e-5\n",
    );
    let read_plan = check(&script, &["--micro-batch-size", "1"], "on 16 x");
    assert_eq!(read_plan["layout"]["zero_shard"], 8);
    assert_eq!(read_plan["framework"]["name"], "fsdp");
    let script = write(
        "titan.sh",
        "NGPU=8\ntorchrun --nproc_per_node=${NGPU} --nnodes 4 -m torchtitan.train --module llama3 --config llama3_8b \\
           --training.local-batch-size 2 --training.global-batch-size 64 --training.disable-cuda-graphs \\
           --parallelism.tensor-parallel-degree 8 --compile.enable --metrics.log-freq 10 activation-checkpoint:full\n",
    );
    let read_plan =
        check(&script, &[], "on 32 x H100-SXM5-80GB: tp8-sp-pp1-dp4, 1f1b, ZeRO 3, 8x2");
    assert_eq!(read_plan["training"]["fp32_gradients"], true);
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
    let plan_for = |target: &str| {
        let plan = folder.path().join(format!("{target}.json"));
        let framework = if target == "torchtitan" { "torchtitan" } else { "megatron-core" };
        let layout = ["--layout", "dp16", "--zero", "3", "--recompute", "full"];
        let mut model = ["models/llama-3.1-8b", "--gpus", "16", "--framework", framework];
        if target == "nanotron" {
            model = ["models/llama-2-7b", "--gpus", "16", "--framework", "nanotron"];
            plan_of(&[&model[..], &["--layout", "tp2-sp-dp8", "--zero", "1"]].concat(), &plan);
            return plan;
        }
        plan_of(&[&model[..], &layout].concat(), &plan);
        plan
    };
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
            &["zero_optimization.stage: ", "--deepspeed_config \"$HERE/ds_config.json\""],
        ),
        ("accelerate", "accelerate", &["--gradient_accumulation_steps"]),
        ("trainer", "trainer", &["training_arguments.json"]),
        ("megatron-bridge", "megatron-bridge", &["planned.py"]),
        ("nanotron", "nanotron", &["run_train.py --config-file"]),
        ("executor", "executor", &["executor run"]),
    ];
    let launchers = [
        ("torchrun", ".sh", &[][..]),
        ("slurm", ".sbatch", &["#SBATCH --nodes=2", "#SBATCH --gpus-per-node=8", "srun --nodes"]),
        ("mpirun", "-mpirun.sh", &["mpirun --hostfile", "--map-by ppr:"]),
        ("kubernetes", "-job.yaml", &["kind: ConfigMap", "nvidia.com/gpu: 8"]),
    ];
    for (target, name, expected) in targets {
        let plan = plan_for(target);
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
    for launcher in ["slurm", "torchrun"] {
        let refused = planner(&["export", path, "--to", "megatron", "--launcher", launcher]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains("12 ranks on nodes of 8"), "{refused:?}");
    }
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
    check(["megatron", "slurm"], &["#SBATCH --ntasks-per-node=1\n"], &["--requeue"]);
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
    check(&selective, "megatron", &["recompute of selective", "`--recompute norms`"]);
    let plain = [&eight[..], &["--layout", "dp8", "--zero", "2"]].concat();
    check(&plain, "torchtitan", &["gradients in 16 bits", "`--fp32-gradients`"]);
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
    check(&mixtral, "deepspeed", &["  expert parallelism", "`--approximate`"]);
    check(&mixtral, "accelerate", &["  expert parallelism"]);
    let adapters = [&eight[..], &["--layout", "dp8", "--zero", "2", "--lora-rank", "8"]].concat();
    for target in
        ["megatron", "megatron-bridge", "torchtitan", "deepspeed", "accelerate", "trainer"]
    {
        check(&adapters, target, &["cannot be given this model", "adapters (LoRA)"]);
    }
    check(&mixtral, "torchtitan", &["its registries have no such model"]);
}

/// Megatron asserts that Transformer Engine's own offload is on where modules are offloaded (`training/arguments.py`).
#[test]
fn modules_that_are_offloaded_bring_what_they_need() {
    let folder = TempDir::new().unwrap();
    let plan = folder.path().join("plan.json");
    let offload = "activations:attention+attention_output";
    let layout = ["models/llama-3.1-8b", "--gpus", "8", "--layout", "tp2-sp-dp4", "--zero", "1"];
    plan_of(&[&layout[..], &["--offload", offload]].concat(), &plan);
    let script = good(&["export", plan.to_str().unwrap(), "--to", "megatron"]).stdout;
    for part in ["NVTE_CPU_OFFLOAD_V1=1", "--offload-modules core_attn attn_proj"] {
        assert!(script.contains(part), "{part} in {script}");
    }
}
