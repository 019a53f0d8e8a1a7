//! The executor, run on the stand-in.
//!
//! `executor/stand-in/check` sets what this needs: `STAND_IN_EXECUTOR`, the executor with the feature
//! `cuda`; `STAND_IN_LIBRARY`, the stand-in; `STAND_IN_CUDA`, a folder with CUDA's headers;
//! `STAND_IN_NVRTC`, the folder of NVRTC. Without them it says that it is skipped.
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use stand_in::members::{Member, MemberState, mismatches};

/// Longer than any step of a small plan that is not computed.
const LIMIT: Duration = Duration::from_mins(2);

/// Interval at which a run is asked whether it has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Where everything is.
struct Setting {
    executor: PathBuf,
    library: PathBuf,
    cuda: PathBuf,
    nvrtc: PathBuf,
    /// Of this test alone.
    folder: tempfile::TempDir,
}

/// What a run is told: its steps, and to move weights so far that it is seen.
fn run_args(steps: u32) -> [String; 8] {
    let steps = steps.to_string();
    ["run", "--format", "json", "--steps", &steps, "--learning-rate", "0.01", "--warmup-steps=0"]
        .map(str::to_owned)
}

impl Setting {
    /// None if the variables are not set.
    fn find() -> Option<Self> {
        let path = |name: &str| env::var_os(name).map(PathBuf::from);
        let found = || {
            let folder = tempfile::tempdir().expect("a folder can be made");
            Some(Self {
                executor: path("STAND_IN_EXECUTOR")?,
                library: path("STAND_IN_LIBRARY")?,
                cuda: path("STAND_IN_CUDA")?,
                nvrtc: path("STAND_IN_NVRTC")?,
                folder,
            })
        };
        let setting = found();
        if let Some(setting) = &setting {
            for name in
                ["libcuda.so", "libnccl.so", "libnccl.so.2", "libcublasLt.so", "libcublasLt.so.12"]
            {
                let link = setting.folder.path().join(name);
                std::os::unix::fs::symlink(&setting.library, link).expect("a link can be made");
            }
        } else {
            println!("skipped: run it by `executor/stand-in/check`");
        }
        setting
    }

    /// The executor, to run a plan for some steps on the CPU.
    fn on_cpu(&self, plan: &str, steps: u32) -> Command {
        let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/plans");
        let mut command = Command::new(&self.executor);
        command
            .args(run_args(steps))
            .arg(plans.join(format!("{plan}.json")))
            .current_dir(self.folder.path());
        command
    }

    /// The executor, to run a plan for some steps on GPUs, and where its report will be.
    fn command(&self, plan: &str, steps: u32, name: &str) -> (Command, PathBuf) {
        let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/plans");
        let (mut command, report) = self.start("run", name);
        command.args(&run_args(steps)[1..]).arg(plans.join(format!("{plan}.json")));
        (command, report)
    }

    /// The executor, to do something on GPUs, and where its report will be.
    fn start(&self, what: &str, name: &str) -> (Command, PathBuf) {
        let libraries = env::join_paths([self.folder.path(), &self.nvrtc]).expect("plain paths");
        let report = self.folder.path().join(format!("{name}.json"));
        let mut command = Command::new(&self.executor);
        command
            .args([what, "--backend", "cuda"])
            .current_dir(self.folder.path())
            .env("CUDA_PATH", &self.cuda)
            .env("LD_LIBRARY_PATH", libraries)
            .env("STAND_IN_REPORT", &report);
        (command, report)
    }
}

fn read(report: &Path) -> Value {
    let text = std::fs::read_to_string(report).expect("a process that ends leaves a report");
    serde_json::from_str(&text).expect("reports are JSON")
}

#[track_caller]
fn assert_ended_well(output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

/// Numbers by name, of one of a report's tables.
fn table(report: &Value, name: &str) -> BTreeMap<String, u64> {
    serde_json::from_value(report[name].clone()).expect("a table of numbers")
}

fn sum(report: &Value, name: &str) -> u64 {
    table(report, name).values().sum()
}

/// Loss and gradients' norm of each step, as a run prints them.
#[track_caller]
fn steps(output: &Output) -> Vec<[f64; 2]> {
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |step: &Value, name: &str| step[name].as_f64().unwrap_or(f64::NAN);
    let steps = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    steps.map(|step| [number(&step, "loss"), number(&step, "gradient_norm")]).collect()
}

/// What is computed in, and how near that comes to the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precision {
    /// Binary32, also where GPUs multiply matrices in TF32: only the order of sums is another.
    Fp32,
    /// The same, with TF32 as it is.
    Tf32,
    /// bf16, which is rounded where it is stored.
    Bf16,
}

impl Precision {
    fn flag(self) -> &'static str {
        if self == Self::Bf16 { "bf16" } else { "fp32" }
    }

    /// What lets kernels be computed.
    fn variables(self) -> [(&'static str, &'static str); 2] {
        let tf32 = if self == Self::Fp32 { "exact" } else { "rounded" };
        [("STAND_IN_COMPUTE", "1"), ("STAND_IN_TF32", tf32)]
    }

    /// How far losses and norms of gradients may be from the CPU's, as a part of them.
    fn tolerances(self) -> [f64; 2] {
        match self {
            Self::Fp32 => [2e-6, 1e-5],
            Self::Tf32 => [5e-5, 5e-4],
            Self::Bf16 => [2e-4, 5e-3],
        }
    }
}

/// Whether a run came to what the CPU comes to.
fn is_as_on_cpu(found: &[[f64; 2]], expected: &[[f64; 2]], precision: Precision) -> bool {
    let is_near =
        |found: f64, expected: f64, part: f64| (found - expected).abs() <= part * expected;
    let [of_loss, of_norm] = precision.tolerances();
    found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, expected)| {
            is_near(found[0], expected[0], of_loss) && is_near(found[1], expected[1], of_norm)
        })
}

/// Holds what a run came to against the CPU.
#[track_caller]
fn compare(setting: &Setting, name: &str, output: &Output, plan: &str, precision: Precision) {
    let found = steps(output);
    let mut command = setting.on_cpu(plan, found.len() as u32);
    let on_cpu = command.args(["--precision", precision.flag()]).output().expect("it starts");
    let expected = steps(&on_cpu);
    println!("{name}: {found:?}, on the CPU {expected:?}");
    assert!(!found.is_empty() && is_as_on_cpu(&found, &expected, precision), "{name}");
}

/// What no run may do.
#[track_caller]
fn check(name: &str, report: &Value) {
    print_races(name, report);
    assert_eq!(report["races"], serde_json::json!([]), "{name}");
    assert_eq!(report["misuses"], serde_json::json!({}));
    assert_eq!(report["mismatches"], serde_json::json!([]));
    assert_eq!(report["unknown_lengths"], serde_json::json!({}));
    assert_eq!(report["refused"], serde_json::json!({}), "{name}");
    assert!(sum(report, "launches") > 100, "{report}");
}

/// Prints what a race is between.
fn print_races(name: &str, report: &Value) {
    let races = report["races"].as_array().expect("a list");
    println!("{name}: {} races", races.len());
    for race in races {
        let side = |side: &Value| format!("{} on stream {}", side["name"], side["stream"]);
        println!("  {}: {} | {}", race["mistake"], side(&race["first"]), side(&race["second"]));
    }
}

/// One rank has one stream, so it cannot race; each architecture has kernels of its own, and all
/// compute what the CPU computes.
#[test]
fn one_rank_computes_on_all_architectures_what_the_cpu_computes() {
    let Some(setting) = Setting::find() else { return };
    for architecture in ["80", "90", "100"] {
        for precision in [Precision::Fp32, Precision::Tf32, Precision::Bf16] {
            // The kernels are the same, and so is what rounds.
            if precision == Precision::Tf32 && architecture != "90" {
                continue;
            }
            let name = format!("sm_{architecture}, {precision:?}");
            let (mut command, path) = setting.command("one", 2, architecture);
            command.args(["--precision", precision.flag()]).envs(precision.variables());
            let output = command.env("STAND_IN_ARCH", architecture).output().expect("it starts");
            assert_ended_well(&output);
            check(&name, &read(&path));
            compare(&setting, &name, &output, "one", precision);
        }
    }
}

/// Experts are chosen, sent to and multiplied on the device: in fp32 by units, in bf16 by tensor cores.
#[test]
fn one_rank_with_experts_computes_what_the_cpu_computes() {
    let Some(setting) = Setting::find() else { return };
    // After an update rounding decides for some tokens between experts that are nearly as likely.
    for (precision, num_steps) in [(Precision::Fp32, 2), (Precision::Bf16, 1)] {
        let (mut command, path) = setting.command("experts", num_steps, "experts");
        command.args(["--precision", precision.flag()]).envs(precision.variables());
        let output = command.output().expect("it starts");
        assert_ended_well(&output);
        let name = format!("experts, {precision:?}");
        check(&name, &read(&path));
        compare(&setting, &name, &output, "experts", precision);
    }
}

/// A kernel that computes something else is not overlooked: in the forward pass, in the backward
/// pass, and in the optimizer.
#[test]
fn a_kernel_with_an_error_in_it_is_noticed() {
    let Some(setting) = Setting::find() else { return };
    let expected = steps(&setting.on_cpu("one", 2).output().expect("it starts"));
    for planted in [
        "activation_kernel:mul.f32:add.f32",
        "gated_grad_kernel:mul.f32:add.f32",
        "adamw_kernel:sub.f32:add.f32",
    ] {
        let (mut command, _) = setting.command("one", 2, "planted");
        command.env("STAND_IN_PLANT", planted).envs(Precision::Fp32.variables());
        let found = steps(&command.output().expect("it starts"));
        println!("{planted}: {found:?}, not {expected:?}");
        assert!(!is_as_on_cpu(&found, &expected, Precision::Fp32), "{planted}");
    }
}

/// Ranks that are threads, on one GPU and on one each.
#[test]
fn ranks_as_threads_do_not_race() {
    let Some(setting) = Setting::find() else { return };
    for plan in ["dp2-zero3", "ep2-dp2", "pp2-zbv", "tp2-pp2", "dp2-offload"] {
        for (devices, computes) in [("1", false), ("2", true)] {
            let (mut command, path) = setting.command(plan, 1, plan);
            command.env("STAND_IN_DEVICES", devices);
            if computes {
                command.envs(Precision::Fp32.variables());
            }
            let output = command.output().expect("it starts");
            assert_ended_well(&output);
            let name = format!("{plan} on {devices} GPUs");
            check(&name, &read(&path));
            if computes {
                compare(&setting, &name, &output, plan, Precision::Fp32);
            }
        }
    }
}

/// Waits of the host that steps add: with them, a step cannot get more of them unseen. Experts, which it could ask the
/// device about, add none.
#[test]
fn a_step_of_one_rank_waits_a_bounded_number_of_times() {
    /// Maximum number of waits of a step: what it took when this was written, with room for a few.
    const MOST: u64 = 40;
    let Some(setting) = Setting::find() else { return };
    for plan in ["one", "experts"] {
        let waits = [1, 2].map(|steps| {
            let (mut command, path) = setting.command(plan, steps, "waits");
            assert_ended_well(&command.output().expect("it starts"));
            sum(&read(&path), "host_waits")
        });
        println!("{plan}: {} waits a step", waits[1] - waits[0]);
        assert!(waits[1] - waits[0] <= MOST, "{waits:?}");
    }
}

/// Ranks that are processes, with NCCL between them, come to what the CPU comes to; in a second step also, of which
/// they tell each other nothing beforehand.
#[test]
fn ranks_as_processes_call_nccl_alike() {
    let Some(setting) = Setting::find() else { return };
    for (plan, precision, num_steps) in [
        ("dp2-zero3", Precision::Fp32, 1),
        ("pp2-zbv", Precision::Bf16, 1),
        ("tp2-pp2", Precision::Fp32, 2),
        ("ep2-dp2", Precision::Fp32, 1),
        ("pp2-dp2-zero3", Precision::Fp32, 1),
    ] {
        let (outputs, reports) = run_ranks(&setting, plan, num_steps, Some(precision), &[], &[]);
        outputs.iter().for_each(assert_ended_well);
        let members = reports.iter().flat_map(|path| {
            let report = read(path);
            check(&format!("{plan}, a rank of NCCL"), &report);
            serde_json::from_value::<Vec<Member>>(report["members"].clone()).expect("members")
        });
        let members: Vec<Member> = members.collect();
        assert!(!members.is_empty());
        assert_eq!(mismatches(&members), []);
        let is_open = |member: &&Member| member.ending == MemberState::Open;
        assert_eq!(members.iter().find(is_open), None);
        compare(&setting, &format!("{plan} over NCCL"), &outputs[0], plan, precision);
    }
}

/// A rank whose call fails, or that never comes, ends the run: each rank with a message of its own or of the other's,
/// and none hangs.
#[test]
fn what_goes_wrong_with_nccl_ends_all_ranks() {
    let Some(setting) = Setting::find() else { return };
    for (failure, said) in [
        ("ncclAllGather:3", "`ncclAllGather` failed"),
        ("async:5", "`NCCL` failed"),
        ("join:1", "`ncclCommInitRankConfig`"),
        ("peer:2", "has not ended after 5 s"),
    ] {
        let of_last = [("STAND_IN_FAIL", failure)];
        let (outputs, _) = run_ranks(&setting, "dp2-zero3", 1, None, &[], &of_last);
        let texts: Vec<_> =
            outputs.iter().map(|output| String::from_utf8_lossy(&output.stderr)).collect();
        assert!(texts.iter().any(|text| text.contains(said)), "{failure}: {texts:?}");
        for (output, text) in outputs.iter().zip(&texts) {
            assert_eq!(output.status.code(), Some(2), "{failure}: {text}");
        }
    }
}

/// Whichever function fails, the run ends with one message: at its first call, and where slow tests run too at its last
/// and between them.
#[test]
fn any_call_that_fails_ends_the_run_with_one_message() {
    let Some(setting) = Setting::find() else { return };
    let (mut command, path) = setting.command("one", 1, "counted");
    assert_ended_well(&command.output().expect("it starts"));
    let is_slow = env::var_os("RUN_SLOW_TESTS").is_some();
    let mut bad = Vec::new();
    for (function, count) in table(&read(&path), "calls") {
        let calls = if is_slow { vec![1, count.div_ceil(2), count] } else { vec![1] };
        for call in BTreeSet::from_iter(calls) {
            let failure = format!("{function}:{call}");
            let (mut command, _) = setting.command("one", 1, "failing");
            command.env("STAND_IN_FAIL", &failure).stdout(Stdio::null()).stderr(Stdio::piped());
            let Some(output) = ended(command.spawn().expect("it starts"), LIMIT) else {
                bad.push(format!("{failure}: it goes on after {LIMIT:?}"));
                continue;
            };
            let outputs = [output];
            if !(is_told_once(&outputs) || may_be_unnoticed(&function) && is_silent(&outputs)) {
                bad.push(format!("{failure}: {outputs:?}"));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// The same of a rank among others, all of which end, and it alone says why: where slow tests run with any function,
/// and else with those of NCCL, which the others wait in.
#[test]
fn any_call_of_a_rank_that_fails_ends_all_ranks_with_one_message() {
    let Some(setting) = Setting::find() else { return };
    // What ranks report travels over NCCL, which moves nothing unless it is computed.
    let computed = Some(Precision::Fp32);
    let (outputs, reports) = run_ranks(&setting, "dp2-zero3", 1, computed, &[], &[]);
    outputs.iter().for_each(assert_ended_well);
    let is_slow = env::var_os("RUN_SLOW_TESTS").is_some();
    let calls = table(&read(reports.last().expect("two ranks")), "calls");
    let mut bad = Vec::new();
    // Who waits for another (`join`, `peer`) waits for minutes here: another test has these.
    let is_tried = |name: &&String| name.starts_with("nccl") || is_slow && name.starts_with("cu");
    for function in calls.keys().filter(is_tried) {
        let of_last = [("STAND_IN_FAIL", format!("{function}:1"))];
        let of_last = of_last.each_ref().map(|(name, value)| (*name, value.as_str()));
        println!("{function}");
        let (outputs, _) = run_ranks(&setting, "dp2-zero3", 1, computed, &[], &of_last);
        if !(is_told_once(&outputs) || may_be_unnoticed(function) && is_silent(&outputs)) {
            bad.push(format!("{function}: {outputs:?}"));
        }
    }
    assert!(calls.keys().any(|name| name.starts_with("nccl")), "{calls:?}");
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// Whether all ranks of a run failed, and one of them said so, once.
fn is_told_once(outputs: &[Output]) -> bool {
    let texts = outputs.iter().map(|output| String::from_utf8_lossy(&output.stderr));
    let text: String = texts.collect();
    let is_one = text.matches("error:").count() == 1 && !text.contains("panicked");
    outputs.iter().all(|output| output.status.code() == Some(2)) && is_one
}

/// Whether all ranks of a run ended well, without a word.
fn is_silent(outputs: &[Output]) -> bool {
    outputs.iter().all(|output| output.status.success() && output.stderr.is_empty())
}

/// What gives something back, what burn does once more (asking for memory), and what it waits with for memory that it
/// gives back.
fn may_be_unnoticed(function: &str) -> bool {
    ["Abort", "Destroy", "Free", "Release", "cuMemAllocAsync", "cuEventSynchronize"]
        .iter()
        .any(|word| function.contains(word))
}

/// What a program that ends within a limit leaves; one that does not is ended.
fn ended(mut child: Child, limit: Duration) -> Option<Output> {
    for _ in 0..limit.as_millis() / LOOK.as_millis() {
        if child.try_wait().expect("it is a child").is_some() {
            return Some(child.wait_with_output().expect("it has ended"));
        }
        thread::sleep(LOOK);
    }
    child.kill().expect("it is a child");
    child.wait().expect("it was ended");
    None
}

/// Nothing is computed, so kernels and losses are wrong, and that is what a check says: on one GPU and on two it goes
/// through all parts without a crash, and ends in one report.
#[test]
fn a_check_ends_in_one_report() {
    let Some(setting) = Setting::find() else { return };
    for (devices, parts) in [
        ("1", "speeds,products,collectives,nccl,training"),
        ("2", "device,speeds,products,collectives,kernels,layouts,nccl,training"),
    ] {
        let (mut command, _) = setting.start("check", "check");
        command.args(["--minutes", "1", "--format", "json", "-o", "mine.json", "--only", parts]);
        // A device's memory is the host's: a model of a billion parameters would take all of it.
        command.envs([("STAND_IN_DEVICES", devices), ("STAND_IN_MEMORY_GIB", "4")]);
        let output = command.output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        let sections = report["sections"].as_array().expect("a list");
        assert_eq!(sections.len(), if devices == "1" { 6 } else { 8 }, "{report}");
        let all = sections.iter().flat_map(|it| it["findings"].as_array().expect("a list"));
        for finding in all {
            println!("{} {}: {}", finding["verdict"], finding["name"], finding["said"]);
            let said = finding["said"].to_string();
            for words in ["by a signal", "did not end in time", "panicked", "ended with code"] {
                assert!(!said.contains(words), "{finding}");
            }
        }
    }
}

/// The script that a machine with a GPU is taken through first comes to its end; a failure is reported by the name of
/// its part, and stops no other.
#[test]
fn first_light_goes_through_its_parts() {
    let Some(setting) = Setting::find() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/first-light");
    let run = |parts: &str,
               variables: &[(&str, &str)]|
     -> (Option<i32>, BTreeMap<String, String>) {
        let (command, _) = setting.start("check", "first-light");
        let given = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let mut light = Command::new(&script);
        light.arg(&setting.executor).args(["--small", "--no-pytorch", "--only", parts]);
        light.envs(given).envs(variables.iter().copied()).current_dir(setting.folder.path());
        let output = light.output().expect("Python starts");
        println!("{}", String::from_utf8_lossy(&output.stdout));
        let results = read(&setting.folder.path().join("first-light.out/results.json"));
        let results = results.as_object().expect("a table").clone();
        let verdict = |result: &Value| result["verdict"].as_str().unwrap_or_default().to_owned();
        (
            output.status.code(),
            results.iter().map(|(part, it)| (part.clone(), verdict(it))).collect(),
        )
    };
    let parts = "device,losses,training,nccl,sanitizer";
    let (code, verdicts) = run(parts, &Precision::Fp32.variables());
    assert_eq!(code, Some(0), "{verdicts:?}");
    assert_eq!(verdicts["losses"], "pass");
    assert_eq!(verdicts["training"], "pass");
    let (code, verdicts) = run(parts, &[("STAND_IN_FAIL", "cuLaunchKernel:1")]);
    assert_eq!(code, Some(1));
    assert_eq!(
        ["device", "losses", "training", "nccl"].map(|part| verdicts[part].as_str()),
        ["pass", "FAIL", "FAIL", "FAIL"]
    );
}

/// A timeline shows when the GPU did things, and not when it was asked to: the stand-in's clock counts pieces of work,
/// so passes follow each other with what lies between them, and what is exchanged within one lies within it.
#[test]
fn timelines_are_of_the_gpu() {
    const WORK: u64 = 10;
    let Some(setting) = Setting::find() else { return };
    let args = ["--timeline", "step.json", "--timeline-step", "1"];
    let (outputs, _) = run_ranks(&setting, "tp2-pp2", 1, Some(Precision::Fp32), &args, &[]);
    outputs.iter().for_each(assert_ended_well);
    let timeline = read(&setting.folder.path().join("step.json"));
    let all = timeline["traceEvents"].as_array().expect("a list");
    for rank in 0..4 {
        let of_rank = all.iter().filter(|it| it["ph"] == "X" && it["pid"] == rank);
        let time = |event: &Value, name: &str| event[name].as_f64().expect("microseconds") as u64;
        let on = |event: &&Value, thread: u32| event["tid"] == thread;
        let span = |event: &Value| [time(event, "ts"), time(event, "ts") + time(event, "dur")];
        let [passes, exchanges, sent, received] = [1, 2, 5, 6].map(|thread| {
            of_rank.clone().filter(|it| on(it, thread)).map(span).collect::<Vec<_>>()
        });
        // Four micro-batches forward and backward, and an update.
        assert_eq!([passes.len(), sent.len(), received.len()], [9, 4, 4], "rank {rank}");
        assert!(exchanges.len() > 8 * 8, "rank {rank}: {}", exchanges.len());
        for stream in [&passes, &exchanges, &sent, &received] {
            assert!(stream.iter().flatten().all(|at| at.is_multiple_of(WORK)), "{stream:?}");
            assert!(stream.is_sorted_by(|one, next| one[1] <= next[0]), "rank {rank}: {stream:?}");
        }
        let is_within = |one: &[u64; 2]| passes.iter().any(|it| it[0] <= one[0] && one[1] <= it[1]);
        assert!(exchanges.iter().all(is_within), "rank {rank}: {passes:?}, {exchanges:?}");
        assert!(exchanges.iter().chain(&sent).chain(&received).all(|it| it[1] - it[0] == WORK));
        let pieces: u64 = passes.iter().map(|[start, end]| (end - start) / WORK).sum();
        assert!(pieces > 500, "rank {rank} was given {pieces} pieces of work");
    }
}

/// Runs all ranks of a plan with further arguments, and the last with further variables. They compute if a precision is
/// said.
fn run_ranks(
    setting: &Setting,
    plan: &str,
    num_steps: u32,
    precision: Option<Precision>,
    args: &[&str],
    of_last: &[(&str, &str)],
) -> (Vec<Output>, Vec<PathBuf>) {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = port.expect("a port is free").port().to_string();
    // Experts are over data-parallel ranks.
    let is_doubled = |degree: &&str| degree.ends_with('2') && !degree.starts_with("ep");
    let num_ranks = 1 << plan.split('-').filter(is_doubled).count();
    let count = num_ranks.to_string();
    // Who computes may wait for others that compute.
    let timeout = if precision.is_none() { "5" } else { "300" };
    let start = |rank: usize| -> (Child, PathBuf) {
        let (mut command, report) = setting.command(plan, num_steps, &format!("rank-{rank}"));
        let number = rank.to_string();
        command
            .args(["--communicator", "nccl", "--communication-timeout", timeout])
            .args(["--precision", precision.map_or("fp32", Precision::flag)])
            .args(args)
            .env("STAND_IN_EXCHANGE", setting.folder.path())
            .envs(precision.into_iter().flat_map(Precision::variables))
            .env("STAND_IN_DEVICES", &count)
            .envs([("RANK", &number), ("LOCAL_RANK", &number)])
            .envs([
                ("WORLD_SIZE", count.as_str()),
                ("MASTER_ADDR", "127.0.0.1"),
                ("MASTER_PORT", &port),
            ])
            .envs(of_last.iter().copied().filter(|_| rank + 1 == num_ranks))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        (command.spawn().expect("it starts"), report)
    };
    let (children, reports): (Vec<Child>, Vec<PathBuf>) = (0..num_ranks).map(start).unzip();
    let wait = |child| ended(child, LIMIT).unwrap_or_else(|| panic!("{plan} goes on: {of_last:?}"));
    (children.into_iter().map(wait).collect(), reports)
}
