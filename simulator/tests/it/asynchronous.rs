//! Replicas that update shared weights whenever they have gradients.

use ir::units::Nanos;
use proptest::prelude::*;
use simulator::{SharedUpdate, SharedWeights};

fn shared(compute: &[u64], push: u64, pull: u64, staleness: u32) -> SharedWeights {
    SharedWeights {
        compute: compute.iter().map(|time| Nanos::new(*time)).collect(),
        push: Nanos::new(push),
        pull: Nanos::new(pull),
        staleness,
    }
}

/// Three replicas that compute for 10, weights that come in 1 and an update in 2: `replica end age`.
#[test]
fn updates_follow_each_other() {
    let check = |staleness, expected: &str| {
        let shared = shared(&[10, 10, 10], 2, 1, staleness);
        let updates = shared.updates().take(6);
        let told: Vec<String> = updates
            .map(|SharedUpdate { replica, end, age }| format!("{replica} {} {age}", end.get()))
            .collect();
        assert_eq!(told.join(", "), expected, "{staleness}");
    };
    // One at a time, in turns.
    check(0, "0 13 0, 1 26 0, 2 39 0, 0 52 0, 1 65 0, 2 78 0");
    // Two at a time: the third waits until the first has brought its gradients.
    check(1, "0 13 0, 1 16 1, 2 26 1, 0 29 1, 1 39 1, 2 42 1");
    // All at a time, each as soon as it is done.
    check(2, "0 13 0, 1 16 1, 2 19 2, 0 26 2, 1 29 2, 2 32 2");
}

/// A replica that takes four times as long: where no gradient may be older than two updates, the other makes two
/// in that time; where they may be as old as they get, it never waits.
#[test]
fn a_straggler_holds_up_only_those_that_wait_for_it() {
    let c = 1_000_000;
    let relative = |staleness| {
        let settles = shared(&[c, 4 * c], 0, 0, staleness).steady_state();
        assert!(settles.most_age <= u64::from(staleness));
        // Of two updates in the time of a step in which both wait for the slower.
        4.0 * c as f64 / settles.step_time.as_f64()
    };
    // In turns, one after the other.
    assert!((relative(0) - 4.0 / 5.0).abs() < 1e-6);
    assert!((relative(1) - 1.0).abs() < 1e-6);
    assert!((relative(2) - 3.0 / 2.0).abs() < 1e-6);
    assert!((relative(3) - 4.0 / 2.0).abs() < 1e-6);
    for staleness in [4, 5, 100] {
        assert!((relative(staleness) - 5.0 / 2.0).abs() < 1e-6, "{staleness}");
    }
}

proptest! {
    /// Whatever replicas compute, none brings gradients that are too old, each comes again and again, and the
    /// server does one thing at a time.
    #[test]
    fn staleness_keeps_its_bound_and_all_come_again(
        compute in prop::collection::vec(0_u64..100, 1..8), push in 0_u64..20, pull in 0_u64..20,
        staleness in 0_u32..10,
    ) {
        let shared = shared(&compute, push, pull, staleness);
        let updates: Vec<SharedUpdate> = shared.updates().take(100 * compute.len()).collect();
        prop_assert!(updates.iter().all(|update| update.age <= u64::from(staleness)));
        prop_assert!(updates.windows(2).all(|two| two[0].end + shared.push <= two[1].end));
        let least = updates.len() as u64 * push;
        prop_assert!(updates.last().unwrap().end >= Nanos::new(least));
        for replica in 0..compute.len() {
            prop_assert!(updates.iter().filter(|update| update.replica == replica).count() > 1);
        }
    }

    /// Once replicas that are alike have settled, as many updates as there are replicas take the closed form's
    /// time.
    #[test]
    fn equal_replicas_settle_to_the_closed_form(
        d in 1_usize..10, c in 0_u64..1000, push in 0_u64..100, pull in 0_u64..100, staleness in 0_u32..12,
    ) {
        // So that the closed form is a whole number.
        let parts = u64::from(staleness) + 1;
        let shared = shared(&vec![c * parts; d], push * parts, pull * parts, staleness);
        let settled: Vec<SharedUpdate> = shared.updates().skip(20 * d).take(1 + d * 12 * parts as usize).collect();
        let rounds = 12 * parts;
        let time = settled.last().unwrap().end - settled[0].end;
        prop_assert_eq!(time, shared.step_time_of_equals() * rounds);
        let settles = shared.steady_state();
        let off = settles.step_time.as_f64() - shared.step_time_of_equals().as_f64();
        prop_assert!(off.abs() <= 1.0 + 0.025 * shared.step_time_of_equals().as_f64(), "{settles:?}");
    }
}
