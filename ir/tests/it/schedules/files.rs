//! Pipeline-order CSV, in and out.

use std::fmt::Write as _;

use ir::schedule::{
    CsvError, ScheduleKind, StagePlacement, add_communication, add_reduction, generate, read_csv,
    write_csv,
};
use proptest::prelude::*;

use super::families::fitting;

proptest! {
    #[test]
    fn what_is_written_reads_back(
        kind in 0_usize..14, p in 1_u32..8, m in 1_u32..16, v in 1_u32..4, lowered in any::<bool>(),
    ) {
        let kind = ScheduleKind::ALL[kind];
        // The file does not say when parameters are updated.
        prop_assume!(kind != ScheduleKind::AsyncOneFOneB);
        let (p, m, v) = fitting(kind, p, m, v);
        let mut schedule = generate(kind, p, m, v).unwrap();
        if lowered {
            schedule = add_reduction(&add_communication(&schedule));
        }
        let read = read_csv(&write_csv(&schedule)).unwrap();
        prop_assert_eq!(read.ranks(), schedule.ranks());
        for stage in 0..schedule.num_stages() {
            for micro_batch in 0..m {
                prop_assert_eq!(read.rank(stage, micro_batch), schedule.rank(stage, micro_batch));
            }
        }
    }

    /// Never a panic, whatever the text.
    #[test]
    fn any_text_is_a_schedule_or_an_error(
        text in "([0-3](F|B|I|W|SEND_F|RECV_F|SEND_B|RECV_B)[0-2]|[0-3](UNSHARD|RESHARD|REDUCE_GRAD|STEP)|\\(0F0;0B1\\)OVERLAP_F_B|,|,|,|\n|x){0,60}",
    ) {
        if let Ok(schedule) = read_csv(&text) {
            let reread = read_csv(&write_csv(&schedule)).unwrap();
            prop_assert_eq!(reread.placement(), schedule.placement());
        }
    }
}

/// As PyTorch's `_dump_csv` writes with `format="compute_comms"`: idle cells are gone, messages,
/// gathering and reductions are there.
#[test]
fn a_dump_of_computation_and_communication_reads() {
    let text = "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\r\n\
                1UNSHARD,1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1REDUCE_GRAD,1SEND_B1,1RESHARD\r\n";
    let schedule = read_csv(text).unwrap();
    assert!(schedule.has_communication());
    assert_eq!(write_csv(&schedule), text);
}

#[test]
fn idle_cells_quotes_and_marks_are_skipped() {
    let schedule = read_csv("\u{feff}0F0,,\"0F1\", 0B0 ,0B1,,\n,1F0,1B0,1F1,1B1\n\n").unwrap();
    assert_eq!(schedule.to_string(), "0 | F0 F1 B0 B1\n1 | F0 B0 F1 B1\n");
}

#[test]
fn any_placement_of_stages_is_known_from_the_rows() {
    let schedule = read_csv("1F0,1B0\n0F0,2F0,2B0,0B0\n").unwrap();
    assert_eq!(*schedule.placement(), StagePlacement::Table(vec![1, 0, 1]));
}

#[test]
fn an_unknown_word_is_named_with_its_place() {
    let error = read_csv("0F0,0B0\n1F0,,1X0\n").unwrap_err();
    assert_eq!(error.to_string(), "row 2, column 3: `1X0`");
    assert!(matches!(error, CsvError::Cell { row: 2, column: 3, .. }));
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.starts_with("`1X0` is no action; actions look like `2F0`"), "{source}");
}

#[test]
fn a_rank_that_computes_nothing_is_named() {
    let error = read_csv("0F0,0B0\n\n1F0,1B0\n").unwrap_err();
    assert_eq!(error, CsvError::Row { row: 2 });
    assert_eq!(read_csv(",,\n").unwrap_err(), CsvError::Empty);
}

/// Ten million actions take seconds; debug builds try a twentieth.
#[test]
fn large_files_read() {
    let (p, m) = if cfg!(debug_assertions) { (16_u32, 8_000) } else { (64, 53_000) };
    let mut text = String::new();
    for stage in 0..p {
        for kind in ["F", "I", "W"] {
            for i in 0..m {
                write!(text, "{stage}{kind}{i},").unwrap();
            }
        }
        text.push('\n');
    }
    let schedule = read_csv(&text).unwrap();
    assert_eq!(schedule.actions().count() as u32, 3 * p * m);
}
