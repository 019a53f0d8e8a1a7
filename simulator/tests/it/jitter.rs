//! Steps drawn at random.

use ir::schedule::{ScheduleKind, generate};
use ir::units::Nanos;
use simulator::{
    Distribution, Durations, Jitter, PassTimes, Replicas, StepWork, earliest, sample_steps,
    straggling_step,
};

const NONE: Jitter =
    Jitter { deviation: 0.0, straggler_share: 0.0, straggler_excess: 0.0, seed: 0 };

const ALONE: Replicas = Replicas { gpus_per_rank: 1, pipelines: 1 };

/// 8 ranks, 32 micro-batches, passes of a millisecond.
fn steps(jitter: &Jitter, replicas: Replicas, num_samples: u32) -> Distribution {
    let schedule = generate(ScheduleKind::OneFOneB, 8, 32, 1).unwrap();
    let work = StepWork::plain(&durations(), 8);
    sample_steps(&schedule, &work, replicas, jitter, num_samples, &|| {}).unwrap()
}

fn durations() -> Durations {
    let pass = Nanos::new(1_000_000);
    let passes = PassTimes { forward: pass, input_grad: pass, weight_grad: pass };
    Durations::equal(passes, 8, Nanos::new(1000))
}

#[test]
fn without_jitter_every_step_is_as_planned() {
    let schedule = generate(ScheduleKind::OneFOneB, 8, 32, 1).unwrap();
    let planned = earliest(&schedule, &durations()).makespan;
    assert_eq!(steps(&NONE, ALONE, 5).times(), [planned; 5]);
}

#[test]
fn the_same_seed_gives_the_same_steps_on_any_number_of_threads() {
    let jitter = Jitter { deviation: 0.05, ..NONE };
    let replicas = Replicas { gpus_per_rank: 8, pipelines: 4 };
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| steps(&jitter, replicas, 50))
    };
    assert_eq!(on(1), on(2));
    assert_ne!(on(1), steps(&Jitter { seed: 1, ..jitter }, replicas, 50));
}

/// More GPUs that wait for each other, and more pipelines, can only take longer.
#[test]
fn whoever_waits_for_more_takes_longer() {
    let jitter = Jitter { deviation: 0.05, ..NONE };
    let mean = |gpus_per_rank, pipelines| {
        steps(&jitter, Replicas { gpus_per_rank, pipelines }, 200).mean()
    };
    assert!(mean(1, 1) < mean(8, 1));
    assert!(mean(8, 1) < mean(8, 16));
    // A chain that waits takes longer than its mean says.
    assert!(mean(1, 1) > steps(&NONE, ALONE, 1).mean());
}

/// One GPU in a hundred that is 30 % slower: a pipeline of 8 ranks has one in 8 %, of 8 ranks of 8 GPUs
/// in 47 %, and of 64 such pipelines there is always one.
#[test]
fn one_straggler_holds_all_up() {
    let jitter = Jitter { straggler_share: 0.01, straggler_excess: 0.3, ..NONE };
    let planned = steps(&NONE, ALONE, 1).mean();
    let slow = |gpus_per_rank, pipelines| {
        let steps = steps(&jitter, Replicas { gpus_per_rank, pipelines }, 400);
        let slow = steps.times().iter().filter(|time| **time > planned).count();
        slow as f64 / 400.0
    };
    assert!((slow(1, 1) - (1.0 - 0.99_f64.powi(8))).abs() < 0.05);
    assert!((slow(8, 1) - (1.0 - 0.99_f64.powi(64))).abs() < 0.08);
    assert!(slow(8, 64) > 0.999);
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

#[test]
fn quantiles_are_in_order() {
    let steps = steps(&Jitter { deviation: 0.1, ..NONE }, ALONE, 101);
    let times = steps.times();
    assert_eq!(steps.quantile(0.0), times[0]);
    assert_eq!(steps.quantile(0.5), times[50]);
    assert_eq!(steps.quantile(1.0), times[100]);
    assert!(times.is_sorted());
}
