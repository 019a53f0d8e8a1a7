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
