//! A step on a timeline, with streams and memory.

use ir::collective::Collective;
use ir::schedule::{ActionKind, Schedule};
use ir::units::{Bytes, Nanos};
use traces::timeline::{Activity, Event, MemoryPoint, Stream, Timeline, Track};

use crate::error::SimulationError;
use crate::order::Order;
use crate::play::{Played, RankTimes, play};
use crate::record::{Cause, Endpoints, FinishedAction, Flow, Recorder};
use crate::work::{Part, Work};

/// A step, simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// Events of every rank. It has no title.
    pub timeline: Timeline,
    /// Chain of dependencies to the end of the step, from the start on: each begins when the one before ends,
    /// or when it could not begin earlier for no other reason.
    pub critical_path: Vec<CriticalStep>,
    /// Breakdown of each pipeline rank's step.
    pub ranks: Vec<RankTimes>,
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
}

/// A run of a pass: what is drawn of it beside its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunId {
    /// The stage.
    pub stage: u32,
    /// The pass.
    pub kind: ActionKind,
    /// Which of the pass's runs it is, and how many there are.
    pub nth: usize,
    /// How many.
    pub of: usize,
}

/// An exchange within a run, counting from the run's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Its stream.
    pub stream: Stream,
    /// What it does.
    pub collective: Collective,
    /// What it moves.
    pub bytes: Bytes,
    /// When it begins.
    pub start: Nanos,
    /// When it is over.
    pub end: Nanos,
}

/// Runs a schedule. Of one without messages, results are sent as soon as they are there.
///
/// # Errors
///
/// Work of other stages or ranks than the schedule has, or ranks that wait for each other at a
/// collective: a checked schedule cannot deadlock by its messages.
pub fn simulate(schedule: &Schedule, work: &Work) -> Result<Simulation, SimulationError> {
    simulate_in_detail(schedule, work, &|_| Vec::new())
}

/// As [`simulate`], with the exchanges of each run on the timeline. They have taken their time already,
/// so they change nothing else.
///
/// # Errors
///
/// As [`simulate`].
pub fn simulate_in_detail(
    schedule: &Schedule,
    work: &Work,
    exchanges: &dyn Fn(RunId) -> Vec<Exchange>,
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
    work: &Work,
    record: Recorder<'_>,
    exchanges: &dyn Fn(RunId) -> Vec<Exchange>,
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

/// Adds the exchanges of an action's runs; where a run took longer than alone, stretched as it was.
fn add_exchanges(
    work: &Work,
    done: &FinishedAction,
    exchanges: &dyn Fn(RunId) -> Vec<Exchange>,
    events: &mut Vec<Event>,
) {
    let FinishedAction { action, is_first, is_last, ref runs, .. } = *done;
    let parts = work.stages[action.stage as usize].parts(action.kind, is_first, is_last);
    let alone = parts.iter().filter_map(|part| match part {
        Part::Run(run) => Some(run.time),
        _ => None,
    });
    for (nth, (span, alone)) in runs.iter().zip(alone).enumerate() {
        let id = RunId { stage: action.stage, kind: action.kind, nth, of: runs.len() };
        let [start, end] = *span;
        let took = u128::from((end - start).get());
        let at = |time: Nanos| {
            let stretched = u128::from(time.get()) * took / u128::from(alone.get().max(1));
            start + Nanos::new(stretched as u64)
        };
        events.extend(exchanges(id).into_iter().map(|exchange| Event {
            start: at(exchange.start),
            end: at(exchange.end),
            stream: exchange.stream,
            activity: Activity::Collective { collective: exchange.collective, action },
            bytes: exchange.bytes,
        }));
    }
}

/// Adds a message that is sent, a transfer or a collective of ranks as each of its ranks sees it.
fn add_events(flow: &Flow, events: &mut [Vec<Event>]) {
    let Flow { start, end, activity, bytes, .. } = *flow;
    if matches!(flow.ends, Endpoints::Rank(_)) && end == start && bytes == Bytes::ZERO {
        // Nothing but the copies before and after it.
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

/// Memory over time, from what is always held and when that changes; the changes of one moment make
/// one point, at the most that was held in that moment.
fn curve(base: Bytes, mut changes: Vec<(Nanos, i128)>) -> Vec<MemoryPoint> {
    changes.sort_by_key(|(time, _)| *time);
    let mut points = vec![MemoryPoint { time: Nanos::ZERO, bytes: base }];
    let mut held = i128::from(base.get());
    for (time, change) in changes {
        held += change;
        let bytes = Bytes::new(u64::try_from(held.max(0)).unwrap_or(u64::MAX));
        points.push(MemoryPoint { time, bytes });
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
