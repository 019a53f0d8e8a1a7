//! Checks that every rank finishes, and computes the order in which steps end.

use std::collections::{BTreeMap, VecDeque};

use super::error::{Defect, ScheduleError, Wait};
use super::structure::partner;
use crate::schedule::display::excerpt;
use crate::schedule::order::{Need, Pass};
use crate::schedule::{Action, ActionKind, Schedule, ScheduleStep};

/// Mode of sends: whether a sending rank waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sends {
    /// A send waits until its partner receives (rendezvous).
    Blocking,
    /// A send does not wait: the message is buffered.
    NonBlocking,
}

/// Time units of a step: one for each pass.
pub(in crate::schedule) fn units(step: ScheduleStep) -> u64 {
    let units = |action: Action| match action.kind {
        ActionKind::Forward | ActionKind::InputGrad | ActionKind::WeightGrad => 1,
        ActionKind::Backward => 2,
        _ => 0,
    };
    step.actions().map(units).sum()
}

/// End times of the steps of each rank, in [`units`], if everything starts as early as possible. They decide the order
/// in which messages are inserted. An overlapped pair waits for the inputs of both actions. Real times are computed by
/// the `simulator`.
pub(in crate::schedule) fn ends(schedule: &Schedule) -> Vec<Vec<u64>> {
    let mut ends: Vec<Vec<u64>> = schedule.ranks().iter().map(|_| Vec::new()).collect();
    let ended = |rank: usize, end| ends[rank].push(end);
    run(schedule, Sends::NonBlocking, ended).expect("a schedule is checked when it is made");
    ends
}

/// Runs the schedule without time. Messages from one rank to another arrive in the order in which they were sent, as
/// with NCCL. The result for a schedule without communication does not depend on `sends`.
///
/// # Errors
///
/// The ranks that wait for each other, or a receive that would get the wrong message.
pub fn check(schedule: &Schedule, sends: Sends) -> Result<(), ScheduleError> {
    run(schedule, sends, |_, _| {})
}

/// Runs the schedule, and calls `ended` with the rank and end time of each step.
fn run(
    schedule: &Schedule,
    sends: Sends,
    mut ended: impl FnMut(usize, u64),
) -> Result<(), ScheduleError> {
    let mut run = Run::new(schedule, sends);
    let mut queue: VecDeque<usize> = (0..schedule.ranks().len()).collect();
    let mut woken = Vec::new();
    while let Some(rank) = queue.pop_front() {
        while let Some(end) = run.advance(rank, &mut woken)? {
            ended(rank, end);
        }
        queue.extend(woken.drain(..));
    }
    match run.next.iter().zip(schedule.ranks()).position(|(next, steps)| *next < steps.len()) {
        None => Ok(()),
        Some(stuck) => Err(run.deadlock(stuck)),
    }
}

struct Run<'a> {
    schedule: &'a Schedule,
    sends: Sends,
    communicates: bool,
    /// Index of each rank's next step.
    next: Vec<usize>,
    /// End time of each rank's last step, in [`units`].
    now: Vec<u64>,
    /// End times of the completed forward and backward of each stage and micro-batch.
    done: Vec<[Option<u64>; 2]>,
    /// Messages that are sent and not yet received, by sender and receiver.
    on_the_way: BTreeMap<(u32, u32), VecDeque<Action>>,
}

/// The event that a blocked rank waits for.
enum Awaited {
    /// The matching send or receive of a message.
    Message(Action),
    /// The output of another action.
    Data(Need),
}

impl<'a> Run<'a> {
    fn new(schedule: &'a Schedule, sends: Sends) -> Self {
        let pairs = schedule.num_stages() as usize * schedule.num_micro_batches() as usize;
        Self {
            schedule,
            sends,
            communicates: schedule.has_communication(),
            next: vec![0; schedule.ranks().len()],
            now: vec![0; schedule.ranks().len()],
            done: vec![[None; 2]; pairs],
            on_the_way: BTreeMap::new(),
        }
    }

    /// Runs the next step of `rank` unless it waits, and returns its end; adds ranks that may continue to `woken`.
    fn advance(
        &mut self,
        rank: usize,
        woken: &mut Vec<usize>,
    ) -> Result<Option<u64>, ScheduleError> {
        let Some(step) = self.head(rank) else { return Ok(None) };
        if self.waits_for(rank, step).is_some() {
            return Ok(None);
        }
        let needs = step.actions().filter_map(|action| self.schedule.need(action));
        let ready = needs.filter_map(|need| self.end_of(need)).max();
        let end = self.now[rank].max(ready.unwrap_or(0)) + units(step);
        for action in step.actions() {
            if action.kind.is_message() {
                self.exchange(rank, action, woken)?;
            } else {
                self.finish(action, end, woken);
            }
        }
        self.now[rank] = end;
        self.next[rank] += 1;
        Ok(Some(end))
    }

    fn head(&self, rank: usize) -> Option<ScheduleStep> {
        self.schedule.ranks()[rank].get(self.next[rank]).copied()
    }

    /// The first event that the step waits for.
    fn waits_for(&self, rank: usize, step: ScheduleStep) -> Option<Awaited> {
        step.actions().find_map(|action| match action.kind {
            kind if kind.is_send() => {
                let waits = self.sends == Sends::Blocking && !self.meets(action);
                waits.then(|| Awaited::Message(partner(action)))
            }
            kind if kind.is_message() => {
                let arrives = match self.sends {
                    Sends::Blocking => self.meets(action),
                    Sends::NonBlocking => {
                        let channel = (self.rank(partner(action)), rank as u32);
                        self.on_the_way.get(&channel).is_some_and(|queue| !queue.is_empty())
                    }
                };
                (!arrives).then(|| Awaited::Message(partner(action)))
            }
            _ => {
                let need = self.schedule.need(action)?;
                let crosses = self.schedule.rank(need.stage, need.micro_batch) != rank as u32;
                // With communication, data from other ranks arrives by receives, which precede the action.
                let is_received = self.communicates && crosses;
                (self.end_of(need).is_none() && !is_received).then_some(Awaited::Data(need))
            }
        })
    }

    /// True if the next step of the partner's rank is the other half of the message.
    fn meets(&self, message: Action) -> bool {
        let other = partner(message);
        self.head(self.rank(other) as usize) == Some(ScheduleStep::One(other))
    }

    fn exchange(
        &mut self,
        rank: usize,
        message: Action,
        woken: &mut Vec<usize>,
    ) -> Result<(), ScheduleError> {
        let other = partner(message);
        let peer = self.rank(other);
        match self.sends {
            Sends::Blocking => {
                self.next[peer as usize] += 1;
                woken.push(peer as usize);
            }
            Sends::NonBlocking if message.kind.is_send() => {
                self.on_the_way.entry((rank as u32, peer)).or_default().push_back(message);
                woken.push(peer as usize);
            }
            Sends::NonBlocking => {
                let (from, to) = (peer, rank as u32);
                let sent = self.on_the_way.entry((from, to)).or_default().pop_front();
                if let Some(send) = sent.filter(|sent| *sent != other) {
                    let defect = Defect::Misordered { receive: message, send, from, to };
                    return Err(self.error(defect, rank));
                }
            }
        }
        Ok(())
    }

    /// End time of the needed output, if it has been computed.
    fn end_of(&self, need: Need) -> Option<u64> {
        self.done[self.index(need)][need.pass as usize]
    }

    fn finish(&mut self, action: Action, end: u64, woken: &mut Vec<usize>) {
        let Action { stage, micro_batch, kind } = action;
        let (pass, user) = match kind {
            ActionKind::Forward => (Pass::Forward, Some(stage + 1)),
            ActionKind::Backward | ActionKind::InputGrad => (Pass::Backward, stage.checked_sub(1)),
            _ => return,
        };
        let index = self.index(Need { stage, micro_batch, pass });
        self.done[index][pass as usize] = Some(end);
        if let Some(user) = user.filter(|user| *user < self.schedule.num_stages()) {
            woken.push(self.schedule.rank(user, micro_batch) as usize);
        }
    }

    fn rank(&self, action: Action) -> u32 {
        self.schedule.rank(action.stage, action.micro_batch)
    }

    fn index(&self, need: Need) -> usize {
        need.stage as usize * self.schedule.num_micro_batches() as usize + need.micro_batch as usize
    }

    /// The action that produces the output, in the form in which its rank's list has it.
    fn provider(&self, need: Need) -> Action {
        let Need { stage, micro_batch, pass } = need;
        let gives = |action: &Action| {
            let kinds = match pass {
                Pass::Forward => [ActionKind::Forward; 2],
                Pass::Backward => [ActionKind::Backward, ActionKind::InputGrad],
            };
            (action.stage, action.micro_batch) == (stage, micro_batch)
                && kinds.contains(&action.kind)
        };
        let steps = &self.schedule.ranks()[self.schedule.rank(stage, micro_batch) as usize];
        let mut actions = steps.iter().flat_map(|step| step.actions());
        actions.find(gives).expect("a complete schedule has every action")
    }

    /// The cycle of waiting ranks, from the first blocked rank.
    fn deadlock(&self, stuck: usize) -> ScheduleError {
        let mut chain: Vec<Wait> = Vec::new();
        let mut rank = stuck;
        while !chain.iter().any(|wait| wait.rank == rank) {
            let step = self.head(rank).expect("whoever is waited for has not come to the end");
            let needs = match self.waits_for(rank, step).expect("a stuck rank waits") {
                Awaited::Message(message) => message,
                Awaited::Data(need) => self.provider(need),
            };
            let of = self.rank(needs) as usize;
            chain.push(Wait { rank, step, needs, of });
            rank = of;
        }
        let start = chain.iter().position(|wait| wait.rank == rank).unwrap_or(0);
        let cycle = chain.split_off(start);
        self.error(Defect::Deadlock { cycle }, rank)
    }

    fn error(&self, defect: Defect, rank: usize) -> ScheduleError {
        let at = (rank, self.next[rank]);
        let excerpt = excerpt(self.schedule.ranks(), at, |other| self.next[other]);
        ScheduleError { defect, excerpt }
    }
}
