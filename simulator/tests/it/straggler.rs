//! Steps with a slow rank.

use ir::schedule::{ScheduleKind, generate};
use ir::units::Nanos;
use simulator::{Durations, PassTimes, StepWork, earliest, straggling_step};

/// Passes of a millisecond on 8 ranks.
fn durations() -> Durations {
    let pass = Nanos::new(1_000_000);
    let passes = PassTimes { forward: pass, input_grad: pass, weight_grad: pass };
    Durations::equal(passes, 8, Nanos::new(1000))
}

/// All ranks of a pipeline wait for a slow one, which is busy throughout but for the first forward and the last
/// backward on their way through the others.
#[test]
fn a_rank_that_is_slower_sets_the_pace() {
    let schedule = generate(ScheduleKind::OneFOneB, 8, 32, 1).unwrap();
    let work = StepWork::plain(&durations(), 8);
    let planned = earliest(&schedule, &durations()).makespan;
    assert_eq!(straggling_step(&schedule, &work, 3, 1.0).unwrap(), planned);
    for rank in 0..8 {
        let step = straggling_step(&schedule, &work, rank, 4.0).unwrap();
        let busy = Nanos::new(32 * 4 * 3_000_000);
        assert!(busy <= step && step < busy + planned, "{step}");
    }
}
