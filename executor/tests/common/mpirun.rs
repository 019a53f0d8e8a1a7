//! Runs under `mpirun` that are watched, and ended.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use executor_runtime::checkpoint::{CheckpointError, State, latest};
use serde_json::Value;

/// How often a run is looked at, and for how long it may last before it counts as hanging.
pub(crate) const LOOK: Duration = Duration::from_millis(2);
pub(crate) const LONGEST: Duration = Duration::from_mins(10);

/// Limit of a run once a rank is dead.
const LONGEST_AFTERWARDS: Duration = Duration::from_secs(10);

/// A run of a plan, under `mpirun`.
pub(crate) struct Run {
    mpirun: Child,
    stderr: PathBuf,
}

/// End of a run.
pub(crate) struct Ended {
    /// After how many looks.
    pub(crate) looks: usize,
    /// True if all went well.
    pub(crate) well: bool,
    /// Text on stderr.
    pub(crate) stderr: String,
}

/// Length of a training, and what is trained.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Training {
    /// A plan of `tests/plans`, without its ending.
    pub(crate) plan: &'static str,
    /// Its ranks.
    pub(crate) num_ranks: usize,
    pub(crate) num_steps: u64,
    /// Steps between checkpoints.
    pub(crate) every: u64,
}

impl Run {
    /// Starts training, or goes on with it, with checkpoints in `folder`.
    pub(crate) fn start(place: &Path, folder: &str, training: Training) -> Self {
        let Training { plan, num_ranks, num_steps, every } = training;
        let stderr = place.join(format!("{folder}.stderr"));
        let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
        let mut command = Command::new("mpirun");
        command.args(["--allow-run-as-root", "--oversubscribe", "-n", &num_ranks.to_string()]);
        command.arg(env!("CARGO_BIN_EXE_executor")).arg("run");
        command.arg(plans.join(format!("{plan}.json")));
        command.args(["--communicator", "mpi", "--format", "json", "--checkpoint", folder]);
        command.args(["--checkpoint-every", &every.to_string(), "--steps", &num_steps.to_string()]);
        command.current_dir(place).stdin(Stdio::null());
        command.stdout(File::create(place.join(format!("{folder}.jsonl"))).unwrap());
        command.stderr(File::create(&stderr).unwrap());
        Self { mpirun: command.spawn().unwrap(), stderr }
    }

    /// Waits for the end.
    pub(crate) fn finish(self, longest: Duration) -> Ended {
        self.watch(longest, |_| {})
    }

    /// Waits for the end, and shows the processes of the ranks at each look.
    pub(crate) fn watch(mut self, longest: Duration, mut show: impl FnMut(&[u32])) -> Ended {
        let most = longest.as_millis() / LOOK.as_millis();
        for looks in 0..most as usize {
            if let Some(status) = self.mpirun.try_wait().unwrap() {
                let stderr = fs::read_to_string(&self.stderr).unwrap();
                return Ended { looks, well: status.success(), stderr };
            }
            show(&children(self.mpirun.id()));
            thread::sleep(LOOK);
        }
        self.mpirun.kill().unwrap();
        panic!("it hangs: {}", fs::read_to_string(&self.stderr).unwrap());
    }

    /// Kills a rank after so many looks. None if it ended before.
    pub(crate) fn kill(mut self, looks: usize, rank: usize) -> Option<Ended> {
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
pub(crate) fn losses(place: &Path, folder: &str) -> BTreeMap<u64, String> {
    let text = fs::read_to_string(place.join(format!("{folder}.jsonl"))).unwrap();
    // A killed run may leave half a line.
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.map(|line| (line["step"].as_u64().unwrap(), line["loss"].to_string())).collect()
}

/// The step of the newest whole checkpoint. One that was being written may be newer, none that is complete.
pub(crate) fn newest(folder: &Path) -> Option<u64> {
    let latest = latest(folder).unwrap();
    for skipped in &latest.skipped {
        assert!(matches!(skipped, CheckpointError::Interrupted { .. }), "{skipped}");
    }
    let state = State::open(&latest.path?).unwrap();
    state.verify().unwrap();
    Some(state.training().step)
}

/// A number below `end`.
pub(crate) fn random(end: usize) -> usize {
    (RandomState::new().build_hasher().finish() % end as u64) as usize
}
