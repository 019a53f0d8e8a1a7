//! What the bounds of a step are made of, from its work: what the planner says of a layout without any.

use ir::schedule::{ActionKind, ScheduleKind, Updates};
use ir::units::Nanos;
use simulator::{MinPassTimes, PassPart, StageWork, StepTail, StepWork};

/// Bounds of all stages of a step's work.
pub(crate) fn min_pass_times(
    kind: ScheduleKind,
    num_ranks: u32,
    work: &StepWork,
) -> Vec<MinPassTimes> {
    let placement = kind.placement();
    let rank = |stage: usize| placement.rank(num_ranks, stage as u32, 0);
    let stages = work.stages.iter().enumerate();
    stages
        .map(|(stage, of)| {
            let time =
                |kind: ActionKind| min_pass_time(of.parts(kind, false, false), overlaps(work));
            let send = |other: usize, time: Nanos| {
                let crosses = other < work.stages.len() && rank(stage) != rank(other);
                if crosses { time } else { Nanos::ZERO }
            };
            let sends = [
                send(stage + 1, of.send_forward.time),
                send(stage.wrapping_sub(1), of.send_backward.time),
            ];
            let whole = [ActionKind::Forward, ActionKind::Backward].map(time);
            let apart = [ActionKind::InputGrad, ActionKind::WeightGrad].map(time);
            MinPassTimes::new(kind, whole, apart, sends)
        })
        .collect()
}

fn overlaps(work: &StepWork) -> bool {
    !work.pairs.is_empty()
}

/// Lower bound of the time of a pass: its runs, and the transfers that it waits for at once. Overlapped with another
/// pass, an exchange may take no time at all; kernels always do.
fn min_pass_time(parts: &[PassPart], overlaps: bool) -> Nanos {
    let of_part = |part: &PassPart| match part {
        PassPart::Run(run) => {
            if overlaps {
                run.kernels
            } else {
                run.time
            }
        }
        _ => Nanos::ZERO,
    };
    let waits = match parts {
        [PassPart::Start(first), PassPart::Wait, ..] => first.time,
        _ => Nanos::ZERO,
    };
    waits + parts.iter().map(of_part).sum()
}

/// Tail of a step, from its work.
pub(crate) fn step_tail(
    kind: ScheduleKind,
    num_ranks: u32,
    num_micro_batches: u32,
    work: &StepWork,
) -> StepTail {
    let placement = kind.placement();
    let num_stages = work.stages.len() as u32;
    let all = |group: u32| work.groups[group as usize].len() == num_ranks as usize;
    let mut meets = kind.updates() == Updates::AfterFlush;
    let until_group_collective = Nanos::new(u64::MAX);
    let mut tail = StepTail { until_group_collective, ..StepTail::default() };
    let micro_batches = u64::from(num_micro_batches / placement.num_copies());
    for rank in 0..num_ranks {
        let own = || placement.stages(num_ranks, num_stages, rank);
        let stage = |stage: u32| &work.stages[stage as usize];
        // The gradients of one of the rank's stages are complete last.
        let reduction = own().map(|it| last_reduction(kind, stage(it))).min();
        let (mut before, mut after) = (reduction.unwrap_or_default(), Nanos::ZERO);
        let (mut meets_here, mut waits) = (false, false);
        for part in own().flat_map(|it| &stage(it).update) {
            match part {
                PassPart::Collective(collective)
                    if all(collective.group) && !collective.is_reduction =>
                {
                    meets_here = true;
                    after += collective.transfer.time;
                }
                PassPart::Collective(collective) => before += collective.transfer.time,
                PassPart::Run(run) => after += run.time,
                PassPart::Wait => waits |= !meets_here,
                _ => {}
            }
        }
        meets &= meets_here;
        if waits {
            let of_stages = own().map(|it| transfers(kind, stage(it)) * micro_batches);
            let once = own().flat_map(|it| &stage(it).reduce).map(|it| it.time);
            let first = work.ranks[rank as usize].prefetch.iter().map(|(_, it)| it.time);
            let all = of_stages.chain(once).chain(first).sum();
            tail.transfers = tail.transfers.max(all);
        }
        tail.until_group_collective = tail.until_group_collective.min(before);
        tail.update = tail.update.max(after);
    }
    // Where ranks do not join a collective, the rank with the longest passes may be another than the one with the
    // longest update.
    if meets { tail } else { StepTail::default() }
}

/// Lower bound of the transfer time of a stage for a micro-batch.
fn transfers(kind: ScheduleKind, stage: &StageWork) -> Nanos {
    let time = |part: &PassPart| match part {
        PassPart::Start(transfer) => transfer.time,
        _ => Nanos::ZERO,
    };
    let of_pass = |kind: ActionKind| {
        let ends = [(false, false), (true, false), (false, true)];
        let of = |(first, last)| stage.parts(kind, first, last).iter().map(time).sum::<Nanos>();
        ends.map(of).into_iter().min().unwrap_or_default()
    };
    let apart = of_pass(ActionKind::InputGrad) + of_pass(ActionKind::WeightGrad);
    let whole = of_pass(ActionKind::Backward);
    of_pass(ActionKind::Forward) + if kind.splits_backward() { whole.min(apart) } else { whole }
}

/// Time of the reduction that begins after the last gradient of a stage.
fn last_reduction(kind: ScheduleKind, stage: &StageWork) -> Nanos {
    let after: Nanos = stage.reduce.iter().map(|transfer| transfer.time).sum();
    let last = |kind: ActionKind| match stage.parts(kind, false, true).last() {
        Some(PassPart::Start(transfer)) => transfer.time,
        _ => Nanos::ZERO,
    };
    let beside = if kind.splits_backward() {
        last(ActionKind::Backward).min(last(ActionKind::WeightGrad))
    } else {
        last(ActionKind::Backward)
    };
    after + beside
}
