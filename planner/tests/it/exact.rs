//! Branch and bound finds what exhaustive search finds.

use planner::search::{Go, Outcome, Progress, Request, StopReason, search};
use proptest::prelude::*;

use crate::random::{Setup, named_schedules, requests, setups};

fn run(setup: &Setup, request: &Request) -> Outcome {
    search(&setup.problem(), request, &mut |_| Go::On)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_pruned_search_finds_what_the_exhaustive_one_finds(
        setup in setups(), request in requests(),
    ) {
        let pruned = run(&setup, &request);
        let all = run(&setup, &Request { exhaustive: true, ..request });
        prop_assert_eq!(&pruned.plans, &all.plans);
        prop_assert_eq!(pruned.counts.candidates, all.counts.candidates);
        for Outcome { counts, stop_reason, .. } in [&pruned, &all] {
            prop_assert_eq!(counts.evaluated() + counts.pruned(), counts.candidates);
            prop_assert_eq!(*stop_reason, StopReason::Exhausted);
        }
        prop_assert_eq!(all.counts.pruned(), 0);
        if all.plans.is_empty() {
            prop_assert_eq!(&pruned.closest, &all.closest);
            prop_assert_eq!(&pruned.rejected, &all.rejected);
            prop_assert_eq!(all.closest.is_some(), all.counts.candidates > 0);
        }
    }

    #[test]
    fn a_first_fit_is_found_where_there_is_any(setup in setups(), request in requests()) {
        let first = |progress: Progress| match progress.best {
            Some(_) => Go::Stop(StopReason::FirstFit),
            None => Go::On,
        };
        let any = search(&setup.problem(), &Request { top: 1, ..request }, &mut { first });
        let best = run(&setup, &Request { top: 1, ..request });
        prop_assert_eq!(any.plans.is_empty(), best.plans.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Schedules that are searched only where they are named have bounds too.
    #[test]
    fn so_it_does_for_every_schedule_that_is_named(setup in setups(), request in named_schedules()) {
        let pruned = run(&setup, &request);
        let all = run(&setup, &Request { exhaustive: true, ..request });
        prop_assert_eq!(&pruned.plans, &all.plans);
        prop_assert_eq!(pruned.counts.candidates, all.counts.candidates);
        if all.plans.is_empty() {
            prop_assert_eq!(&pruned.closest, &all.closest);
        }
    }
}
