//! A rank's process is killed at a random moment: the run ends with a clear message, its newest checkpoint
//! is whole, and what goes on from it ends as if nothing had happened.
//!
//! ```console
//! $ cargo test -p executor --features mpi --test mpi_kill -- 10
//! ```
//!
//! The argument says how many times. This program starts `mpirun` itself.

#![expect(clippy::print_stdout, reason = "a test harness says what it did")]
#![expect(clippy::unwrap_used, reason = "a test without the harness is a test")]

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use executor::checkpoint::{CheckpointError, State, latest};
use serde_json::Value;
use tempfile::TempDir;

const PLAN: &str = "tests/plans/tp2-pp2.json";
const NUM_RANKS: usize = 4;
const NUM_STEPS: u64 = 40;

/// How often a run is looked at, and for how long it may last before it counts as hanging.
const LOOK: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_mins(2);

/// How long a run may go on once a rank is dead.
const LONGEST_AFTERWARDS: Duration = Duration::from_secs(10);

fn main() {
    let num_kills: u32 = std::env::args().nth(1).map_or(10, |text| text.parse().unwrap());
    let place = TempDir::new().unwrap();
    let whole = Run::start(place.path(), "whole");
    let Ended { looks, stderr, .. } = whole.finish(LONGEST);
    let expected = losses(place.path(), "whole");
    assert_eq!(expected.len() as u64, NUM_STEPS, "the run that nobody disturbs fails: {stderr}");

    let mut found = BTreeMap::new();
    let mut num_killed = 0;
    while num_killed < num_kills {
        let run = Run::start(place.path(), "kept");
        // Any moment of a run of all steps.
        let (moment, rank) = (random(looks), random(NUM_RANKS));
        let Some(Ended { looks: took, stderr, .. }) = run.kill(moment, rank) else {
            // It had ended, or not begun. Where all steps are done, the next one begins anew.
            found.extend(losses(place.path(), "kept"));
            if found.contains_key(&NUM_STEPS) {
                check(&found, &expected);
                fs::remove_dir_all(place.path().join("kept")).unwrap();
                found.clear();
            }
            continue;
        };
        num_killed += 1;
        assert!(stderr.contains("on signal 9 (Killed)"), "not said in so many words: {stderr}");
        found.extend(losses(place.path(), "kept"));
        let kept = newest(&place.path().join("kept"));
        println!(
            "rank {rank} killed after {:?}: ended within {:?}, newest whole checkpoint {}",
            LOOK * moment as u32,
            LOOK * took as u32,
            kept.map_or("none".to_owned(), |step| format!("of step {step}"))
        );
    }
    let Ended { stderr, .. } = Run::start(place.path(), "kept").finish(LONGEST);
    found.extend(losses(place.path(), "kept"));
    assert!(found.contains_key(&NUM_STEPS), "the run that goes on does not end: {stderr}");
    check(&found, &expected);
    let [whole, kept] = ["whole", "kept"].map(|folder| files(&place.path().join(folder)));
    assert_eq!(kept.keys().collect::<Vec<_>>(), whole.keys().collect::<Vec<_>>());
    assert!(kept == whole, "the last checkpoint differs from that of an undisturbed run");
    println!(
        "killed {num_kills} times: losses and last checkpoint are those of an undisturbed run"
    );
}

/// A run under `mpirun`, in a process group of its own.
struct Run {
    mpirun: Child,
    stderr: PathBuf,
}

/// How a run ended.
struct Ended {
    /// After how many looks.
    looks: usize,
    /// Whether all went well.
    well: bool,
    /// What was said.
    stderr: String,
}

impl Run {
    /// Starts training, or goes on with it, with checkpoints in `folder` after each step.
    fn start(place: &Path, folder: &str) -> Self {
        let stderr = place.join(format!("{folder}.stderr"));
        let mut command = Command::new("mpirun");
        command.args(["--allow-run-as-root", "--oversubscribe", "-n", &NUM_RANKS.to_string()]);
        command.arg(env!("CARGO_BIN_EXE_executor")).arg("run");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(PLAN));
        command.args(["--communicator", "mpi", "--format", "json", "--checkpoint-every", "1"]);
        command.args(["--steps", &NUM_STEPS.to_string(), "--checkpoint", folder]);
        command.current_dir(place).stdin(Stdio::null());
        command.stdout(File::create(place.join(format!("{folder}.jsonl"))).unwrap());
        command.stderr(File::create(&stderr).unwrap());
        Self { mpirun: command.spawn().unwrap(), stderr }
    }

    /// Waits for the end.
    fn finish(mut self, longest: Duration) -> Ended {
        let most = longest.as_millis() / LOOK.as_millis();
        for looks in 0..most as usize {
            if let Some(status) = self.mpirun.try_wait().unwrap() {
                let stderr = fs::read_to_string(&self.stderr).unwrap();
                return Ended { looks, well: status.success(), stderr };
            }
            thread::sleep(LOOK);
        }
        self.mpirun.kill().unwrap();
        panic!("it hangs: {}", fs::read_to_string(&self.stderr).unwrap());
    }

    /// Kills a rank after so many looks. None if it ended before.
    fn kill(mut self, looks: usize, rank: usize) -> Option<Ended> {
        for _ in 0..looks {
            if self.mpirun.try_wait().unwrap().is_some() {
                return None;
            }
            thread::sleep(LOOK);
        }
        let pids = children(self.mpirun.id());
        let Some(pid) = pids.get(rank) else {
            self.finish(LONGEST);
            return None;
        };
        let killed = Command::new("kill").args(["-KILL", &pid.to_string()]).output().unwrap();
        let ended = self.finish(LONGEST_AFTERWARDS);
        // A run may end by itself in the moment between, or its rank be done with all when it is killed.
        (killed.status.success() && !ended.well).then_some(ended)
    }
}

/// The ranks that a `mpirun` has started, in their order.
fn children(pid: u32) -> Vec<u32> {
    let mut pids: Vec<u32> = fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace().filter_map(|it| it.parse().ok()).collect::<Vec<_>>()
        })
        .collect();
    pids.sort_unstable();
    pids
}

/// Steps and their losses, as the last run of this folder printed them.
fn losses(place: &Path, folder: &str) -> BTreeMap<u64, String> {
    let text = fs::read_to_string(place.join(format!("{folder}.jsonl"))).unwrap();
    // A killed run may leave half a line.
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.map(|line| (line["step"].as_u64().unwrap(), line["loss"].to_string())).collect()
}

fn check(found: &BTreeMap<u64, String>, expected: &BTreeMap<u64, String>) {
    for (step, loss) in found {
        assert_eq!(Some(loss), expected.get(step), "step {step} differs from an undisturbed run's");
    }
}

/// The step of the newest whole checkpoint. One that was being written may be newer, none that is complete.
fn newest(folder: &Path) -> Option<u64> {
    let latest = latest(folder).unwrap();
    for skipped in &latest.skipped {
        assert!(matches!(skipped, CheckpointError::Interrupted { .. }), "{skipped}");
    }
    let state = State::open(&latest.path?).unwrap();
    state.verify().unwrap();
    Some(state.training().step)
}

/// All files of a folder's newest checkpoint, with what they hold.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let path = latest(folder).unwrap().path.unwrap();
    let file = |entry: fs::DirEntry| {
        (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap())
    };
    fs::read_dir(path).unwrap().map(|entry| file(entry.unwrap())).collect()
}

/// A number below `end`.
fn random(end: usize) -> usize {
    (RandomState::new().build_hasher().finish() % end as u64) as usize
}
