//! Predicted steps next to measured ones: this machine is calibrated, layouts are planned for it, and run.
//!
//! Takes minutes and a machine that does nothing else, so it runs with `RUN_SLOW_TESTS=1` alone, best in a
//! release build: `cargo build --release -p planner && RUN_SLOW_TESTS=1 cargo test --release -p executor
//! --test it -- predictions --nocapture`. The `planner` command must lie next to the `executor`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Ranks of the largest layouts; each has a thread.
const RANKS: u32 = 2;

/// Steps of a run, and those at first that do not count.
const STEPS: usize = 14;
const WARM_UPS: usize = 2;

/// Where other programs had more than this share of the machine during any run, nothing is held against limits.
const DISTURBED: f64 = 0.08;

/// Llama's kind: layers, features, heads, heads of keys, inner features, vocabulary.
fn llama([layers, hidden, heads, kv_heads, intermediate, vocabulary]: [u64; 6]) -> Value {
    json!({
        "architecture": "llama", "num_hidden_layers": layers, "hidden_size": hidden,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "intermediate_size": intermediate, "vocab_size": vocabulary, "max_position_embeddings": 512
    })
}

/// GPT-2's kind: layers, features, heads, vocabulary.
fn gpt([layers, hidden, heads, vocabulary]: [u64; 4]) -> Value {
    json!({
        "architecture": "gpt", "num_hidden_layers": layers, "hidden_size": hidden,
        "num_attention_heads": heads, "vocab_size": vocabulary, "max_position_embeddings": 512
    })
}

/// Models that are none of those that are calibrated with.
fn models() -> [(&'static str, Value); 4] {
    [
        ("llama-256", llama([4, 256, 8, 4, 688, 2048])),
        ("llama-192", llama([6, 192, 6, 6, 512, 1024])),
        ("gpt-384", gpt([3, 384, 6, 1024])),
        ("gpt-128", gpt([8, 128, 4, 512])),
    ]
}

/// Model, GPUs, tokens in a sequence, sequences in a step, layout, and what else it says.
const ROWS: &[(&str, u32, u32, u32, &str, &str)] = &[
    ("llama-256", 1, 128, 8, "tp1", "--micro-batch-size 4"),
    ("llama-256", 2, 128, 8, "tp2", "--micro-batch-size 2"),
    ("llama-256", 2, 128, 8, "tp2-sp", "--micro-batch-size 4"),
    ("llama-256", 2, 128, 8, "dp2", "--micro-batch-size 2"),
    ("llama-256", 2, 128, 8, "dp2", "--micro-batch-size 4 --zero 1"),
    ("llama-256", 2, 128, 8, "dp2", "--micro-batch-size 2 --zero 2"),
    ("llama-256", 2, 128, 8, "dp2", "--micro-batch-size 4 --zero 3"),
    ("llama-256", 2, 128, 8, "pp2", "--micro-batch-size 1 --schedule 1f1b"),
    ("llama-256", 2, 128, 8, "pp2", "--micro-batch-size 2 --schedule gpipe"),
    ("llama-256", 2, 256, 4, "cp2", "--micro-batch-size 1"),
    ("llama-192", 1, 256, 4, "tp1", "--micro-batch-size 1"),
    ("llama-192", 2, 256, 4, "tp2", "--micro-batch-size 1"),
    ("llama-192", 2, 256, 4, "pp2", "--micro-batch-size 1 --schedule zb-h1"),
    ("llama-192", 2, 256, 4, "dp2", "--micro-batch-size 1 --recompute full"),
    ("gpt-384", 2, 64, 8, "tp2", "--micro-batch-size 4"),
    ("gpt-384", 2, 64, 8, "dp2", "--micro-batch-size 4"),
    ("gpt-384", 2, 64, 8, "pp2", "--micro-batch-size 2 --schedule 1f1b"),
    ("gpt-384", 2, 64, 16, "dp2", "--micro-batch-size 2 --zero 1"),
    ("gpt-128", 1, 128, 8, "tp1", "--micro-batch-size 8"),
    ("gpt-128", 2, 128, 8, "tp2", "--micro-batch-size 4"),
    ("gpt-128", 2, 128, 8, "dp2", "--micro-batch-size 4"),
    ("gpt-128", 2, 128, 8, "pp2-vpp2", "--micro-batch-size 1 --schedule interleaved-1f1b"),
    ("gpt-128", 2, 256, 4, "cp2", "--micro-batch-size 2"),
    ("gpt-128", 2, 128, 16, "pp2", "--micro-batch-size 2 --schedule zbv"),
];

/// How many of the rows are to be within which error, and how well they are to be in order.
const LEAST_WITHIN: usize = 20;
const ERROR: f64 = 0.15;
const RANK_CORRELATION: f64 = 0.9;

/// How often each row runs: one round after the other, so that what disturbs the machine for a while disturbs
/// different rows. The round that took least counts.
const ROUNDS: usize = 3;

#[test]
#[expect(clippy::print_stderr, reason = "the rows are what one runs it for")]
fn steps_take_about_as_long_as_predicted() {
    let planner = Path::new(env!("CARGO_BIN_EXE_executor")).with_file_name("planner");
    if !super::runs_slow_tests() || !planner.exists() {
        eprintln!(
            "skipped: set RUN_SLOW_TESTS=1, and build `planner`, to hold steps against predictions"
        );
        return;
    }
    let bench = Bench { planner, place: tempfile::tempdir().unwrap() };
    for (name, model) in models() {
        fs::write(bench.path(&format!("{name}.json")), model.to_string()).unwrap();
    }
    let mut disturbed =
        bench.run_by_executor(&format!("calibrate -o mine.json --ranks {RANKS} --factor 4"));
    let numbered = || ROWS.iter().enumerate();
    let predictions: Vec<f64> = numbered().map(|(nth, row)| bench.predicted(nth, row)).collect();
    let mut measurements = vec![f64::INFINITY; ROWS.len()];
    for _ in 0..ROUNDS {
        for (nth, least) in measurements.iter_mut().enumerate() {
            let (time, by_others) = bench.measured(nth);
            *least = least.min(time);
            disturbed = disturbed.max(by_others);
        }
    }
    let mut errors = Vec::new();
    for (nth, (model, _, sequence, batch, layout, more)) in numbered() {
        let (predicted, measured) = (predictions[nth], measurements[nth]);
        let error = predicted / measured - 1.0;
        eprintln!(
            "{model:9} {batch:2} x {sequence:3} {layout:8} {more:48} predicted {:7.2} ms, measured {:7.2} ms, \
             {:+5.1} %",
            predicted * 1e3,
            measured * 1e3,
            error * 100.0
        );
        errors.push(error.abs());
    }
    errors.sort_by(f64::total_cmp);
    let correlation = rank_correlation(&predictions, &measurements);
    let within = errors.iter().filter(|error| **error <= ERROR).count();
    eprintln!(
        "median error {:.1} %, {within} of {} within 15 %, rank correlation {correlation:.3}",
        errors[errors.len() / 2] * 100.0,
        errors.len()
    );
    if disturbed > DISTURBED {
        eprintln!(
            "not held against limits: other programs had {:.0} % of the machine",
            disturbed * 100.0
        );
        return;
    }
    assert!(within >= LEAST_WITHIN, "{errors:?}");
    assert!(correlation >= RANK_CORRELATION, "{predictions:?}, {measurements:?}");
}

struct Bench {
    planner: PathBuf,
    place: TempDir,
}

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn run(&self, program: &Path, args: &str) -> Output {
        let mut command = Command::new(program);
        let output = command.args(args.split_whitespace()).current_dir(self.place.path()).output();
        let output = output.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {args}: {stderr}", program.display());
        output
    }

    /// Runs the executor; the share of the machine that other programs had meanwhile.
    fn run_by_executor(&self, args: &str) -> f64 {
        let before = Load::now();
        self.run(Path::new(env!("CARGO_BIN_EXE_executor")), args);
        Load::now().of_others(before)
    }

    /// The planned time of a step, of a plan that stays in `plan-N.json`.
    fn predicted(
        &self,
        nth: usize,
        (model, gpus, sequence, batch, layout, more): &(&str, u32, u32, u32, &str, &str),
    ) -> f64 {
        self.run(
            &self.planner,
            &format!(
                "evaluate {model}.json --gpus {gpus} --layout {layout} {more} --cluster mine.json \
                 --framework executor --precision fp32 --seq-len {sequence} --global-batch-size {batch} \
                 -o plan-{nth}.json --quiet"
            ),
        );
        let text = fs::read_to_string(self.path(&format!("plan-{nth}.json"))).unwrap();
        let plan: Value = serde_json::from_str(&text).unwrap();
        plan["prediction"]["step_time_seconds"].as_f64().unwrap()
    }

    /// The lower quartile of the steps of `plan-N.json`, and how much other programs had of the machine.
    fn measured(&self, nth: usize) -> (f64, f64) {
        let args =
            format!("run plan-{nth}.json --steps {STEPS} --threads-per-rank 1 --format json");
        let before = Load::now();
        let output = self.run(Path::new(env!("CARGO_BIN_EXE_executor")), &args);
        let disturbed = Load::now().of_others(before);
        let lines = String::from_utf8(output.stdout).unwrap();
        let seconds = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["step_time_seconds"].as_f64().unwrap()
        };
        let mut times: Vec<f64> = lines.lines().skip(WARM_UPS).map(seconds).collect();
        times.sort_by(f64::total_cmp);
        (times[times.len() / 4], disturbed)
    }
}

/// Ticks of the machine's cores so far, each a hundredth of a second.
#[derive(Clone, Copy)]
struct Load {
    all: f64,
    busy: f64,
    /// Of the processes that this one has waited for.
    own: f64,
}

impl Load {
    fn now() -> Self {
        let numbers = |text: &str| -> Vec<f64> {
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        let machine = fs::read_to_string("/proc/stat").unwrap_or_default();
        let cores = numbers(machine.lines().next().unwrap_or_default());
        let all: f64 = cores.iter().take(8).sum();
        let idle: f64 = cores.iter().skip(3).take(2).sum();
        let process = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // After the name, which may have spaces: the children's times are numbers 14 and 15.
        let own = numbers(process.rsplit(')').next().unwrap_or_default());
        Self { all, busy: all - idle, own: own.iter().skip(12).take(2).sum() }
    }

    /// The share that other programs had since `before`.
    fn of_others(self, before: Self) -> f64 {
        let others = (self.busy - before.busy) - (self.own - before.own);
        others.max(0.0) / (self.all - before.all).max(1.0)
    }
}

/// Spearman's.
fn rank_correlation(one: &[f64], other: &[f64]) -> f64 {
    let ranks = |values: &[f64]| -> Vec<f64> {
        let below = |value: &f64| values.iter().filter(|other| *other < value).count() as f64;
        values.iter().map(below).collect()
    };
    let n = one.len() as f64;
    let squares: f64 = ranks(one).iter().zip(ranks(other)).map(|(a, b)| (a - b).powi(2)).sum();
    1.0 - 6.0 * squares / (n * (n * n - 1.0))
}
