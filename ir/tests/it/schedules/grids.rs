//! One small example of each family, as it prints.

use ir::schedule::{Schedule, ScheduleKind, generate};

/// The schedule prints as this.
pub(super) fn check_grid(schedule: &Schedule, expected: &str) {
    let printed = schedule.to_string();
    assert_eq!(printed.trim(), expected.trim(), "\n{printed}");
}

fn check(kind: ScheduleKind, [p, m, v]: [u32; 3], expected: &str) {
    check_grid(&generate(kind, p, m, v).unwrap(), expected);
}

#[test]
fn sequential() {
    check(
        ScheduleKind::Sequential,
        [2, 2, 1],
        "
0 | F0 B0 F1 B1
1 | F0 B0 F1 B1
",
    );
}

#[test]
fn gpipe() {
    check(
        ScheduleKind::GPipe,
        [3, 3, 1],
        "
0 | F0 F1 F2 B0 B1 B2
1 | F0 F1 F2 B0 B1 B2
2 | F0 F1 F2 B0 B1 B2
",
    );
}

#[test]
fn one_f_one_b() {
    check(
        ScheduleKind::OneFOneB,
        [4, 4, 1],
        "
0 | F0 F1 F2 F3 B0 B1 B2 B3
1 | F0 F1 F2 B0 F3 B1 B2 B3
2 | F0 F1 B0 F2 B1 F3 B2 B3
3 | F0 B0 F1 B1 F2 B2 F3 B3
",
    );
}

#[test]
fn async_one_f_one_b() {
    check(
        ScheduleKind::AsyncOneFOneB,
        [2, 3, 1],
        "
0 | F0 F1 B0 F2 B1 B2
1 | F0 B0 F1 B1 F2 B2
",
    );
}

#[test]
fn interleaved() {
    check(
        ScheduleKind::Interleaved,
        [2, 4, 2],
        "
0 | 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3
1 | 1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3
",
    );
}

#[test]
fn looped_bfs() {
    check(
        ScheduleKind::LoopedBfs,
        [2, 2, 2],
        "
0 | 0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0
1 | 1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0
",
    );
}

#[test]
fn zb_h1() {
    check(
        ScheduleKind::ZbH1,
        [3, 4, 1],
        "
0 | F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3
1 | F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
2 | F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
",
    );
}

#[test]
fn zb_h2() {
    check(
        ScheduleKind::ZbH2,
        [3, 6, 1],
        "
0 | F0 F1 F2 F3 F4 I0 W0 F5 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5
1 | F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 W1 I4 W2 I5 W3 W4 W5
2 | F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 W2 W3 W4 W5
",
    );
}

#[test]
fn interleaved_zb() {
    check(
        ScheduleKind::InterleavedZb,
        [2, 2, 2],
        "
0 | 0F0 0F1 2F0 2F1 2I0 2W0 2I1 2W1 0I0 0W0 0I1 0W1
1 | 1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1 1I1 1W0 1W1
",
    );
}

#[test]
fn zbv() {
    check(
        ScheduleKind::Zbv,
        [2, 4, 2],
        "
0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3
1 | 1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3
",
    );
}

#[test]
fn v_half() {
    check(
        ScheduleKind::VHalf,
        [2, 4, 2],
        "
0 | 0F0 0F1 3F0 3I0 3F1 3I1 0I0 3W0 0F2 0I1 3W1 0W0 3F2 0F3 3I2 0W1 3F3 3I3 0I2 3W2 0I3 3W3 0W2 0W3
1 | 1F0 2F0 1F1 2F1 2I0 1I0 2I1 1I1 2W0 1F2 1W0 2F2 2W1 1W1 1F3 2F3 2I2 1I2 2I3 1I3 2W2 1W2 2W3 1W3
",
    );
}

#[test]
fn v_min() {
    check(
        ScheduleKind::VMin,
        [3, 4, 2],
        "
0 | 0F0 0F1 5F0 5I0 5F1 5I1 5W0 0F2 0I0 5W1 0I1 0W0 0F3 0W1 5F2 5I2 5W2 5F3 5I3 0I2 5W3 0W2 0I3 0W3
1 | 1F0 1F1 4F0 4F1 4I0 4W0 4I1 1I0 1F2 1I1 4W1 1W0 1W1 4F2 1F3 4I2 4F3 4W2 1I2 4I3 1W2 4W3 1I3 1W3
2 | 2F0 3F0 2F1 3F1 3I0 2I0 3I1 2I1 3W0 2F2 2W0 3F2 3W1 2W1 2F3 3F3 3I2 2I2 3W2 2W2 3I3 2I3 3W3 2W3
",
    );
}

#[test]
fn dualpipe() {
    check(
        ScheduleKind::DualPipe,
        [4, 8, 1],
        "
0 | 0F0 0F2 0F4 3F1 3I1 3W1 3F3 (0F6;3B3) (3F5;0B0) 3B5 (3F7;0B2) 3B7 0I4 0W4 0I6 0W6
1 | 1F0 2F1 1F2 2F3 1F4 2B1 (2F5;1B0) (1F6;2B3) (2F7;1B2) 2B5 1B4 2I7 1I6 2W7 1W6
2 | 1F1 2F0 1F3 2F2 1F5 2B0 (2F4;1B1) (1F7;2B2) (2F6;1B3) 2B4 1B5 2I6 1I7 2W6 1W7
3 | 0F1 0F3 0F5 3F0 3I0 3W0 3F2 (0F7;3B2) (3F4;0B1) 3B4 (3F6;0B3) 3B6 0I5 0W5 0I7 0W7
",
    );
}

#[test]
fn dualpipev() {
    check(
        ScheduleKind::DualPipeV,
        [2, 4, 2],
        "
0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 (0F3;3B1) (3F2;0B0) 3B2 (3F3;0B1) 3B3 0I2 0W2 0I3 0W3
1 | 1F0 2F0 1F1 2F1 1F2 2B0 (2F2;1B0) (1F3;2B1) (2F3;1B1) 2B2 1B2 2I3 1I3 2W3 1W3
",
    );
}

/// PyTorch takes 6 micro-batches on 4 ranks in one round; where it refuses, as 7 on 3, rounds are as
/// equal as can be.
#[test]
fn interleaved_when_micro_batches_do_not_divide_by_ranks() {
    check(ScheduleKind::Interleaved, [3, 7, 2], "
0 | 0F0 0F1 0F2 0F3 3F0 3F1 3F2 3F3 0F4 3B0 0F5 3B1 0F6 3B2 3F4 3B3 3F5 0B0 3F6 0B1 0B2 0B3 3B4 3B5 3B6 0B4 0B5 0B6
1 | 1F0 1F1 1F2 1F3 4F0 4F1 4F2 4B0 4F3 4B1 1F4 4B2 1F5 4B3 1F6 1B0 4F4 1B1 4F5 1B2 4F6 1B3 4B4 4B5 4B6 1B4 1B5 1B6
2 | 2F0 2F1 2F2 2F3 5F0 5B0 5F1 5B1 5F2 5B2 5F3 5B3 2F4 2B0 2F5 2B1 2F6 2B2 5F4 2B3 5F5 5B4 5F6 5B5 5B6 2B4 2B5 2B6
");
}
