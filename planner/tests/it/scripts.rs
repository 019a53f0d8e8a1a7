//! Launch scripts that decide, and jobs of Kubernetes, as `import` and `lint` read them.

use std::fs;

use tempfile::TempDir;

use crate::cli::{Run, planner, root};

fn read_well(args: &[&str]) -> Run {
    let run = planner(args);
    assert_eq!(run.code, Some(0), "{args:?}: {}", run.stderr);
    run
}

/// A manifest's script is read, and lint names the manifest's lines; of words that are no script it says so.
#[test]
fn a_manifest_is_read() {
    let folder = TempDir::new().unwrap();
    let manifest = root().join("fuzz/corpus/settings/manifest.yaml");
    let text = fs::read_to_string(&manifest).unwrap();
    let model = ["--model", "models/llama-3.1-8b"];
    let run = read_well(&[&["import", manifest.to_str().unwrap()][..], &model].concat());
    assert!(run.stdout.starts_with("llama-3.1-8b on 16 x"), "{}", run.stdout);

    let misspelt = folder.path().join("job.yaml");
    fs::write(&misspelt, text.replace("--seq-length", "--seq-lenght")).unwrap();
    let path = misspelt.to_str().unwrap();
    let run = planner(&[&["lint", path][..], &model].concat());
    assert_eq!(run.code, Some(1), "{run:?}");
    let line = 1 + text.lines().position(|line| line.contains("--seq-length")).unwrap();
    let expected =
        format!("{path}:{line}: error[unknown-option]: Megatron-LM has no `--seq-lenght`");
    assert!(run.stdout.contains(&expected), "{}", run.stdout);

    let words = root().join("fuzz/corpus/settings/job.yaml");
    let run = read_well(&[&["import", words.to_str().unwrap()][..], &model].concat());
    assert!(run.stdout.contains("tp2-pp1-dp"), "{}", run.stdout);
    let run = planner(&[&["lint", words.to_str().unwrap()][..], &model].concat());
    assert_eq!(run.code, Some(1), "{run:?}");
    let mut places = run.stdout.split("job.yaml:").skip(1);
    assert!(places.all(|rest| rest.starts_with(' ')), "{}", run.stdout);
}

/// How many ranks a job has, and which of its containers is read.
#[test]
fn ranks_are_those_of_the_job_that_trains() {
    let folder = TempDir::new().unwrap();
    let imported = |text: &str| {
        let path = folder.path().join("job.yaml");
        fs::write(&path, text).unwrap();
        planner(&["import", path.to_str().unwrap(), "--model", "models/llama-3.1-8b"])
    };
    let train = "torchrun, pretrain_gpt.py, --tensor-model-parallel-size=$(TP), --micro-batch-size=1, \
                 --global-batch-size=64, --seq-length=4096, --bf16";
    let limits = "resources: {limits: {nvidia.com/gpu: 8}}";
    let pods = |words: &str| {
        format!(
            "{{containers: [{{command: [python, exporter.py]}}, {{command: [{words}], env: [{{name: TP, value: '2'}}], {limits}}}]}}"
        )
    };
    let job = |replicas: u32| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nspec:\n  parallelism: {replicas}\n  template:\n    spec: {}\n",
            pods(train)
        )
    };
    let runtime = format!(
        "apiVersion: v1\nkind: TrainingRuntime\nspec:\n  mlPolicy: {{numNodes: 2}}\n  template:\n    spec: {}\n",
        pods(train)
    );
    let train_job = "apiVersion: v1\nkind: TrainJob\nspec:\n  trainer: {numNodes: 4}\n";
    let mpi = format!(
        "apiVersion: v1\nkind: MPIJob\nspec:\n  slotsPerWorker: 8\n  mpiReplicaSpecs:\n    Launcher: {{template: {{spec: \
         {{containers: [{{command: [mpirun, -np, '16', {}]}}]}}}}}}\n    Worker: {{replicas: 4, template: {{spec: {{containers: \
         [{{command: [sshd], {limits}}}]}}}}}}\n",
        train.replace("torchrun", "python").replace("$(TP)", "2")
    );
    for (text, ranks) in [
        (job(4), 32),
        (runtime.clone(), 16),
        (format!("{runtime}---\n{train_job}"), 32),
        (format!("{train_job}---\n{runtime}"), 32),
        (mpi.clone(), 16),
    ] {
        let run = imported(&text);
        let expected = format!("llama-3.1-8b on {ranks} x");
        assert!(run.stdout.starts_with(&expected), "{text}: {run:?}");
        assert!(run.stdout.contains("tp2-pp1-dp"), "{text}: {run:?}");
    }
    for (text, expected) in [
        (format!("{}---\n{}", job(1), job(2)), "2 jobs that start training"),
        (mpi.replace("'16'", "'64'"), "`--np` is 64, but the job has 32 GPUs"),
        (job(1).replace("parallelism: 1", "parallelism: 1.5"), "`parallelism` is `1.5`"),
        (
            job(1).replace("[torchrun", "[torchrun, --nproc-per-node=16"),
            "but the job has 8 GPUs on each",
        ),
        (job(1).replace("$(TP)", "{{ tp }}"), "helm template"),
    ] {
        let run = imported(&text);
        assert_eq!(run.code, Some(2), "{text}: {run:?}");
        assert!(run.stderr.contains(expected), "{text}: {}", run.stderr);
    }
}

/// Branches of a launch script are followed where words that are known decide.
#[test]
fn branches_on_what_is_known_are_followed() {
    let script = root().join("fuzz/corpus/settings/branches.sh");
    let args = ["import", script.to_str().unwrap(), "--model", "models/llama-3.1-8b"];
    for (set, layout, precision, recompute) in [
        ("NODES=2", "tp2-sp-pp1-dp8", "bf16", "none"),
        ("NODES=4", "tp2-sp-pp1-dp16", "bf16", "none"),
        ("MODEL_SIZE=72b", "tp8-sp-pp1-dp2", "bf16", "none"),
        ("DTYPE=fp8", "tp2-sp-pp1-dp8", "fp8", "none"),
        ("RECOMPUTE=full", "tp2-sp-pp1-dp8", "bf16", "full"),
        ("RECOMPUTE=selective", "tp2-sp-pp1-dp8", "bf16", "attention"),
    ] {
        let text = read_well(&[&args[..], &["--set", set]].concat()).stdout;
        for part in [layout, precision, &format!("recompute {recompute}")] {
            assert!(text.contains(part), "{set}: no {part} in {text}");
        }
    }
}

/// Options that a layout of one rank needs.
const REST: &str = "--micro-batch-size 1 --global-batch-size 64 --seq-length 4096 --bf16 --hidden-dropout 0 \
                    --attention-dropout 0";

/// What `import` or `lint` prints for a script, on stdout and stderr.
fn printed(folder: &TempDir, command: &str, script: &str, args: &[&str]) -> String {
    let path = folder.path().join("run/a.sh");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, script.replace("REST", REST)).unwrap();
    let path = path.to_str().unwrap();
    let model = if args.contains(&"--model") { vec![] } else { vec!["--model", "llama-3.1-8b"] };
    let run = planner(&[&[command, path][..], &model, args].concat());
    run.stdout + &run.stderr
}

/// Scripts, and what is said of them.
#[test]
fn what_a_script_leaves_open_is_asked_for_where_it_counts() {
    let folder = TempDir::new().unwrap();
    for (script, args, expected) in [
        (
            "torchrun --nproc_per_node 8 pretrain_gpt.py REST --tensor-model-parallel-size ${1}",
            &[][..],
            "depends on `$1`, which the script does not set, or in a branch alone, or by a command\nhint: `--set 1=VALUE` for argument 1",
        ),
        (
            "torchrun --nproc_per_node 8 pretrain_gpt.py REST --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP",
            &[],
            "`--set TP=VALUE --set PP=VALUE`",
        ),
        (
            "torchrun --nproc_per_node 8 pretrain_gpt.py REST --tensor-model-parallel-size ${1}",
            &["--set", "1=4"],
            "tp4-pp1-dp2",
        ),
        (
            "A=\"pretrain_gpt.py REST --save $HOME/x --tensor-model-parallel-size 2\"\ntorchrun --nproc_per_node 8 $A",
            &[],
            "tp2-pp1-dp4",
        ),
        (
            "T=2\nif [ -f big ]; then T=4; fi\ntorchrun --nproc_per_node 8 pretrain_gpt.py REST --tensor-model-parallel-size $T",
            &[],
            "`--tensor-model-parallel-size` depends on `T`",
        ),
        (
            "E=\"\"\nif [ -n \"$BIG\" ]; then E=\"--tensor-model-parallel-size 4\"; fi\n\
             C=\"torchrun --nproc_per_node 8 pretrain_gpt.py REST $E\"\neval $C",
            &[],
            "depends on `BIG`",
        ),
        (
            "if [ \"$HOW\" = many ]; then\n  torchrun --nproc_per_node 8 pretrain_gpt.py REST\nfi",
            &[],
            "llama-3.1-8b on 8 x",
        ),
        (
            "if [ \"$HOW\" = many ]; then\n  torchrun --nproc_per_node 8 pretrain_gpt.py REST\nelse\n  \
             torchrun --nproc_per_node 4 pretrain_gpt.py REST\nfi",
            &[],
            "`--set HOW=VALUE`",
        ),
        ("A=ab\nfor i in $(seq 1 40); do A=$A$A; done", &[], "larger than 2 MiB"),
        ("CUDA_VISIBLE_DEVICES=2 python pretrain_gpt.py REST", &[], "llama-3.1-8b on 1 x"),
        (
            "CUDA_VISIBLE_DEVICES=0,1,4,5 torchrun --nproc_per_node gpu pretrain_gpt.py REST",
            &[],
            "llama-3.1-8b on 4 x",
        ),
        (
            "#SBATCH --nodes=2\nsbatch <<EOF\n#SBATCH --ntasks-per-node=4\nsrun python pretrain_gpt.py REST\nEOF",
            &[],
            "llama-3.1-8b on 8 x",
        ),
        (
            "torchrun --nproc_per_node 8 pretrain_gpt.py REST --use-mpi --bf16 --tensor-model-parallel-size 4 \
             --tensor-model-parallel-size 2",
            &[],
            "tp2-pp1-dp4",
        ),
        (
            "torchrun --nproc_per_node 8 pretrain_gpt.py REST --tensor-parallel-size 4",
            &[],
            "hint: `--tensor-model-parallel-size`",
        ),
        (
            "torchrun --nproc_per_node 8 pretrain_gpt.py REST --use-mpi",
            &[],
            "`--use-mpi` (no option of Megatron-LM that is known; is `--use-mup` meant?)",
        ),
        (
            "torchrun --nproc_per_node 8 pretrain_gpt.py REST --seq-length 4096 --seq-length 2048",
            &[],
            "`--seq-length` (given as `4096`, then as `2048`: the last counts)",
        ),
        (
            "source of-another-folder.sh\npython train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --global-batch-size 8\n${SIZES[@]} --bf16",
            &["--seq-len", "4096"],
            "`${SIZES}` begins a line, but the command before it",
        ),
    ] {
        let text = printed(&folder, "import", script, args);
        assert!(text.contains(expected), "{script}\n{text}");
    }
}

/// Layers of stages are those of the model where the options do not say how many there are.
#[test]
fn stages_are_of_the_layers_of_the_model() {
    let folder = TempDir::new().unwrap();
    let script = |more: &str| {
        format!(
            "torchrun --nproc_per_node 8 pretrain_gpt.py REST --pipeline-model-parallel-size 4 {more}"
        )
    };
    let time = |more: &str| {
        let text = printed(&folder, "import", &script(more), &[]);
        text.lines().find(|line| line.starts_with("predicted")).expect(&text).to_owned()
    };
    let last = "--decoder-last-pipeline-num-layers 5";
    assert_ne!(time(last), time(""));
    assert_eq!(time(last), time(&format!("{last} --num-layers 32")));
    let virtual_stages = "--num-layers-per-virtual-pipeline-stage 2";
    assert_eq!(time(virtual_stages), time(&format!("{virtual_stages} --num-layers 32")));
    let uneven = printed(&folder, "import", &script("--decoder-last-pipeline-num-layers 6"), &[]);
    assert!(uneven.contains("do not divide over 4 ranks"), "{uneven}");
}

/// A script that gives its model by options, and leaves out a size, runs the model of Megatron's defaults.
#[test]
fn sizes_that_are_left_out_are_compared_too() {
    let folder = TempDir::new().unwrap();
    let sizes = [
        "--num-layers 32 --hidden-size 4096 --num-attention-heads 32",
        "--group-query-attention --num-query-groups 8",
        "--ffn-hidden-size 14336",
        "--swiglu",
    ];
    let text = |left_out: usize, command: &str| {
        let given: Vec<&str> =
            (0..sizes.len()).filter(|place| *place != left_out).map(|place| sizes[place]).collect();
        let script =
            format!("torchrun --nproc_per_node 8 pretrain_gpt.py REST {}", given.join(" "));
        printed(&folder, command, &script, &[])
    };
    for (left_out, expected) in [
        (
            1,
            "`--num-query-groups` is left out, which makes it 32, where it has `--num-query-groups 8`",
        ),
        (
            2,
            "`--ffn-hidden-size` is left out, which makes it 10880, where it has `--ffn-hidden-size 14336`",
        ),
        (3, "`--swiglu` is left out, which it has"),
    ] {
        for command in ["import", "lint"] {
            let text = text(left_out, command);
            assert!(text.contains(expected), "{command}: {text}");
        }
    }
    for complete in [0, sizes.len()] {
        assert!(text(complete, "import").starts_with("llama-3.1-8b on 8"), "{complete}");
    }
}

/// Files are found from the folder of the script, those above it, and by their names; scripts that a script runs are
/// read.
#[test]
fn files_of_a_script_are_found() {
    let folder = TempDir::new().unwrap();
    fs::create_dir_all(folder.path().join("run/inner")).unwrap();
    fs::create_dir_all(folder.path().join("shared")).unwrap();
    fs::write(folder.path().join("run/inner/sizes.sh"), "ARGS=(--tensor-model-parallel-size 4)\n")
        .unwrap();
    fs::write(
        folder.path().join("shared/start.sh"),
        format!("torchrun --nproc_per_node $1 pretrain_gpt.py {REST} ${{@:2}}\n"),
    )
    .unwrap();
    for script in [
        "source \"$(dirname \"$0\")/inner/sizes.sh\"\ntorchrun --nproc_per_node 8 pretrain_gpt.py REST \"${ARGS[@]}\"",
        "bash ./shared/start.sh 8 --tensor-model-parallel-size 4",
        "mpirun -x A bash -c \"source inner/sizes.sh && bash shared/start.sh 8 \\${ARGS[*]}\"",
    ] {
        let text = printed(&folder, "import", script, &[]);
        assert!(
            text.starts_with("llama-3.1-8b on 8 x") && text.contains("tp4-pp1-dp2"),
            "{script}\n{text}"
        );
    }
}

/// A change of the stages that lint offers does not lead to ranks that do not divide the GPUs.
#[test]
fn a_fix_of_stages_divides_the_gpus() {
    let folder = TempDir::new().unwrap();
    let script = "torchrun --nproc_per_node 8 pretrain_gpt.py REST --tensor-model-parallel-size 1 \
                  --pipeline-model-parallel-size 8 --num-virtual-stages-per-pipeline-rank 3";
    let text = printed(&folder, "lint", script, &[]);
    assert!(!text.contains("nodes-do-not-divide"), "{text}");
}
