//! Report and timeline of a schedule alone: its order, makespan, bubble and micro-batches in flight.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ir::schedule::{Action, Schedule, ScheduleStep, Sends, check};
use ir::text::count_of;
use ir::units::Nanos;
use serde::Serialize;
use simulator::{Durations, Earliest, PassTimes, SimulationError, StepWork, earliest, simulate};
use traces::timeline::{Activity, Timeline, Track};

/// Output of `planner schedule`. Times are in the unit in which the costs are given.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScheduleReport {
    /// Name of the schedule's family, `auto`, or the name of the file.
    pub name: String,
    /// Pipeline ranks.
    pub num_ranks: u32,
    /// Number of stages of the model, over all ranks.
    pub num_stages: u32,
    /// Micro-batches.
    pub num_micro_batches: u32,
    /// Costs of the passes of a stage.
    pub costs: Costs,
    /// Time from zero to the end of the last action.
    pub makespan: u64,
    /// Share of idle time in the whole step, from time zero, over all ranks.
    pub bubble_fraction: f64,
    /// Share of idle time between the first and the last action of the rank for which this span is longest.
    pub bubble_from_first_action: f64,
    /// Deadlock of a schedule with messages if a send blocks until its receive; absent if the schedule also completes
    /// with blocking sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadlock_with_blocking_sends: Option<String>,
    /// Number of micro-batches whose activations each rank holds at its peak, from forward to weight gradient. Each
    /// stage of the rank counts separately.
    pub peak_in_flight: Vec<u32>,
    /// Actions and times of each rank.
    pub ranks: Vec<RankOrder>,
}

/// Costs of the passes of a stage, in one arbitrary unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Costs {
    /// Cost of a forward.
    pub forward: u64,
    /// Cost of an input gradient (of activations).
    pub input_grad: u64,
    /// Cost of a weight gradient; a full backward costs the sum of both gradients.
    pub weight_grad: u64,
    /// Time from the end of an action until another rank has its result.
    pub send: u64,
}

/// Actions of a rank, and when it works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankOrder {
    /// Start of the rank's first pass.
    pub start: u64,
    /// End of the rank's last action.
    pub end: u64,
    /// Time in which the rank computes.
    pub busy: u64,
    /// Actions of the rank, in order.
    pub actions: Vec<String>,
}

impl Costs {
    /// Durations, with the same costs for each stage.
    pub fn durations(&self, num_stages: u32) -> Durations {
        let [forward, input_grad, weight_grad, send] =
            [self.forward, self.input_grad, self.weight_grad, self.send].map(Nanos::new);
        Durations::equal(PassTimes { forward, input_grad, weight_grad }, num_stages, send)
    }
}

impl ScheduleReport {
    /// Computes the report of `schedule`.
    pub fn new(name: String, schedule: &Schedule, costs: Costs) -> Self {
        let times = earliest(schedule, &costs.durations(schedule.num_stages()));
        let Earliest { makespan, ranks, .. } = &times;
        let rank = |(steps, used): (&Vec<ScheduleStep>, &simulator::RankTimes)| RankOrder {
            start: used.start.get(),
            end: used.end.get(),
            busy: used.passes.get(),
            actions: steps.iter().map(ToString::to_string).collect(),
        };
        Self {
            name,
            num_ranks: schedule.num_ranks(),
            num_stages: schedule.num_stages(),
            num_micro_batches: schedule.num_micro_batches(),
            costs,
            makespan: makespan.get(),
            bubble_fraction: times.bubble_fraction(),
            bubble_from_first_action: times.bubble_from_first_action(),
            deadlock_with_blocking_sends: check(schedule, Sends::Blocking)
                .err()
                .map(|error| error.to_string()),
            peak_in_flight: schedule.peak_in_flight(),
            ranks: schedule.ranks().iter().zip(ranks).map(rank).collect(),
        }
    }

    /// Text of the figures, followed by the grid of `schedule`, whose rows are cut to `width` columns.
    pub fn text(&self, schedule: &Schedule, width: Option<usize>) -> String {
        let mut text = String::new();
        let most = self.peak_in_flight.iter().max().copied().unwrap_or(0);
        let _ = writeln!(
            text,
            "makespan {}; idle {:.1} % of all ranks' time, {:.1} % from first to last action; at most \
             {most} in flight",
            self.makespan,
            self.bubble_fraction * 100.0,
            self.bubble_from_first_action * 100.0,
        );
        if let Some(deadlock) = &self.deadlock_with_blocking_sends {
            let _ = write!(text, "runs only if sends do not block: {deadlock}");
        }
        text.push('\n');
        for row in schedule.to_string().lines() {
            text.push_str(&width.map_or_else(|| row.to_owned(), |width| shortened(row, width)));
            text.push('\n');
        }
        text
    }
}

/// Timeline of the schedule, with one nanosecond for each unit of cost. Both passes of an overlapped pair span the time
/// of the whole pair.
///
/// # Errors
///
/// If the simulation of the schedule fails.
pub fn timeline(
    name: &str,
    schedule: &Schedule,
    costs: Costs,
) -> Result<Timeline, SimulationError> {
    let durations = costs.durations(schedule.num_stages());
    let work = StepWork::plain(&durations, schedule.num_ranks());
    let mut timeline = simulate(schedule, &work)?.timeline;
    for (track, steps) in timeline.tracks.iter_mut().zip(schedule.ranks()) {
        join_pairs(track, steps);
    }
    let stages = schedule.num_stages() / schedule.num_ranks().max(1);
    let Costs { forward, input_grad, weight_grad, send } = costs;
    let times = format!(
        "forward {forward}, input gradient {input_grad}, weight gradient {weight_grad}, send {send}"
    );
    let (ranks, micro_batches) = (schedule.num_ranks(), schedule.num_micro_batches());
    let of_stages = if stages > 1 { format!(" of {stages} stages") } else { String::new() };
    let ranks = count_of(ranks, "rank", "ranks");
    let micro_batches = count_of(micro_batches, "micro-batch", "micro-batches");
    timeline.title = format!("{name}, {ranks}{of_stages}, {micro_batches}; {times}");
    let stages = count_of(schedule.num_stages(), "stage", "stages");
    timeline.work = format!("{stages}, {micro_batches}; {times}");
    Ok(timeline)
}

/// Extends both passes of each overlapped pair to the time of the pair, if they are adjacent on the timeline.
fn join_pairs(track: &mut Track, steps: &[ScheduleStep]) {
    let places: BTreeMap<Action, usize> = (track.events.iter().enumerate())
        .filter_map(|(index, event)| match event.activity {
            Activity::Action(action) if action.kind.is_compute() => Some((action, index)),
            _ => None,
        })
        .collect();
    for step in steps {
        let ScheduleStep::Overlapped(first, second) = step else { continue };
        let [Some(first), Some(second)] = [first, second].map(|action| places.get(action).copied())
        else {
            continue;
        };
        let (start, end) = (track.events[first].start, track.events[second].end);
        if track.events[second].start == track.events[first].end {
            for place in [first, second] {
                (track.events[place].start, track.events[place].end) = (start, end);
            }
        }
    }
    track.events.sort_by_key(|event| (event.start, event.stream, event.end));
}

/// A row of the grid in at most `width` columns: the actions that fit, and the number of further actions.
fn shortened(row: &str, width: usize) -> String {
    if row.chars().count() <= width {
        return row.to_owned();
    }
    let words: Vec<&str> = row.split(' ').collect();
    let shown =
        |count: usize| format!("{} .. {} more", words[..count].join(" "), words.len() - count);
    // The rank and the separator after it are always shown.
    let fitting = (2..words.len()).rev().map(shown).find(|text| text.chars().count() <= width);
    fitting.unwrap_or_else(|| shown(2.min(words.len())))
}
