//! In which order steps end if everything starts as early as it can and each pass takes one unit: the
//! order in which messages are put in place. Real times are the `simulator`'s.

use std::collections::VecDeque;

use super::action::{Action, ActionKind, Step};
use super::order::{Need, Pass, Schedule};

/// The units that a step takes.
pub(super) fn length(step: Step) -> u64 {
    let units = |action: Action| match action.kind {
        ActionKind::Forward | ActionKind::InputGrad | ActionKind::WeightGrad => 1,
        ActionKind::Backward => 2,
        _ => 0,
    };
    step.actions().map(units).sum()
}

/// When each step of each rank ends, in units. An overlapped pair starts when the data of both its
/// actions is there.
pub(super) fn ends(schedule: &Schedule) -> Vec<Vec<u64>> {
    let num_pairs = schedule.num_stages() as usize * schedule.num_micro_batches() as usize;
    let mut run = Run { schedule, done: vec![[None; 2]; num_pairs] };
    let mut ends: Vec<Vec<u64>> =
        schedule.ranks().iter().map(|steps| Vec::with_capacity(steps.len())).collect();
    let mut queue: VecDeque<usize> = (0..ends.len()).collect();
    while let Some(rank) = queue.pop_front() {
        while let Some(step) = schedule.ranks()[rank].get(ends[rank].len())
            && let Some(ready) = run.ready(*step)
        {
            let last = ends[rank].last().copied().unwrap_or(0);
            let end = last.max(ready) + length(*step);
            queue.extend(step.actions().filter_map(|action| run.finish(action, end)));
            ends[rank].push(end);
        }
    }
    ends
}

struct Run<'a> {
    schedule: &'a Schedule,
    /// When forward and backward of each stage and micro-batch end.
    done: Vec<[Option<u64>; 2]>,
}

impl Run<'_> {
    /// When the step's data is there; none while some of it is not made.
    fn ready(&self, step: Step) -> Option<u64> {
        let needs = step.actions().filter_map(|action| self.schedule.need(action));
        needs.into_iter().try_fold(0, |ready, need| {
            self.done[self.index(need)][need.pass as usize].map(|end| ready.max(end))
        })
    }

    /// Notes that an action is done, and says which rank may have waited for it.
    fn finish(&mut self, action: Action, end: u64) -> Option<usize> {
        let Action { stage, micro_batch, kind } = action;
        let (pass, user) = match kind {
            ActionKind::Forward => (Pass::Forward, Some(stage + 1)),
            ActionKind::Backward | ActionKind::InputGrad => (Pass::Backward, stage.checked_sub(1)),
            _ => return None,
        };
        let index = self.index(Need { stage, micro_batch, pass });
        self.done[index][pass as usize] = Some(end);
        let user = user.filter(|user| *user < self.schedule.num_stages())?;
        Some(self.schedule.rank(user, micro_batch) as usize)
    }

    fn index(&self, need: Need) -> usize {
        need.stage as usize * self.schedule.num_micro_batches() as usize + need.micro_batch as usize
    }
}
