//! What the passes add to computation.

use ir::schedule::{
    Action, ActionKind, Schedule, ScheduleKind, Sends, add_communication, add_optimizer_steps,
    add_reduction, add_sharding, check, generate, read_csv, write_csv,
};
use proptest::prelude::*;

use super::grids::check_grid;

proptest! {
    /// All passes together, for any family and numbers: what comes out is a `Schedule`, hence right;
    /// it does not deadlock though sends wait for their receives; the computation is what it was.
    #[test]
    fn passes_keep_every_schedule_right(
        kind in 0_usize..14, p in 1_u32..9, m in 1_u32..20, v in 1_u32..4, gathered in 1_usize..4,
    ) {
        let kind = ScheduleKind::ALL[kind];
        let (p, m, v) = super::laws::fitting(kind, p, m, v);
        let plain = generate(kind, p, m, v).unwrap();
        let sent = add_communication(&plain);
        check(&sent, Sends::Blocking).unwrap();
        let full = add_sharding(&add_optimizer_steps(&add_reduction(&sent)), gathered);
        check(&full, Sends::Blocking).unwrap();
        prop_assert_eq!(full.updates(), plain.updates());
        prop_assert_eq!(compute_only(&full), compute_only(&plain));
        let messages = |schedule: &Schedule| count(schedule, |kind| kind.is_message());
        let crossing = (0..plain.num_stages().saturating_sub(1))
            .flat_map(|stage| (0..m).map(move |i| (stage, i)))
            .filter(|(stage, i)| plain.rank(*stage, *i) != plain.rank(stage + 1, *i))
            .count();
        prop_assert_eq!(messages(&full), 4 * crossing);
        // PyTorch has no word for the update, so it does not come back; all else does.
        let reread = read_csv(&write_csv(&add_sharding(&add_reduction(&sent), gathered))).unwrap();
        prop_assert_eq!(count(&reread, |_| true) + count(&full, |k| k == ActionKind::OptimizerStep),
            count(&full, |_| true));
    }
}

fn compute_only(schedule: &Schedule) -> Vec<(u32, Action)> {
    schedule.actions().filter(|(_, action)| action.kind.is_compute()).collect()
}

fn count(schedule: &Schedule, which: impl Fn(ActionKind) -> bool) -> usize {
    schedule.actions().filter(|(_, action)| which(action.kind)).count()
}

#[test]
fn messages_follow_what_they_carry() {
    let schedule = generate(ScheduleKind::OneFOneB, 2, 2, 1).unwrap();
    check_grid(&add_communication(&schedule), "");
}

#[test]
fn stages_of_one_rank_send_nothing() {
    let schedule = generate(ScheduleKind::Zbv, 2, 1, 2).unwrap();
    check_grid(&add_communication(&schedule), "");
}

#[test]
fn parameters_are_gathered_ahead_and_freed() {
    let schedule = generate(ScheduleKind::LoopedBfs, 1, 2, 3).unwrap();
    check_grid(&add_sharding(&schedule, 2), "");
}

#[test]
fn gradients_are_reduced_while_other_stages_work() {
    let schedule = generate(ScheduleKind::LoopedBfs, 1, 2, 2).unwrap();
    check_grid(&add_optimizer_steps(&add_reduction(&schedule)), "
0 | F0 F1 B0 REDUCE_GRAD STEP B1 REDUCE_GRAD STEP
1 | F0 B0 REDUCE_GRAD STEP F1 B1 REDUCE_GRAD STEP
");
}

#[test]
fn without_a_flush_each_backward_updates() {
    let schedule = generate(ScheduleKind::AsyncOneFOneB, 2, 2, 1).unwrap();
    check_grid(&add_optimizer_steps(&add_reduction(&schedule)), "");
}
