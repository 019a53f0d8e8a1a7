//! Actions that the passes add to computation.

use ir::schedule::{
    Action, ActionKind, Schedule, ScheduleKind, Sends, add_communication, add_optimizer_steps,
    add_reduction, check, generate, read_csv, write_csv,
};
use proptest::prelude::*;

use super::grids::check_grid;

proptest! {
    /// All passes together, for any family and numbers: what comes out is a `Schedule`, hence right;
    /// it does not deadlock though sends wait for their receives; the computation is what it was.
    #[test]
    fn passes_keep_every_schedule_right(
        kind in 0_usize..14, p in 1_u32..9, m in 1_u32..20, v in 1_u32..4,
    ) {
        let kind = ScheduleKind::ALL[kind];
        let (p, m, v) = super::families::fitting(kind, p, m, v);
        let plain = generate(kind, p, m, v).unwrap();
        let sent = add_communication(&plain);
        check(&sent, Sends::Blocking).unwrap();
        let full = add_optimizer_steps(&add_reduction(&sent));
        check(&full, Sends::Blocking).unwrap();
        prop_assert_eq!(full.updates(), plain.updates());
        prop_assert_eq!(compute_only(&full), compute_only(&plain));
        let messages = |schedule: &Schedule| count(schedule, ActionKind::is_message);
        let crossing = (0..plain.num_stages().saturating_sub(1))
            .flat_map(|stage| (0..m).map(move |i| (stage, i)))
            .filter(|(stage, i)| plain.rank(*stage, *i) != plain.rank(stage + 1, *i))
            .count();
        prop_assert_eq!(messages(&full), 4 * crossing);
        // PyTorch has no word for the update, so it does not come back; all else does.
        let reread = read_csv(&write_csv(&add_reduction(&sent))).unwrap();
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
    check_grid(
        &add_communication(&schedule),
        "
0 | F0 SEND_F0 F1 SEND_F1 RECV_B0 B0 RECV_B1 B1
1 | RECV_F0 F0 RECV_F1 B0 SEND_B0 F1 B1 SEND_B1
",
    );
}

#[test]
fn stages_of_one_rank_send_nothing() {
    let schedule = generate(ScheduleKind::Zbv, 2, 1, 2).unwrap();
    check_grid(
        &add_communication(&schedule),
        "
0 | 0F0 0SEND_F0 3RECV_F0 3F0 3I0 3SEND_B0 3W0 0RECV_B0 0I0 0W0
1 | 1RECV_F0 1F0 2F0 2SEND_F0 2RECV_B0 2I0 2W0 1I0 1SEND_B0 1W0
",
    );
}

#[test]
fn gradients_are_reduced_while_other_stages_work() {
    let schedule = generate(ScheduleKind::LoopedBfs, 1, 2, 2).unwrap();
    check_grid(
        &add_optimizer_steps(&add_reduction(&schedule)),
        "
0 | 0F0 0F1 1F0 1F1 1B1 1B0 1REDUCE_GRAD 0B1 0B0 0REDUCE_GRAD 0STEP 1STEP
",
    );
}

#[test]
fn without_a_flush_each_backward_updates() {
    let schedule = generate(ScheduleKind::AsyncOneFOneB, 2, 2, 1).unwrap();
    check_grid(
        &add_optimizer_steps(&add_reduction(&schedule)),
        "
0 | F0 F1 B0 REDUCE_GRAD STEP B1 REDUCE_GRAD STEP
1 | F0 B0 REDUCE_GRAD STEP F1 B1 REDUCE_GRAD STEP
",
    );
}
