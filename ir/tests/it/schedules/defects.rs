//! Errors of wrong schedules.

use ir::schedule::{
    Schedule, ScheduleError, ScheduleKind, ScheduleStep, Sends, StagePlacement, Updates, check,
    generate, read_csv,
};

/// Orders with the whole of what is said of them, from `cases/schedules/defects.txt`.
#[test]
fn wrong_orders_are_shown_where_they_are_wrong() {
    let cases = include_str!("../cases/schedules/defects.txt");
    for case in cases.split("\n# ").skip(1) {
        let (name, case) = case.split_once('\n').unwrap();
        let (csv, expected) = case.split_once("=>\n").unwrap();
        let error = read_csv(csv).unwrap_err().to_string();
        assert_eq!(error.trim(), expected.trim(), "{name}\n{error}");
    }
}

/// Orders with how an error about them begins.
#[test]
fn wrong_orders_are_named() {
    let in_parts = "`0B0` stands here a second time, as a full backward and in parts";
    let first = "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0";
    for (csv, expected) in [
        ("0F0,0I0,0W0,0B0", in_parts),
        ("0F0,0I0,0B0,0W0", in_parts),
        (
            "0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0",
            "`0SEND_F0` comes before `0F0`, which it needs",
        ),
        (&format!("{first},1SEND_B0,1B0"), "`1SEND_B0` comes before `1B0`, which it needs"),
        (&format!("{first},1SEND_B0,1I0,1W0"), "`1SEND_B0` comes before `1I0`, which it needs"),
        ("", "the CSV has no action"),
        (" ,,\n,", "the CSV has no action"),
        ("\n0F0,0B0", "row 1 has no pass; a row is a pipeline rank"),
        ("0F0,0B0\n,\n1F0,1B0", "row 2 has no pass; a row is a pipeline rank"),
        ("0F0,0B0\n0STEP", "row 2 has no pass; a row is a pipeline rank"),
    ] {
        let error = read_csv(csv).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{csv}: {error}");
    }
}

#[test]
fn a_stage_on_two_ranks() {
    let steps =
        |text: &str| text.split(' ').map(|t| t.parse().unwrap()).collect::<Vec<ScheduleStep>>();
    let ranks = vec![steps("0F0 0B0"), steps("1F0 0B0 1B0")];
    let error = Schedule::new(ranks, StagePlacement::Loop, 1).unwrap_err();
    let expected = "
`0B0` stands on rank 1, but its stage is on rank 0

0 | 0F0 0B0
1 | 1F0 [0B0] 1B0  <-- here
";
    assert_eq!(error.to_string().trim(), expected.trim());
}

/// Rows of a loop's ranks, which may have updates, for which the CSV has no word.
fn made(rows: &[&str], num_micro_batches: u32) -> Result<Schedule, ScheduleError> {
    let steps = |row: &&str| row.split(' ').map(|text| text.parse().unwrap()).collect();
    Schedule::new(rows.iter().map(steps).collect(), StagePlacement::Loop, num_micro_batches)
}

/// What concerns a stage as a whole stands where the stage is, once for each, when its gradients are there.
#[test]
fn updates_and_reductions_out_of_place() {
    for (rows, m, expected) in [
        (
            &["0F0 0B0", "1F0 1B0 0STEP 1STEP"][..],
            1,
            "`0STEP` stands on rank 1, but its stage is on rank 0",
        ),
        (&["0F0 0B0 0STEP", "1F0 1B0"], 1, "`1STEP` is missing"),
        (&["0F0 0B0", "1F0 1B0 1STEP"], 1, "`0STEP` is missing"),
        (&["0F0 0B0 0REDUCE_GRAD", "1F0 1B0"], 1, "`1REDUCE_GRAD` is missing"),
        (&["0F0 0F1 0B0 0STEP 0B1"], 2, "`0STEP` comes after 1 of the 2 backwards"),
        (&["0F0 0F1 0B0 0STEP 0STEP 0B1"], 2, "`0STEP` comes after 1 of the 2 backwards"),
        (&["0F0 0B0 0STEP 0F1 0B1 0STEP 0STEP"], 2, "`0STEP` stands here a second time"),
        (
            &["0F0 0F1 0B0 0REDUCE_GRAD 0REDUCE_GRAD 0B1"],
            2,
            "`0REDUCE_GRAD` comes after 1 of the 2",
        ),
        (&["0UNSHARD 0F0 0B0 0RESHARD 0RESHARD"], 1, "`0RESHARD` needs parameters"),
    ] {
        let error = made(rows, m).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{rows:?}: {error}");
    }
}

/// One update after all backwards, or one after each.
#[test]
fn updates_say_when_parameters_change() {
    for (row, m, updates) in [
        ("0F0 0B0", 1, Updates::AfterFlush),
        ("0F0 0F1 0B0 0B1 0STEP", 2, Updates::AfterFlush),
        ("0F0 0B0 0REDUCE_GRAD 0STEP", 1, Updates::AfterFlush),
        ("0F0 0B0 0STEP 0F1 0B1 0STEP", 2, Updates::AfterEachMicroBatch),
    ] {
        assert_eq!(made(&[row], m).unwrap().updates(), updates, "{row}");
    }
}

/// Of two copies, each has the micro-batches of its direction.
#[test]
fn a_micro_batch_of_the_other_direction() {
    let schedule = generate(ScheduleKind::DualPipe, 2, 4, 1).unwrap();
    let mut ranks = schedule.ranks().to_vec();
    let last = ranks[0].pop().unwrap();
    ranks[1].push(last);
    let error = Schedule::new(ranks, schedule.placement().clone(), 4).unwrap_err().to_string();
    let expected = format!("`{last}` stands on rank 1, but its stage is on rank 0");
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn an_empty_schedule() {
    for (ranks, m) in [(vec![], 1), (vec![vec![]], 1), (vec![vec!["0F0".parse().unwrap()]], 0)] {
        let error = Schedule::new(ranks, StagePlacement::Loop, m).unwrap_err().to_string();
        assert!(error.starts_with("the schedule is empty"), "{error}");
    }
    assert!(read_csv("").unwrap_err().to_string().starts_with("the CSV has no action"));
    assert!(read_csv(" ,,\n,").unwrap_err().to_string().starts_with("the CSV has no action"));
    for csv in ["\n0F0,0B0", "0F0,0B0\n,\n1F0,1B0", "0F0,0B0\n0STEP"] {
        let error = read_csv(csv).unwrap_err().to_string();
        assert!(error.contains("has no pass; a row is a pipeline rank"), "{csv}: {error}");
    }
}

/// Each rank sends before it receives: fine while messages are buffered, else both wait.
#[test]
fn a_deadlock_of_blocking_sends_only() {
    let schedule = read_csv(
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n\
         1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1",
    )
    .unwrap();
    check(&schedule, Sends::NonBlocking).unwrap();
    let error = check(&schedule, Sends::Blocking).unwrap_err().to_string();
    let expected = "
deadlock: rank 0 waits at `0SEND_F1` for `1RECV_F1` of rank 1, rank 1 waits at `1SEND_B0` for `0RECV_B0` of rank 0

0 | 0F0 0SEND_F0 0F1 [0SEND_F1] 0RECV_B0 0B0 0RECV_B1 0B1  <-- here
1 | 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1
";
    assert_eq!(error.trim(), expected.trim());
}

#[test]
fn numbers_that_a_family_does_not_take() {
    let message = |kind, p, m, v| generate(kind, p, m, v).unwrap_err().to_string();
    for (error, expected) in [
        (
            message(ScheduleKind::OneFOneB, 0, 1, 1),
            "`pipeline_parallel` is 0; a schedule needs at least 1",
        ),
        (
            message(ScheduleKind::Zbv, 2, 2, 1),
            "schedule `zbv` has `virtual_stages` 2, not 1\nhint: as many as you like have `interleaved-1f1b`, \
             `looped-bfs` and `interleaved-zb`",
        ),
        (
            message(ScheduleKind::DualPipe, 3, 12, 1),
            "schedule `dualpipe` folds the ranks in half: `pipeline_parallel` 4 fits, 3 is odd",
        ),
        (
            message(ScheduleKind::DualPipe, 4, 9, 1),
            "schedule `dualpipe` feeds both ends alike: `num_micro_batches` 10 fits, 9 is odd",
        ),
        (
            message(ScheduleKind::DualPipeV, 4, 7, 2),
            "schedule `dualpipev` on 4 ranks needs `num_micro_batches` of at least 8, not 7",
        ),
    ] {
        assert_eq!(error, expected);
    }
}

#[test]
fn schedules_that_are_too_large_are_refused_before_they_are_made() {
    let message = |kind, p, m, v| generate(kind, p, m, v).unwrap_err().to_string();
    assert_eq!(
        message(ScheduleKind::GPipe, u32::MAX, u32::MAX, 1),
        "4294967295 stages are more than the 4096 that a schedule has at most"
    );
    assert_eq!(
        message(ScheduleKind::Interleaved, 2, 2, 1_000_000),
        "2000000 stages are more than the 4096 that a schedule has at most"
    );
    assert_eq!(
        message(ScheduleKind::OneFOneB, 8, 1_000_000, 1),
        "8 stages x 1000000 micro-batches are more than the 524288 forwards that a schedule has at most"
    );
    for kind in [ScheduleKind::VHalf, ScheduleKind::VMin] {
        let expected =
            format!("schedule `{kind}` is worked out for 512 pipeline ranks at most, not 513");
        assert_eq!(message(kind, 513, 1, 2), expected);
    }
}
