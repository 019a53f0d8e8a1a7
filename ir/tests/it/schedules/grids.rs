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
    check(ScheduleKind::Sequential, [2, 2, 1], "");
}

#[test]
fn gpipe() {
    check(ScheduleKind::GPipe, [3, 3, 1], "");
}

#[test]
fn one_f_one_b() {
    check(ScheduleKind::OneFOneB, [4, 4, 1], "");
}

#[test]
fn async_one_f_one_b() {
    check(ScheduleKind::AsyncOneFOneB, [2, 3, 1], "");
}

#[test]
fn interleaved() {
    check(ScheduleKind::Interleaved, [2, 4, 2], "");
}

#[test]
fn looped_bfs() {
    check(ScheduleKind::LoopedBfs, [2, 2, 2], "");
}

#[test]
fn zb_h1() {
    check(ScheduleKind::ZbH1, [3, 4, 1], "");
}

#[test]
fn zb_h2() {
    check(ScheduleKind::ZbH2, [3, 6, 1], "");
}

#[test]
fn interleaved_zb() {
    check(ScheduleKind::InterleavedZb, [2, 2, 2], "");
}

#[test]
fn zbv() {
    check(ScheduleKind::Zbv, [2, 4, 2], "");
}

#[test]
fn v_half() {
    check(ScheduleKind::VHalf, [2, 4, 2], "");
}

#[test]
fn v_min() {
    check(ScheduleKind::VMin, [3, 4, 2], "");
}

#[test]
fn dualpipe() {
    check(ScheduleKind::DualPipe, [4, 8, 1], "
0 | F0 F1 B0 REDUCE_GRAD STEP B1 REDUCE_GRAD STEP
1 | F0 B0 REDUCE_GRAD STEP F1 B1 REDUCE_GRAD STEP
");
}

#[test]
fn dualpipev() {
    check(ScheduleKind::DualPipeV, [2, 4, 2], "");
}

/// PyTorch takes 6 micro-batches on 4 ranks in one round; where it refuses, as 7 on 3, the last round
/// is short, as in Megatron-LM.
#[test]
fn interleaved_when_micro_batches_do_not_divide_by_ranks() {
    check(ScheduleKind::Interleaved, [3, 7, 2], "");
}
