//! One small example of each family, as it prints.

use std::collections::BTreeSet;

use ir::schedule::{Schedule, ScheduleKind, generate};

/// The schedule prints as this.
pub(super) fn check_grid(schedule: &Schedule, expected: &str) {
    let printed = schedule.to_string();
    assert_eq!(printed.trim(), expected.trim(), "\n{printed}");
}

/// The examples of `cases/schedules/grids.txt`. PyTorch takes 6 micro-batches on 4 ranks in one interleaved round; where
/// it refuses, as 7 on 3, rounds are as equal as can be.
#[test]
fn families_are_their_examples() {
    let mut kinds = BTreeSet::new();
    for case in include_str!("../cases/schedules/grids.txt").split("\n# ").skip(1) {
        let (family, grid) = case.split_once('\n').unwrap();
        let words: Vec<&str> = family.split(' ').collect();
        let kind: ScheduleKind = words[0].parse().unwrap();
        let [p, m, v] = [1, 2, 3].map(|at: usize| words[at].parse().unwrap());
        check_grid(&generate(kind, p, m, v).unwrap(), grid);
        kinds.insert(kind);
    }
    assert_eq!(kinds, BTreeSet::from(ScheduleKind::ALL));
}
