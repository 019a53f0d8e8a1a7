//! Whole runs of the `executor` command.

mod calibrate;
mod check;
mod checkpoints;
mod collectives;
mod refused;
mod shell;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use ir::schedule::ActionKind;
use serde_json::Value;
use tempfile::TempDir;
use traces::timeline::{Activity, Stream};

/// How often a run is looked at, and how many looks it is given: 2 minutes, so that nothing hangs.
const LOOK: Duration = Duration::from_millis(5);
const LOOKS: u32 = 24_000;

/// Every plan, with its ranks.
const PLANS: &[(&str, usize)] = &[
    ("one.json", 1),
    ("tp2-pp2.json", 4),
    ("dp2-zero3.json", 2),
    ("dp2-offload.json", 2),
    ("pp2-zbv.json", 2),
    ("ep2-dp2.json", 2),
    ("toy-mlp.json", 2),
];

/// Exit code and output of a run.
#[derive(Debug)]
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    /// The objects on stdout, of a run that went well.
    fn lines(&self) -> Vec<Value> {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The losses on stdout, with all their digits.
    fn losses(&self) -> Vec<f64> {
        self.lines().iter().map(|line| line["loss"].as_f64().unwrap()).collect()
    }
}

/// A folder to run in, with plans.
struct RunFolder(TempDir);

impl RunFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// All files in the folder and below, with their lengths.
    fn listing(&self) -> Vec<(PathBuf, u64)> {
        fn list(folder: &Path, found: &mut Vec<(PathBuf, u64)>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    list(&path, found);
                } else {
                    let length = fs::metadata(&path).unwrap().len();
                    found.push((path, length));
                }
            }
        }
        let mut found = Vec::new();
        list(self.0.path(), &mut found);
        found.sort();
        found
    }

    /// Runs `executor` in the folder, with arguments at spaces. A word that is a plan's name is that plan,
    /// unless the folder has such a file.
    fn run(&self, args: &str) -> Run {
        finish(self.command(args).spawn().unwrap(), args)
    }

    /// Runs a plan for some steps, as JSON.
    fn train(&self, plan: &str, steps: u64, more: &str) -> Run {
        self.run(&format!("run {plan} --format json --steps {steps} {more}"))
    }

    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_executor"));
        command.args(self.words(args)).current_dir(self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("RUST_BACKTRACE", "0");
        command
    }

    fn words(&self, args: &str) -> Vec<PathBuf> {
        let word = |word: &str| {
            let is_plan = PLANS.iter().any(|(plan, _)| *plan == word);
            if is_plan && !self.path(word).exists() { shipped(word) } else { word.into() }
        };
        args.split_whitespace().map(word).collect()
    }
}

/// A plan among the fixtures.
fn shipped(plan: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans").join(plan)
}

/// A plan among the fixtures, as JSON.
fn plan(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(shipped(name)).unwrap()).unwrap()
}

/// Waits for a run's end, which must come in bounded time.
fn finish(mut child: Child, args: &str) -> Run {
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let read = |pipe: &mut dyn Read| {
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        text
    };
    thread::scope(|scope| {
        let stdout = scope.spawn(|| read(&mut stdout));
        let stderr = scope.spawn(|| read(&mut stderr));
        let status = (0..LOOKS).find_map(|_| {
            thread::sleep(LOOK);
            child.try_wait().unwrap()
        });
        if status.is_none() {
            child.kill().unwrap();
        }
        let code = status.and_then(|status| status.code());
        let run = Run { code, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() };
        assert!(status.is_some(), "`executor {args}` does not end: {run:?}");
        run
    })
}

#[test]
fn json_is_a_line_for_each_step() {
    for (plan, num_ranks) in PLANS {
        let place = RunFolder::new();
        let run = place.train(plan, 6, "--learning-rate 3e-3");
        let lines = run.lines();
        assert_eq!(run.stderr, "", "{plan}");
        assert_eq!(lines.len(), 6, "{plan}");
        for (step, line) in (1..).zip(&lines) {
            assert_eq!(line["step"], step, "{plan}");
            let seconds = line["step_time_seconds"].as_f64().unwrap();
            let rate = line["tokens_per_second"].as_f64().unwrap();
            assert!(seconds > 0.0 && rate > 0.0, "{plan}: {line}");
        }
        let memory = lines[5]["peak_memory_bytes_by_rank"].as_array().unwrap();
        assert_eq!(memory.len(), *num_ranks, "{plan}");
        assert!(memory.iter().all(|bytes| bytes.as_u64() > Some(0)), "{plan}: {memory:?}");

        let losses = run.losses();
        assert!(losses[5] < losses[0], "{plan} does not learn: {losses:?}");
        let again = place.train(plan, 6, "--learning-rate 3e-3");
        assert_eq!(again.losses(), losses, "{plan}: two runs differ");
        assert_eq!(place.listing(), [], "{plan} left something behind");
    }
}

/// Plans of the same model and batch train the same, whatever their layout.
#[test]
fn layouts_agree() {
    let place = RunFolder::new();
    let losses = |plan| place.train(plan, 4, "--precision fp64 --seed 3").losses();
    let one = losses("one.json");
    for plan in ["tp2-pp2.json", "dp2-zero3.json", "pp2-zbv.json"] {
        check_close(&losses(plan), &one, plan);
    }
}

/// Equal to rounding in fp64.
fn check_close(losses: &[f64], expected: &[f64], what: &str) {
    assert_eq!(losses.len(), expected.len(), "{what}");
    let most = losses.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(most < 1e-9, "{what}: {losses:?}, not {expected:?}");
}

/// What a plan leaves out of its model is said.
#[test]
fn dropout_that_was_not_planned_is_left_out_with_a_warning() {
    let place = RunFolder::new();
    let mut edited = plan("ep2-dp2.json");
    edited["model"]["description"]["attention_dropout"] = serde_json::json!(0.1);
    place.write("edited.json", edited.to_string());
    let run = place.train("edited.json", 1, "");
    assert!(run.stderr.contains("warning: the model's dropout is left out"), "{}", run.stderr);
    assert_eq!(run.losses(), place.train("ep2-dp2.json", 1, "").losses());
}

/// All ranks of a plan share a machine's memory.
#[test]
fn ranks_that_need_more_memory_than_there_is_are_warned_of() {
    let place = RunFolder::new();
    let mut edited = plan("tp2-pp2.json");
    edited["prediction"]["peak_memory_bytes"] = serde_json::json!(1_u64 << 50);
    place.write("edited.json", edited.to_string());
    let run = place.train("edited.json", 1, "");
    let warned = "warning: 4 ranks of up to ";
    assert!(run.stderr.contains(warned) && run.stderr.contains("of memory"), "{}", run.stderr);
    assert!(!place.train("tp2-pp2.json", 1, "").stderr.contains("warning"));
}

#[test]
fn dropout_that_was_planned_is_applied() {
    let place = RunFolder::new();
    let mut edited = plan("ep2-dp2.json");
    edited["model"]["description"]["attention_dropout"] = serde_json::json!(0.5);
    edited["model"]["dropout"] = serde_json::json!(true);
    place.write("edited.json", edited.to_string());
    let run = place.train("edited.json", 1, "");
    assert!(!run.stderr.contains("dropout"), "{}", run.stderr);
    assert_ne!(run.losses(), place.train("ep2-dp2.json", 1, "").losses());
}

/// Where each micro-batch updates there is no norm of all gradients: a limit is left out, unless it was asked for.
#[test]
fn a_limit_on_gradients_that_nobody_asked_for_is_left_out() {
    let place = RunFolder::new();
    let mut edited = plan("tp2-pp2.json");
    edited["layout"]["schedule"] = "async-1f1b".into();
    place.write("async.json", edited.to_string());
    let run = place.train("async.json", 2, "");
    let note = "note: `async-1f1b` updates after each micro-batch: gradients' norm has no limit";
    assert_eq!(run.stderr.matches(note).count(), 1, "{run:?}");
    let refused = place.train("async.json", 2, "--max-gradient-norm 1");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("hint: `--max-gradient-norm 0`"), "{refused:?}");
    let none = place.train("async.json", 2, "--max-gradient-norm 0");
    assert_eq!((none.losses(), none.stderr.as_str()), (run.losses(), ""));
}

#[test]
fn tables_say_what_runs_and_what_it_came_to() {
    let place = RunFolder::new();
    for (plan, words) in [
        (
            "one.json",
            &["1 rank ", "undivided", "8 sequences of 32 tokens", "4 micro-batches of 2"][..],
        ),
        (
            "tp2-pp2.json",
            &[
                "small-llama",
                "4 ranks",
                "CPU",
                "tensor-parallel 2",
                "sequence",
                "pipeline of 2",
                "1f1b",
            ],
        ),
        ("dp2-zero3.json", &["2 ranks", "data-parallel 2", "ZeRO-3", "2 micro-batches of 2"]),
        ("pp2-zbv.json", &["pipeline of 2", "2 stages each", "zbv"]),
        ("ep2-dp2.json", &["mixtral", "data-parallel 2", "experts over 2"]),
        ("toy-mlp.json", &["toy-mlp", "165 parameters", "8 samples"]),
    ] {
        let run = place.run(&format!("run {plan} --steps 2"));
        assert_eq!(run.code, Some(0), "{run:?}");
        let start = run.stderr.lines().next().unwrap();
        for word in words.iter().chain(&["of tensors a rank expected"]) {
            assert!(start.contains(word), "{plan}: no `{word}` in {start}");
        }
        let steps: Vec<&str> = run.stderr.lines().skip(1).collect();
        assert_eq!(steps.len(), 2, "{plan}: {}", run.stderr);
        assert!(steps[1].starts_with("step 2 of 2: loss "), "{plan}: {}", run.stderr);
        for word in ["2 steps, loss ", "measured", "h100", "does not compare", "rank"] {
            assert!(run.stdout.contains(word), "{plan}: no `{word}` in {}", run.stdout);
        }
    }
    // What was computed in another precision than planned is not compared.
    let run = place.run("run one.json --steps 1 --precision fp64");
    assert!(!run.stderr.contains("expected"), "{}", run.stderr);
    assert!(run.stdout.contains("1 step, ") && run.stdout.contains("fp32"), "{}", run.stdout);
}

/// The plan counts the tensors that ranks hold.
#[test]
fn memory_is_as_predicted() {
    let place = RunFolder::new();
    for (name, _) in PLANS.iter().filter(|(name, _)| *name != "toy-mlp.json") {
        let lines = place.train(name, 2, "").lines();
        let measured = lines[1]["peak_memory_bytes_by_rank"].as_array().unwrap();
        let measured = measured.iter().filter_map(Value::as_f64).fold(0.0, f64::max);
        let memory = &plan(name)["prediction"]["memory"];
        let predicted: f64 =
            ["parameters", "gradients", "optimizer", "activations", "gathered", "buffers"]
                .iter()
                .filter_map(|part| memory[format!("{part}_bytes")].as_f64())
                .sum();
        let ratio = measured / predicted;
        assert!(
            (0.75..1.15).contains(&ratio),
            "{name}: {measured} measured, {predicted} predicted"
        );
        if let Some(on_host) = lines[1].get("peak_host_memory_bytes_by_rank") {
            let on_host = on_host.as_array().unwrap().iter().filter_map(Value::as_u64).max();
            assert_eq!(on_host, memory["host_bytes"].as_u64(), "{name}: on the host");
        }
    }
}

#[test]
fn timelines_have_every_pass() {
    for (plan_name, num_ranks) in PLANS {
        let place = RunFolder::new();
        let run = place.train(plan_name, 3, "--timeline step.json --timeline-step 2");
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.stderr.contains("wrote `step.json`"), "{}", run.stderr);
        let text = fs::read_to_string(place.path("step.json")).unwrap();
        let timeline = traces::chrome::read(&text).unwrap();
        for word in [plan(plan_name)["model"]["name"].as_str().unwrap(), "step 2", "measured"] {
            assert!(timeline.title.contains(word), "{}", timeline.title);
        }
        let ranks: Vec<u32> = timeline.tracks.iter().map(|track| track.rank).collect();
        assert_eq!(ranks, (0..*num_ranks as u32).collect::<Vec<_>>(), "{plan_name}");

        let plan = plan(plan_name);
        let number = |name: &str| plan["layout"][name].as_u64().unwrap() as u32;
        let ranks_of_pipeline = *num_ranks as u32 / number("pipeline_parallel");
        for track in &timeline.tracks {
            assert!(!track.memory.is_empty(), "{plan_name}: {}", track.name);
            let actions = track.events.iter().filter(|event| event.stream == Stream::Compute);
            let done: BTreeSet<(u32, u32, ActionKind)> = actions
                .filter_map(|event| match event.activity {
                    Activity::Action(action) => {
                        Some((action.stage, action.micro_batch, action.kind))
                    }
                    Activity::Collective { .. } | Activity::Copy { .. } | Activity::Wait(_) => None,
                })
                .collect();
            let pipeline_rank = u64::from(track.rank / ranks_of_pipeline);
            let own = plan["stages"].as_array().unwrap().iter();
            let own = own.filter(|stage| stage["pipeline_rank"].as_u64() == Some(pipeline_rank));
            for stage in own.map(|stage| stage["stage"].as_u64().unwrap() as u32) {
                let name = format!("{plan_name}: stage {stage} on {}", track.name);
                for micro_batch in 0..number("num_micro_batches") {
                    let did = |kind| done.contains(&(stage, micro_batch, kind));
                    assert!(did(ActionKind::Forward), "{name}: {done:?}");
                    let in_parts = did(ActionKind::InputGrad) && did(ActionKind::WeightGrad);
                    assert!(did(ActionKind::Backward) || in_parts, "{name}: {done:?}");
                }
                let is_update = |(of, _, kind): &(u32, u32, ActionKind)| {
                    *of == stage && *kind == ActionKind::OptimizerStep
                };
                assert!(done.iter().any(is_update), "{name}: {done:?}");
            }
        }
    }
}

#[test]
fn help_names_every_option() {
    let run = RunFolder::new().run("run --help");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    for option in [
        "--steps",
        "--data",
        "--backend",
        "--communicator",
        "--checkpoint",
        "--weights",
        "--timeline",
        "--format",
        "--precision",
        "--seed",
        "--learning-rate",
    ] {
        assert!(run.stdout.contains(option), "no {option} in {}", run.stdout);
    }
    let widest = run.stdout.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{}", run.stdout);
}

/// A reader that leaves, as `head -1` does, is no error.
#[test]
fn readers_may_leave() {
    let place = RunFolder::new();
    let mut child = place.command("run toy-mlp.json --format json --steps 50").spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}
