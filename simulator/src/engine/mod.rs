//! The event loop: what happens next, until nothing does.
//!
//! Each rank goes through its list of actions. Computation holds the list up until it is over; sends,
//! gathering and reduction are put on their streams and the list goes on. A stream does one transfer
//! at a time, in the order in which they came. A transfer that several ranks share starts once it is
//! first in line on all of them. Transfers that cross the same link at the same time share it equally.

mod actions;
mod flows;
mod ranks;
mod transfers;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ir::schedule::{Action, ActionKind, Schedule};
use ir::units::{Bytes, Nanos};
use traces::timeline::{Activity, Stream};

use crate::simulation::{Cause, Done, SimulationError};
use crate::work::Work;
pub(crate) use flows::{Ends, Flow};
use flows::{FlowId, Flows};
use ranks::{Pass, Rank};

/// What the engine leaves behind.
pub(crate) struct Record {
    /// By rank, in the order in which they began.
    pub(crate) actions: Vec<Vec<Done>>,
    pub(crate) flows: Vec<Flow>,
    /// By rank: when memory changes, and by how much.
    pub(crate) memory: Vec<Vec<(Nanos, i128)>>,
    /// By rank and stream.
    pub(crate) waited: Vec<[Nanos; Stream::ALL.len()]>,
}

pub(crate) fn run(schedule: &Schedule, work: &Work) -> Result<Record, SimulationError> {
    let mut engine = Engine::new(schedule, work);
    for (rank, of_rank) in work.ranks.iter().enumerate() {
        for (stage, transfer) in &of_rank.first {
            let action = Action { stage: *stage, kind: ActionKind::Unshard, micro_batch: 0 };
            engine.post(rank, *transfer, Activity::Action(action), Cause::Start);
        }
    }
    for rank in 0..work.ranks.len() {
        engine.advance(rank);
    }
    while let Some(Reverse((time, _, event))) = engine.events.pop() {
        engine.now = time;
        match event {
            Event::Computed { rank, version } => engine.computed(rank as usize, version),
            Event::Transferred { flow, version } => engine.transferred(flow, version),
        }
    }
    engine.finish()
}

/// What may happen. An event whose version is not the current one was overtaken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A rank's kernels are over.
    Computed { rank: u32, version: u32 },
    /// A transfer is over.
    Transferred { flow: FlowId, version: u32 },
}

struct Engine<'a> {
    schedule: &'a Schedule,
    work: &'a Work,
    now: Nanos,
    /// By time; at the same time, by the order in which they were foreseen.
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    num_events: u64,
    ranks: Vec<Rank<'a>>,
    flows: Flows,
    /// Who made what stages need, once it is there; see [`Engine::slot`].
    arrived: Vec<Option<Cause>>,
}

impl<'a> Engine<'a> {
    fn new(schedule: &'a Schedule, work: &'a Work) -> Self {
        let ranks = schedule.ranks();
        let num_slots = 2 * schedule.num_stages() as usize * schedule.num_micro_batches() as usize;
        Self {
            schedule,
            work,
            now: Nanos::ZERO,
            events: BinaryHeap::new(),
            num_events: 0,
            ranks: ranks.iter().map(|steps| Rank::new(steps)).collect(),
            flows: Flows::new(ranks.len(), work),
            arrived: vec![None; num_slots],
        }
    }

    fn foresee(&mut self, time: Nanos, event: Event) {
        self.events.push(Reverse((time, self.num_events, event)));
        self.num_events += 1;
    }

    /// Lets `rank` go on until all that it does waits for something.
    fn advance(&mut self, rank: usize) {
        loop {
            let mut went_on = false;
            for thread in 0..2 {
                while self.advance_thread(rank, thread) {
                    went_on = true;
                }
            }
            let goes_on = self.take_steps(rank);
            if !(went_on || goes_on) {
                return;
            }
        }
    }

    fn time_of(&self, cause: Cause) -> Nanos {
        match cause {
            Cause::Start => Nanos::ZERO,
            Cause::Action((rank, index)) => self.ranks[rank as usize].done[index as usize].end,
            Cause::Transfer(id) => self.flows.get(id).end,
        }
    }

    /// The slot of what an action needs of another stage.
    fn need(&self, action: Action) -> Option<usize> {
        let Action { stage, micro_batch, kind } = action;
        match kind {
            ActionKind::Forward => {
                Some(self.slot(stage.checked_sub(1)?, micro_batch, Pass::Forward))
            }
            ActionKind::Backward | ActionKind::InputGrad
                if stage + 1 < self.schedule.num_stages() =>
            {
                Some(self.slot(stage + 1, micro_batch, Pass::Backward))
            }
            _ => None,
        }
    }

    fn slot(&self, stage: u32, micro_batch: u32, pass: Pass) -> usize {
        let pass = stage as usize * 2 + pass as usize;
        pass * self.schedule.num_micro_batches() as usize + micro_batch as usize
    }

    fn finish(self) -> Result<Record, SimulationError> {
        if let Some((rank, state)) =
            self.ranks.iter().enumerate().find(|(_, state)| !state.is_finished())
        {
            let step = state.steps.get(state.next).or(state.steps.last()).copied();
            return Err(SimulationError::Stuck { rank, step, time: self.now });
        }
        let waited = self.ranks.iter().map(|rank| rank.waited).collect();
        let (actions, memory) = self.ranks.into_iter().map(|rank| (rank.done, rank.memory)).unzip();
        Ok(Record { actions, flows: self.flows.into_vec(), memory, waited })
    }
}

/// The change of memory that `bytes` more or fewer are.
fn change(bytes: Bytes, sign: i128) -> i128 {
    i128::from(bytes.get()) * sign
}
