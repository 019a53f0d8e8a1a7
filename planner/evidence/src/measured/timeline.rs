//! Timeline of a profile, in the form of predicted timelines: one step of each rank, from its first kernel on.
//!
//! Consecutive kernels of one part of a step form one action, from the first kernel to the last. A micro-batch begins
//! where forward follows backward. Pipeline stages are not recorded, so all actions belong to stage 0.

use ir::collective::Collective;
use ir::schedule::{Action, ActionKind};
use ir::units::{Bytes, Nanos};
use traces::timeline::{Activity, Event, Stream, Timeline, Track};

use super::profile::{
    Class, Phase, Profile, ProfiledCollective, ProfiledKernel, ProfiledWork, Purpose,
};

/// Timeline of the median step of each profile.
pub fn timeline(title: &str, profiles: &[Profile]) -> Timeline {
    let tracks = profiles.iter().zip(0..).map(|(profile, nth)| track(profile, nth)).collect();
    Timeline { title: title.to_owned(), tracks, ..Timeline::default() }
}

fn track(profile: &Profile, nth: u32) -> Track {
    let all = [Nanos::ZERO, Nanos::new(u64::MAX)];
    let step = profile.middle_step().unwrap_or(all);
    let kernels: Vec<&ProfiledKernel> = profile.kernels_in(step).collect();
    // The host runs ahead of the GPU, so a step is shown from its own first kernel.
    let zero = kernels.first().map_or(Nanos::ZERO, |kernel| kernel.span[0]);
    let rank = profile.rank.unwrap_or(nth);
    let mut events = Vec::new();
    let mut current: Option<Event> = None;
    let mut micro_batch = 0;
    // Time from which each stream is free, so that its events do not overlap.
    let mut free = [Nanos::ZERO; Stream::ALL.len()];
    for kernel in kernels {
        let [start, end] = kernel.span.map(|time| time.saturating_sub(zero));
        let kind = match kernel.phase {
            Phase::Forward => ActionKind::Forward,
            Phase::Backward => ActionKind::Backward,
            Phase::Update => ActionKind::OptimizerStep,
        };
        let before = current.map(|it| it.activity.action().kind);
        if kernel.class == Class::Exchange {
            let kind = before.unwrap_or(kind);
            let event = exchange(kernel, [start, end], action(kind, micro_batch));
            let free = &mut free[event.stream as usize];
            let event = Event { start: event.start.max(*free), ..event };
            if event.start < event.end {
                *free = event.end;
                events.push(event);
            }
            continue;
        }
        if before == Some(kind) {
            if let Some(current) = &mut current {
                current.end = current.end.max(end);
            }
            continue;
        }
        if before == Some(ActionKind::Backward) && kind == ActionKind::Forward {
            micro_batch += 1;
        }
        let after = current.map_or(Nanos::ZERO, |it| it.end);
        events.extend(current.take());
        let activity = Activity::Action(action(kind, micro_batch));
        let start = start.max(after);
        let end = end.max(start);
        let stream = Stream::Compute;
        current = Some(Event { start, end, stream, activity, bytes: Bytes::ZERO });
    }
    events.extend(current);
    events.sort_by_key(|event| (event.start, event.stream, event.end));
    Track { name: format!("rank {rank}, measured"), rank, num_ranks: 1, events, ..Track::default() }
}

fn action(kind: ActionKind, micro_batch: u32) -> Action {
    let micro_batch = if kind == ActionKind::OptimizerStep { 0 } else { micro_batch };
    Action { stage: 0, kind, micro_batch }
}

fn exchange(kernel: &ProfiledKernel, [start, end]: [Nanos; 2], action: Action) -> Event {
    let found = match kernel.work {
        Some(ProfiledWork::Collective(found)) => Some(found),
        _ => None,
    };
    let collective = found.map_or(Collective::AllReduce, |it| it.collective);
    let bytes = found.map_or(Bytes::ZERO, |it| it.bytes);
    let stream = match found {
        Some(ProfiledCollective { collective: Collective::AllToAll, .. }) => Stream::Expert,
        Some(ProfiledCollective { collective: Collective::SendReceive, .. }) => Stream::Send,
        Some(ProfiledCollective { purpose: Some(Purpose::WithinBlocks), .. }) => Stream::Tensor,
        _ => Stream::Data,
    };
    Event { start, end, stream, activity: Activity::Collective { collective, action }, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two micro-batches, an update, and a collective overlapped with the second backward.
    #[test]
    fn kernels_that_follow_each_other_are_one_action() {
        let kernel = |class, phase, start: u64, end: u64| ProfiledKernel {
            span: [Nanos::new(start + 50), Nanos::new(end + 50)],
            class,
            phase,
            call: start,
            work: None,
        };
        let [f, b, u] = [Phase::Forward, Phase::Backward, Phase::Update];
        let kernels = vec![
            kernel(Class::Product, f, 0, 10),
            kernel(Class::Memory, f, 12, 20),
            kernel(Class::Product, b, 20, 50),
            kernel(Class::Product, f, 60, 70),
            kernel(Class::Product, b, 75, 90),
            kernel(Class::Exchange, f, 80, 95),
            kernel(Class::Memory, b, 90, 100),
            kernel(Class::Update, u, 110, 120),
            kernel(Class::Product, f, 1000, 1010),
        ];
        let steps = vec![[Nanos::new(40), Nanos::new(500)]];
        let profile = Profile { rank: Some(3), gpu: None, steps, kernels, has_shapes: false };
        let timeline = timeline("x", &[profile]);
        let shown: Vec<String> = timeline.tracks[0]
            .events
            .iter()
            .map(|event| {
                let [start, end] = [event.start, event.end].map(Nanos::get);
                format!("{start}-{end} {} {}", event.stream, event.activity)
            })
            .collect();
        assert_eq!(
            shown,
            [
                "0-20 compute 0F0",
                "20-50 compute 0B0",
                "60-70 compute 0F1",
                "75-100 compute 0B1",
                "80-95 data parallel all-reduce in 0B1",
                "110-120 compute 0STEP",
            ]
        );
        assert_eq!(timeline.tracks[0].name, "rank 3, measured");
    }
}
