//! A long run whose ranks are killed at random moments: each time it goes on from its newest checkpoint under another
//! plan, on fewer or on more ranks. Its losses are those of a run that nobody disturbs, to what other orders of sums
//! make of them, and the memory of a run does not grow.
//!
//! ```console
//! $ cargo test --release -p executor --features mpi --test mpi_soak -- 1000 20
//! ```
//!
//! The arguments say how many steps, and how many times. This program starts `mpirun` itself. A plain `cargo test` runs
//! it for a moment.

#![expect(clippy::print_stdout, reason = "a test harness says what it did")]
#![expect(clippy::unwrap_used, reason = "a test without the harness is a test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

#[path = "common/mpirun.rs"]
mod mpirun;

use mpirun::{Ended, LONGEST, LOOK, Run, Training, losses, newest, random};

/// Plans of one model and batch, with their ranks.
const PLANS: [(&str, usize); 6] = [
    ("tp2-pp2", 4),
    ("one", 1),
    ("dp2-zero3", 2),
    ("pp2-dp2-zero3", 4),
    ("pp2-zbv", 2),
    ("dp2-offload", 2),
];

/// Steps between checkpoints.
const EVERY: u64 = 5;

/// Tolerance of a loss: other layouts add up in other orders, and training makes more of it.
const TOLERANCE: f64 = 1e-3;

/// Ratio by which a rank's memory may grow from a third of a run to its end.
const GROWTH: f64 = 1.05;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>().unwrap());
    let num_steps = numbers.next().unwrap_or(40);
    let num_kills = numbers.next().unwrap_or(3);
    let training = |(plan, num_ranks)| Training { plan, num_ranks, num_steps, every: EVERY };
    let place = TempDir::new().unwrap();

    let mut resident = Vec::new();
    let whole = Run::start(place.path(), "whole", training(PLANS[0]));
    let Ended { looks, well, stderr } =
        whole.watch(LONGEST, |ranks| resident.push(ranks.iter().map(|it| memory(*it)).max()));
    assert!(well, "the run that nobody disturbs fails: {stderr}");
    let expected = losses(place.path(), "whole");
    assert_eq!(expected.len() as u64, num_steps);
    check_memory(&resident, num_steps);

    let mut found = BTreeMap::new();
    let (mut killed, mut last) = (0, PLANS[0]);
    loop {
        let run = Run::start(place.path(), "kept", training(last));
        let is_over = if killed < num_kills {
            let per_run = (looks as u64 / num_kills.max(1)).max(1);
            let ended = run.kill(random(2 * per_run as usize), random(last.1));
            killed += u64::from(ended.is_some());
            if let Some(Ended { stderr, .. }) = &ended {
                assert!(stderr.contains("on signal 9 (Killed)"), "not said so: {stderr}");
            }
            false
        } else {
            let Ended { well, stderr, .. } = run.finish(LONGEST);
            assert!(well, "the run that goes on fails: {stderr}");
            true
        };
        found.extend(losses(place.path(), "kept"));
        let step = newest(&place.path().join("kept"));
        println!("{}: {killed} killed, newest whole checkpoint {step:?}", last.0);
        if is_over || found.contains_key(&num_steps) {
            break;
        }
        last = PLANS[random(PLANS.len())];
    }
    let found_all = (1..=num_steps).all(|step| found.contains_key(&step));
    assert!(found_all, "steps are missing: {:?}", found.keys());
    let difference = |(step, loss): (&u64, &String)| {
        let [one, other] = [loss, &expected[step]].map(|it| it.parse::<f64>().unwrap());
        (one / other - 1.0).abs()
    };
    let worst = found.iter().map(difference).fold(0.0, f64::max);
    println!(
        "{num_steps} steps, killed {killed} times, each run at most {:?} long: losses differ by {worst:.1e} at most, \
         the last is {}",
        LOOK * looks as u32,
        found[&num_steps]
    );
    assert!(worst <= TOLERANCE, "{worst}");
}

/// Bytes of a process that lie in memory.
fn memory(pid: u32) -> u64 {
    let path = Path::new("/proc").join(pid.to_string()).join("statm");
    let text = fs::read_to_string(path).unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|it| it.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// Fails if ranks hold more at the end of a run than a third into it.
fn check_memory(resident: &[Option<u64>], num_steps: u64) {
    let most = |looks: &[Option<u64>]| looks.iter().flatten().max().copied().unwrap_or(0);
    let third = resident.len() / 3;
    let [early, late] = [&resident[..third], &resident[2 * third..]].map(most);
    println!(
        "the largest rank held {early} bytes a third into {num_steps} steps, {late} at the end"
    );
    assert!(late as f64 <= early as f64 * GROWTH, "memory grows: {early} to {late}");
}
