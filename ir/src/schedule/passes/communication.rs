//! Sends and receives between ranks.

use crate::schedule::check::{ends, units};
use crate::schedule::{Action, ActionKind, Schedule, ScheduleStep};

/// Adds a send after every action whose result another rank needs, and the matching receive on that rank. There are no
/// messages between stages of one rank. A schedule with communication is returned unchanged.
///
/// The result is free of deadlock whether or not sends block. Messages are inserted in the order in which their
/// actions end when everything starts as early as possible at equal costs: each send at the current end of its rank's
/// list, and its receive at the current end of the partner's list. So all ranks follow one order of all messages, and
/// the earliest pending message can always proceed. The receive precedes the next computation that its rank begins,
/// which is no later than the one that needs the message.
pub fn add_communication(schedule: &Schedule) -> Schedule {
    if schedule.has_communication() {
        return schedule.clone();
    }
    let ends = ends(schedule);
    // By time of end, then rank, then index in the rank's list.
    let mut order: Vec<(u64, usize, usize)> = ends
        .iter()
        .enumerate()
        .flat_map(|(rank, ends)| ends.iter().enumerate().map(move |(i, end)| (*end, rank, i)))
        .collect();
    order.sort_unstable();
    let mut ranks: Vec<Vec<ScheduleStep>> =
        schedule.ranks().iter().map(|steps| Vec::with_capacity(2 * steps.len())).collect();
    // Number of each rank's steps that are already in its list.
    let mut placed = vec![0; ranks.len()];
    for (end, rank, index) in order {
        let step = schedule.ranks()[rank][index];
        if placed[rank] == index {
            ranks[rank].push(step);
            placed[rank] += 1;
        }
        for message in step.actions().filter_map(|action| message(schedule, rank as u32, action)) {
            let Message { send, receive, to } = message;
            let to = to as usize;
            ranks[rank].push(ScheduleStep::One(send));
            // The step that the partner is running precedes the receive.
            let next = placed[to];
            if let Some(following) = schedule.ranks()[to].get(next)
                && ends[to][next] - units(*following) < end
            {
                ranks[to].push(*following);
                placed[to] += 1;
            }
            ranks[to].push(ScheduleStep::One(receive));
        }
    }
    Schedule::new(ranks, schedule.placement().clone(), schedule.num_micro_batches())
        .unwrap_or_else(|error| panic!("communication broke a valid schedule: {error}"))
        .updating(schedule.updates())
}

/// A send, its receive, and the rank that receives.
struct Message {
    send: Action,
    receive: Action,
    to: u32,
}

/// The message that carries an action's result, if another rank needs it.
fn message(schedule: &Schedule, rank: u32, action: Action) -> Option<Message> {
    let Action { stage, micro_batch, kind } = action;
    let (send, other, receive) = match kind {
        ActionKind::Forward => (ActionKind::SendForward, stage + 1, ActionKind::RecvForward),
        ActionKind::Backward | ActionKind::InputGrad => {
            (ActionKind::SendBackward, stage.checked_sub(1)?, ActionKind::RecvBackward)
        }
        _ => return None,
    };
    if other >= schedule.num_stages() {
        return None;
    }
    let to = schedule.rank(other, micro_batch);
    let send = Action { stage, kind: send, micro_batch };
    let receive = Action { stage: other, kind: receive, micro_batch };
    (to != rank).then_some(Message { send, receive, to })
}
