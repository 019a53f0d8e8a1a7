//! A step on a timeline, with links, streams and memory.

use ir::schedule::{Action, ActionKind, Schedule, Step, add_communication};
use ir::units::{Bytes, Nanos};
use traces::timeline::{Activity, Event, MemoryPoint, Stream, Timeline, Track};

use crate::engine::{self, Ends, Flow, Record};
use crate::work::Work;

/// A step, simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// What every rank does when. It has no title.
    pub timeline: Timeline,
    /// What the end of the step waited for, from the start on: each begins when the one before ends,
    /// or when it could not begin earlier for no other reason.
    pub critical_path: Vec<CriticalStep>,
    /// How each pipeline rank spends the step.
    pub ranks: Vec<RankTimes>,
}

/// How a rank spends a step. What is left is waiting for other ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankTimes {
    /// Kernels of micro-batches, if nothing slows them down.
    pub compute: Nanos,
    /// Kernels of updates.
    pub update: Nanos,
    /// Waiting for transfers, by [`Stream`] in the order of [`Stream::ALL`].
    pub waited: [Nanos; Stream::ALL.len()],
}

/// A part of the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CriticalStep {
    /// The pipeline rank; of what several take part in, the first.
    pub rank: u32,
    /// The stream.
    pub stream: Stream,
    /// What it does.
    pub activity: Activity,
    /// When it begins.
    pub start: Nanos,
    /// When it is over.
    pub end: Nanos,
    /// How much of it is kernels, if nothing slows them down.
    pub compute: Nanos,
}

/// Why a step cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// Work of another number of stages or ranks than the schedule has.
    #[error("the schedule has {expected} {what}, but there is work for {found}")]
    Sizes {
        /// Stages or ranks.
        what: &'static str,
        /// As the schedule has it.
        expected: usize,
        /// As the work has it.
        found: usize,
    },
    /// A rank that waits forever, for a collective that another rank never comes to.
    #[error("rank {rank} waits forever{}, from {time} on", match step { Some(step) => format!(" at `{step}`"), None => String::new() })]
    Stuck {
        /// The rank.
        rank: usize,
        /// Where in its list.
        step: Option<Step>,
        /// Since when nothing happens any more.
        time: Nanos,
    },
}

/// An action: its rank, and which of the rank's actions that take time it is.
pub(crate) type ActionId = (u32, u32);

/// What something waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Nothing.
    Start,
    /// An action.
    Action(ActionId),
    /// A transfer.
    Transfer(u32),
}

/// An action that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) action: Action,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) compute: Nanos,
    pub(crate) cause: Cause,
}

/// Runs a schedule. One without messages gets them first.
///
/// # Errors
///
/// Work of other stages or ranks than the schedule has, or ranks that wait for each other at a
/// collective: a checked schedule cannot deadlock by its messages.
pub fn simulate(schedule: &Schedule, work: &Work) -> Result<Simulation, SimulationError> {
    for (what, expected, found) in [
        ("stages", schedule.num_stages() as usize, work.stages.len()),
        ("ranks", schedule.ranks().len(), work.ranks.len()),
    ] {
        if expected != found {
            return Err(SimulationError::Sizes { what, expected, found });
        }
    }
    let with_messages;
    let schedule = if schedule.has_communication() {
        schedule
    } else {
        with_messages = add_communication(schedule);
        &with_messages
    };
    let record = engine::run(schedule, work)?;
    let critical_path = critical_path(&record);
    let ranks = rank_times(&record);
    Ok(Simulation { timeline: timeline(schedule, work, record), critical_path, ranks })
}

fn rank_times(record: &Record) -> Vec<RankTimes> {
    let times = |(actions, waited): (&Vec<Done>, &[Nanos; Stream::ALL.len()])| {
        let sum = |is_meant: fn(ActionKind) -> bool| {
            actions.iter().filter(|done| is_meant(done.action.kind)).map(|done| done.compute).sum()
        };
        let update = sum(|kind| kind == ActionKind::OptimizerStep);
        RankTimes { compute: sum(ActionKind::is_compute), update, waited: *waited }
    };
    record.actions.iter().zip(&record.waited).map(times).collect()
}

fn timeline(schedule: &Schedule, work: &Work, record: Record) -> Timeline {
    let Record { actions, flows, memory, .. } = record;
    let mut events: Vec<Vec<Event>> = actions
        .iter()
        .map(|actions| {
            let event = |done: &Done| Event {
                start: done.start,
                end: done.end,
                stream: Stream::Compute,
                activity: Activity::Action(done.action),
                bytes: Bytes::ZERO,
            };
            actions.iter().map(event).collect()
        })
        .collect();
    for flow in &flows {
        add_events(flow, &mut events);
    }
    let tracks = events
        .into_iter()
        .zip(memory)
        .zip(&work.ranks)
        .enumerate()
        .map(|(rank, ((mut events, changes), work))| {
            events.sort_by_key(|event| (event.start, event.stream, event.end));
            let name = if schedule.num_ranks() == 1 {
                "rank".to_owned()
            } else {
                format!("pipeline rank {rank}")
            };
            Track {
                name,
                rank: work.first_rank,
                num_ranks: work.num_alike,
                events,
                memory: curve(work.memory, &changes),
                memory_capacity: work.memory_capacity,
            }
        })
        .collect();
    Timeline { title: String::new(), tracks }
}

/// Adds a transfer as each of its ranks sees it.
fn add_events(flow: &Flow, events: &mut [Vec<Event>]) {
    let Flow { start, end, stream, activity, bytes, .. } = *flow;
    let mut add = |rank: u32, stream, activity| {
        events[rank as usize].push(Event { start, end, stream, activity, bytes });
    };
    match flow.ends {
        Ends::Rank(rank) => add(rank, stream, activity),
        Ends::Group => flow.members.iter().for_each(|rank| add(*rank, stream, activity)),
        Ends::Message { from, to } => {
            let receive = activity.action().partner().map_or(activity, Activity::Action);
            add(from, Stream::Send, activity);
            add(to, Stream::Receive, receive);
        }
    }
}

/// Memory over time, from what is always held and when that changes; the changes of one moment make
/// one point, at the most that was held in that moment.
fn curve(base: Bytes, changes: &[(Nanos, i128)]) -> Vec<MemoryPoint> {
    let mut points = vec![MemoryPoint { time: Nanos::ZERO, bytes: base }];
    let mut held = i128::from(base.get());
    for (time, change) in changes {
        held += change;
        let bytes = Bytes::new(u64::try_from(held.max(0)).unwrap_or(u64::MAX));
        points.push(MemoryPoint { time: *time, bytes });
    }
    // What is freed and taken at the same moment may have been held together, so peaks stay.
    points.dedup_by(|next, last| {
        let is_same = next.time == last.time && next.bytes >= last.bytes;
        if is_same {
            last.bytes = next.bytes;
        }
        is_same
    });
    points
}

/// From what ended last, back to the start.
fn critical_path(record: &Record) -> Vec<CriticalStep> {
    let last_action = record.actions.iter().enumerate().flat_map(|(rank, actions)| {
        actions
            .iter()
            .enumerate()
            .map(move |(index, done)| (done.end, Cause::Action((rank as u32, index as u32))))
    });
    let last_flow = record.flows.iter().zip(0..).map(|(flow, id)| (flow.end, Cause::Transfer(id)));
    let Some((_, mut cause)) = last_action.chain(last_flow).max_by_key(|(end, _)| *end) else {
        return Vec::new();
    };
    let mut path = Vec::new();
    loop {
        let (step, before) = match cause {
            Cause::Start => break,
            Cause::Action((rank, index)) => {
                let done = &record.actions[rank as usize][index as usize];
                let Done { action, start, end, compute, cause } = *done;
                let activity = Activity::Action(action);
                let stream = Stream::Compute;
                (CriticalStep { rank, stream, activity, start, end, compute }, cause)
            }
            Cause::Transfer(id) => {
                let flow = &record.flows[id as usize];
                let Flow { stream, activity, start, end, cause, .. } = *flow;
                let rank = match flow.ends {
                    Ends::Rank(rank) | Ends::Message { from: rank, .. } => rank,
                    Ends::Group => flow.members.first().copied().unwrap_or(0),
                };
                let compute = Nanos::ZERO;
                (CriticalStep { rank, stream, activity, start, end, compute }, cause)
            }
        };
        path.push(step);
        cause = before;
    }
    path.reverse();
    path
}
