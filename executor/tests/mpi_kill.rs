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
use std::fs;
use std::path::Path;

use executor_runtime::checkpoint::latest;
use tempfile::TempDir;

#[path = "common/mpirun.rs"]
mod mpirun;

use mpirun::{Ended, LONGEST, LOOK, Run, Training, losses, newest, random};

const TRAINING: Training = Training { plan: "tp2-pp2", num_ranks: 4, num_steps: 40, every: 1 };

fn main() {
    let num_kills: u32 = std::env::args().nth(1).map_or(3, |text| text.parse().unwrap());
    let place = TempDir::new().unwrap();
    let whole = Run::start(place.path(), "whole", TRAINING);
    let Ended { looks, stderr, .. } = whole.finish(LONGEST);
    let expected = losses(place.path(), "whole");
    assert_eq!(
        expected.len() as u64,
        TRAINING.num_steps,
        "the run that nobody disturbs fails: {stderr}"
    );

    let mut found = BTreeMap::new();
    let mut num_killed = 0;
    while num_killed < num_kills {
        let run = Run::start(place.path(), "kept", TRAINING);
        // Any moment of a run of all steps.
        let (moment, rank) = (random(looks), random(TRAINING.num_ranks));
        let Some(Ended { looks: took, stderr, .. }) = run.kill(moment, rank) else {
            // It had ended, or not begun. Where all steps are done, the next one starts over.
            found.extend(losses(place.path(), "kept"));
            if found.contains_key(&TRAINING.num_steps) {
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
    let Ended { stderr, .. } = Run::start(place.path(), "kept", TRAINING).finish(LONGEST);
    found.extend(losses(place.path(), "kept"));
    // A rank may be killed after the last checkpoint, before the last loss is printed.
    let is_done = newest(&place.path().join("kept")) == Some(TRAINING.num_steps);
    assert!(is_done, "the run that goes on does not end: {stderr}");
    check(&found, &expected);
    let [whole, kept] = ["whole", "kept"].map(|folder| files(&place.path().join(folder)));
    assert_eq!(kept.keys().collect::<Vec<_>>(), whole.keys().collect::<Vec<_>>());
    assert!(kept == whole, "the last checkpoint differs from that of an undisturbed run");
    println!(
        "killed {num_kills} times: losses and last checkpoint are those of an undisturbed run"
    );
}

fn check(found: &BTreeMap<u64, String>, expected: &BTreeMap<u64, String>) {
    for (step, loss) in found {
        assert_eq!(Some(loss), expected.get(step), "step {step} differs from an undisturbed run's");
    }
}

/// All files of a folder's newest checkpoint, with what they hold.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let path = latest(folder).unwrap().path.unwrap();
    let file = |entry: fs::DirEntry| {
        (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap())
    };
    fs::read_dir(path).unwrap().map(|entry| file(entry.unwrap())).collect()
}
