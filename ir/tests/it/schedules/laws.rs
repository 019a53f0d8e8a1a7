//! Laws for all numbers of ranks, micro-batches and chunks; what takes time is with the simulator.

use std::collections::BTreeSet;

use ir::schedule::{ScheduleKind, StagePlacement, Updates, generate};
use proptest::prelude::*;

use super::families::fitting;

proptest! {
    /// `generate` makes a `Schedule`, so whatever it returns is complete, ordered and free of
    /// deadlock; here it returns, in the memory that the family promises.
    #[test]
    fn every_family_runs_with_any_numbers(
        kind in 0_usize..14, p in 1_u32..10, m in 1_u32..30, v in 1_u32..5,
    ) {
        let kind = ScheduleKind::ALL[kind];
        let (p, m, v) = fitting(kind, p, m, v);
        let schedule = generate(kind, p, m, v).unwrap();
        prop_assert_eq!(schedule.num_micro_batches(), m);
        prop_assert_eq!(schedule.num_stages(), p * v);
        // Interleaved rounds longer than `p` micro-batches hold more.
        if m.is_multiple_of(p) || kind != ScheduleKind::Interleaved {
            for (rank, peak) in schedule.peak_in_flight().into_iter().enumerate() {
                let [rank, p, v, m] = [rank as u64, p.into(), v.into(), m.into()];
                prop_assert!(u64::from(peak) <= kind.peak_in_flight(rank, p, v, m));
            }
        }
    }

    /// A rank has the stages that it works on: each stage is on as many ranks as there are copies.
    #[test]
    fn placements_say_who_has_what(
        kind in 0_usize..14, p in 1_u32..10, m in 2_u32..30, v in 1_u32..5,
    ) {
        let kind = ScheduleKind::ALL[kind];
        let (p, m, v) = fitting(kind, p, m, v);
        let schedule = generate(kind, p, m, v).unwrap();
        let placement = kind.placement();
        prop_assert_eq!(schedule.placement(), &placement);
        for (rank, steps) in (0..).zip(schedule.ranks()) {
            let worked_on: BTreeSet<u32> =
                steps.iter().flat_map(|step| step.actions()).map(|action| action.stage).collect();
            let has: Vec<u32> = placement.stages(p, p * v, rank).collect();
            prop_assert_eq!(has.len() as u32, kind.stages_per_rank(v));
            prop_assert!(has.iter().eq(&worked_on), "{has:?}, {worked_on:?}");
            for stage in has {
                prop_assert!(placement.ranks(p, stage).any(|other| other == rank));
            }
        }
        for stage in 0..p * v {
            prop_assert_eq!(placement.ranks(p, stage).count() as u32, placement.num_copies());
        }
    }

    /// 1F1B: `p - s` micro-batches on stage `s`. ZB-H1: `p` everywhere. ZB-H2: `2 p - 1` everywhere,
    /// ZBV: `p`, of two chunks each (Qi et al. 2023, table 2 and section 6).
    #[test]
    fn peaks_are_as_in_the_papers(p in 1_u32..12, more in 0_u32..20) {
        let m = 2 * p + more;
        let peaks = |kind: ScheduleKind| {
            generate(kind, p, m, kind.default_virtual_stages()).unwrap().peak_in_flight()
        };
        let everywhere = |count: u32| vec![count; p as usize];
        prop_assert_eq!(peaks(ScheduleKind::GPipe), everywhere(m));
        prop_assert_eq!(peaks(ScheduleKind::OneFOneB), (1..=p).rev().collect::<Vec<_>>());
        prop_assert_eq!(peaks(ScheduleKind::ZbH1), everywhere(p));
        prop_assert_eq!(peaks(ScheduleKind::ZbH2), everywhere(2 * p - 1));
        prop_assert_eq!(peaks(ScheduleKind::Zbv), everywhere(2 * p));
        prop_assert_eq!(peaks(ScheduleKind::DualPipeV), everywhere(2 * p + 1));
    }
}

#[test]
fn only_the_asynchronous_schedule_does_without_a_flush() {
    for kind in ScheduleKind::ALL {
        let schedule = generate(kind, 2, 4, kind.default_virtual_stages()).unwrap();
        let is_async = schedule.updates() == Updates::AfterEachMicroBatch;
        assert_eq!(is_async, kind == ScheduleKind::AsyncOneFOneB);
    }
}

/// Both directions have as many stages as ranks; of more, nobody has one.
#[test]
fn no_rank_has_stages_beyond_those_of_both_directions() {
    for p in 1..6 {
        for stage in p..3 * p {
            assert_eq!(StagePlacement::Bidirectional.ranks(p, stage).count(), 0, "{stage} of {p}");
        }
    }
}
