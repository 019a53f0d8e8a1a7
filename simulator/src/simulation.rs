//! Simulation of a step to a timeline, with streams and memory.

use ir::collective::Collective;
use ir::schedule::{ActionKind, Schedule};
use ir::units::{Bytes, Nanos};
use traces::timeline::{Activity, Event, MemoryPoint, Stream, Timeline, Track};

use crate::error::SimulationError;
use crate::order::Order;
use crate::play::{Played, RankTimes, play};
use crate::record::{Cause, Endpoints, FinishedAction, Flow, Recorder};
use crate::transfers::scaled_down;
use crate::work::{PassPart, StepWork};

/// Result of a simulated step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// Timeline with the events of every rank, without a title.
    pub timeline: Timeline,
    /// Chain of dependencies from the start to the end of the step. Each part begins when the part before it ends, or
    /// the part before it is the only reason why it could not begin earlier.
    pub critical_path: Vec<CriticalStep>,
    /// Breakdown of each pipeline rank's step.
    pub ranks: Vec<RankTimes>,
}

/// A part of the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CriticalStep {
    /// The pipeline rank; of a collective, the first of its ranks.
    pub rank: u32,
    /// The stream.
    pub stream: Stream,
    /// The activity on the stream.
    pub activity: Activity,
    /// Begin.
    pub start: Nanos,
    /// End.
    pub end: Nanos,
}

/// A run of a pass, for whose exchanges a timeline asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunId {
    /// Index of the stage.
    pub stage: u32,
    /// Kind of the pass.
    pub kind: ActionKind,
    /// Index of the run in its pass.
    pub nth: usize,
    /// Number of runs of the pass.
    pub of: usize,
}

/// An exchange within a run, with times from the begin of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeSpan {
    /// Stream on which it is drawn.
    pub stream: Stream,
    /// The collective operation.
    pub collective: Collective,
    /// Bytes, as defined by [`Collective`].
    pub bytes: Bytes,
    /// Begin.
    pub start: Nanos,
    /// End.
    pub end: Nanos,
}

/// Simulates a schedule. Without messages in the schedule, results are sent as soon as they are made.
///
/// # Errors
///
/// Work for other numbers of stages or ranks than the schedule has, or ranks that wait for each other at a collective.
/// The messages of a checked schedule cannot deadlock.
pub fn simulate(schedule: &Schedule, work: &StepWork) -> Result<Simulation, SimulationError> {
    simulate_in_detail(schedule, work, &|_| Vec::new())
}

/// [`simulate`] with the exchanges of each run on the timeline. Their time is already part of the runs, so they change
/// nothing else.
///
/// # Errors
///
/// As [`simulate`].
pub fn simulate_in_detail(
    schedule: &Schedule,
    work: &StepWork,
    exchanges: &dyn Fn(RunId) -> Vec<ExchangeSpan>,
) -> Result<Simulation, SimulationError> {
    for (what, expected, found) in [
        ("stages", schedule.num_stages() as usize, work.stages.len()),
        ("ranks", schedule.ranks().len(), work.ranks.len()),
    ] {
        if expected != found {
            return Err(SimulationError::Sizes { what, expected, found });
        }
    }
    let order = Order::new(schedule);
    let mut record = Recorder::new(&order, work);
    let Played { ranks, .. } = play(&order, work, &mut record)?;
    let critical_path = critical_path(&record);
    let timeline = timeline(work, record, exchanges);
    Ok(Simulation { timeline, critical_path, ranks })
}

fn timeline(
    work: &StepWork,
    record: Recorder<'_>,
    exchanges: &dyn Fn(RunId) -> Vec<ExchangeSpan>,
) -> Timeline {
    let Recorder { actions, flows, waits, received, memory, .. } = record;
    let mut events: Vec<Vec<Event>> = waits;
    for (events, received) in events.iter_mut().zip(received) {
        events.extend(received);
    }
    for (events, actions) in events.iter_mut().zip(&actions) {
        for done in actions {
            events.push(Event {
                start: done.start,
                end: done.end,
                stream: Stream::Compute,
                activity: Activity::Action(done.action),
                bytes: Bytes::ZERO,
            });
            add_exchanges(work, done, exchanges, events);
        }
    }
    for flow in &flows {
        add_events(flow, &mut events);
    }
    let num_ranks = work.ranks.len();
    let tracks = events.into_iter().zip(memory).zip(&work.ranks).enumerate();
    let tracks = tracks.map(|(rank, ((mut events, changes), work))| {
        events.sort_by_key(|event| (event.start, event.stream, event.end));
        let name = if num_ranks == 1 { "rank".to_owned() } else { format!("pipeline rank {rank}") };
        Track {
            name,
            rank: work.first_rank,
            num_ranks: work.multiplicity,
            events,
            memory: curve(work.memory, changes),
            memory_capacity: work.memory_capacity,
        }
    });
    Timeline { tracks: tracks.collect(), ..Timeline::default() }
}

/// Adds the exchanges of an action's runs, stretched where a run was slowed down.
fn add_exchanges(
    work: &StepWork,
    done: &FinishedAction,
    exchanges: &dyn Fn(RunId) -> Vec<ExchangeSpan>,
    events: &mut Vec<Event>,
) {
    let FinishedAction { action, is_first, is_last, ref runs, .. } = *done;
    let parts = work.stages[action.stage as usize].parts(action.kind, is_first, is_last);
    let alone = parts.iter().filter_map(|part| match part {
        PassPart::Run(run) => Some(run.time),
        _ => None,
    });
    for (nth, (span, alone)) in runs.iter().zip(alone).enumerate() {
        let id = RunId { stage: action.stage, kind: action.kind, nth, of: runs.len() };
        let [start, end] = *span;
        let took = (end - start).get();
        let at =
            |time: Nanos| start + Nanos::new(scaled_down(time.get(), took, alone.get().max(1)));
        events.extend(exchanges(id).into_iter().map(|exchange| Event {
            start: at(exchange.start),
            end: at(exchange.end),
            stream: exchange.stream,
            activity: Activity::Collective { collective: exchange.collective, action },
            bytes: exchange.bytes,
        }));
    }
}

/// Adds the events of a message, a transfer or a collective on each of its ranks.
fn add_events(flow: &Flow, events: &mut [Vec<Event>]) {
    let Flow { start, end, activity, bytes, .. } = *flow;
    if matches!(flow.ends, Endpoints::Rank(_)) && end == start && bytes == Bytes::ZERO {
        // There is no transfer, only the copies before and after it.
        return;
    }
    let mut add = |rank: u32, stream, end| {
        events[rank as usize].push(Event { start, end, stream, activity, bytes });
    };
    match &flow.ends {
        Endpoints::Rank(rank) => add(*rank, Stream::Data, end),
        Endpoints::Host(rank) => add(*rank, Stream::Host, end),
        Endpoints::Group(members) => members.iter().for_each(|rank| add(*rank, Stream::Data, end)),
        Endpoints::Message { from, left } => add(*from, Stream::Send, *left),
    }
}

/// Memory over time, from the constant part and the changes; changes at the same time make one point, at the peak of
/// that time.
fn curve(base: Bytes, mut changes: Vec<(Nanos, i128)>) -> Vec<MemoryPoint> {
    changes.sort_by_key(|(time, _)| *time);
    let mut points = vec![MemoryPoint { time: Nanos::ZERO, bytes: base }];
    let mut held = i128::from(base.get());
    for (time, change) in changes {
        held += change;
        let bytes = Bytes::new(u64::try_from(held.max(0)).unwrap_or(u64::MAX));
        points.push(MemoryPoint { time, bytes });
    }
    // Memory freed and allocated at the same time may have been held together, so peaks stay.
    points.dedup_by(|next, last| {
        let is_same = next.time == last.time && next.bytes >= last.bytes;
        if is_same {
            last.bytes = next.bytes;
        }
        is_same
    });
    points
}

/// The critical path, traced from the last end back to the start.
fn critical_path(record: &Recorder<'_>) -> Vec<CriticalStep> {
    let last_action = record.actions.iter().enumerate().flat_map(|(rank, actions)| {
        actions
            .iter()
            .enumerate()
            .map(move |(index, done)| (done.end, Cause::Action((rank as u32, index as u32))))
    });
    let last_flow = record.flows.iter().zip(0..).map(|(flow, id)| (flow.end, Cause::Flow(id)));
    let Some((_, mut cause)) = last_action.chain(last_flow).max_by_key(|(end, _)| *end) else {
        return Vec::new();
    };
    let mut path = Vec::new();
    loop {
        let (step, before) = match cause {
            Cause::Start => break,
            Cause::Action((rank, index)) => {
                let done = &record.actions[rank as usize][index as usize];
                let FinishedAction { action, start, end, cause, .. } = *done;
                let activity = Activity::Action(action);
                (CriticalStep { rank, stream: Stream::Compute, activity, start, end }, cause)
            }
            Cause::Flow(id) => {
                let Flow { activity, start, end, cause, ref ends, .. } = record.flows[id as usize];
                let (rank, stream) = match ends {
                    Endpoints::Rank(rank) => (*rank, Stream::Data),
                    Endpoints::Host(rank) => (*rank, Stream::Host),
                    Endpoints::Message { from, .. } => (*from, Stream::Send),
                    Endpoints::Group(members) => {
                        (members.first().copied().unwrap_or(0), Stream::Data)
                    }
                };
                (CriticalStep { rank, stream, activity, start, end }, cause)
            }
        };
        path.push(step);
        cause = before;
    }
    path.reverse();
    path
}
