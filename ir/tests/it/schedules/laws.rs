//! Laws that hold for all numbers of ranks, micro-batches and chunks.

use ir::schedule::{Costs, Evaluation, Schedule, ScheduleKind, Updates, evaluate, generate};
use proptest::prelude::*;

fn times(schedule: &Schedule) -> Evaluation {
    evaluate(schedule, Costs::UNIT)
}

fn costs() -> impl Strategy<Value = Costs> {
    (1_u64..100, 1_u64..100, 1_u64..100).prop_map(|(forward, input_grad, weight_grad)| Costs {
        forward,
        input_grad,
        weight_grad,
        send: 0,
    })
}

/// Numbers that the family can run.
pub(super) fn fitting(kind: ScheduleKind, p: u32, m: u32, v: u32) -> (u32, u32, u32) {
    let v = if kind.is_interleaved() { v } else { kind.default_virtual_stages() };
    match kind {
        ScheduleKind::DualPipe => (2 * p.div_ceil(2), 4 * p.div_ceil(2) + 2 * m, v),
        ScheduleKind::DualPipeV => (p, 2 * p + m, v),
        _ => (p, m, v),
    }
}

proptest! {
    /// `generate` makes a `Schedule`, so whatever it returns is complete, ordered and free of
    /// deadlock; here it returns, in the memory that the family promises, and in no less time than
    /// work and the longest path take.
    #[test]
    fn every_family_runs_with_any_numbers(
        kind in 0_usize..14, p in 1_u32..10, m in 1_u32..30, v in 1_u32..5, costs in costs(),
    ) {
        let kind = ScheduleKind::ALL[kind];
        let (p, m, v) = fitting(kind, p, m, v);
        let schedule = generate(kind, p, m, v).unwrap();
        prop_assert_eq!(schedule.num_micro_batches(), m);
        prop_assert_eq!(schedule.num_stages(), p * v);
        let evaluation = evaluate(&schedule, costs);
        let of_one = costs.forward + costs.input_grad + costs.weight_grad;
        let work = u64::from(m * v) * of_one;
        let path = u64::from(p * v) * (costs.forward + costs.input_grad) + costs.weight_grad;
        prop_assert!(evaluation.makespan >= work.max(path));
        prop_assert!(evaluation.ranks.iter().all(|rank| rank.busy == work));
        // Interleaved rounds longer than `p` micro-batches hold more.
        if m.is_multiple_of(p) || kind != ScheduleKind::Interleaved {
            for (rank, peak) in schedule.peak_in_flight().into_iter().enumerate() {
                let [rank, p, v, m] = [rank as u64, p.into(), v.into(), m.into()];
                prop_assert!(u64::from(peak) <= kind.peak_chunks_in_flight(rank, p, v, m));
            }
        }
    }

    /// Huang et al. 2019, section 2.3, and Narayanan et al. 2021, section 2.2.1:
    /// `(m + p - 1) (t_f + t_b)`, of which `p - 1` over `m + p - 1` is idle.
    #[test]
    fn gpipe_and_one_f_one_b_take_their_closed_form(
        p in 1_u32..12, m in 1_u32..40, costs in costs(),
    ) {
        let of_one = costs.forward + costs.input_grad + costs.weight_grad;
        for kind in [ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::AsyncOneFOneB] {
            let evaluation = evaluate(&generate(kind, p, m, 1).unwrap(), costs);
            prop_assert_eq!(evaluation.makespan, u64::from(m + p - 1) * of_one);
            let bubble = f64::from(p - 1) / f64::from(m + p - 1);
            prop_assert!((evaluation.bubble_fraction() - bubble).abs() < 1e-12);
        }
        let sequential = generate(ScheduleKind::Sequential, p, m, 1).unwrap();
        prop_assert_eq!(evaluate(&sequential, costs).makespan, u64::from(m * p) * of_one);
    }

    /// Narayanan et al. 2021, section 2.2.2: the bubble of `p - 1` micro-batches shrinks to chunks.
    #[test]
    fn interleaved_takes_its_closed_form(
        p in 1_u32..9, rounds in 1_u32..6, v in 1_u32..5, costs in costs(),
    ) {
        let m = rounds * p;
        let of_one = costs.forward + costs.input_grad + costs.weight_grad;
        for kind in [ScheduleKind::Interleaved, ScheduleKind::LoopedBfs] {
            let evaluation = evaluate(&generate(kind, p, m, v).unwrap(), costs);
            prop_assert_eq!(evaluation.makespan, u64::from(m * v + p - 1) * of_one);
        }
    }

    /// Qi et al. 2023, table 2, with equal costs: ZB-H1 idles `(p - 1) (f + i - w)`; ZB-H2 and ZBV
    /// not at all between a rank's first action and its last, which from time zero is as long.
    #[test]
    fn zero_bubble_takes_its_closed_form(p in 1_u32..12, more in 0_u32..30) {
        let m = 2 * p - 1 + more;
        let h1 = times(&generate(ScheduleKind::ZbH1, p, m, 1).unwrap());
        prop_assert_eq!(h1.makespan, u64::from(3 * m + p - 1));
        for (kind, v) in [(ScheduleKind::ZbH2, 1), (ScheduleKind::Zbv, 2)] {
            let evaluation = times(&generate(kind, p, m, v).unwrap());
            prop_assert_eq!(evaluation.makespan, u64::from(3 * m * v + p - 1));
            prop_assert!(evaluation.ranks.iter().all(|rank| rank.end - rank.start == rank.busy));
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

/// Equal costs, 8 ranks, 32 micro-batches, idle time from a rank's first action: what the authors of
/// zero bubble report for their own scheduler.
#[test]
fn bubbles_are_no_larger_than_the_authors() {
    for (kind, most) in [
        (ScheduleKind::OneFOneB, "0.179"),
        (ScheduleKind::ZbH1, "0.068"),
        (ScheduleKind::ZbH2, "0.000"),
        (ScheduleKind::Zbv, "0.000"),
        (ScheduleKind::VHalf, "0.081"),
    ] {
        let schedule = generate(kind, 8, 32, kind.default_virtual_stages()).unwrap();
        let bubble = times(&schedule).bubble_from_first_action();
        assert!(format!("{bubble:.3}").as_str() <= most, "{kind}: {bubble}");
    }
}

/// Qi et al. 2024, section 4: V-Min idles about `2 p / 3` and V-Half about `p / 2` units a
/// micro-batch of 1F1B's `p`.
#[test]
fn v_shapes_trade_memory_for_bubble() {
    for (p, m) in [(4, 16), (8, 32), (16, 64)] {
        let [zbv, half, min, plain] =
            [ScheduleKind::Zbv, ScheduleKind::VHalf, ScheduleKind::VMin, ScheduleKind::OneFOneB]
                .map(|kind| {
                    let v = kind.default_virtual_stages();
                    let schedule = generate(kind, p, m, v).unwrap();
                    let held = schedule.peak_in_flight().into_iter().max().unwrap() / v;
                    (held, times(&schedule).bubble_from_first_action())
                });
        assert_eq!([plain.0, zbv.0, half.0, min.0], [p, p, p / 2 + 1, (p + 4) / 3]);
        assert!(zbv.1 < half.1 && half.1 < min.1 && min.1 < plain.1);
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
