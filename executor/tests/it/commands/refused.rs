//! Runs that are refused: one clear error, and nothing lost.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use ir::model::{GraphOptions, Model};
use ir::plan::PLAN_VERSION;
use serde_json::{Value, json};

use super::{Run, RunFolder, finish, plan};

/// The run failed before its first step with one error, with all of `words` in it.
fn check_error(run: &Run, args: &str, words: &[&str]) {
    assert_eq!(run.stdout, "", "{args}");
    check_failure(run, args, words);
}

/// The run failed with one error, with all of `words` in it.
fn check_failure(run: &Run, args: &str, words: &[&str]) {
    let Run { code, stderr, .. } = run;
    assert_eq!(*code, Some(2), "{args}: {run:?}");
    let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{args}: {stderr}");
    let error = &stderr[stderr.find("error: ").unwrap()..];
    for word in ["panicked", "RUST_BACKTRACE", "unwrap"] {
        assert!(!stderr.contains(word), "{args}: {stderr}");
    }
    for word in words {
        assert!(error.contains(word), "{args} does not say `{word}`: {stderr}");
    }
    let first_hint = error.find("\nhint: ").map(|place| &error[place + 1..]);
    let is_hint = |line: &str| line.starts_with("hint: ");
    assert!(first_hint.is_none_or(|hints| hints.lines().all(is_hint)), "{args}: {stderr}");
    assert!(error.lines().all(|line| line.len() < 500), "{args}: {stderr}");
}

impl RunFolder {
    /// Runs `executor`, which says why it does not, and leaves all files as they were.
    fn fails(&self, args: &str, words: &[&str]) {
        let before = self.listing();
        check_error(&self.run(args), args, words);
        assert_eq!(self.listing(), before, "{args} left something behind");
    }
}

#[test]
fn files_that_are_no_plans() {
    let place = RunFolder::new();
    place.fails("run missing.json", &["missing.json", "No such file", "planner search"]);
    place.fails("run .", &["`.`", "directory"]);
    let unknown_field = format!("{{\"version\": {PLAN_VERSION}, \"modle\": 2}}");
    for (text, words) in [
        (&b""[..], &["line 1", "planner search"][..]),
        (b"\xff\xfe", &["UTF-16"]),
        (b"\xff", &["utf-8"]),
        (b"plan: yes", &["line 1, column 1", "planner search"]),
        (b"{}", &["`version` is missing"]),
        (b"[1, 2]", &["line 1"]),
        (unknown_field.as_bytes(), &["`modle` is not a field", "`model`"]),
        (br#"{"model_type": "llama", "hidden_size": 8}"#, &["a model", "planner search"]),
        (br#"{"format": "planner-graph", "nodes": []}"#, &["a model", "planner search"]),
        (br#"{"architecture": "gpt"}"#, &["a model", "planner search"]),
        (br#"{"name": "home", "gpu": {}, "levels": []}"#, &["a cluster", "--cluster"]),
    ] {
        place.write("bad.json", text);
        place.fails("run bad.json", &[&["bad.json"], words].concat());
        place.fails("export . bad.json", &[&["bad.json"], words].concat());
    }
    if cfg!(unix) {
        place.fails("run /dev/zero", &["/dev/zero", "more than"]);
        place.fails("run /dev/null", &["/dev/null", "line 1"]);
    }
    let run = place.run("run toy-mlp.json --steps 1 --timeline step.json");
    assert_eq!(run.code, Some(0), "{run:?}");
    place.fails("run step.json", &["step.json", "a timeline", "planner chart"]);
}

#[test]
fn plans_that_were_edited() {
    let reads = format!("reads {PLAN_VERSION}");
    let edits: &[(&str, Value, &[&str])] = &[
        ("/version", json!(2), &["version 2", &reads, "planner evaluate"]),
        ("/version", json!("1"), &["line", "`version`", "a whole number"]),
        ("/num_gpus", json!(8), &["layout", "needs 4", "8", "`data_parallel` 2 fits"]),
        ("/num_gpus", json!(0), &["layout", "needs 4"]),
        ("/layout/tensor_parallel", json!(4_294_967_295_u32), &["layout", "there are 4"]),
        ("/layout/pipeline_parallel", json!(0), &["pipeline_parallel", "at least 1"]),
        ("/layout/virtual_stages", json!(2), &["virtual_stages"]),
        ("/layout/micro_batch_size", json!(3), &["global batch size 8", "`micro_batch_size` 3"]),
        ("/layout/num_micro_batches", json!(4_294_967_295_u32), &["global batch size 8"]),
        ("/layout/schedule", json!("wavefront"), &["wavefront", "1f1b"]),
        ("/layout/schedule", json!("zbv"), &["schedule `zbv`", "`virtual_stages` 2, not 1"]),
        ("/layout/zero_stage", json!(4), &["zero_stage"]),
        ("/layout/offload", json!("activations"), &["inputs of all blocks", "--recompute full"]),
        ("/layout/offload", json!("activations:2"), &["inputs of all blocks", "--recompute full"]),
        ("/stages", json!([]), &["contradicts itself", "stages", "provenance.command"]),
        ("/stages/0/num_blocks", json!(1), &["contradicts itself", "stages[1]"]),
        ("/stages/1/num_blocks", json!(4_294_967_295_u32), &["contradicts itself", "blocks"]),
        ("/stages/1/num_blocks", json!(2), &["contradicts itself", "5 blocks", "6"]),
        ("/stages/1/pipeline_rank", json!(0), &["contradicts itself", "stages[1]"]),
        ("/model/num_parameters", json!(7), &["contradicts itself", "7 parameters", "53536"]),
        ("/model/description/hidden_size", json!(64), &["contradicts itself", "53536 parameters"]),
        ("/model/description/num_hidden_layers", json!(-1), &["`model`", "num_hidden_layers"]),
        ("/model/description/architecture", json!("rnn"), &["`model`", "rnn", "`gpt`, `llama`"]),
        ("/training/precision", json!("fp8"), &["8-bit precision is not run"]),
        ("/training/precision", json!("fp4"), &["4-bit precision is not run"]),
        ("/training/precision", json!("int4"), &["int4", "`bf16`"]),
        ("/training/global_batch_size", json!(0), &["global batch size 0"]),
        ("/training/sequence_length", json!(33), &["33 tokens", "does not divide"]),
    ];
    let good = plan("tp2-pp2.json");
    let place = RunFolder::new();
    for (pointer, value, words) in edits {
        let mut plan = good.clone();
        let old = plan.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}"));
        assert_ne!(old, value, "{pointer}");
        *old = value.clone();
        place.write("edited.json", serde_json::to_string_pretty(&plan).unwrap());
        place.fails("run edited.json", &[&["edited.json"], *words].concat());
    }
}

/// A model of which not one copy has room says so before it takes what there is.
#[test]
fn a_model_larger_than_the_machine() {
    if !Path::new("/proc/meminfo").exists() {
        return;
    }
    let mut plan = plan("one.json");
    plan["model"]["description"]["hidden_size"] = json!(1 << 20);
    let description = plan["model"]["description"].to_string();
    let graph = Model::from_json(&description, "large").unwrap();
    let graph = graph.graph(GraphOptions::default()).unwrap();
    plan["model"]["num_parameters"] = json!(graph.parameter_counts().total);
    let place = RunFolder::new();
    place.write("large.json", plan.to_string());
    place.fails("run large.json", &["small-llama", "parameters", "this machine has", "GiB"]);
}

#[test]
fn arguments_that_mean_nothing() {
    let place = RunFolder::new();
    for (args, words) in [
        ("--steps 0", &["--steps", "at least 1"][..]),
        ("--steps -3", &["--steps", "at least 1"]),
        ("--steps 1e-3", &["--steps", "whole number"]),
        ("--learning-rate nan", &["--learning-rate", "at least 0"]),
        ("--learning-rate -1", &["--learning-rate", "at least 0"]),
        ("--weight-decay inf", &["--weight-decay", "at least 0"]),
        ("--max-gradient-norm -1", &["--max-gradient-norm", "at least 0"]),
        ("--bucket-size 0", &["--bucket-size", "from 1 to"]),
        ("--bucket-size 99999999999999999", &["--bucket-size", "from 1 to"]),
        ("--expert-capacity-factor 0", &["--expert-capacity-factor", "above 0"]),
        ("--expert-capacity-factor 1.25", &["--expert-capacity-factor", "no experts"]),
        ("--backend tpu", &["tpu", "cpu, cuda, wgpu"]),
        ("--communicator tcp", &["tcp", "local, mpi, nccl"]),
        ("--format yaml", &["yaml", "table, json"]),
        ("--timeline-step 1", &["--timeline <FILE>"]),
        ("--timeline t.json --timeline-step 0", &["--timeline-step", "at least 1"]),
        ("--timeline t.json --timeline-step 11", &["--timeline-step 11", "10 steps"]),
        ("--checkpoint kept --keep-checkpoints 0", &["--keep-checkpoints"]),
        ("--checkpoint kept --checkpoint-every 0", &["--checkpoint-every"]),
    ] {
        place.fails(&format!("run one.json {args}"), words);
    }
    place.fails("run", &["<PLAN>", "executor run plan.json"]);
}

/// What other programs call things gets a tip.
#[test]
fn names_of_other_programs() {
    let place = RunFolder::new();
    for (args, words) in [
        ("run one.json --resume", &["--resume", "`--checkpoint DIR`"][..]),
        ("run one.json --lr=0.1", &["`--learning-rate RATE`"]),
        ("run one.json --max_steps 3", &["`--steps N`"]),
        ("run one.json -n 4", &["the plan's", "planner evaluate"]),
        ("run one.json --tp 2", &["the plan's"]),
        ("run one.json two.json", &["two.json", "one plan"]),
        ("train one.json", &["executor run"]),
        ("one.json", &["a command comes first: `executor run "]),
        ("evaluate one.json", &["`planner`"]),
        ("export checkpoints", &["<PLAN>", "executor export checkpoints plan.json"]),
        ("calibrate", &["--output", "executor calibrate --ranks 4 -o mine.json"]),
        ("run one.json --save kept", &["`--checkpoint DIR`"]),
        ("run one.json --verbose", &["on stderr"]),
        ("run one.json --wandb", &["`--format json`"]),
        ("run one.json --dry-run", &["`planner simulate`"]),
        ("run one.json --learning-rat 1", &["'--learning-rate'"]),
        ("check --steps 4", &["`executor run`"]),
        ("check --fast", &["--minutes"]),
        ("collectives --size 1GB", &["--min-bytes"]),
        ("colectives", &["'collectives'"]),
        ("rnu one.json", &["'run'"]),
        ("--steps 4", &["a command comes first"]),
        ("lint run.sh", &["`planner`"]),
        ("run one.json --ranks 4", &["the plan's"]),
        ("run one.json --steps 10k", &["whole number"]),
        ("run one.json --steps 2.5", &["whole number", "2 and 3"]),
        ("run one.json --communication-timeout soon", &["`10min`"]),
        ("collectives --max-bytes much", &["4MiB"]),
        ("run one.json --seed x", &["whole number"]),
    ] {
        place.fails(args, words);
    }
}

/// Where there is no GPU or no library, or the program was built without it, that is said; where there is, it runs.
#[test]
fn devices_and_libraries_that_are_not_there() {
    let place = RunFolder::new();
    for (args, words) in [
        ("--backend cuda", &["cuda", "hint: "][..]),
        ("--backend cuda --communicator nccl", &["cuda", "hint: "]),
        ("--backend cuda --communicator mpi", &["cuda", "hint: "]),
        ("--backend wgpu", &["wgpu", "hint: "]),
        ("--backend wgpu --communicator mpi", &["wgpu", "hint: "]),
        ("--backend wgpu --precision fp64", &["wgpu", "hint: "]),
        ("--backend wgpu --precision bf16", &["wgpu", "hint: "]),
        ("--communicator nccl", &["NCCL", "hint: "]),
        ("--communicator mpi", &["MPI", "hint: "]),
    ] {
        let args = format!("run one.json --steps 1 {args}");
        let run = place.run(&args);
        if run.code != Some(0) {
            check_error(&run, &args, words);
        }
    }
}

#[test]
fn data_that_cannot_be_used() {
    let place = RunFolder::new();
    place.fails("run one.json --data missing.txt", &["missing.txt", "No such file"]);
    fs::create_dir(place.path("folder.txt")).unwrap();
    place.fails("run one.json --data folder.txt", &["folder.txt", "not a regular file"]);
    let ids = |ids: &[u16]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>();
    let mut large = ids(&[7; 1000]);
    large[2 * 500..][..2].copy_from_slice(&999_u16.to_le_bytes());
    for (name, bytes, words) in [
        ("data", b"text".to_vec(), &["extension", ".txt"][..]),
        ("empty.txt", Vec::new(), &["empty"]),
        ("short.txt", b"ten bytes.".to_vec(), &["10 of the 33 tokens", "sequence length 9 fits"]),
        // One sample too few for a step.
        (
            "few.txt",
            vec![b'a'; 8 * 33 - 1],
            &["263 tokens", "7 samples of 33", "step takes 8", "at least 264 tokens"],
        ),
        ("few.u16", ids(&[1; 40]), &["40 tokens", "1 samples", "step takes 8"]),
        ("odd.u16", vec![0; 10_001], &["10001 bytes", "10000 bytes would be"]),
        ("latin.txt", vec![0xe9; 1000], &["UTF-8", "byte 0"]),
        ("large.u16", large, &["token 500", "id 999", "ends at 255"]),
        ("large.u32", vec![0xff; 4000], &["id 4294967295", "ends at 255"]),
    ] {
        place.write(name, bytes);
        let args = format!("run one.json --steps 200 --data {name}");
        place.fails(&args, &[&[name], words].concat());
        // Also where several ranks would read it.
        place.fails(&args.replace("one", "dp2-zero3"), &[&[name], words].concat());
    }
    place.write("good.txt", "some words ".repeat(100));
    place.fails(
        "run toy-mlp.json --data good.txt",
        &["good.txt", "takes no tokens", "leave it out"],
    );
    let run = place.train("one.json", 1, "--data good.txt");
    assert_eq!(run.code, Some(0), "{run:?}");
}

#[test]
fn checkpoints_that_cannot_be_used() {
    let place = RunFolder::new();
    let train = |plan: &str, folder: &str| {
        let run = place.train(plan, 2, &format!("--checkpoint {folder}"));
        assert_eq!(run.code, Some(0), "{run:?}");
    };
    let file = |folder: &str| place.path(folder).join("step-00000002/rank-00001.safetensors");

    // Of other models, or another training.
    train("tp2-pp2.json", "kept");
    place.fails(
        "run ep2-dp2.json --checkpoint kept",
        &["kept/step-00000002", "model `small-llama`", "not of model `mixtral`", "hint: "],
    );
    place.fails("export kept ep2-dp2.json", &["model `small-llama`", "not of model `mixtral`"]);
    place.fails("run one.json --checkpoint kept --seed 4", &["`--seed 0`, not 4", "hint: "]);
    place.fails("run one.json --checkpoint kept --steps 1", &["2 steps already", "`--steps` is 1"]);
    let mut plan = plan("one.json");
    plan["training"]["optimizer"] = json!("sgd");
    place.write("sgd.json", plan.to_string());
    place.fails("run sgd.json --checkpoint kept", &["kept", "`adamw`", "\"sgd\"", "--weights"]);
    plan["training"]["optimizer"] = json!("adamw");
    plan["training"]["global_batch_size"] = json!(4);
    plan["layout"]["num_micro_batches"] = json!(2);
    place.write("batch.json", plan.to_string());
    place.fails("run batch.json --checkpoint kept", &["took 16 samples", "batch size is 4"]);
    place.fails(
        "run one.json --checkpoint kept --steps 2 --timeline t.json",
        &["step 2", "2 steps already"],
    );

    // Cut short.
    train("tp2-pp2.json", "cut");
    let bytes = fs::read(file("cut")).unwrap();
    fs::write(file("cut"), &bytes[..bytes.len() - 1]).unwrap();
    let length = bytes.len().to_string();
    let words = ["no checkpoint in `cut` is whole", "rank-00001.safetensors", &length, "hint: "];
    place.fails("run tp2-pp2.json --checkpoint cut", &words);
    place.fails("run one.json --checkpoint cut", &words);
    place.fails("export cut one.json", &words);
    place.fails("export cut/step-00000002 one.json", &words[1..]);
    fs::remove_file(file("cut")).unwrap();
    place.fails("run one.json --checkpoint cut", &["rank-00001.safetensors", "No such file"]);

    // Changed.
    train("tp2-pp2.json", "changed");
    let mut bytes = fs::read(file("changed")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(file("changed"), &bytes).unwrap();
    let words = ["rank-00001.safetensors", "was changed", "hint: "];
    place.fails("run one.json --checkpoint changed", &words);
    place.fails("export changed one.json", &words);

    // Half-written, and of a later program.
    fs::create_dir_all(place.path("half/step-00000003.partial")).unwrap();
    place.fails("export half one.json", &["`half` has no checkpoint", "hint: "]);
    fs::create_dir_all(place.path("bare/step-00000003")).unwrap();
    let words = ["no checkpoint in `bare` is whole", "incomplete", "manifest.json", "hint: "];
    place.fails("run one.json --checkpoint bare", &words);
    place.fails("export bare one.json", &words);
    train("one.json", "later");
    let manifest = place.path("later/step-00000002/manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replacen("\"version\": 1", "\"version\": 2", 1)).unwrap();
    place.fails("run one.json --checkpoint later", &["manifest.json", "version 2", "hint: "]);

    // None at all.
    place.fails("export nowhere one.json", &["nowhere"]);
    fs::create_dir(place.path("empty")).unwrap();
    place.fails("export empty one.json", &["empty", "no checkpoint", "hint: "]);
}

#[test]
fn weights_that_cannot_be_used() {
    let place = RunFolder::new();
    place.fails("run one.json --weights no.safetensors", &["no.safetensors", "No such file"]);
    fs::create_dir(place.path("empty")).unwrap();
    place.fails("run one.json --weights empty", &["empty", "model.safetensors"]);
    place.write("bad.safetensors", b"no tensors at all");
    place.fails("run one.json --weights bad.safetensors", &["bad.safetensors"]);
    place.write("config.json", b"{\"model_type\": \"llama\"}");
    let words = ["a text of JSON, not weights", ".safetensors"];
    place.fails("run one.json --weights config.json", &words);
    assert_eq!(place.train("ep2-dp2.json", 1, "--checkpoint kept").code, Some(0));
    assert_eq!(place.run("export kept ep2-dp2.json -o other.safetensors").code, Some(0));
    let words = ["other.safetensors", "no tensor `model.layers.0.mlp", "hint: "];
    place.fails("run one.json --weights other.safetensors", &words);
    place.fails("run tp2-pp2.json --weights other.safetensors", &words);
    // Of the same names, but smaller.
    let mut narrow = plan("one.json");
    narrow["model"]["description"]["intermediate_size"] = json!(32);
    narrow["model"]["num_parameters"] = json!(53536 - 4 * 3 * 32 * 32);
    place.write("narrow.json", narrow.to_string());
    assert_eq!(place.train("narrow.json", 1, "--checkpoint narrow").code, Some(0));
    assert_eq!(place.run("export narrow narrow.json -o narrow.safetensors").code, Some(0));
    place.fails(
        "run tp2-pp2.json --weights narrow.safetensors",
        &["narrow.safetensors", "has shape [32, 32]", "needs [32, 64]"],
    );
}

#[test]
fn places_that_cannot_be_written() {
    let place = RunFolder::new();
    let file = place.write("file", "");
    let run = "run one.json --steps 5";
    place.fails(&format!("{run} --timeline no/t.json"), &["no/t.json", "no folder `no`"]);
    place.fails(&format!("{run} --timeline ."), &["`.`", "folder", "hint: "]);
    place.fails(
        &format!("{run} --timeline file/t.json"),
        &["file/t.json", "is a file, not a folder"],
    );
    place.fails(&format!("{run} --checkpoint {}", file.display()), &["file", "folder"]);
    place.fails(&format!("{run} --checkpoint file/kept"), &["file/kept"]);
    fs::copy(super::shipped("one.json"), place.path("one.json")).unwrap();
    place.fails(&format!("{run} --timeline one.json"), &["one.json", "which is read"]);
    assert_eq!(place.train("one.json", 1, "--checkpoint kept").code, Some(0));
    place.fails("export kept one.json -o no/w.safetensors", &["no/w.safetensors", "no folder"]);
    place.fails("export kept one.json -o one.json", &["one.json", "which is read"]);
    place.fails("export kept one.json -o kept", &["kept", "folder"]);
}

/// What is written keeps the rights of what it replaces, goes where links lead, and does not replace what may not be
/// written.
#[cfg(unix)]
#[test]
fn results_take_the_place_of_files_as_they_are() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    let place = RunFolder::new();
    let mode = |name: &str| fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o777;
    let with_mode = |name: &str, mode: u32| {
        place.write(name, "old");
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    with_mode("private.json", 0o600);
    symlink("private.json", place.path("link.json")).unwrap();
    assert_eq!(place.train("one.json", 1, "--timeline link.json").code, Some(0));
    assert!(fs::symlink_metadata(place.path("link.json")).unwrap().is_symlink());
    assert_eq!(mode("private.json"), 0o600);
    assert!(fs::read_to_string(place.path("private.json")).unwrap().contains("traceEvents"));

    with_mode("kept.json", 0o444);
    place.fails("run one.json --steps 1 --timeline kept.json", &["kept.json", "read-only"]);
    assert_eq!(fs::read_to_string(place.path("kept.json")).unwrap(), "old");
}

/// Runs `executor` where a disk of 256 KiB is mounted on `disk`, if the system lets it.
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn on_a_small_disk(place: &RunFolder, options: &str, args: &str) -> Option<Run> {
    fs::create_dir_all(place.path("disk")).unwrap();
    // What fits is copied back, to be looked at when the disk is gone.
    let script = format!(
        "mount -t tmpfs -o {options} none disk || exit 99; \"$0\" \"$@\"; code=$?; \
         cp -r disk saved; exit $code"
    );
    let child = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", &script])
        .arg(env!("CARGO_BIN_EXE_executor"))
        .args(place.words(args))
        .current_dir(place.path(""))
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let run = child.ok().map(|child| finish(child, args));
    let run = run.filter(|run| run.code == Some(0) || run.stderr.contains("error: "));
    if run.is_none() {
        eprintln!("skipped: no disk can be mounted here");
    }
    run
}

/// A rank that cannot write stops all ranks, says why, and what was saved before is whole.
#[test]
fn a_full_disk_loses_nothing() {
    let place = RunFolder::new();
    let whole = place.train("tp2-pp2.json", 3, "").losses();
    // A checkpoint has 640 KiB, so that there is room for one.
    let args = "run tp2-pp2.json --format json --steps 3 --checkpoint disk --checkpoint-every 1";
    let Some(run) = on_a_small_disk(&place, "size=1000k", args) else { return };
    let words = ["rank ", " failed: ", "step-00000002.partial", "No space left", "make room"];
    check_failure(&run, args, &words);
    assert_eq!(run.stdout.lines().count(), 2, "{}", run.stdout);
    let rest = place.train("one.json", 3, "--checkpoint saved");
    assert!(rest.stderr.contains("going on from `saved/step-00000001`"), "{}", rest.stderr);
    assert_eq!(rest.losses().len(), whole.len() - 1);

    // What cannot be written at all is seen before the first step.
    let args = args.replace("--checkpoint disk", "--timeline disk/t.json --checkpoint disk/kept");
    let place = RunFolder::new();
    let Some(run) = on_a_small_disk(&place, "ro", &args) else { return };
    check_error(&run, &args, &["disk", "Read-only file system"]);
}
